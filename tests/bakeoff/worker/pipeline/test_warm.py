"""Warm-up plans: the calls after which no counter moves, none of them too many; facts are counters, never times."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="workers need it")

from mixes import Heard, make_job, run_mix

from bakeoff.artifact.mix import least_plan
from bakeoff.export.warmup import WarmCall, WarmUp
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import PipelineJob
from bakeoff.record.pipeline import Sustained
from bakeoff.worker.pipeline import warm
from bakeoff.worker.pipeline.programs import build_programs

UNITS = 40
Find = Callable[[tuple[WarmCall, ...]], WarmUp]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """References and caches of all tests."""
    return tmp_path_factory.mktemp("mixes")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "_UNITS", UNITS)
    monkeypatch.setattr(warm, "_SESSION", 30)


def cold_job(folder: Path, loop: str, backend: str) -> PipelineJob:
    job = make_job(folder / loop, {"world": f"loop_backends:{backend}/fp32"}, pipeline=f"warm_loops:{loop}")
    return replace(job, sustained=Sustained(24.0, False, 1), cold=True)


def finder(job: PipelineJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Find:
    """What finds the calls that are not warm, each time with new engines, in a folder of their own."""
    dtypes = {slot: str(one.dtype) for slot, one in job.programs}
    works = iter(range(1000))

    def find(calls: tuple[WarmCall, ...]) -> WarmUp:
        work = tmp_path / f"work{next(works)}"
        work.mkdir()
        monkeypatch.chdir(work)
        built, failed, _ = build_programs(job, Heard())
        assert failed is None
        engines = {program.key: program.engine(job.subject.loop) for program in built}
        return warm.unwarmed(job.subject, engines, dtypes, calls, Heard())

    return find


@pytest.mark.parametrize(
    ("loop", "backend", "late", "planned"),
    [
        ("Toggling", "BRANCHES", ["0", "20"], [0, 20]),
        ("Toggling", "GROWS", ["0", "20"], [20]),
        ("Filling", "BRANCHES", [str(unit) for unit in range(7)], [*range(7)]),
        ("Filling", "COMPILES_IN_SECOND", ["0"], [0]),
        ("Filling", "FIRST_WRONG", [], []),
    ],
)
def test_with_its_plan_a_start_compiles_in_no_unit_and_each_call_of_the_plan_is_needed(
    loop: str,
    backend: str,
    late: list[str],
    planned: list[int],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = cold_job(folder, loop, backend)
    find = finder(job, tmp_path, monkeypatch)
    made, _ = run_mix(job, tmp_path / "without", 30)
    assert made.units is not None
    assert [*made.units.moved] == late
    try:
        plan = least_plan(find)
    except BakeoffError as error:
        raise AssertionError(f"no plan: {error}") from error
    assert [call.unit for call in plan.calls] == planned
    assert plan.units == UNITS
    warmed, _ = run_mix(replace(job, warm=plan.calls), tmp_path / "with", 30)
    assert warmed.units is not None
    assert warmed.units.moved == {}
    for call in plan.calls:
        fewer = tuple(each for each in plan.calls if each is not call)
        assert call.unit in {each.unit for each in find(fewer).calls}


def test_an_engine_that_compiles_in_its_hundredth_call_is_warmed_up_by_no_plan(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "_UNITS", 120)
    find = finder(cold_job(folder, "Toggling", "COMPILES_IN_HUNDREDTH"), tmp_path, monkeypatch)
    with pytest.raises(BakeoffError, match=r"world\.world .* in unit 7"):
        least_plan(find)


def test_a_call_states_small_values_and_what_of_a_window_is_empty(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = least_plan(finder(cold_job(folder, "Filling", "BRANCHES"), tmp_path, monkeypatch))
    assert {call.values["t"] for call in plan.calls} == {(2.25,)}
    assert [call.empty.get("cache_k") for call in plan.calls[:6]] == [
        (0, 0, 1),
        *((1, 0, 64 - 11 * unit) for unit in range(1, 6)),
    ]
    assert plan.calls[6].empty == {}
    assert plan.counters == ("torch.compile",)
