"""Ranges of a session: every nanosecond counts once, however they nest, in threads and coroutines too."""

import asyncio
import random
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from recording import Clock, codes, make_profiler, opened, own_times, range_at, record_of

from bakeoff.profile.stages import MOST_DEPTH


def test_nested_ranges_count_once(tmp_path: Path) -> None:
    clock = Clock()
    with opened(make_profiler(tmp_path, clock)) as session:
        with session.phase("denoise"):
            clock.ns += 10
            with session.step(0):
                clock.ns += 30
            with session.step(1):
                clock.ns += 20
            clock.ns += 5
        clock.ns += 7
        with session.step(2):
            clock.ns += 1
    record = record_of(session)
    assert own_times(record) == {(): 7, ("denoise",): 15, ("denoise", "step"): 50, ("step",): 1}
    assert record.ns == 73
    assert range_at(record, "denoise", "step").calls == 2
    assert range_at(record, "denoise").total_ns == 65


@pytest.mark.parametrize("seed", range(30))
def test_each_nanosecond_belongs_to_the_innermost_range(seed: int, tmp_path: Path) -> None:
    chance, clock = random.Random(seed), Clock()
    told: Counter[tuple[str, ...]] = Counter({(): 0})
    with opened(make_profiler(tmp_path, clock)) as session:
        stack: list[tuple[str, Any]] = []
        for _ in range(400):
            ns = chance.randrange(100)
            clock.ns += ns
            told[tuple(name for name, _ in stack)] += ns
            if stack and chance.random() < 0.5:
                stack.pop()[1].__exit__(None, None, None)
            elif len(stack) < 8:
                name = chance.choice(["a", "b", "step", "unit", "reduce"])
                made: dict[str, Any] = {
                    "step": lambda: session.step(chance.randrange(4)),
                    "unit": lambda: session.unit(frames=1),
                    "reduce": lambda: session.collective("reduce"),
                }
                entered = made.get(name, lambda name=name: session.phase(name))().__enter__()
                stack.append((name, entered))
                told[tuple(name for name, _ in stack)] += 0
        while stack:
            stack.pop()[1].__exit__(None, None, None)
    record = record_of(session)
    assert own_times(record) == dict(told)
    assert sum(own_times(record).values()) == record.ns


@pytest.mark.parametrize("seed", range(10))
def test_own_times_add_up_where_ranges_end_in_any_order(seed: int, tmp_path: Path) -> None:
    chance, clock = random.Random(seed), Clock()
    with opened(make_profiler(tmp_path, clock)) as session:
        entered: list[Any] = []
        for _ in range(200):
            clock.ns += chance.randrange(100)
            if entered and chance.random() < 0.5:
                entered.pop(chance.randrange(len(entered))).__exit__(None, None, None)
            else:
                entered.append(session.phase(chance.choice("abc")).__enter__())
    record = record_of(session)
    assert sum(own_times(record).values()) == record.ns


def test_recursion_is_a_path_of_its_own_up_to_a_depth(tmp_path: Path) -> None:
    clock = Clock()

    def descend(depth: int) -> None:
        with session.phase("descend"):
            clock.ns += 1
            if depth:
                descend(depth - 1)

    with opened(make_profiler(tmp_path, clock)) as session:
        descend(99)
    record = record_of(session)
    assert record.ns == sum(own_times(record).values()) == 100
    assert max(len(path) for path in own_times(record)) == MOST_DEPTH
    assert own_times(record)[("descend",) * MOST_DEPTH] == 100 - MOST_DEPTH + 1
    assert codes(record) == ["left-out"]


def test_ranges_that_are_open_at_the_end_count_until_then(tmp_path: Path) -> None:
    clock = Clock()
    with opened(make_profiler(tmp_path, clock)) as session:
        late = session.phase("late").__enter__()
        clock.ns += 10
        with session.phase("inner"):
            clock.ns += 5
    clock.ns += 100
    late.__exit__(None, None, None)  # type: ignore[arg-type]
    record = record_of(session)
    assert own_times(record) == {(): 0, ("late",): 10, ("late", "inner"): 5}
    assert codes(record) == ["misused"]
    assert "'late'" in record.findings[0].text


def test_coroutines_keep_to_their_own_parents(tmp_path: Path) -> None:
    clock = Clock()

    async def work(name: str, ns: int) -> None:
        with session.phase(name):
            await asyncio.sleep(0)
            with session.phase("inner"):
                clock.ns += ns
                await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(work("a", 5), work("b", 7))

    with opened(make_profiler(tmp_path, clock)) as session:
        asyncio.run(both())
    record = record_of(session)
    assert {path for path in own_times(record) if len(path) == 2} == {("a", "inner"), ("b", "inner")}
    assert sum(own_times(record).values()) == record.ns == 12
    assert codes(record) == ["overlap"]


def test_a_task_that_outlives_its_range_counts_for_what_is_still_open(tmp_path: Path) -> None:
    clock = Clock()

    async def late() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with session.phase("late"):
            clock.ns += 3

    async def main() -> None:
        with session.phase("short"):
            task = asyncio.create_task(late())
        await task

    with opened(make_profiler(tmp_path, clock)) as session:
        asyncio.run(main())
    assert own_times(record_of(session)) == {(): 0, ("short",): 0, ("late",): 3}


def test_threads_lose_no_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = make_profiler(tmp_path)
    monkeypatch.setattr(profiler, "range_ns", lambda: 1.0)  # empty ranges alone are above any limit
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with opened(profiler) as session:

            def work(name: str) -> None:
                for index in range(1_000):
                    with session.phase(name), session.step(index % 4):
                        pass

            threads = [threading.Thread(target=work, args=(f"p{place % 2}",)) for place in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)
    record = record_of(session)
    assert range_at(record, "p0").calls == range_at(record, "p1", "step").calls == 4_000
    assert [each.calls for each in record.steps] == [2_000] * 4
    assert record.cost is not None
    assert record.cost.ranges == 16_000
    assert sum(own_times(record).values()) == record.ns


def test_a_thread_belongs_to_the_range_whose_context_it_was_given(tmp_path: Path) -> None:
    clock = Clock()

    def work() -> None:
        with session.phase("work"):
            clock.ns += 4

    with opened(make_profiler(tmp_path, clock)) as session, ThreadPoolExecutor(1) as pool, session.phase("outer"):
        pool.submit(copy_context().run, work).result()
        pool.submit(work).result()
    assert own_times(record_of(session)) == {(): -4, ("outer",): 4, ("outer", "work"): 4, ("work",): 4}
