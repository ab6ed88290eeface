"""Decorators on functions of every kind: what they record, what they refuse, and that nothing else changes."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from recording import Clock, codes, make_profiler, opened, own_times, range_at, record_of

from bakeoff.models.errors import BakeoffError
from bakeoff.profile import Profiler, current, event, phase, session, stage, step, unit
from bakeoff.profile import profiler as profiling


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def profiler(tmp_path: Path, clock: Clock) -> Iterator[Profiler]:
    """Installed."""
    made = make_profiler(tmp_path, clock).install()
    yield made
    made.uninstall()


def test_methods_are_recorded_where_they_are_called(profiler: Profiler, clock: Clock) -> None:
    class Pipeline:
        @unit(frames=lambda bound: bound["frames"], latents=3, kind=lambda bound: bound["kind"])
        def block(self, frames: int, kind: str = "steady") -> str:
            self.denoise(2)
            self.decode()
            return f"{frames} {kind}"

        @phase("denoise")
        def denoise(self, steps: int) -> None:
            for index in range(steps):
                self.one(index, t=100.0 * index)

        @step("index", "t")
        def one(self, index: int, *, t: float) -> float:
            clock.ns += 10
            return index * t

        @staticmethod
        @stage("decode")
        def decode() -> None:
            clock.ns += 3

    with opened(profiler) as made:
        assert Pipeline().block(9, kind="opening") == "9 opening"
        assert Pipeline().block(frames=12) == "12 steady"
    record = record_of(made)
    assert [(each.kind, each.frames, each.latents, each.wall_ns) for each in record.units] == [
        ("opening", 9, 3, 23),
        ("steady", 12, 3, 23),
    ]
    assert own_times(record) == {
        (): 0,
        ("unit",): 0,
        ("unit", "denoise"): 0,
        ("unit", "denoise", "step"): 40,
        ("unit", "decode"): 6,
    }
    assert [(each.index, each.timestep, each.calls) for each in record.steps] == [(0, 0.0, 2), (1, 100.0, 2)]


def test_each_is_a_context_manager_too(profiler: Profiler, clock: Clock) -> None:
    with session("mine") as made:
        for index in range(2):
            with unit(frames=4, latents=1), stage("block"), phase("denoise"):
                with step(index, timestep=0.5):
                    clock.ns += 5
                with step():
                    clock.ns += 1
    record = record_of(made)
    assert [(each.count, each.frames, each.latents, each.wall_ns) for each in record.units] == [(2, 8, 2, 12)]
    assert own_times(record)["unit", "block", "denoise", "step"] == 12
    assert [(each.index, each.timestep, each.ns) for each in record.steps] == [(0, 0.5, 7), (1, 0.5, 5)]
    profiler.uninstall()
    with session("unheard"), phase("denoise"):
        assert not current().is_open


def test_a_coroutine_counts_until_it_returns(profiler: Profiler, clock: Clock) -> None:
    @phase("encode")
    async def encode(ns: int) -> int:
        clock.ns += ns
        await asyncio.sleep(0)
        await inner()
        return ns

    @phase("inner")
    async def inner() -> None:
        clock.ns += 1

    assert inspect.iscoroutinefunction(encode)
    with opened(profiler) as made:
        assert asyncio.run(encode(5)) == 5
    assert own_times(record_of(made)) == {(): 0, ("encode",): 5, ("encode", "inner"): 1}


def test_of_a_generator_only_the_time_inside_counts(profiler: Profiler, clock: Clock) -> None:
    @phase("produce")
    def produce() -> Generator[int, str, str]:
        clock.ns += 10
        got = yield 1
        clock.ns += 20
        got += yield 2
        clock.ns += 40
        return got

    assert inspect.isgeneratorfunction(produce)
    with opened(profiler) as made:
        items = produce()
        assert next(items) == 1
        clock.ns += 1_000
        with made.phase("consume"):
            clock.ns += 1
            assert items.send("a") == 2
        with pytest.raises(StopIteration) as end:
            items.send("b")
        assert end.value.value == "ab"
    record = record_of(made)
    assert own_times(record) == {(): 1_000, ("produce",): 50, ("consume",): 1, ("consume", "produce"): 20}
    assert range_at(record, "produce").calls == 1
    assert range_at(record, "consume", "produce").calls == 0


def test_each_item_of_a_generator_is_a_unit(profiler: Profiler, clock: Clock) -> None:
    @unit(frames=3)
    def blocks(count: int) -> Iterator[int]:
        for index in range(count):
            clock.ns += 10
            yield index
        clock.ns += 5

    with opened(profiler) as made:
        assert list(blocks(4)) == [0, 1, 2, 3]
    record = record_of(made)
    assert [(each.count, each.frames, each.wall_ns) for each in record.units] == [(4, 12, 40)]
    assert own_times(record) == {(): 0, ("unit",): 45}
    assert range_at(record, "unit").calls == 4


def test_asynchronous_generators_count_as_generators_do(profiler: Profiler, clock: Clock) -> None:
    seen: list[str] = []

    @unit(frames=3)
    @event("streamed")
    async def blocks() -> AsyncGenerator[int, str]:
        clock.ns += 10
        try:
            seen.append((yield 1))
            clock.ns += 20
            yield 2
        except KeyError:
            seen.append("caught")
            yield 3

    async def consume() -> list[int]:
        items = blocks()
        found = [await anext(items)]
        clock.ns += 1_000
        found.append(await items.asend("sent"))
        found.append(await items.athrow(KeyError()))
        found += [item async for item in items]
        return found

    assert inspect.isasyncgenfunction(blocks)
    with opened(profiler) as made:
        assert asyncio.run(consume()) == [1, 2, 3]
    record = record_of(made)
    assert seen == ["sent", "caught"]
    assert [(each.count, each.frames, each.wall_ns) for each in record.units] == [(3, 9, 30)]
    assert own_times(record)[()] == 1_000
    assert [each.name for each in record.events] == ["streamed"]


@pytest.mark.parametrize("kind", ["coroutine", "generator", "asynchronous generator"])
def test_functions_of_every_kind_are_sessions(kind: str, profiler: Profiler, tmp_path: Path) -> None:
    names: list[str] = []

    @session("coroutine")
    async def coroutine() -> None:
        await asyncio.sleep(0)
        names.append(current().name)

    @session("generator")
    def generator() -> Iterator[int]:
        names.append(current().name)
        yield 1

    @session("asynchronous generator")
    async def asynchronous() -> AsyncGenerator[int, None]:
        names.append(current().name)
        yield 1

    async def consume() -> list[int]:
        return [item async for item in asynchronous()]

    run = {"coroutine": lambda: asyncio.run(coroutine()), "generator": lambda: list(generator())}
    run.get(kind, lambda: asyncio.run(consume()))()  # type: ignore[no-untyped-call]
    assert names == [kind]
    assert len(list(tmp_path.glob("*.session.json"))) == 1
    assert profiler.only_session() is None


def test_outside_sessions_ranges_go_to_the_next_one(profiler: Profiler, clock: Clock) -> None:
    @stage("load")
    @event("loaded", {"path": "a"})
    def load() -> None:
        clock.ns += 6

    load()
    clock.ns += 1
    with opened(profiler) as made:
        clock.ns += 2
        made.parameters("vae", 5)
    record = record_of(made)
    assert [(each.path, each.calls, each.total_ns) for each in record.before] == [(("load",), 1, 6)]
    assert [(each.name, each.t_ns) for each in record.events] == [("loaded", -1)]
    assert [(each.name, each.count) for each in record.parameters] == [("vae", 5)]


def test_events_tell_of_errors(profiler: Profiler, clock: Clock) -> None:
    @event("done", lambda bound: {"path": bound["path"], "n": bound["n"]})
    def load(path: str, n: int = 3) -> int:
        clock.ns += 2
        if path == "bad":
            raise OSError("no such file")
        return n

    @event("callback", lambda bound: {"x": bound["missing"]})
    def other() -> str:
        return "fine"

    with opened(profiler) as made:
        assert load("good") == 3
        with pytest.raises(OSError, match="no such file"):
            load("bad")
        assert other() == "fine"
    events = record_of(made).events
    assert [(each.name, each.t_ns, each.failed, each.data) for each in events] == [
        ("done", 2, False, {"path": "good", "n": 3}),
        ("done", 4, True, {"error": "OSError: no such file"}),
        ("callback", 4, True, {"error": "KeyError: 'missing'"}),
    ]


def test_data_of_an_event_may_be_of_the_result(profiler: Profiler) -> None:
    @event("shown", data=lambda bound, words=("a", "b"): {"words": len(words), "frames": bound["frames"]})
    async def show(frames: int) -> int:
        return frames

    @event("streamed", data=lambda _bound, result: {"returned": result})
    def stream() -> Generator[int, None, str]:
        yield 1
        return "end"

    @event("broken", data=lambda _bound, result: {"length": len(result)})
    def broken() -> int:
        return 3

    with opened(profiler) as made:
        assert (asyncio.run(show(5)), list(stream()), broken()) == (5, [1], 3)
    assert [(each.name, each.data, each.failed) for each in record_of(made).events] == [
        ("shown", {"words": 2, "frames": 5}, False),
        ("streamed", {"returned": "end"}, False),
        ("broken", {"error": "TypeError: object of type 'int' has no len()"}, True),
    ]


class TestUnheard:
    """Decorated functions that are called while no profiler is installed."""

    @pytest.fixture(autouse=True)
    def nothing_told_before(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(profiling, "_told", [])
        profiling.unheard.clear()

    @staticmethod
    def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
        return capsys.readouterr().err.splitlines()

    def test_it_is_said_once_where_a_profiler_was_made(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        load = stage("load")(lambda: 5)
        assert load() == 5
        assert self.said(capsys) == []
        make_profiler(tmp_path)
        assert (load(), load()) == (5, 5)
        (line,) = self.said(capsys)
        assert line.startswith("bakeoff: decorated functions are called outside sessions and no profiler is installed")
        assert line.endswith("call Profiler.install() first")
        make_profiler(tmp_path)
        load()
        assert self.said(capsys) == []


def test_an_error_in_a_function_of_the_arguments_is_an_event(profiler: Profiler) -> None:
    @unit(frames=lambda bound: bound["missing"])
    def block() -> str:
        return "fine"

    with opened(profiler) as made:
        assert block() == "fine"
    record = record_of(made)
    assert [(each.name, each.failed) for each in record.events] == [("@unit", True)]
    assert record.units[0].count == 1
    assert codes(record) == ["misused"]


def test_without_a_profiler_a_function_is_called_as_it_is() -> None:
    calls: list[str] = []

    @session("s")
    @unit(frames=lambda _bound: calls.append("asked"))  # type: ignore[func-returns-value, arg-type, return-value]
    @phase("p")
    @step("index")
    @event("e", lambda _bound: calls.append("told"))  # type: ignore[func-returns-value, arg-type, return-value]
    def work(index: int) -> int:
        return index + 1

    assert work(4) == 5
    assert calls == []


@pytest.mark.parametrize(
    ("apply", "text"),
    [
        (lambda: phase(""), "has name ''"),
        (lambda: phase(len), "has name <built-in"),  # type: ignore[arg-type]
        (lambda: phase("a")(5), "applied to 5"),  # type: ignore[type-var]
        (lambda: stage("a")(dict), "apply it to a function"),
        (lambda: phase("a")(staticmethod(len)), "put it below"),
        (lambda: phase("a")(classmethod(len)), "put it below"),  # type: ignore[type-var, arg-type]
        (lambda: unit(frames=3)(None), "applied to None"),  # type: ignore[type-var]
        (lambda: step("missing")(lambda index: index), "parameters are index"),
        (lambda: step(5)(lambda index: index), "parameters are index"),  # type: ignore[arg-type]
        (lambda: session("a", tags={"x": [1]}), "tag"),  # type: ignore[dict-item]
        (lambda: event("a")(7), "applied to 7"),  # type: ignore[type-var]
    ],
)
def test_wrong_use_is_told_where_a_decorator_is_applied(apply: Any, text: str) -> None:
    with pytest.raises(BakeoffError, match=text) as refused:
        apply()
    assert refused.value.code == "bad-option"


def test_a_decorated_function_keeps_its_name_and_signature() -> None:
    @phase("a")
    def work(index: int, *, t: float = 1.0) -> str:
        """What it does."""
        return f"{index} {t}"

    assert (work.__name__, work.__doc__) == ("work", "What it does.")
    assert str(inspect.signature(work)) == "(index: int, *, t: float = 1.0) -> str"
