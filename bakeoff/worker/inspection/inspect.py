"""Times the modules of a user's callable: warm-up, then passes with and without instrumentation in alternation."""

import functools
import inspect
import os
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from bakeoff.models.errors import BakeoffError, meant
from bakeoff.models.words import some_of
from bakeoff.process.inspected import Inspection, Node, Recorded
from bakeoff.process.jobs import InspectJob
from bakeoff.worker.clocks.clock import now_ns
from bakeoff.worker.inspection.load import find_modules, load_pass
from bakeoff.worker.inspection.recording import Recording
from bakeoff.worker.inspection.tree import OUTSIDE, Capture, Pass, Tree
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import synchronise

_FEWEST_WARM, _MOST_WARM = 2, 10
_WARM_S = 60.0
_SETTLED = 0.05
_SHOWN, _LISTED = 3, 12
_MOST_RECORDED_PASSES = 8


@dataclass(frozen=True, slots=True)
class Subject:
    """The callable that is inspected, with its modules and device."""

    what: str
    """Source as FILE.py:NAME, for messages."""
    run: Callable[[], Any]
    """Runs one pass."""
    modules: tuple[tuple[str, nn.Module], ...]
    """Known modules with their names."""
    synchronise: Callable[[], None]
    """Waits until the device has done all queued work."""
    device: Literal["cpu", "cuda"]

    @property
    def names(self) -> dict[int, str]:
        """Names of the known modules, by id."""
        return {id(module): name for name, module in self.modules}

    @property
    def classes(self) -> list[type]:
        return list(dict.fromkeys(type(module) for _, module in self.modules))


def inspect_callable(job: InspectJob, report: Report) -> Inspection:
    """Time the modules of the job's callable, and record those in `job.record`.

    Raises BakeoffError if user code fails, and as `measure` does.
    """
    os.chdir(job.cwd)
    report("load")
    what = f"{Path(job.file).name}:{job.name}"
    run, callable_ = load_pass(Path(job.file), job.name)
    report("warm-up")
    warm_ns, steady = warm_up(run)
    device = device_in_use()
    subject = Subject(what, run, tuple(find_modules(callable_)), lambda: synchronise(device), device)
    inspection = measure(subject, job.passes, report, warm_ns, steady, job.record)
    if not job.record:
        return inspection
    report("recording")
    return replace(inspection, recorded=record(subject, job.record, Path(job.folder)))


def device_in_use() -> Literal["cpu", "cuda"]:
    """Return the device that the user's code has used so far."""
    return "cuda" if torch.cuda.is_initialized() else "cpu"


def warm_up(run: Callable[[], Any]) -> tuple[list[int], bool]:
    """Run passes until two in succession agree, ten were made or a minute is over.

    Return the nanoseconds of each pass, and whether the last two agree.
    """
    samples: list[int] = []
    while True:
        started = now_ns()
        run()
        synchronise(device_in_use())
        samples.append(now_ns() - started)
        if len(samples) >= _FEWEST_WARM:
            if abs(samples[-1] / samples[-2] - 1) < _SETTLED:
                return samples, True
            if len(samples) >= _MOST_WARM or sum(samples) > _WARM_S * 1e9:
                return samples, False


def measure(
    subject: Subject, passes: int, report: Report, warm_ns: Sequence[int], steady: bool, wanted: Sequence[str] = ()
) -> Inspection:
    """Time passes with and without instrumentation.

    `warm_ns` and `steady` are the results of `warm_up`. Raises BakeoffError if no module is called, if passes do not
    call the same modules, or if a `wanted` name is not called.
    """
    tree = Tree(subject.names)
    first = _watched_pass(subject, tree)
    if not first.calls:
        other = f"; on other threads it calls {', '.join(first.other_threads)}" if first.other_threads else ""
        text = f"{subject.what} calls no module on its own thread{other}; a pass must call an nn.Module"
        raise BakeoffError(text, "bad-user-code")
    _check_called(tree, wanted)
    report("passes", f"0 of {passes}")
    plain_ns: list[int] = []
    done: list[Pass] = []
    for index in range(passes):
        for watched in (index % 2 == 0, index % 2 != 0):  # alternately first, so that neither gains from its place
            if watched:
                done.append(_watched_pass(subject, tree))
            else:
                plain_ns.append(_plain_pass(subject))
        report("passes", f"{index + 1} of {passes}")
    check_same(subject.what, tree, done)
    known = sorted({place for one in done for place in one.calls})
    return Inspection(
        nodes=_nodes(tree, known, done),
        pass_ns=tuple(one.whole - one.hooks for one in done),
        outside_ns=tuple(one.own[OUTSIDE] for one in done),
        hooks_ns=tuple(one.hooks for one in done),
        whole_ns=tuple(one.whole for one in done),
        plain_ns=tuple(plain_ns),
        warm_ns=tuple(warm_ns),
        steady=steady,
        clock="synchronised" if subject.device == "cuda" else "host",
        device=subject.device,
        other_threads=dict(done[-1].other_threads),
    )


