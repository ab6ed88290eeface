"""What is published was measured in one go: one machine, one commit, and in each table one component and one set of
ceilings."""

import re
from collections.abc import Iterable
from itertools import permutations
from pathlib import Path

import pytest
from figures import markdown_rows

from bakeoff.models import component_names
from bakeoff.record.frames import before_after
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import MEASURED, Record
from bakeoff.record.store import Records, load_all
from bakeoff.record.verdict import decide
from bakeoff.report.pages import readme, results
from bakeoff.report.pipelines import pipeline_tables
from bakeoff.report.recommendation import DRIFT
from bakeoff.report.selection import final_of, ordered_tables, shorts

ROOT = Path(__file__).parent.parent
RUNS = ROOT / "runs" / "published"


@pytest.fixture(scope="module")
def published() -> Records:
    """What README and the page of the whole tables are made of."""
    return readme.shown(load_all(RUNS), (RUNS / results.NAME).read_text(encoding="utf-8"))


def _one(values: Iterable[object]) -> bool:
    return len(set(values)) == 1


def test_every_record_is_of_one_machine_and_of_one_commit_without_changes(published: Records) -> None:
    rows = [entry.record for entry in published.current]
    rows += [side for entry in published.comparisons for side in entry.record.sides]
    mixes = _mixes(published)
    assert len(published.machines()) == 1
    assert _one([*(row.commit for row in rows), *(mix.commit for mix in mixes)])
    assert [row.config_id for row in rows if row.dirty] == []
    assert [str(mix.mix) for mix in mixes if mix.dirty] == []


def test_rows_of_a_table_ran_one_component_under_one_set_of_ceilings(published: Records) -> None:
    for table in ordered_tables(published):
        measured = [entry.record for entry in table.rows if entry.record.status in MEASURED]
        assert table.stale == (), table.title
        assert _one(_component(record) for record in measured), table.title
        compiled = [record for record in measured if not record.baseline]  # a machine's first baselines precede any set
        assert len({record.ceilings for record in compiled}) <= 1, table.title


def test_every_component_has_one_source_in_all_tables_and_mixes(published: Records) -> None:
    sources: dict[str, set[str]] = {}
    for record in (entry.record for entry in published.current if entry.record.status in MEASURED):
        sources.setdefault(record.variant.component, set()).add(_component(record))
    for program in (program for mix in _mixes(published) for program in mix.measurement.programs):
        if program.source is not None:
            sources.setdefault(program.variant.component, set()).add(program.source.component)
    assert {name: len(found) for name, found in sources.items()} == dict.fromkeys(sources, 1)


def test_a_selftest_of_the_same_code_passed_before_every_row(published: Records) -> None:
    for entry in published.current:
        stamp = entry.record.selftest
        assert stamp is not None, entry.id
        assert (stamp.passed, stamp.quick) == (True, False), entry.id
        assert stamp.code == entry.record.code, entry.id
        assert stamp.created < entry.record.created, entry.id


def test_every_component_has_a_table_and_a_final(published: Records) -> None:
    found = shorts(published)
    assert {table.rows[0].record.variant.component for table, _ in found} == set(component_names()) - {"toy"}
    assert [table.title for table, _ in found if final_of(table, published.comparisons) is None] == []


def _mixes(published: Records) -> list[PipelineRecord]:
    """All mixes that are not stale, those of rollouts and sustained runs included."""
    rows = [row.entry for table in pipeline_tables(published.pipelines) for row in table.rows]
    return [entry.record for entry in (*rows, *published.rollouts, *published.sustained)]


def _component(record: Record) -> str:
    assert record.source is not None
    return record.source.component


OF_ROWS = {"vs eager": False, "vs eager fp32": True}
"""Columns of ratios of rows, and whether these are to eager fp32 or to eager of the row's own dtype; README's one
column is to eager fp32."""
PAGES = (ROOT / "README.md", *sorted(RUNS.rglob("*.md")))


def _of_sweeps(records: Records) -> dict[tuple[str, bool], set[float]]:
    """By record, or the summary that has it, and kind of eager: its ratios to each eager row of its own sweep, as pages
    round them."""
    made: dict[tuple[str, bool], set[float]] = {}
    for entry in records.current:
        row = entry.record
        for base in (other.record for other in records.current if other.record.sweep == row.sweep):
            alike = base.batch == row.batch and base.variant.subject == row.variant.subject and base.status == "ok"
            if alike and base.baseline and base.machine == row.machine and base.latency and row.latency:
                ratio = round(base.latency.median_ms / row.latency.median_ms, 2)
                for fp32 in {base.variant.dtype == "fp32", base.variant.dtype != row.variant.dtype}:
                    made.setdefault((entry.summary or entry.id, fp32), set()).add(ratio)
    return made


