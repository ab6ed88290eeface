"""What may overlap in a loop, what forbids it, and what a unit then takes."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="loops are described by running them")

from mixes import Heard, loop_of

from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import Key, Loop
from bakeoff.models.pipelines.schedule import (
    BEHIND,
    BESIDE,
    ONE_GRAPH,
    SEQUENTIAL,
    Schedule,
    beside,
    parse_schedule,
    predicted,
    put_off,
    splits,
    threads_of,
    why_not,
)
from bakeoff.models.pipelines.single import single
from bakeoff.process.jobs import DescribeLoopJob
from bakeoff.worker.pipeline.describe import describe_loop

DRAWN = "which lanes would share and a graph would not seed"


def planted(name: str, folder: Path) -> Loop:
    return describe_loop(DescribeLoopJob(f"planted_loops:{name}", "", {}, "cpu", 1, 0, str(folder)), Heard())


def slots(loop: Loop, name: str) -> set[str]:
    return {key.slot for key in put_off(loop, name)}


@pytest.mark.parametrize(
    ("pipeline", "preset", "behind", "apart"),
    [
        ("owl", "tiny", {"image", "audio"}, {"wm"}),
        ("matrix", "tiny", {"decoder"}, {"wm"}),
        ("toy_loops:Toy", "tiny", {"stream"}, None),
    ],
)
def test_decoders_run_behind_and_a_context_pass_beside_them(
    pipeline: str, preset: str, behind: set[str], apart: set[str] | None
) -> None:
    loop = loop_of(pipeline, preset)
    assert why_not(loop, SEQUENTIAL, "cpu") == ""
    assert put_off(loop, SEQUENTIAL) == frozenset()
    assert slots(loop, BEHIND) == behind
    if apart is None:
        assert why_not(loop, BESIDE, "cpu") == "stream.stream reads what world.world writes, call 1 of the unit"
    else:
        assert slots(loop, BESIDE) == apart
        assert all(key.program.startswith(("append", "context")) for key in put_off(loop, BESIDE))


def test_a_strangers_loop_may_overlap_what_its_dependencies_allow(tmp_path: Path) -> None:
    loop = planted("Free", tmp_path)
    assert slots(loop, BEHIND) == {"decoder"}
    assert slots(loop, BESIDE) == {"context"}


@pytest.mark.parametrize(
    ("name", "schedule", "reason"),
    [
        ("ReadsWhatContextWrites", BESIDE, "decoder.call reads what context.call writes, call 3 of the unit"),
        (
            "FeedsBack",
            BEHIND,
            "denoiser.call reads in the next unit the state memory, which is made from what decoder.call returns",
        ),
        *(("Draws", name, f"units draw random numbers by themselves, {DRAWN}") for name in (BEHIND, ONE_GRAPH)),
    ],
)
def test_a_planted_dependency_forbids_a_schedule_by_name(name: str, schedule: str, reason: str, tmp_path: Path) -> None:
    loop = planted(name, tmp_path)
    assert why_not(loop, schedule, "cuda") == reason
    with pytest.raises(BakeoffError, match=reason[:20]):
        put_off(loop, schedule)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("KeepsItElsewhere", "two equally seeded runs of its first units are not the same"),
        ("GivesMemoryBack", "is memory of the input"),
    ],
)
def test_a_hidden_dependency_is_refused_before_any_schedule(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(BakeoffError, match=reason):
        planted(name, tmp_path)


def test_one_program_alone_has_nothing_beside_it() -> None:
    one = single("toy")
    loop = one("tiny", one.options_of({"workload": "world"})).loop()
    assert (
        why_not(loop, BEHIND, "cpu")
        == "a unit calls one program, or none whose results are outputs: nothing runs beside it"
    )


def test_two_lanes_take_as_long_as_the_longer_one_if_nothing_slows_down() -> None:
    assert beside([("a", 10.0)], [("b", 4.0)], {}) == (10.0, 4.0)
    assert beside([("a", 3.0), ("c", 3.0)], [("b", 8.0)], {}) == (6.0, 8.0)
    assert beside([("a", 5.0)], [], {}) == (5.0, 0.0)


def test_programs_beside_each_other_slow_down_only_as_long_as_both_run() -> None:
    slow = {("a", "b"): 2.0, ("b", "a"): 2.0}
    first, second = beside([("a", 10.0)], [("b", 4.0)], slow)
    assert (first, second) == pytest.approx((14.0, 8.0)), "8 ms beside each other, in which a does 4 of its 10"
    assert max(beside([("a", 10.0)], [("b", 10.0)], slow)) == pytest.approx(20.0), "nothing is gained"


def test_a_unit_and_its_latency_are_predicted(tmp_path: Path) -> None:
    loop = planted("Free", tmp_path)
    alone = {"denoiser.call": 2.0, "context.call": 3.0, "decoder.call": 4.0}
    assert predicted(loop, SEQUENTIAL, alone, (1.0, 0.0), {}) == (14.0, 14.0)
    assert predicted(loop, BEHIND, alone, (1.0, 0.5), {}) == (10.0, 14.5), "its picture is ready in the next unit"
    assert predicted(loop, BESIDE, alone, (1.0, 0.0), {}) == (11.0, 11.0)
    eaten = {("denoiser.call", "decoder.call"): 2.0, ("decoder.call", "denoiser.call"): 2.0}
    assert predicted(loop, BEHIND, alone, (0.0, 0.0), eaten)[0] == pytest.approx(13.0)


def test_lanes_share_the_threads(tmp_path: Path) -> None:
    assert splits(1) == ()
    assert splits(2) == ((1, 1),)
    assert splits(16) == ((12, 4), (8, 8))
    loop = planted("Free", tmp_path)
    denoiser, context, decoder = (Key(slot, "call") for slot in ("denoiser", "context", "decoder"))
    assert threads_of(loop, Schedule(BEHIND, (3, 1)), 4) == {denoiser: 3, context: 3, decoder: 1}
    assert threads_of(loop, Schedule(BESIDE, (3, 1)), 4) == {denoiser: 4, context: 1, decoder: 3}


@pytest.mark.parametrize(
    "text", ["decode-behind", "sequential:1+1", "behind:1+1", "decode-behind:0+1", "x" * 500, "one-graph:1+1"]
)
def test_text_that_is_no_schedule_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(BakeoffError, match="is no schedule; write decode-behind or context-beside-decode") as caught:
        parse_schedule(text)
    assert len(str(caught.value)) < 250
    assert all(str(parse_schedule(name)) == name for name in ("decode-behind:6+2", "one-graph"))


def test_only_cuda_captures_a_unit() -> None:
    loop = loop_of("matrix")
    assert why_not(loop, ONE_GRAPH, "cpu") == "only CUDA captures graphs; use it with --device cuda"
    assert why_not(loop, ONE_GRAPH, "cuda") == ""
    assert put_off(loop, ONE_GRAPH) == frozenset(), "it has no second lane"


def test_an_unknown_schedule_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BakeoffError, match="sequential, decode-behind, context-beside-decode, one-graph"):
        why_not(loop_of("toy_loops:Toy"), "behind", "cpu")
