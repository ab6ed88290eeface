"""Pages of sustained runs: the answer first, one table below it, and what is unknown said so."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipeline_records import BEST, measured, pipeline_record, units
from records import bakeoff

from bakeoff.record.deadline import started
from bakeoff.record.pipeline import Caches, PipelineMeasurement, PipelineRecord, Shipped, Start, Sustained
from bakeoff.record.store import Records, StoredPipeline, load_all, save
from bakeoff.report.pages import deadline, history, pipelines, results
from bakeoff.report.pipelines import sustained_tables
from bakeoff.report.render import markdown, terminal

HOW = Sustained(24.0, False, 1)


def run(count: int = 14_400, ms: float = 40.0, slow: int = 0, **changes: Any) -> PipelineRecord:
    """A mix with units of a fixed time and, of every thousand, `slow` ones of 45 ms more."""
    draw = random.Random(7)
    walls = [{"denoise": ms + 45 * (place % 1000 < slow) + draw.random() / 100} for place in range(count)]
    made = replace(units([{"denoise": 90.0}, *walls], ["opening", *["steady"] * count]), spans=(1, count))
    return pipeline_record(made=measured(units=made), how="alone", sustained=HOW, **changes)


def stored(*records: PipelineRecord) -> list[StoredPipeline]:
    return [StoredPipeline(f"20260102T03040{place}Z_mix_{place}", record) for place, record in enumerate(records)]


def text_of(*records: PipelineRecord, width: int = 80) -> str:
    return terminal.render(deadline.of_runs(stored(*records)), width)


def test_a_mix_that_holds_says_so_first_and_has_one_table() -> None:
    text = text_of(run())
    assert "eager: holds 24 fps for 9 min 36 s: 0 of 14,400 units late; least buffer" in text
    assert text.index("holds 24 fps") < text.index("late at 24 fps")
    assert "0 (0.00%)" in text
    assert "1.000x [1.000, 1.000]" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("paced", [False, True])
def test_no_buffer_is_enough_for_a_mix_that_makes_fewer_frames_than_are_shown(paced: bool) -> None:
    record = run(200, 50.0)
    assert record.measurement.units is not None
    begun = tuple(place * 100_000_000 for place in range(201))  # a paced unit waits until it is asked for
    made = replace(record.measurement, units=replace(record.measurement.units, started_ns=begun))
    record = replace(record, measurement=made, sustained=replace(HOW, paced=paced))
    text = " ".join(text_of(record).split())
    assert "misses 24 fps" in text
    assert "no buffer is enough, since it makes 20.00 frames a second" in text
    assert "least buffer 0.00 ms" not in text
    held = replace(record, sustained=replace(HOW, paced=paced, fps=18.0))
    assert "no buffer is enough" not in text_of(held)


@pytest.mark.parametrize("count", [3, 60, 9000])
def test_a_fast_start_does_not_hide_that_a_mix_can_no_longer_hold_the_rate(count: int) -> None:
    """The lead of the first two thirds makes no unit of the last one late; its rate is told at any length."""
    walls = [{"denoise": 20.0 if 3 * place < 2 * count else 45.0} for place in range(count)]
    record = pipeline_record(made=measured(units=units(walls, ["steady"] * count)), sustained=HOW)
    text = " ".join(text_of(record).split())
    assert f"0 of {count:,} units late" in text
    assert text.partition("eager: ")[2].startswith("can no longer hold 24 fps after")
    assert "frames a second, 22.22 in its last third; 0 of" in text
    assert "holds" not in text
    assert "least buffer endless" in text


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (PipelineMeasurement("crashed", "SIGSEGV in phase unit"), "eager: crashed: SIGSEGV in phase unit"),
        (
            measured(status="unstable", reason="drift", units=units([{"denoise": 40.0}] * 9)),
            "no verdict, unstable: drift;",
        ),
        (measured(units=units([{"denoise": 40.0}] * 9, ["filling"] * 9)), "eager: too few units with frames: 0"),
        (measured(units=units([{"denoise": 40.0}] * 9, frames=[0] * 9)), "eager: too few units with frames: 9"),
    ],
)
def test_a_mix_that_is_not_ok_or_has_no_frames_neither_holds_nor_misses(made: PipelineMeasurement, said: str) -> None:
    text = text_of(pipeline_record(made=made, sustained=HOW))
    assert said in text
    assert "holds" not in text
    assert "misses" not in text


def test_saturating_and_paced_runs_are_in_sections_of_their_own_and_only_the_newest_of_a_mix_counts() -> None:
    paced = replace(HOW, paced=True)
    found = stored(
        run(20, created="2026-01-02T03:04:05.000000Z"),
        run(20, created="2026-01-02T03:04:06.000000Z"),
        replace(run(20), sustained=paced),
        replace(run(20), sustained=replace(paced, fps=30.0)),
        run(20, mix=pipeline_record(BEST).mix, role="best"),
    )
    assert [[entry.id[-1] for entry in entries] for entries in sustained_tables(found)] == [["1", "4"], ["2"], ["3"]]
    headings = [section.heading for section in deadline.sections(found)]
    assert [heading.partition("sustained for ")[2] for heading in headings] == [
        "24 frames a second, saturating, 1 frame of buffer",
        "24 frames a second, paced, 1 frame of buffer",
        "30 frames a second, paced, 1 frame of buffer",
    ]


def test_results_and_history_have_sustained_runs_and_tables_of_mixes_do_not(tmp_path: Path) -> None:
    for record in (pipeline_record(), run(20), replace(run(20), sustained=replace(HOW, paced=True))):
        save(tmp_path, record)
    records = load_all(tmp_path)
    assert (len(records.pipelines), len(records.sustained), len(records.ran)) == (1, 2, 3)
    machine = records.machines()[0]
    text = markdown.render(results.of_machine(records, machine))
    assert text.count("sustained for ") == 2
    told = markdown.render(history.of_machine(records, machine))
    assert "holds 24 fps for 800." in told
    assert "sustained runs" in told
    assert len(Records.of_machines(records, [machine.key]).sustained) == 2


def test_show_prints_the_page_of_a_sustained_run(tmp_path: Path) -> None:
    name = save(tmp_path, run(20))
    done = bakeoff("--runs", str(tmp_path), "show", name, cwd=tmp_path)
    assert done.code == 0
    assert " ms: 0 of 20 units late; least buffer" in " ".join(done.out.split())
    done = bakeoff("--runs", str(tmp_path), "table", "--machine", "all", cwd=tmp_path)
    assert "sustained for 24 frames a second, saturating" in " ".join(done.out.split())


def cold(good_ms: float = 500.0, **changes: Any) -> PipelineRecord:
    """Seven processes without caches and with the compiler's; the artifact cannot be had."""
    starts = [Start("artifact", problem="wm: eager has no artifact format")]
    kinds: tuple[Caches, ...] = ("none", "compiler")
    for number, caches in [(number, caches) for number in range(7) for caches in kinds]:
        parts = {"import": 2_000_000_000 + number * 10_000_000, "compile": 9_000_000_000 if caches == "none" else 10**9}
        units_ns = (20_000_000, round(good_ms * 1e6), *[10_000_000] * 18)
        wall_ns = sum(parts.values()) + 30_000_000
        moved = {"1": ("wm.step",)}
        starts.append(Start(caches, wall_ns, parts, units_ns, (1,) * 20, moved=moved))
    record = pipeline_record(how="cold", sustained=HOW, starts=tuple(starts))
    return replace(record, **changes)


