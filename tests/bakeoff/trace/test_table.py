"""The table of a profile: spans of timed units, busy time of traced ones."""

from dataclasses import replace

import pytest
from pipeline_records import TIMES_MS, measured, pipeline_record
from profile_records import UNITS, line, named, on_cpu, on_gpu, profiled

from bakeoff.record.account import account_lines
from bakeoff.record.pipeline import Profile, Ranking
from bakeoff.trace.table import ProfileRow, ProfileTable, operators_scale, own_kernels, profile_table, ranked


def table(profile: Profile) -> ProfileTable:
    found = profile_table(profiled(profile))
    assert found is not None
    return found


def rows(profile: Profile) -> dict[str, ProfileRow]:
    return {row.phase.name: row for row in table(profile).rows}


def test_lines_are_those_of_the_timed_units_and_add_up_to_all() -> None:
    record = profiled(on_gpu())
    found = profile_table(record)
    assert found is not None
    assert [row.phase for row in found.rows] == list(account_lines(record))
    assert sum(row.phase.thousandths for row in found.rows) == 1000
    assert found.busy_ms + found.idle_ms == pytest.approx(found.unit_ms)


def test_idle_time_is_the_span_less_the_busy_time_in_the_proportions_of_the_trace() -> None:
    row = rows(on_gpu())["denoise"]
    assert row.busy_ms == pytest.approx(20.0)
    assert row.idle_ms == pytest.approx(row.phase.ms - 20.0)
    assert row.host_wait_ms == pytest.approx(row.idle_ms * 70 / 80)
    assert row.gap_ms == pytest.approx(row.idle_ms * 5 / 80)
    assert row.told_by == "torch.profiler"


def test_a_trace_that_is_busier_than_the_span_contradicts_it_and_is_not_clipped() -> None:
    profile = on_gpu()
    lines = tuple(line("decode", 40.0) if one.name == "decode" else one for one in profile.lines)
    found = table(replace(profile, lines=lines))
    row = next(row for row in found.rows if row.phase.name == "decode")
    assert (row.inconsistent, row.idle_ms) == (True, None)
    assert row.busy_ms == pytest.approx(40.0)
    assert found.hidden_ms == pytest.approx(row.phase.ms)


def test_an_opaque_program_is_told_by_its_own_traced_build() -> None:
    row = rows(on_cpu())["decode"]
    assert row.told_by == "OpenVINO"
    assert row.busy_ms is not None
    assert row.busy_ms / row.phase.ms == pytest.approx(15 / 20)


def test_overlap_is_what_synchronising_at_each_border_adds() -> None:
    found = table(on_gpu())
    assert found.overlap_ms == pytest.approx(105.0 - found.unit_ms)
    assert table(on_cpu()).overlap_ms is None
    assert found.cores == pytest.approx(0.5)


def test_shares_of_kernels_add_up_with_those_that_are_not_listed() -> None:
    profile = on_gpu()
    assert profile.kernels is not None
    found = ranked(profile.kernels, UNITS, {})
    assert sum(row.thousandths for row in found) == 1000
    assert found[-1].name == "6 others"
    assert sum(row.ms for row in found) == pytest.approx(51.0)
    whole = ranked(Ranking((named("a", "denoise", 3.0), named("b", "decode", 1.0)), 4_000_000 * UNITS, 2), UNITS, {})
    assert [(row.name, row.calls, row.thousandths) for row in whole] == [("a", 4, 750), ("b", 4, 250)]


def test_no_operator_of_a_cpu_takes_longer_than_the_phase_that_it_is_in() -> None:
    """A traced `denoise` of the record takes twice as long as a timed one."""
    profile = on_cpu(operators=Ranking((named("aten::mm", "denoise", 100.0),), 104_000_000 * UNITS, 2))
    assert profile.operators is not None
    record = profiled(profile)
    found = ranked(profile.operators, UNITS, operators_scale(profile, account_lines(record)))
    (phase,) = [row for row in account_lines(record) if row.name == "denoise"]
    assert [row.ms for row in found] == [
        pytest.approx(100.0 * phase.ms / (2 * TIMES_MS["denoise"])),
        pytest.approx(4.0 * sum(row.ms for row in account_lines(record)) / (2 * sum(TIMES_MS.values()))),
    ]
    assert found[0].ms < phase.ms < 100.0
    assert operators_scale(on_gpu(), account_lines(record)) == {}


def test_kernels_of_traced_builds_count_by_the_calls_of_a_unit() -> None:
    found = own_kernels(on_cpu().programs, {"wm.step": 4, "image.decode": 2})
    assert [(row.name, row.ms) for row in found] == [("conv_1", 18.0), ("resize", 6.0), ("others", 6.0)]
    assert sum(row.thousandths for row in found) == 1000


def test_records_without_a_profile_or_steady_units_have_no_table() -> None:
    assert profile_table(pipeline_record()) is None
    assert profile_table(pipeline_record(made=replace(measured(), units=None, profile=on_gpu()))) is None
