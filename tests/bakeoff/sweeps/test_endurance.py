"""tests/trials/endurance.py in short: kills, shared folders, full and broken disks, many records."""

import time
import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path

import many
import pytest
from endure import (
    THREE,
    TWO,
    Place,
    break_fsync,
    cannot_mount,
    fill_other,
    fill_records,
    kill_at_step,
    kill_until_done,
    resume_twice_at_once,
)

from bakeoff import cli
from bakeoff.record import store
from bakeoff.record.codec import Entry
from bakeoff.record.schema import NEVER_RUN
from bakeoff.record.store import load_all
from bakeoff.report.pages import files
from bakeoff.report.render.markdown import citations


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "place", TWO)


def test_kill_9_loses_no_finished_record(tmp_path: Path) -> None:
    """At shares of the length of a sweep that nobody kills, the second one in what resumes it."""
    started = time.monotonic()
    ended = Place(tmp_path / "whole", TWO).sweep()
    assert ended.code == 0, ended.err
    length_s = time.monotonic() - started
    kills = kill_until_done(Place(tmp_path / "killed", TWO), [share * length_s for share in (0.6, 0.9)])
    assert len(kills) == 2


def test_kill_9_at_a_step_between_timing_and_storing_loses_nothing(place: Place) -> None:
    """tests/trials/endurance.py does it at every fifth step."""
    assert kill_at_step(place, 90)


def test_a_sweep_resumed_twice_at_once_is_run_once(place: Place) -> None:
    resume_twice_at_once(place)


def test_a_broken_disk_costs_one_record(place: Place) -> None:
    """The fifth fsync, after those of the sweep's state and of the machine's ceilings."""
    assert break_fsync(place, 5)
    assert place.states() == [True]


class TestSmallDisks:
    @pytest.fixture(autouse=True)
    def _mountable(self, tmp_path: Path) -> None:
        reason = cannot_mount(tmp_path)
        if reason:
            pytest.skip(reason)

    def test_a_disk_that_fills_up(self, place: Place) -> None:
        assert fill_records(replace(place, arguments=THREE), 8) >= 1, "one or two of three records fit"

    def test_a_disk_for_caches_that_takes_nothing(self, place: Place) -> None:
        assert fill_other(place, place.cache, 0) == 2


class TestManyRecords:
    """Facts that do not depend on the host: bytes, calls and reads."""

    def test_memory_is_little_more_than_the_samples(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        many.fill(tmp_path, 72)
        dict(files.render(load_all(tmp_path)))  # imports what it needs, which is not of the records
        monkeypatch.setattr(store, "_READ", {})
        tracemalloc.start()
        try:
            records = load_all(tmp_path)
            pages = dict(files.render(records))
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert records.problems == ()
        assert len(records.current) == 72
        assert len(records.comparisons) == 3
        able = sum(entry.record.status not in NEVER_RUN for entry in records.current)
        assert len({name for page in pages.values() for name in citations(page)}) == able + 3
        clocks = [
            clock
            for entry in records.current
            for clock in (entry.record.measurement.latency, entry.record.measurement.throughput)
            if clock is not None
        ]
        samples_bytes = sum(8 * (len(clock.samples_ns) + len(clock.warmup_ns)) for clock in clocks)
        assert samples_bytes > 72 * 8 * many.LATENCY
        assert peak_bytes < 2 * samples_bytes

    def test_the_command_reads_every_record_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        many.fill(tmp_path / "runs", 24)
        reads: Counter[str] = Counter()
        decode = store.decode

        def counting(data: bytes, name: str) -> Entry:
            reads[name] += 1
            return decode(data, name)

        monkeypatch.setattr(store, "decode", counting)
        monkeypatch.setattr(store, "_READ", {})
        cli.app(["--runs", str(tmp_path / "runs"), "history"], standalone_mode=False)
        assert set(reads.values()) == {1}
        assert len(reads) == 25
        assert "eager fp32" in (tmp_path / "runs" / "OPTIMIZATION_HISTORY.md").read_text()