def _far_ahead(records: Records) -> set[float]:
    """Ratios of each two rows of one sweep, rounded down as texts that a row is far ahead state them."""
    sweeps: dict[str, list[float]] = {}
    for record in (entry.record for entry in records.current):
        if record.status == "ok" and record.latency is not None:
            sweeps.setdefault(f"{record.sweep} {record.variant.subject}", []).append(record.latency.median_ms)
    return {int(slow / fast * 100) / 100 for own in sweeps.values() for slow, fast in permutations(own, 2)}


def _of_races(records: Records) -> set[float]:
    """Ratios, with their intervals, of each two sides of a comparison, and of each two mixes of one run."""
    made = set[float]()
    for found in (entry.record for entry in records.comparisons if entry.record.rounds):
        for first, second in permutations(range(len(found.sides)), 2):
            verdict = decide(found, first, second)
            made |= {round(verdict.ratio, digits) for digits in (2, 3)}
    for a, b in permutations((entry.record for entry in records.pipelines), 2):
        if a.run == b.run and a.status == b.status == "ok" and (gain := before_after(a, b)) is not None:
            made |= {round(gain.ratio, 2)}
    return made | {round(1 / ratio, 2) for ratio in made if ratio}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: "-".join(page.relative_to(ROOT).parts))
def test_each_printed_ratio_is_of_two_rows_of_one_sweep_or_of_a_race(page: Path) -> None:
    records, text = load_all(RUNS), page.read_text(encoding="utf-8")
    if page.name == "README.md":
        whole = (RUNS / results.NAME).read_text(encoding="utf-8")
        addresses = dict(re.findall(r"^\[(\w+)\]: (\S+)$", whole, re.MULTILINE))
        text = text.partition(readme.BEGIN)[2].partition(readme.END)[0]
        for anchor, label in re.findall(r'<a id="(\w+)"></a>\[(\w+)\]', whole):
            text = text.replace(f"(runs/published/RESULTS.md#{anchor})", f"({addresses[label]})")
    of_sweeps, of_races = _of_sweeps(records), _of_races(records)
    of_a_sweep = set[float]().union(*of_sweeps.values(), _far_ahead(records))
    checked = 0
    for row in markdown_rows(text):
        for column, cell in row.cells.items() if row.cells else [("", row.text)]:
            if column == "of real time" or "droop" in row.cells.values():  # of one run, and of two parts of one
                continue
            if "Its floor, " in cell or "[clocks-disagree]" in cell:  # of a row and its own floor, of its two clocks
                continue
            for number, end in re.findall(r"(\d+\.\d+)x(.{0,13})", cell):
                ratio, checked = float(number), checked + 1
                if column in OF_ROWS and not end.startswith(" (final)") and "_pipeline_" not in row.cited[0]:
                    to_fp32 = OF_ROWS[column] or page.name == "README.md"
                    assert ratio in of_sweeps[row.cited[0], to_fp32], (row.cited, column, cell)
                elif column == "faster":
                    own = (of_sweeps.get((row.cited[-1], to_fp32), set()) for to_fp32 in (False, True))
                    assert ratio in of_races.union(*own), (row.cited, column, cell)
                elif column or "in the final" in end:
                    assert ratio in of_races, (column, cell)
                else:
                    assert ratio in of_races | of_a_sweep | {DRIFT} or "differ" in cell, cell
    assert checked or "h200" in str(page)


def test_the_first_results_of_readme_are_those_of_its_final_and_of_no_other_sweep() -> None:
    """Eager of `wm` was unstable in its sweep and was measured again alone, later and slower: 4.86x were printed."""
    block = (ROOT / "README.md").read_text(encoding="utf-8").partition(readme.BEGIN)[2].partition(readme.END)[0]
    assert "4.28x (final)" in block
    assert not {"4.86x", "1.94x"} & {*re.findall(r"\d+\.\d+x", block)}


def test_the_published_processors_are_apart() -> None:
    records = load_all(RUNS)
    classes = {entry.machine.key: entry.record.host.cpu_stepping for entry in records.current}
    assert sorted(classes.values()) == ["25 17 1", "26 2 1", "6 167 1", "6 207 2"]
    assert all(entry.folder == f"{entry.machine.folder}/records" for entry in records.current)
    assert {entry.machine.id for entry in records.current if "EPYC" in entry.machine.name} == {"2acaf1ed04d2"}
