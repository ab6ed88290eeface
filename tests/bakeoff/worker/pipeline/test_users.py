"""Pipelines of users' own modules: what their first units say, and loops that cannot be compared, refused by name."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bakeoff import profile
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import BuiltIn, Loop, Pipeline
from bakeoff.process.jobs import DescribeLoopJob
from bakeoff.worker.pipeline.facts import check_class, check_object, checked_modules
from bakeoff.worker.pipeline.users import describe_users


class Small(nn.Module):
    """Scales; some of its subclasses do what a module of a pipeline may not."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Remembers(Small):
    """Keeps the last call's output in an attribute."""

    past: Any = 0.0

    def forward(self, x: Tensor) -> Tensor:
        self.past = x * self.scale + self.past
        return torch.as_tensor(self.past).clone()


class GivesItsInput(Small):
    def forward(self, x: Tensor) -> Tensor:
        return x[:2]


class WritesItsInput(Small):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(0.5) + 1


class Base(Pipeline):
    """A latent that goes through the module twice, and a window of the last four."""

    module: type[nn.Module] = Small

    def modules(self) -> dict[str, Any]:
        return {"small": self.module()}

    def given(self, unit: int, draw: Any) -> dict[str, Tensor]:
        return {"x": draw("x", (3, 4)), "window": draw.zeros((4, 3, 4))}

    def start(self, given: dict[str, Tensor], run: Any) -> dict[str, Tensor]:
        return {"window": given["window"]}

    def step(self, state: dict[str, Tensor], given: dict[str, Tensor], run: Any) -> tuple[Any, dict[str, Tensor]]:
        with run.phase("twice"):
            x = run.small(run.small(given["x"]) + 1)
        window = run.slide(state["window"], x[None], axis=0)
        return {"window": window}, {"x": x, "mean": window.mean(0)}


class Ranged(Small):
    """Its own range is a part of its call."""

    @profile.phase("scaled")
    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class ByRun(Base):
    """Phases and steps that the loop gives `run`."""

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        x = given["x"]
        for index in range(2):
            with run.phase("denoise", step=index, timestep=0.5 * index):
                x = run.small(x)
        for index in range(2):
            with run.phase("again", step=index):
                x = run.small(x)
        with run.phase("decode"):
            pass
        return state, {"x": x}


class ByRanges(Base):
    """The same in code that knows sessions and no loop."""

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        profiler = profile.Profiler(profile.Settings(enabled=True))
        with profiler.session("theirs") as session, session.unit(frames=3):
            x = given["x"]
            with profile.phase("denoise"):
                for index in range(2):
                    with profile.current().step(index, timestep=0.5 * index):
                        x = run.small(x)
            x = self.again(x, run)
            with profile.current().phase("decode"):
                session.event("decoded")
        return state, {"x": x}

    _profiler = profile.InferixProfiler()  # off

    @profile.profile_method("again")
    def again(self, x: Tensor, run: Any) -> Tensor:
        for _ in range(2):
            with profile.step():
                x = run.small(x)
        return x


class WithoutWith(Base):
    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        run.phase("twice")
        return state, {"x": run.small(given["x"])}


class DrawsAnew(Base):
    """Its generator is not seeded anew for a unit."""

    generator = torch.Generator().manual_seed(1)

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        noise = torch.randn(3, 4, generator=self.generator)
        return state, {"x": run.small(given["x"] + noise)}


class Draws(Base):
    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        return state, {"x": run.small(given["x"] + torch.randn(3, 4))}


class Counts(Base):
    """Keeps a number of its own."""

    count = 0.0

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        self.count += 1
        return state, {"x": run.small(given["x"] + self.count)}


class CountsInItsClass(Base):
    count = 0.0

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        type(self).count += 1
        return state, {"x": run.small(given["x"] + self.count)}


class CountsOutside(Base):
    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        globals()["made"] = globals().get("made", 0) + 1
        return state, {"x": run.small(given["x"] + globals()["made"])}


class BesideBuiltIn(Base):
    """Calls its own module in place, and a component of the lab by `run`."""

    def modules(self) -> dict[str, Any]:
        self.small = Small()
        return {"small": self.small, "lab": BuiltIn("toy", "tiny")}

    def given(self, unit: int, draw: Any) -> dict[str, Tensor]:
        return {"x": draw("x", (3, 4)), "z": draw("z", (1, 1, 32, 16, 16)), "cache": draw.zeros((1, 32, 2, 16, 16))}

    def start(self, given: dict[str, Tensor], run: Any) -> dict[str, Tensor]:
        return {"cache": given["cache"]}

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        with run.in_place():
            x = self.small(given["x"])
        found = run.lab.stream(**{"z": given["z"], "cache.00": state["cache"]})
        return {"cache": found["cache.00"]}, {"x": x, "video": found["video"]}


class ReadsLate(Base):
    """Reads what the first call returned after the second."""

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        first = run.small(given["x"])
        return state, {"x": run.small(given["x"] + 1) + first}


class Grows(Base):
    """A cache that gets longer with each unit."""

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        window = torch.cat((state["window"], given["x"][None]))
        return {"window": window}, {"x": run.small(window)}


