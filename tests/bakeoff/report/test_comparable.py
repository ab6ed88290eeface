"""No ratio is ever taken between rows of two codes, two library versions, two machines or two sets of ceilings."""

import json
import re
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from ceilings import CEILINGS, MIB
from comparisons import final
from few_records import stored
from pages import PAGES, tables_text
from records import GPU_HOST, HOST, record

from bakeoff.machine.floors import Ceiling
from bakeoff.machine.identity import Machine, machine_class
from bakeoff.record.policy import Policy
from bakeoff.record.schema import SCHEMA, BackendSource, CeilingsRecord, Record, Source
from bakeoff.record.store import Records, StoredComparison, load_all, save
from bakeoff.report.columns import COLUMNS, table_rows
from bakeoff.report.groups import baselines, current, newest, stale_reasons, tables
from bakeoff.report.notes import spread_lines
from bakeoff.report.recommendation import DRIFT, decision

HERE, THERE = Machine("here00000000", "", "Test CPU, 4 cores"), Machine("there0000000", "", "Test CPU, 4 cores")
TORCH = {"bakeoff": "0.1.0", "torch": "2.13.0"}


def made(
    backend: str,
    median_ms: float,
    minute: int,
    *,
    component: str = "c1",
    instrument: str = "i1",
    backend_hash: str = "b1",
    **changes: Any,
) -> Record:
    """A record of schema 2 with one sample, which is its median."""
    name = backend.partition("[")[0]
    source = Source(component, (BackendSource(name, name, f"{name}.py", backend_hash),), instrument)
    facts = {"source": source, "machine": HERE, "versions": TORCH, "sweep": f"sweep-{minute}", **changes}
    return record(backend, [median_ms] * 12, created=f"2026-01-02T03:{minute:02}:00.000000Z", **facts)


OTHERS: dict[str, dict[str, Any]] = {
    "component": {"component": "c0"},
    "instrument": {"instrument": "i0"},
    "backend": {"backend_hash": "b0"},
    "version": {"versions": {**TORCH, "torch": "2.12.0"}},
    "missing library": {"versions": {"bakeoff": "0.1.0"}},
}


class TestStale:
    @pytest.mark.parametrize("name", OTHERS)
    def test_a_row_of_another_code_is_stale(self, name: str) -> None:
        """The newer eager decides; where the backend differs it must be eager's own source."""
        old = made("eager", 7.0, 1, **OTHERS[name])
        rows = stored(old, made("eager", 5.0, 3, dtype="bf16"), made("inductor", 3.0, 2))
        reasons = stale_reasons(rows)
        assert [reason is not None for reason in reasons] == [True, False, False]
        assert baselines(rows).keys() == {"bf16"}
        assert [entry.id for entry in current(rows)] == ["id-1", "id-2"]

    def test_the_reason_names_what_differs(self) -> None:
        rows = stored(
            *(made("eager", 7.0, 1, **changes) for changes in OTHERS.values()),
            made("eager", 7.0, 1, policy=Policy(min_s=5.0)),
            made("eager", 5.0, 9, dtype="bf16"),
        )
        component, instrument, backend, version, missing, times, newest_row = stale_reasons(rows)
        assert times == "measured for other times"
        assert newest_row is None
        assert "component" in (component or "")
        assert "measuring code" in (instrument or "")
        assert "eager" in (backend or "")
        assert "torch (2.12.0, not 2.13.0)" in (version or "")
        assert "torch (none, not 2.13.0)" in (missing or "")

    def test_another_backends_source_does_not_matter(self) -> None:
        rows = stored(made("eager", 7.0, 1, backend_hash="b0"), made("inductor", 3.0, 2))
        assert stale_reasons(rows) == [None, None]

    def test_a_row_without_figures_does_not_make_the_measured_ones_stale(self) -> None:
        failed = made("aoti", 1.0, 9, component="c2")
        failed = replace(failed, measurement=replace(failed.measurement, status="crashed", latency=None))
        rows = stored(made("eager", 7.0, 1), made("inductor", 3.0, 2), failed)
        assert [reason is not None for reason in stale_reasons(rows)] == [False, False, True]
        assert stale_reasons(stored(failed)) == [None]

    def test_runs_of_a_sweep_before_an_edit_do_not_represent_it(self) -> None:
        """Resumed after an edit: process 1 has the old code and would be the middle one."""
        tries = [
            made("inductor", 6.0, 1, component="c0", sweep="s", process=1),
            made("inductor", 5.0, 2, sweep="s", process=2),
            made("inductor", 7.0, 3, sweep="s", process=3),
        ]
        (row,) = newest(stored(*tries))
        assert row.record is tries[1]
        (line,) = spread_lines([row], stored(*tries))
        assert " in 2 processes: medians 5.000 to 7.000 ms" in line


