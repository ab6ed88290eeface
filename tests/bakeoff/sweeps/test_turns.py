"""Workers that build beside each other: each has its turn alone, and whoever ends or hangs before it keeps nobody."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path

import pytest
from lab import FAST, TORCHLESS, left_alive, marked_folder

from bakeoff.machine.build_cache import open_folder
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.process import supervisor
from bakeoff.process.jobs import MeasureJob, MeasureResult
from bakeoff.process.supervisor import Deadlines, Event, Launch, LiveWorker, Outcome
from bakeoff.sweeps import turns
from bakeoff.sweeps.row import measure_job
from bakeoff.sweeps.turns import in_turns

NAMES = ("eager", "inductor", "aoti")
ALONE = ("warm-up", "latency", "throughput", "memory")
Task = tuple[MeasureJob, Launch]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[tuple[str, str]]]:
    """What workers announce, in the order in which it is read; no process of theirs may be left."""
    monkeypatch.setattr(supervisor, "WORKER", TORCHLESS)
    monkeypatch.setenv("BAKEOFF_TEST_SURE", "1")
    with marked_folder(tmp_path) as marker:
        yield []
        assert left_alive(marker) == []


def tasks(told: list[tuple[str, str]], folder: Path, deadline_s: float = 60.0) -> list[Task]:
    asked = Request("toy", backends=("eager", "inductor[]", "aoti[]"), dtypes=("fp32",), device="cpu", policy=FAST)
    found = []
    for name, row in zip(NAMES, make_plan(asked).rows, strict=True):
        open_folder(row.cache_folder)

        def on_event(event: Event, name: str = name) -> None:
            if (name, event.phase) not in told[-1:]:
                told.append((name, event.phase))

        job = replace(measure_job(row, FAST, None), overlapped=True)
        launch = Launch(row.environment, Deadlines(deadline_s), folder / f"{name}.log", on_event)
        found.append((job, launch))
    return found


def with_deadlines(task: Task, **limits: float) -> Task:
    job, launch = task
    return job, replace(launch, deadlines=Deadlines(60.0, limits))


def kept_workers(monkeypatch: pytest.MonkeyPatch) -> list[LiveWorker]:
    """Return the list to which each worker is added when it is made."""
    made: list[LiveWorker] = []

    class Kept(LiveWorker):
        def __init__(self, job: MeasureJob, launch: Launch) -> None:
            super().__init__(job, launch)
            made.append(self)

    monkeypatch.setattr(turns, "LiveWorker", Kept)
    return made


def ended_in_turns(tasks: list[Task]) -> list[Outcome]:
    with in_turns(tasks) as workers:
        return [worker.finish(MeasureResult) for worker in workers if worker is not None]


def test_all_are_built_before_any_is_timed_and_then_one_at_a_time(
    told: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Telling(LiveWorker):
        """Its `go` is among what is told: the phases of one that goes too early are read when its turn has come."""

        def __init__(self, job: MeasureJob, launch: Launch) -> None:
            super().__init__(job, launch)
            self.name = launch.log.stem

        def tell(self, line: str) -> None:
            told.append((self.name, line))
            super().tell(line)

    monkeypatch.setattr(turns, "LiveWorker", Telling)
    ended = ended_in_turns(tasks(told, tmp_path))
    assert [one.kind for one in ended] == ["result"] * 3
    timed = [number for number, (_, phase) in enumerate(told) if phase in ("go", *ALONE)]
    assert max(number for number, (_, phase) in enumerate(told) if phase == "turn") < min(timed)
    assert list(dict.fromkeys(told[number][0] for number in timed)) == list(NAMES)
    assert [name for name, _ in told[timed[0] :]] == sorted((told[number][0] for number in timed), key=NAMES.index)
    alone = [one.alone for one in ended]
    assert None not in alone
    for before, after in pairwise(alone):
        assert before[1] <= after[0]  # type: ignore[index]
    assert max(one.built[1] for one in ended) <= alone[0][0]  # type: ignore[index]


def test_one_that_dies_while_it_is_built_keeps_nobody(
    told: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BAKEOFF_TEST_DIES", "inductor")
    ended = dict(zip(NAMES, ended_in_turns(tasks(told, tmp_path)), strict=True))
    assert {name: one.kind for name, one in ended.items()} == {
        "eager": "result",
        "inductor": "crashed",
        "aoti": "result",
    }
    assert ended["inductor"].alone is None
    built = ended["inductor"].built
    assert built is not None
    assert built[0] < built[1]


def test_a_guard_that_is_killed_costs_its_own_worker_alone(
    told: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BAKEOFF_TEST_HANGS", "aoti")
    made = kept_workers(monkeypatch)
    *others, hanging = tasks(told, tmp_path)
    killed: list[int] = []

    def kill(event: Event) -> None:
        if event.phase == "build" and not killed:
            killed.append(made[2]._process.pid)
            os.kill(killed[0], signal.SIGKILL)

    hanging = hanging[0], replace(hanging[1], on_event=kill)
    ended = dict(zip(NAMES, ended_in_turns([*others, hanging]), strict=True))
    assert {name: one.kind for name, one in ended.items()} == {
        "eager": "result",
        "inductor": "result",
        "aoti": "crashed",
    }
    assert "guard" in ended["aoti"].reason


def test_one_that_hangs_ends_at_its_own_deadline(
    told: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BAKEOFF_TEST_HANGS", "aoti")
    *others, hanging = tasks(told, tmp_path)
    short = with_deadlines(hanging, build=0.5)
    ended = dict(zip(NAMES, ended_in_turns([*others, short]), strict=True))
    assert ended["aoti"].kind == "timeout"
    assert ended["aoti"].reason == "build took longer than 0 s"
    assert [ended[name].kind for name in ("eager", "inductor")] == ["result", "result"]
    starts = [span[0] for span in (ended[name].alone for name in ("eager", "inductor")) if span is not None]
    assert len(starts) == 2
    assert ended["aoti"].timeline[-1][1] < min(starts), "it is gone before anything is timed"


def test_a_build_that_is_not_waited_for_is_ended_before_the_others_have_their_turns(
    told: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BAKEOFF_TEST_HANGS", "aoti")
    made = kept_workers(monkeypatch)
    with in_turns(tasks(told, tmp_path), lambda built: inf if built < 2 else 0.0) as workers:
        assert made[2].timeline[-1][0] == "", "it has ended"
        ended = [None if worker is None else worker.finish(MeasureResult).kind for worker in workers]
    assert ended == ["result", "result", None]


def test_waiting_for_a_turn_has_no_deadline(told: list[tuple[str, str]], tmp_path: Path) -> None:
    patient = [with_deadlines(task, turn=0.05) for task in tasks(told, tmp_path)]
    assert [one.kind for one in ended_in_turns(patient)] == ["result"] * 3


def test_who_leaves_early_ends_the_others(told: list[tuple[str, str]], tmp_path: Path) -> None:
    with in_turns(tasks(told, tmp_path)) as workers:
        first = next(workers)
        assert first is not None
        assert first.finish(MeasureResult).kind == "result"
    assert {name for name, phase in told if phase in ALONE} == {"eager"}
