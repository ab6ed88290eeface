"""Engines with and without CUDA graphs in one process, by a fake of torch_tensorrt whose mode is one global."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch_tensorrt converts torch's graphs")

import torch
from fake_torch_tensorrt import Fake, pinned
from mixes import UNITS, make_job, run_mix
from toys import LIBRARY_WARNINGS, build_toy

from bakeoff.backends.format import Opening
from bakeoff.backends.torch_tensorrt import ahead_of_time
from bakeoff.backends.torch_tensorrt.ahead_of_time import FORMAT
from bakeoff.backends.torch_tensorrt.settings import in_own_mode

pytestmark = LIBRARY_WARNINGS
SLOTS = ("world", "stream")
"""Of the toy loop."""


@pytest.fixture(autouse=True)
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    torch._dynamo.reset()
    monkeypatch.chdir(tmp_path)
    with pinned() as library:
        yield library


@pytest.fixture(params=[False, True], ids=["off-outside", "on-outside"])
def outside(request: pytest.FixtureRequest, fake: Fake) -> bool:
    """The mode that other code of the process has set."""
    fake.set_mode(request.param)
    return bool(request.param)


@pytest.fixture
def order(outside: bool) -> tuple[bool, bool]:
    """Whether engines run as CUDA graphs, in the order of their builds; the first is as `outside`."""
    return outside, not outside


def named(name: str, graphs: bool) -> str:
    return f"{name}[cudagraphs]" if graphs else name


def modes(fake: Fake, call: Callable[[], object]) -> set[tuple[int, bool]]:
    """The engines that a call runs, and in which modes."""
    before = len(fake.ran)
    call()
    return set(fake.ran[before:])


@pytest.mark.parametrize("name", ["tensorrt", "tensorrt-aot"])
def test_each_call_is_in_its_engines_mode(
    fake: Fake, outside: bool, name: str, order: tuple[bool, bool], tmp_path: Path
) -> None:
    made = []
    for graphs in order:
        toy = build_toy(f"world/{named(name, graphs)}/fp32", tmp_path / str(graphs))
        made.append((toy, graphs, fake.ran[-1][0]))
    for toy, graphs, number in made * 2:
        fake.set_mode(outside)  # by other code, between two calls
        assert modes(fake, toy.error) == {(number, graphs)}
    for toy, graphs, number in made:
        assert toy.error() < 1e-6
        assert fake.engines[number].captures == [True] * graphs, "one capture, after a call without"


def test_opened_artifacts_too(fake: Fake, outside: bool, order: tuple[bool, bool], tmp_path: Path) -> None:
    opened = []
    for graphs in order:
        toy = build_toy(f"world/{named('tensorrt-aot', graphs)}/fp32", tmp_path / str(graphs))
        (saved,) = (tmp_path / str(graphs) / "cache").glob("*.ep")
        fake.engines[fake.ran[-1][0]].captures.clear()
        fake.set_mode(outside)
        opening = Opening("cpu", "fp32", 1, ahead_of_time.Options(cudagraphs=graphs))
        opened.append((FORMAT.read(saved, (), opening), toy, graphs, fake.ran[-1][0]))
        assert fake.mode() is outside
    for run, toy, graphs, number in opened * 2:
        given = tuple(toy.sets[0].values())
        assert modes(fake, lambda run=run, given=given: run(given)) >= {(number, graphs)}  # type: ignore[misc]
        assert modes(fake, lambda run=run, given=given: run(given)) == {(number, graphs)}  # type: ignore[misc]
        assert fake.mode() is outside
    for *_, graphs, number in opened:
        assert fake.engines[number].captures == [True] * graphs


def test_a_mix_of_both_runs_each_as_it_says(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = (True, False)
    monkeypatch.setattr("bakeoff.worker.checked_variant.uncompiled", lambda *_: None)  # fakes run by PyTorch
    ways = {slot: f"{named('tensorrt-aot', graphs)}/fp32" for slot, graphs in zip(SLOTS, order, strict=True)}
    first = len(fake.engines)
    made, _ = run_mix(make_job(tmp_path, ways), tmp_path / "work")
    assert (made.status, made.reason) == ("ok", "")
    for number, graphs in enumerate(order, first):
        seen = [mode for engine, mode in fake.ran if engine == number]
        assert seen == ([False] + [True] * (len(seen) - 1) if graphs else [False] * len(seen))
        assert len(seen) > UNITS
        assert fake.engines[number].captures == [True] * graphs


def test_a_call_that_fails_leaves_the_mode_to_the_next_one(fake: Fake, outside: bool) -> None:
    asked: list[bool] = []

    def fails() -> None:
        asked.append(fake.mode())
        raise RuntimeError("Error while setting the input shape")

    for graphs in (True, False):
        call = in_own_mode(fake.as_module(), graphs, fails)
        for _ in range(2):
            fake.set_mode(outside)
            with pytest.raises(RuntimeError):
                call()
    assert asked == [False] * 4, "the call before a capture is without graphs, until one succeeds"
