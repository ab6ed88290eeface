"""Records of former sweeps, condensed to one a sweep: what is read of them is what the full ones gave."""

from dataclasses import replace
from pathlib import Path

import pytest
from comparisons import final
from few_records import at, ms
from pipeline_records import run_of_two

from bakeoff.models.errors import BakeoffError
from bakeoff.record.frames import before_after, figures
from bakeoff.record.schema import OutputParity, Parity, Record
from bakeoff.record.store import condense, find, load_all, merge, save, supersede
from bakeoff.record.verdict import decide
from bakeoff.report.columns import worst_error
from bakeoff.report.pages import files, history

TWO_SPEEDS = [10.0 + 0.01 * place for place in range(30)] + [20.0 + 0.01 * place for place in range(30)]


def _row(second: int, backend: str, samples: list[float], **changes: object) -> Record:
    made = at(second, backend, samples, sweep="former", **changes)
    outputs = tuple(OutputParity(name, error, 1.0, True) for name, error in (("a", 0.25), ("b", 0.5), ("c", 0.125)))
    return replace(made, measurement=replace(made.measurement, parity=Parity("id", "fp64", 2, outputs)))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A sweep with its final, a run of two mixes, a newer sweep, and a race that belongs to no sweep."""
    rows = [
        _row(1, "eager", ms(10.0)),
        _row(2, "inductor", TWO_SPEEDS),
        at(3, "aoti", status="crashed", sweep="former"),
    ]
    race = final(*rows[:2], sweep="former")
    entries = [*rows, race, *run_of_two(), at(9, "eager", ms(9.0), sweep="newest"), replace(race, sweep="")]
    for entry in entries:
        save(tmp_path, entry)
    return tmp_path


def _stems(runs: Path) -> set[str]:
    return {path.stem for path in runs.glob("*/records/*.json")}


def _kept(runs: Path) -> set[str]:
    return {entry.id for entry in load_all(runs).current if entry.record.sweep == "newest"}


def test_a_sweep_and_a_run_become_a_file_each_and_all_else_stays(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in runs.glob("*/records/*.json")}
    condense(runs, _kept(runs))
    after = {path.name: path.read_bytes() for path in runs.glob("*/records/*.json")}
    made = {name for name in after if "_summary_" in name}
    assert (len(made), len(after)) == (2, 4)
    assert {name: after[name] for name in after.keys() - made} == {name: before[name] for name in after.keys() - made}
    assert max(len(after[name]) for name in made) < sum(map(len, before.values())) / 3
    monkeypatch.setattr("bakeoff.record.codec._packed", lambda summary: replace(summary, created="later"))
    condense(runs, _kept(runs))
    assert {path.name: path.read_bytes() for path in runs.glob("*/records/*.json")} == after, "records do not change"


def test_what_is_read_is_what_the_full_records_gave(runs: Path) -> None:
    before = load_all(runs)
    condense(runs, _kept(runs))
    after = load_all(runs)
    assert after.problems == ()
    assert [entry.id for entry in after.current] == [entry.id for entry in before.current]
    for old, new in zip(before.current, after.current, strict=True):
        assert (new.record.latency, new.record.throughput) == (old.record.latency, old.record.throughput)
        assert (new.record.status, new.record.peak_bytes) == (old.record.status, old.record.peak_bytes)
        assert worst_error(new.record) == worst_error(old.record)
        for name in ("commit", "versions", "source", "host", "machine", "policy", "variant", "created"):
            assert getattr(new.record, name) == getattr(old.record, name)
        clocks = old.record.measurement.latency, new.record.measurement.latency
        assert all(clock is None for clock in clocks) or clocks[0].modes == clocks[1].modes
    assert (
        after.current[0].record.measurement.latency.samples_ns
        == before.current[0].record.measurement.latency.samples_ns[:0]
    )
    assert worst_error(after.current[0].record) == 0.5
    assert after.current[1].record.measurement.latency.modes is not None
    assert [decide(entry.record) for entry in after.comparisons] == [
        decide(entry.record) for entry in before.comparisons
    ]
    for old, new in zip(before.pipelines, after.pipelines, strict=True):
        assert figures(new.record) == figures(old.record)
        assert new.record.sources == old.record.sources
    assert before_after(*(entry.record for entry in after.pipelines)) == before_after(
        *(entry.record for entry in before.pipelines)
    )


def test_the_history_says_the_same_and_leads_to_the_summary(runs: Path) -> None:
    def pages() -> tuple[list[str], str]:
        files.update(runs)
        found = [path.read_text(encoding="utf-8") for path in sorted(runs.glob(f"*/{history.NAME}"))]
        parts = [text.partition("\n[") for text in found]
        return [text for text, _, _ in parts], "".join(addresses for _, _, addresses in parts)

    before, _ = pages()
    condense(runs, _kept(runs))
    after, addresses = pages()
    assert after == before
    assert len(after) == 2
    assert addresses.count("_summary_") > 3
    assert files.check(runs) == []


def test_a_full_record_counts_and_a_condensed_one_is_found_by_its_hash(runs: Path) -> None:
    full = next(entry for entry in load_all(runs).current if entry.record.variant.backend == "inductor")
    condense(runs, _kept(runs))
    found = find(runs, full.id.rpartition("_")[2])
    assert (found.id, found.record.latency) == (full.id, full.record.latency)
    assert save(runs, full.record) == full.id
    (entry,) = (entry for entry in load_all(runs).current if entry.id == full.id)
    assert entry.record == full.record
    assert entry.summary == ""
    condense(runs, _kept(runs))
    assert full.id not in _stems(runs)
    assert find(runs, full.id).record.latency == full.record.latency


def test_a_summary_is_no_record(runs: Path) -> None:
    condense(runs, _kept(runs))
    for name in (name for name in _stems(runs) if "_summary_" in name):
        with pytest.raises(BakeoffError, match=f"{name} has .* give one: ") as error:
            find(runs, name)
        assert error.value.code == "no-record"


def test_a_condensed_record_can_be_superseded_and_merged(runs: Path, tmp_path: Path) -> None:
    condense(runs, _kept(runs))
    bad = load_all(runs).current[0].id
    supersede(runs, bad, "busy")
    other = tmp_path / "other"
    merge(other, runs)
    for folder in (runs, other):
        records = load_all(folder)
        assert [(entry.id, reason) for entry, reason in records.superseded] == [(bad, "busy")]
        assert bad not in {entry.id for entry in records.current}


@pytest.mark.parametrize("lost", ['"kind":"record",', '"common":', '"status":"crashed",'])
def test_a_summary_that_lacks_a_field_is_a_problem_and_hides_nothing_else(runs: Path, lost: str) -> None:
    import hashlib

    condense(runs, _kept(runs))
    (path,) = (path for path in runs.glob("*/records/*_summary_*") if b"crashed" in path.read_bytes())
    data = path.read_bytes().replace(lost.encode(), b'"other":' if lost.endswith(":") else b"")
    path.unlink()
    name = f"{path.stem.rpartition('_')[0]}_{hashlib.sha256(data).hexdigest()[:12]}.json"
    (path.parent / name).write_bytes(data)
    records = load_all(runs)
    (problem,) = records.problems
    assert name in problem
    assert {entry.record.sweep for entry in records.current} == {"newest"}
    assert find(runs, records.current[0].id).record == records.current[0].record