def described(pipeline: type[Pipeline], folder: Path, **attributes: Any) -> Loop:
    cls = type(pipeline.__name__, (pipeline,), {"name": "small", **attributes})
    check_class(cls)
    made = cls("default", cls.options_of({}))
    check_object(made)
    job = DescribeLoopJob("small", "default", {}, "cpu", 1, 0, str(folder))
    return describe_users(made, checked_modules(made), job, lambda *_: None)


def test_what_the_first_units_say(tmp_path: Path) -> None:
    loop = described(Base, tmp_path)
    assert loop.calls() == {("small", "call"): 2}
    assert (loop.opening, loop.steady.phases, loop.kept, loop.notes) == ((), ("twice",), (), ())
    assert loop.outputs == {"x": ("small",), "mean": ("small",)}
    assert loop.state == {"window": ("small",)}
    (slot,) = loop.slots
    assert (slot.users, Path(slot.component).name) == (True, "small.small")


def test_ranges_of_sessions_are_phases_and_steps_of_the_unit(tmp_path: Path) -> None:
    by_run = described(ByRun, tmp_path / "run")
    by_ranges = described(ByRanges, tmp_path / "ranges", module=Ranged)
    assert (by_ranges.opened, by_ranges.steady) == (by_run.opened, by_run.steady)
    assert [call.about for call in by_run.steady.calls][1] == {"step": 1, "timestep": 0.5}
    assert profile.current() is profile.NO_SESSION


def test_modules_are_called_in_place_beside_components_of_the_lab(tmp_path: Path) -> None:
    loop = described(BesideBuiltIn, tmp_path)
    assert loop.calls() == {("small", "call"): 1, ("lab", "stream"): 1}
    assert loop.between_ns.keys() == {"passed", "bound"}
    assert [(slot.name, slot.users) for slot in loop.slots] == [("small", True), ("lab", False)]
    assert loop.outputs == {"x": ("small",), "video": ("lab",)}


def test_outputs_that_are_read_after_the_next_call_are_kept(tmp_path: Path) -> None:
    assert described(ReadsLate, tmp_path).kept == (("small", "call"),)


def test_a_module_that_no_unit_calls_is_left_out_and_said(tmp_path: Path) -> None:
    class Spare(Base):
        def modules(self) -> dict[str, Any]:
            return {"small": Small(), "spare": Small(), "lab": BuiltIn("toy", "tiny")}

    loop = described(Spare, tmp_path)
    assert [slot.name for slot in loop.slots] == ["small"]
    assert loop.notes == tuple(f"no unit calls {name} of modules(); it is left out" for name in ("spare", "lab"))


def test_global_generators_are_seeded_and_it_is_said(tmp_path: Path) -> None:
    loop = described(Draws, tmp_path)
    (note,) = loop.notes
    assert "draw random numbers by themselves" in note
    assert loop.draws


@pytest.mark.parametrize(
    ("pipeline", "module", "says"),
    [
        (Base, Remembers, r"not the same: .*; the module small\.past changes from unit to unit"),
        (Counts, Small, r"not the same: x of unit 0 .*; self\.count changes from unit to unit"),
        (CountsInItsClass, Small, r"; \w+\.count changes from unit to unit"),
        (CountsOutside, Small, r"test_users\.made changes from unit to unit"),
        (
            DrawsAnew,
            Small,
            r"two equally seeded runs .* are not the same: x of unit 0 differs .* part of the state, and .*global",
        ),
        (Base, GivesItsInput, r"slot small: the output output is memory of the input x"),
        (Base, WritesItsInput, r"slot small: a call writes into its input x"),
        (WithoutWith, Small, r"phase 'twice' is made and not entered; write `with` before it"),
        (Grows, Small, r"after 8 units, calls still change from unit to unit"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    pipeline: type[Pipeline], module: type[nn.Module], says: str, tmp_path: Path
) -> None:
    with pytest.raises(BakeoffError, match=says):
        described(pipeline, tmp_path, module=module)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("presets", ("small", "large"), r"presets is \('small', 'large'\); give a dict of names"),
        ("frames", 3, r"frames is an int; write a method"),
        ("modules", lambda _: {"small": torch.relu}, r"gives a builtin_function_or_method as small; give a torch"),
        (
            "modules",
            lambda _: {"my net": Small()},
            r"gives the name 'my net'; give one that can be written as run\.NAME",
        ),
        ("modules", lambda _: 1 / 0, r"modules\(\) raised ZeroDivisionError \(test_users\.py, line \d+\)"),
        ("step", lambda *_: {"x": torch.ones(1)}, r"step returns a dict; return state, outputs"),
        ("step", lambda *_: ({}, {}), r"step returns no outputs"),
        (
            "step",
            lambda _, state, *__: ({"n": state.get("n", 0) + 1}, {"x": torch.ones(1)}),
            r"n in the state is an int",
        ),
    ],
)
def test_what_its_author_wrote_amiss_is_said_in_a_sentence(name: str, value: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(BakeoffError, match=says):
        described(Base, tmp_path, **{name: value})
