"""What is published was measured in one go: one machine, one commit, and in each table one component and one set of
ceilings."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from bakeoff.models import component_names
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import MEASURED, Record
from bakeoff.record.store import Records, load_all
from bakeoff.report.pages import readme, results
from bakeoff.report.pipelines import pipeline_tables
from bakeoff.report.selection import final_of, ordered_tables, shorts

RUNS = Path(__file__).parent.parent / "runs" / "published"


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
    assert {short.table.rows[0].record.variant.component for short in found} == set(component_names()) - {"toy"}
    assert [short.table.title for short in found if final_of(short.table, published.comparisons) is None] == []


def _mixes(published: Records) -> list[PipelineRecord]:
    """All mixes that are not stale, those of rollouts and sustained runs included."""
    rows = [row.entry for table in pipeline_tables(published.pipelines) for row in table.rows]
    return [entry.record for entry in (*rows, *published.rollouts, *published.sustained)]


def _component(record: Record) -> str:
    assert record.source is not None
    return record.source.component