class TestTables:
    def test_two_processors_of_one_id_are_two_machines(self) -> None:
        """As the published ones, and a third without AVX-512; two GPUs of one kind with one driver are one machine."""
        steppings = ("25 17 1", "26 2 1", "25 1 1")
        hosts = [replace(HOST, cpu_stepping=stepping, all_flags=stepping) for stepping in steppings]
        machines = [Machine("2acaf1ed04d2", machine_class(each, "cpu"), "AMD EPYC, 2 cores") for each in hosts]
        rows = stored(*(made("eager", 7.0, minute, machine=each) for minute, each in enumerate(machines)))
        found = tables(rows)
        assert [(table.machine, len(table.rows), table.stale) for table in found] == [
            (each, 1, ()) for each in reversed(machines)
        ]
        assert len({table.title for table in found}) == 3
        cards = [replace(GPU_HOST, gpus=({**GPU_HOST.gpus[0], "uuid": uuid},)) for uuid in ("one", "other")]
        gpus = [Machine(str(card.gpus[0]["uuid"]), machine_class(card, "cuda"), "Test GPU") for card in cards]
        (table,) = tables(stored(*(made("eager", 7.0, minute, machine=each) for minute, each in enumerate(gpus))))
        assert [entry.record.machine for entry, _ in table.stale] == gpus[:1]

    def test_rows_of_another_host_stand_below_with_the_ratio_to_their_own_eager(self) -> None:
        here, there = (Machine(name, "one class", "Test CPU, 4 cores") for name in ("here", "there"))
        rows = stored(
            made("eager", 6.0, 1, machine=there, sweep="s"),
            made("inductor", 3.0, 2, machine=there, sweep="s"),
            made("aoti", 1.0, 3, machine=there, sweep="without eager"),
            made("eager", 5.0, 4, machine=here, sweep="t"),
            made("inductor", 4.0, 5, machine=here, sweep="t"),
        )
        assert newest(rows) == list(rows)
        above, below = tables_text(rows).split("Stale: ")
        assert "1.25x" in above
        assert "on another host of this class" in below
        lines = {line.split()[0]: line for line in below.splitlines() if " fp32 " in line}
        assert {name: re.findall(r"[0-9.]+x|6\.0+\b", line) for name, line in lines.items()} == {
            "eager": ["6.000", "1.00x"],
            "inductor": ["2.00x"],
            "aoti": [],
        }
        told = [COLUMNS["vs_eager"].text(row) for row in table_rows(rows)]
        assert told == ["1.00x", "2.00x", "", "1.00x", "1.25x"]
        assert decision(rows, [StoredComparison("final", final(rows[1].record, rows[0].record))]).final is None

    def test_a_row_is_divided_by_eager_of_its_own_sweep_alone(self) -> None:
        """Eager of a sweep was unstable and was measured again in a later sweep, as that of `wm` once was."""
        unstable = replace(made("eager", 9.0, 1, sweep="s"), baseline=True)
        unstable = replace(unstable, measurement=replace(unstable.measurement, status="unstable"))
        fast, later = made("inductor", 3.0, 2, sweep="s"), made("eager", 12.0, 3, sweep="t")
        rows = stored(unstable, fast, later)
        page = tables_text(newest(rows))
        assert re.findall(r"[0-9.]+x", page) == ["1.00x", "1.00x"]
        assert not decision(newest(rows), []).is_far_ahead
        assert "they are of two sweeps" in " ".join(page.split())
        again = stored(unstable, fast, made("eager", 6.0, 4, sweep="s"))
        assert "2.00x" in tables_text(newest(again)), "a later row of the same sweep"
        two = stored(made("eager", 6.0, 1, sweep="s"), fast, later)
        base, row = table_rows(newest(two), every=two)
        assert COLUMNS["vs_eager"].text(row if row.record is fast else base) == "2.00x", "of its own sweep, not 4.00x"

    def test_one_set_of_ceilings_for_all_rows(self) -> None:
        low = tuple(replace(entry, best=entry.best / 2) for entry in CEILINGS)
        facts = {"flops": 1, "minimum_bytes": 600 * MIB}
        rows = stored(
            made("eager", 50.0, 1, ceilings=CEILINGS, **facts), made("inductor", 60.0, 2, ceilings=low, **facts)
        )
        found = {COLUMNS["floor"].text(row) for row in table_rows(rows)}
        assert found == {"41.9 t"}


MEDIANS = (29, 193, 257, 101, 379, 347, 139, 13, 113, 359, 263, 157, 103, 313)
"""Primes, found by a search, of which no ratio that is forbidden below equals, in two decimals, one that is allowed."""


def _sets() -> tuple[tuple[Ceiling, ...], tuple[Ceiling, ...]]:
    """At 600 MiB: 7 ms and 11 ms."""
    first, second = (600 * MIB / (ms / 1e3) for ms in (7.0, 11.0))
    return tuple(
        (Ceiling("read", "fp32", 512 * MIB, rate, rate), Ceiling("product", "fp32", 10**9, 1e15, 1e15))
        for rate in (first, second)
    )  # type: ignore[return-value]


