"""Sweeps with sizes: each fault of an engine for a range of sizes is named by its word, and honest ones are ok."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from lab import FAST, Recorder, Swept, marked_folder, outcome, sweep

from bakeoff.artifact.export import plan_export
from bakeoff.bring.bring import bring
from bakeoff.models.errors import BakeoffError
from bakeoff.models.sizes import parse_sizes
from bakeoff.plan.request import Request
from bakeoff.record.schema import Record, SizeResult

SOURCE = """
import time
import torch

class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x, scale):
        return self.layer(x).relu() * scale.unsqueeze(-1)

class Slow(Scaled):
    def forward(self, x, scale):
        time.sleep(0.0015 * x.shape[0])
        return super().forward(x, scale)

class Picky(Scaled):
    def forward(self, x, scale):
        if x.shape[0] % 4:
            raise ValueError(f"{x.shape[0]} rows are no multiple of 4")
        return super().forward(x, scale)

def _made(kind):
    torch.manual_seed(0)
    return kind().eval(), {"x": torch.randn(4, 8), "scale": torch.rand(4)}

def model(): return _made(Scaled)
def slow(): return _made(Slow)
def picky(): return _made(Picky)
"""
POLICY = replace(FAST, build_deadline_s=400.0)  # compiling C++ beside other tests
SIZES = "x.0,scale.0=2,4,8"
BACKENDS = (
    "eager",
    "inductor[]",
    "cudagraph",
    "sized_backends:COMPILES",
    "sized_backends:REFUSES",
    "sized_backends:GOES_WRONG",
    "sized_backends:STATIC",
)


def sweep_sizes(function: str, folder: Path, backends: tuple[str, ...], sizes: str = SIZES) -> Swept:
    (folder / "mine.py").write_text(SOURCE)
    with marked_folder(folder):
        component = bring(f"{folder}/mine.py:{function}", 0, 1, Recorder(), parse_sizes([sizes]))
    request = Request(component, backends=backends, dtypes=("fp32",), device="cpu", threads=1, policy=POLICY)
    return sweep(request, folder)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    return sweep_sizes("model", tmp_path_factory.mktemp("sizes"), BACKENDS)


@pytest.fixture(scope="module")
def records(swept: Swept) -> dict[str, Record]:
    return {stored.record.variant.backend: stored.record for stored in swept.done.stored}


def by_name(record: Record) -> Mapping[str, SizeResult]:
    return {one.name: one for one in record.measurement.sizes}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_an_honest_engine_is_ok_at_every_size(backend: str, records: dict[str, Record]) -> None:
    record = records[backend]
    assert outcome(record) == "ok", record.measurement.reason
    found = by_name(record)
    assert {name: (one.which, one.status, one.compilations) for name, one in found.items()} == {
        "x.0=2": ("seen", "ok", 0),
        "x.0=4": ("usual", "ok", 0),
        "x.0=6": ("unseen", "ok", 0),
        "x.0=8": ("seen", "ok", 0),
    }
    for name, one in found.items():
        rows = int(name[-1])
        assert one.inputs == {"x": (rows, 8), "scale": (rows,)}
        assert one.eager_ns > 0
        if one.which != "usual":
            assert len(one.samples_ns) >= 5
            assert one.rel_l2 is not None
            assert one.limit is not None
            assert one.rel_l2 <= one.limit
    assert record.variant.workload == "call-x0_2_4_8"
    proof = record.measurement.proof
    assert proof is not None
    assert proof.graphs in (None, 1)


def test_compilations_for_sizes_leave_the_row_ok_and_are_said(records: dict[str, Record]) -> None:
    record = records["compiles"]
    assert outcome(record) == "ok", record.measurement.reason
    found = by_name(record)
    assert {one.status for one in found.values() if one.which != "usual"} == {"recompiled"}
    assert {one.compilations for one in found.values() if one.which != "usual"} == {1}
    (finding,) = [one for one in record.measurement.findings if one.code == "sizes"]
    assert finding.text == "compiled again for x.0=2, x.0=6 (not listed), x.0=8"


def test_a_refusal_within_the_range_is_no_ok_row(records: dict[str, Record]) -> None:
    record = records["refuses"]
    assert record.status == "call_failed"
    assert record.measurement.reason == ("no call succeeds at x.0=6 (not listed): ValueError: no kernel for 6 rows")
    assert by_name(record)["x.0=6"].status == "refused"
    assert by_name(record)["x.0=8"].status == "ok"


def test_wrong_outputs_at_one_size_fail_parity(records: dict[str, Record]) -> None:
    record = records["goes-wrong"]
    assert record.status == "parity_failed"
    assert record.measurement.reason.startswith("wrong outputs at x.0=8: output: relative L2 error 5.00e-01 exceeds")
    assert by_name(record)["x.0=8"].status == "parity_failed"
    assert by_name(record)["x.0=6"].status == "ok"


def test_a_backend_that_says_nothing_of_sizes_is_not_built(records: dict[str, Record]) -> None:
    for name, reason in (
        ("static", "static: it builds engines for one size of each input; leave out --sizes"),
        ("cudagraph", "cudagraph runs on cuda, not on cpu"),
    ):
        assert (records[name].status, records[name].measurement.reason) == ("unsupported", reason)


def test_an_engine_that_pads_is_found_by_its_times(tmp_path: Path) -> None:
    swept = sweep_sizes("slow", tmp_path, ("eager", "sized_backends:PADS"), "x.0,scale.0=2,8")
    records = {stored.record.variant.backend: stored.record for stored in swept.done.stored}
    assert {one.status for one in records["eager"].measurement.sizes} == {"ok"}
    found = by_name(records["pads"])
    assert (found["x.0=2"].status, found["x.0=8"].status) == ("padded", "ok")
    (finding,) = [one for one in records["pads"].measurement.findings if one.code == "sizes"]
    assert finding.text.startswith("seems to compute the largest size at x.0=2")
    assert " times in eager" in finding.text


def test_a_size_that_the_model_refuses_is_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SOURCE)
    with marked_folder(tmp_path), pytest.raises(BakeoffError) as refused:
        bring(f"{tmp_path}/mine.py:picky", 0, 1, Recorder(), parse_sizes(["x.0,scale.0=2,4"]))
    assert str(refused.value) == (
        "call: the model itself fails at x.0=2: ValueError: 2 rows are no multiple of 4; give sizes that it takes"
    )


def test_an_artifact_has_one_size(swept: Swept) -> None:
    with marked_folder(swept.cache.parent), pytest.raises(BakeoffError, match="an artifact has one size of each input"):
        plan_export(replace(swept.plan.request, backends=("torch.export[]",)))
