"""`bakeoff explain`: of two records, and what it refuses."""

from dataclasses import replace
from pathlib import Path

import pytest
from records import bakeoff, measurement, record

from bakeoff.record.finding import Finding
from bakeoff.record.schema import KernelTime, ProofRecord, Record, TraceRecord
from bakeoff.record.store import save

SWEEPS = ("20260102T030400-aaaaaa", "20260103T030400-bbbbbb")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two sweeps of two variants: with 4 and with 1 thread."""
    for sweep, threads in zip(SWEEPS, (4, 1), strict=True):
        for place, backend in enumerate(["eager", "inductor"]):
            made = record(backend, [3.0 + place + (4 - threads) / 4] * 20, sweep=sweep, threads=threads)
            save(tmp_path / "runs", replace(made, created=f"2026-01-0{5 - threads}T00:00:0{place}.000000Z"))
    return tmp_path / "runs"


def explained(tmp_path: Path, *records: Record) -> str:
    """The page at 80 columns, which no line is wider than."""
    ids = [save(tmp_path / "runs", made) for made in records]
    ran = bakeoff("--runs", str(tmp_path / "runs"), "explain", *ids, cwd=tmp_path, COLUMNS="80")
    assert ran.code == 0, ran.err
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "…" not in ran.out
    return ran.out


LONG = "graph_0_cpp_fused__to_copy_add_cat_clamp_div_maximum_mean_minimum_mul_neg_permute_rsqrt_slice_split_stack_view"


def test_names_are_whole_and_kernels_that_one_record_lacks_count_as_zero(tmp_path: Path) -> None:
    def of(backend: str, ms: float, *kernels: str) -> Record:
        stated = tuple(KernelTime(name, 1, 900_000, own=False) for name in (*kernels, "mm"))
        proof = ProofRecord(trace=TraceRecord(stated, 2, 4_000_000, 4_000_000, 0))
        made = measurement([ms] * 20, proof=proof, settings={"inductor.coordinate_descent_tuning": backend})
        return record(backend, made=made)

    out = explained(tmp_path, of("int8+inductor", 4.0, LONG), of("inductor[freezing=true]", 3.0, "linear_pointwise"))
    assert "A: int8+inductor fp32" in out
    assert "B: inductor[freezing=true] fp32" in out
    assert "The records do not tell how 2 of these share -1 ms." in out
    assert "inductor.coordinate_descent_tuning" in out
    table = out.partition("Where the traced")[2].partition("Columns")[0]
    assert LONG in "".join(line.split()[0] for line in table.splitlines()[3:] if line.strip())
    assert [line.split()[1:] for line in table.splitlines() if line.startswith("linear_")] == [
        ["0.0000", "0.9000", "+0.9000"]
    ]


def test_several_causes_share_one_size_and_none_has_one_where_both_were_disturbed(tmp_path: Path) -> None:
    a = record("eager", [3.0] * 20, threads=4, versions={"torch": "2.12"})
    b = record("eager", [4.0] * 20, threads=1, versions={"torch": "2.13"})
    out = explained(tmp_path, a, b)
    assert "The records do not tell how 2 of these share +1 ms." in out
    assert "explains" not in out
    drift = Finding("drift", "told")
    a, b = (replace(made, measurement=replace(made.measurement, findings=(drift,))) for made in (a, b))
    out = explained(tmp_path, a, replace(b, versions=a.versions, created="2026-01-09T00:00:00.000000Z"))
    assert "No cause has a size: both were disturbed" in out
    assert out.count("+1 ms") == 1


@pytest.mark.parametrize("asked", ["nothing-of-this-name", "", "20260"])
def test_a_name_of_nothing_is_one_sentence(asked: str, runs: Path, tmp_path: Path) -> None:
    ran = bakeoff("--runs", str(runs), "explain", asked, SWEEPS[0], cwd=tmp_path)
    assert ran.code == 2
    assert len(ran.said) == 1