FAST_SET, SLOW_SET = _sets()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of two codes (component, instrument, backend), two versions, two machines and two sets of ceilings.

    The old ones have option sets of their own, so that each is the newest of its variant.
    """
    runs = tmp_path_factory.mktemp("comparable") / "runs"
    medians = iter(enumerate(map(float, MEDIANS)))
    facts = {"flops": 1, "minimum_bytes": 600 * MIB}
    old: list[dict[str, Any]] = [OTHERS[name] for name in ("component", "instrument", "backend", "version")]
    for number, changes in enumerate(old):
        for backend in ("eager", "inductor"):
            minute, median_ms = next(medians)
            each = {**facts, **changes, "ceilings": SLOW_SET, "baseline": backend == "eager", "sweep": f"old-{number}"}
            save(runs, made(f"{backend}[old{number}]", median_ms, minute, **each))
    for machine in (THERE, HERE):
        for backend, ceilings in (("eager", FAST_SET), ("inductor", SLOW_SET), ("inductor[freezing]", SLOW_SET)):
            minute, median_ms = next(medians)
            each = {**facts, "machine": machine, "ceilings": ceilings, "sweep": f"new-{machine.id}"}
            save(runs, made(backend, median_ms, minute, **each))
        for hour, ceilings in enumerate((SLOW_SET, FAST_SET)):
            created = f"2026-01-02T0{hour}:00:00.000000Z"
            save(runs, CeilingsRecord(SCHEMA, created, machine, 4, ceilings, 0.0, HOST, TORCH))
    return runs


def _code(entry: Record) -> tuple[object, ...]:
    """What two of the folder's records must share to be compared."""
    assert entry.source is not None
    (backend,) = entry.source.backends
    return entry.machine, entry.source.component, entry.source.instrument, entry.versions["torch"], backend.hash


def _ratios(records: Records) -> tuple[set[float], set[float]]:
    """The speed-ups that may be shown, and those that must not, in two decimals."""
    allowed, forbidden = set(), set()
    for a, b in permutations((entry.record for entry in records.current), 2):
        assert a.latency is not None
        assert b.latency is not None
        ratio = round(b.latency.median_ms / a.latency.median_ms, 2)
        if _code(a) != _code(b):
            forbidden.add(ratio)
            continue
        if b.baseline:
            allowed.add(ratio)
        if ratio > DRIFT:  # the two best of a table, whose ratio is rounded down
            allowed.add(int(b.latency.median_ms / a.latency.median_ms * 100) / 100)
    assert not allowed & forbidden
    return allowed, forbidden


@pytest.mark.parametrize("page", PAGES)
def test_no_page_has_a_ratio_across(folder: Path, page: str) -> None:
    records = load_all(folder)
    assert (len(records.current), records.problems) == (14, ())
    text = re.sub(r"at most [0-9.]+x is left", "", PAGES[page](records).replace(f"{DRIFT}x", ""))
    found = {round(float(each), 2) for each in re.findall(r"([0-9]+\.[0-9]+)x", text)}
    found |= {round(float(each), 2) for each in re.findall(r'"vs_eager(?:_fp32)?":([0-9.]+)', text)}
    allowed, forbidden = _ratios(records)
    assert not found & forbidden
    sets_differ = round(11 / 7, 2)
    assert found <= {1.0, sets_differ, *allowed}
    assert bool(found & allowed) == (page != "recommendation")


@pytest.mark.parametrize("page", ["table", "json", "history", "results", "whole", "html"])
def test_no_table_has_floors_of_two_sets(folder: Path, page: str) -> None:
    """600 MiB take 7 ms with the best known set, and 11 ms with the other."""
    text = PAGES[page](load_all(folder))
    if page == "json":
        assert {round(row["floor"]["ms"], 6) for row in json.loads(text)} == {7.0}
        return
    assert set(re.findall(r"\b(7|11) (?:t\b|ms by traffic)", text)) == {"7"}


@pytest.mark.parametrize("page", ["table", "json", "history", "results", "whole", "html"])
def test_no_page_leaves_a_stale_row_out(folder: Path, page: str) -> None:
    text = re.sub(r"<wbr>|<script.*?</script>", "", PAGES[page](load_all(folder)), flags=re.DOTALL)
    for backend in (f"{name}[old{number}]" for number in range(4) for name in ("eager", "inductor")):
        assert backend in text


def test_a_final_between_two_codes_decides_nothing() -> None:
    first, second = made("eager", 7.0, 1), made("inductor", 3.0, 2)
    rows = stored(first, second)
    same = [StoredComparison("final", final(second, first))]
    assert decision(rows, same).winner == rows[1]
    for changes in OTHERS.values():
        other = [StoredComparison("final", final(made("inductor", 3.0, 2, **changes), first))]
        assert decision(rows, other).winner is None
        assert not any(row.winner for row in table_rows(rows, other))