def test_a_cold_run_says_when_the_first_good_frame_comes_and_what_the_time_before_it_is() -> None:
    text = text_of(cold())
    told = " ".join(text.split())
    assert "first good frame after 11.6 [11.5, 11.6] s without caches, 3.56 [3.53, 3.59] s with warm caches" in told
    rows = {line[:14].strip(): line[14:].split() for line in text.splitlines()}
    assert rows["frame 1 [95 %]"] == ["11.1", "[11.0,", "11.1]", "3.06", "[3.03,", "3.09]"]
    assert (rows["import"], rows["compile"]) == (["2.030", "s", "2.030", "s"], ["9.000", "s", "1.000", "s"])
    assert (rows["first calls"], rows["filling"], rows["rest"]) == (
        ["0.020", "s", "0.020", "s"],
        ["0.500", "s", "0.500", "s"],
        ["0.010", "s", "0.010", "s"],
    )
    assert rows["of unit"] == rows["late units"] == rows["compiled in"] == ["1", "1"]
    assert "from artifacts: wm: eager has no artifact format" in told
    assert max(map(len, text.splitlines())) <= 80
    assert deadline.as_rows(stored(cold()))[0]["starts"][1]["caches"] == "none"


def test_a_cold_run_that_is_wrong_has_no_verdict_and_one_that_never_keeps_up_has_no_good_frame() -> None:
    wrong = cold(measurement=measured(status="parity_failed", reason="unit 0: video"))
    assert "no verdict, parity_failed: unit 0: video; first good frame" in " ".join(text_of(wrong).split())
    slow = cold()
    slow = replace(slow, starts=tuple(replace(each, units_ns=(50_000_000,) * 20) for each in slow.starts))
    assert "first good frame after never [never, never] s without caches" in " ".join(text_of(slow).split())
    died = cold(starts=(Start("none", problem="build_failed: no such operator"),))
    assert "no frame" in text_of(died)
    assert "without caches: build_failed: no such operator" in " ".join(text_of(died).split())


def test_a_later_run_says_what_a_deployment_takes_by_cold_starts_and_a_dash_where_they_do_not_tell() -> None:
    shipped = Shipped(4_200_000, ("machine x86_64", "cpu flags of a CPU"))
    known = started("cold", cold(shipped=shipped)), started("cold", cold())
    texts = []
    for found in known:
        eager, best = pipeline_record(started=found), pipeline_record(BEST, made=measured(BEST, 0.5), started=found)
        texts.append(" ".join(terminal.render(pipelines.of_runs(stored(eager, best)), 400).split()))
    facts = "cold build 9.00 s; warm build 1.00 s; artifacts {}; first good frame 11.6 [11.5, 11.6] s without caches"
    assert (
        f"To deploy it: {facts.format('4.2 MB')}; threads 4; loads on machine x86_64, cpu flags of a CPU." in texts[0]
    )
    assert f"To deploy it: {facts.format('-')}; threads 4; loads on -." in texts[1]
    assert "deploy" not in terminal.render(pipelines.of_runs(stored(pipeline_record())), 400).replace("Deploy", "")


def test_cold_runs_are_in_sections_of_their_own(tmp_path: Path) -> None:
    assert len(sustained_tables(stored(run(20), cold()))) == 2
    name = save(tmp_path, cold())
    (entry,) = load_all(tmp_path).sustained
    assert (entry.id, entry.record) == (name, cold())
