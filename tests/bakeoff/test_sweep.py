"""What a sweep does before, beside and without its workers; test_deaths.py and test_lies.py have the workers."""

import os
import re
from pathlib import Path

import pytest
from lab import FAST, Recorder, sweep

from bakeoff import host
from bakeoff.models.errors import BakeoffError
from bakeoff.plan import Request, make_plan
from bakeoff.store import load_all
from bakeoff.sweep import run_sweep

EAGER = "eager"


def test_a_component_that_raises_leaves_a_record_for_every_variant(tmp_path: Path) -> None:
    swept = sweep(Request("broken:RAISES", backends=(EAGER, "canaries:NAN"), dtypes=("fp32",), device="cpu"), tmp_path)
    for record in swept.records().values():
        assert record.status == "crashed"
        assert record.measurement.reason.startswith("no reference to compare with: the judge's worker: exit code 1")
        assert record.measurement.reason.endswith("in phase judge: RuntimeError: this component never worked")
    assert len(swept.done.stored) == 2


def test_a_judge_without_memory_is_oom(tmp_path: Path) -> None:
    swept = sweep(Request("broken:GREEDY", backends=(EAGER,), dtypes=("fp32",), device="cpu"), tmp_path)
    (record,) = swept.records().values()
    assert record.status == "oom"
    assert "the judge's worker" in record.measurement.reason
    assert "can't allocate memory" in record.measurement.reason


def test_a_component_that_contradicts_its_spec_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BakeoffError, match=r"toy.world gives shapes \[\(1, 16, 31\)\], its spec states"):
        sweep(Request("broken:MISSHAPEN", backends=(EAGER,), dtypes=("fp32",), device="cpu"), tmp_path)
    assert list((tmp_path / "runs" / "records").iterdir()) == []


def test_rows_after_an_edit_of_the_component_have_a_judge_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "edited.py").write_text(
        "from dataclasses import replace\n"
        "from bakeoff.models.toy.spec import SPEC\n"
        "SPEC = replace(SPEC, network='edited_network')\n"
    )
    network = folder / "edited_network.py"
    network.write_text("from bakeoff.models.toy.network import build\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)

    class Editing(Recorder):
        def finish(self, status: str, text: str) -> None:
            super().finish(status, text)
            network.write_text(network.read_text() + "# another line\n")

    progress = Editing()
    backends = ("canaries:UNAVAILABLE", "canaries:BF16_ONLY", EAGER)
    plan = make_plan(Request("edited:SPEC", backends=backends, dtypes=("fp32",), device="cpu", policy=FAST))
    done = run_sweep(plan, tmp_path / "runs", "", resume=False, progress=progress)
    assert [stored.record.status for stored in done.stored] == ["unavailable", "unsupported", "ok"]
    assert progress.told.count(("event", "judge")) == 2 * 2, "a reference and a noise floor each"


def test_what_cannot_fit_is_not_started(monkeypatch: pytest.MonkeyPatch, progress: Recorder, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "available_bytes", lambda _device: 100 << 20)
    plan = make_plan(Request("toy", backends=(EAGER,), dtypes=("fp32",), device="cpu"))
    done = run_sweep(plan, tmp_path / "runs", "", resume=False, progress=progress)
    (record,) = (stored.record for stored in done.stored)
    assert record.status == "oom"
    assert re.fullmatch(r"needs an estimated 10\d\d MiB, 100 MiB are free; not started", record.measurement.reason)
    assert progress.phases(str(record.variant)) == []


def test_what_is_missing_comes_before_what_cannot_be_and_that_before_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "available_bytes", lambda _device: 0)
    backends = ("canaries:MISSING_LIBRARY", "canaries:BF16_ONLY", EAGER)
    plan = make_plan(Request("toy", backends=backends, dtypes=("fp32",), device="cpu"))
    settled = [entry.settled[0] for entry in plan.entries if entry.settled is not None]
    assert settled == ["unavailable", "unsupported", "oom"]


def test_two_backends_of_one_name_are_refused() -> None:
    with pytest.raises(BakeoffError, match="two different backends are called eager"):
        make_plan(Request("toy", backends=(EAGER, "canaries:FALSE_EAGER"), dtypes=("fp32",), device="cpu"))


def test_a_variant_asked_for_twice_is_run_once() -> None:
    plan = make_plan(Request("toy", backends=(EAGER, EAGER), dtypes=("fp32", "fp32"), device="cpu"))
    assert [str(entry.variant) for entry in plan.entries] == ["toy:tiny.world/eager/fp32@cpu"]


@pytest.mark.parametrize("backend", ["nobody", "inductor[speed=11]", "inductor[freezing=maybe]", "inductor[freezing"])
def test_a_backend_that_does_not_exist_is_refused(backend: str) -> None:
    with pytest.raises(BakeoffError, match=re.escape(backend.partition("[")[0])):
        make_plan(Request("toy", backends=(backend,), device="cpu"))


def test_records_that_cannot_be_written_are_refused_before_anything_runs(progress: Recorder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    plan = make_plan(Request("toy", backends=(EAGER,), dtypes=("fp32",), device="cpu"))
    with pytest.raises(BakeoffError, match="records cannot be written to"):
        run_sweep(plan, tmp_path / "file", "", resume=False, progress=progress)
    assert progress.told == []


@pytest.mark.timeout(900)
def test_inductor_compiles_one_graph_and_the_second_build_is_warm(tmp_path: Path) -> None:
    request = Request("toy", backends=("inductor[mode=default]",), dtypes=("fp32",), device="cpu", policy=FAST)
    first = sweep(request, tmp_path)
    (record,) = first.records().values()
    measurement = record.measurement
    assert (measurement.status, measurement.reason) == ("ok", "")
    assert str(record.variant) == "toy:tiny.world/inductor/fp32@cpu"
    assert measurement.proof is not None
    assert (measurement.proof.graphs, measurement.proof.graph_breaks, measurement.proof.recompiles) == (1, 0, ())
    assert measurement.proof.fell_back == ""
    assert int(str(measurement.proof.facts["kernels_generated"])) >= 1
    assert measurement.build is not None
    assert measurement.build.cache == "cold"
    assert measurement.build.warm_s is not None
    assert 0 < measurement.build.warm_s < measurement.build.build_s
    assert "twin" in first.progress.phases(str(record.variant))
    assert {finding.code for finding in measurement.findings} <= {"busy-host", "contention", "warm-up"}
    assert first.left_alive == ()

    second = sweep(request, tmp_path)
    (again,) = second.records().values()
    assert again.status == "ok"
    assert again.measurement.build is not None
    assert (again.measurement.build.cache, again.measurement.build.warm_s) == ("warm", None)
    assert "judge" not in second.progress.phases(str(again.variant))
    assert again.measurement.parity is not None
    assert again.measurement.weights == measurement.weights
    assert len(load_all(tmp_path / "runs").current) == 2