def _plain_pass(subject: Subject) -> int:
    subject.synchronise()
    started = now_ns()
    held = subject.run()
    subject.synchronise()
    elapsed = now_ns() - started
    del held  # what a pass returns is freed after the clock
    return elapsed


def _watched_pass(subject: Subject, tree: Tree, capture: Capture | None = None) -> Pass:
    with watched_calls(tree, _classes(subject, tree)):
        tree.begin(now_ns, subject.synchronise, capture)
        try:
            held = subject.run()
        finally:
            done = tree.end()
    del held
    return done


def _classes(subject: Subject, tree: Tree) -> list[type]:
    """Return the classes of the known modules and of those that were called in a pass."""
    seen = [type(place.module) for place in tree.places[1:]]
    return list(dict.fromkeys([*subject.classes, *seen]))


def _check_called(tree: Tree, wanted: Sequence[str]) -> None:
    """Raise BakeoffError if no module or method with one of the `wanted` names was called."""
    called = list(dict.fromkeys(place.name for place in tree.places[1:]))
    for name in wanted:
        if name not in called:
            listed = f"called are {some_of(called, _LISTED)}"
            text = f"--record {name}: nothing of that name is called{meant(name, called)}; {listed}"
            raise BakeoffError(text, "unknown-name")


def record(subject: Subject, names: Sequence[str], folder: Path) -> tuple[Recorded, ...]:
    """Record calls of the named modules, in up to eight passes while these add calls, and write them below `folder`."""
    recording = Recording(names)
    for _ in range(_MOST_RECORDED_PASSES):
        before = recording.changes
        _watched_pass(subject, Tree(subject.names), recording.take)
        if recording.full or recording.changes == before:
            break
    return recording.write(folder, Path(subject.what).stem)


def check_same(what: str, tree: Tree, done: Sequence[Pass]) -> None:
    """Raise BakeoffError if passes do not call the same modules from the same places."""
    first = done[0].calls.keys()
    for index, one in enumerate(done[1:], start=2):
        differing = sorted(first ^ one.calls.keys())
        if differing:
            names = [tree.places[place].name for place in differing]
            text = (
                f"{what} differs from itself: pass 1 and pass {index} do not both call {some_of(names, _SHOWN)}; "
                "make every pass call the same modules"
            )
            raise BakeoffError(text, "bad-user-code")


def _nodes(tree: Tree, known: Sequence[int], done: Sequence[Pass]) -> tuple[Node, ...]:
    positions = {place: index for index, place in enumerate(known)}
    places = [(index, tree.places[index]) for index in known]
    return tuple(
        Node(
            name=place.name,
            cls=type(place.module).__qualname__,
            parent=positions.get(place.parent, -1),
            calls=tuple(one.calls[index] for one in done),
            own_ns=tuple(one.own[index] for one in done),
            parameters=sum(weight.numel() for weight in place.module.parameters()),
        )
        for index, place in places
    )


@contextmanager
def watched_calls(tree: Tree, classes: Iterable[type]) -> Iterator[None]:
    """Within this context, report calls of modules and of the public methods of `classes` to `tree`.

    This replaces `nn.Module.__call__` and these methods, and restores them at the end. Compiled code keeps running as
    it is: calls within it are not reported, and code that is traced meanwhile is traced through the original functions.
    """
    changed: list[tuple[type, str, Any]] = []
    try:
        changed.append((nn.Module, "__call__", nn.Module.__call__))
        nn.Module.__call__ = _watched(tree, nn.Module.__call__, "")  # type: ignore[method-assign]
        for kind, name, function in public_methods(classes):
            changed.append((kind, name, function))
            setattr(kind, name, _watched(tree, function, name))
        yield
    finally:
        for kind, name, function in reversed(changed):
            setattr(kind, name, function)


def public_methods(classes: Iterable[type]) -> list[tuple[type, str, types.FunctionType]]:
    """Return (class, name, function) for the public methods of these classes and their bases below nn.Module.

    `forward` is included. Methods of torch's own classes, properties, class methods, generators and coroutines are left
    out: a generator's work is not done by its call.
    """
    kinds = dict.fromkeys(base for kind in classes for base in kind.__mro__ if _is_users(base))
    return [
        (kind, name, function)
        for kind in kinds
        for name, function in list(vars(kind).items())
        if not name.startswith("_") and isinstance(function, types.FunctionType) and not _is_lazy(function)
    ]


def _is_users(kind: type) -> bool:
    return issubclass(kind, nn.Module) and kind is not nn.Module and kind.__module__.partition(".")[0] != "torch"


def _is_lazy(function: Callable[..., Any]) -> bool:
    function = inspect.unwrap(function)
    return inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)


def _watched(tree: Tree, original: Callable[..., Any], method: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(module, *args, **kwargs)
        depth = tree.enter(module, method, args, kwargs)
        try:
            return original(module, *args, **kwargs)
        finally:
            tree.leave(depth)

    return call
