"""Runs a loop free, without setting it back to the reference's state, and finds the program behind a wrong unit."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from bakeoff.backends.backend import ModuleEngine
from bakeoff.backends.port import Port
from bakeoff.models.component import TensorSpec
from bakeoff.models.pipelines.pipeline import OPENING, Key, Loop
from bakeoff.models.words import counted
from bakeoff.process.jobs import LoopSubject
from bakeoff.record.pipeline import Curve, SlotProgram
from bakeoff.worker.pipeline.parity import (
    STATE,
    Begin,
    LoopAbout,
    LoopFiles,
    StateBefore,
    compared,
    first_units,
    program_subject,
)
from bakeoff.worker.pipeline.runner import LoopRunner
from bakeoff.worker.reference.error import Difference, not_comparable, worst
from bakeoff.worker.reference.precision import Widened
from bakeoff.worker.subject import cast_inputs, load_subject
from bakeoff.worker.torch_flags import flags

EQUIVALENTS = 5
"""Number of runs beside eager itself that are as right as eager: their curves show how far rounding alone drifts."""
_NUDGED = (0, 1)
"""Units whose state an equivalent changes by a rounding: a session may open with zeros."""


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A run of eager that differs from eager in nothing but rounding."""

    name: str
    threads: int
    attention: AbstractContextManager[object]
    nudge: int | None = None
    """Seed of the changes of the first states; None for none."""


def equivalents(device: str, threads: int) -> Iterator[Equivalent]:
    """Yield eager, and with other threads on a CPU, torch's plain attention, and states that rounding changed."""
    yield Equivalent("eager", threads, nullcontext())
    numbers = [number for number in (1, threads + 1) if number != threads] if device == "cpu" else []
    for number in numbers:
        yield Equivalent(counted(number, "thread"), number, nullcontext())
    yield Equivalent("math attention", threads, sdpa_kernel(SDPBackend.MATH))
    for seed in range(1, EQUIVALENTS - len(numbers)):
        yield Equivalent(f"start nudged {seed}", threads, nullcontext(), seed)


def nudged(runner: LoopRunner, seed: int) -> StateBefore:
    """Return a function that changes each value of the runner's first states up or down by a rounding of its dtype."""
    generator = torch.Generator().manual_seed(seed)

    def change(value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        signs = torch.randint(0, 2, value.shape, generator=generator).to(value.device) * 2 - 1
        return value + value * (signs * torch.finfo(value.dtype).eps).to(value.dtype)

    def state_before(unit: int) -> Mapping[str, Tensor] | None:
        return {name: change(value) for name, value in runner.state().items()} if unit in _NUDGED else None

    return state_before


def free_curves(
    run: str,
    runner: LoopRunner,
    loop: Loop,
    files: LoopFiles,
    state_before: StateBefore | None = None,
    begin: Begin | None = None,
) -> tuple[Curve, ...]:
    """Run the reference's units without its states; return a curve for each output, and one for the state.

    `state_before` and `begin` are those of `first_units`. Raises whatever a program raises.
    """
    found: dict[str, list[Difference]] = {}
    for unit, values in first_units(runner, files.about().units, state_before, begin):
        if unit == OPENING:
            continue
        reference = files.unit(unit)
        entries = {name: compared(values.get(name), wanted) for name, wanted in reference.items()}
        state = [entry for name, entry in entries.items() if name.startswith(STATE)]
        for name in loop.outputs:
            found.setdefault(name, []).append(entries.get(name) or not_comparable("missing"))
        if state:
            found.setdefault("state", []).append(max(state, key=lambda entry: entry.rel_l2))
    return tuple(_curve(run, TensorSpec(name, (), signal=loop.signals.get(name, "")), found[name]) for name in found)


def _curve(run: str, spec: TensorSpec, differences: Sequence[Difference]) -> Curve:
    judged = [worst(spec, [entry], math.inf) for entry in differences]
    decibels = (one.sqnr_db if one.signal_db is None else one.signal_db for one in judged)
    return Curve(run, spec.name, tuple(one.rel_l2 for one in judged), tuple(decibels))


def first_wrong_program(
    subject: LoopSubject, runner: LoopRunner, files: LoopFiles, programs: Sequence[SlotProgram], unit: int
) -> str:
    """Run a unit again from the reference's state; describe the first program whose outputs exceed its own limits.

    Each call is compared with eager in the reference's precision on the inputs of the call, which are the reference's
    up to the first wrong program. Only one program is loaded at a time. "" if no program exceeds its limits. Raises
    whatever a program raises.
    """
    about, loop = files.about(), subject.loop
    first: dict[int, str] = {}
    """Place of a call within the unit to what is wrong with it."""
    called = {call.key for call in loop.of(unit).calls}
    for key in loop.programs:
        if key in called:
            made = next(one for one in programs if one.name == str(key))
            judge = _judge(subject, about, key, made, first)
            runner.session = OPENING
            runner.on_call = judge if unit == OPENING else None
            runner.open()
            if unit != OPENING:
                runner.on_call = judge
                runner.set_state(files.state_before(unit), unit)
                runner.unit()
    runner.on_call, runner.session = None, OPENING
    return first[min(first)] if first else ""


@contextmanager
def noting_nan(runner: LoopRunner) -> Iterator[dict[int, str]]:
    """Look at the outputs of each call; the yielded mapping has, by unit, the first program whose outputs are not
    numbers, which a second run of the unit may not show again. The opening counts as unit 0."""
    first: dict[int, str] = {}

    def look(key: Key, port: Port, _inputs: object) -> None:
        bad = next((name for name, value in port.outputs.items() if torch.isnan(value).any()), None)
        if bad is not None:
            text = f"{key} is the first wrong program: {bad} has values that are not numbers"
            first.setdefault(runner.next_unit, text)

    runner.on_call = look
    try:
        yield first
    finally:
        runner.on_call = None


def _judge(
    subject: LoopSubject, about: LoopAbout, program: Key, made: SlotProgram, first: dict[int, str]
) -> Callable[[Key, Port, object], None]:
    """Return a function that compares the calls of a program, with which the runner calls it, with eager in high
    precision; it adds to `first` what is wrong with the earliest wrong call."""
    limits = {one.name: one.limit for one in made.parity.outputs} if made.parity else {}
    loaded, places = load_subject(program_subject(subject, program)), count()
    module = Widened(loaded.cast(about.dtype, about.device), about.dtype)

    def judge(key: Key, port: Port, _inputs: object) -> None:
        place = next(places)
        if key != program or place >= min(first, default=math.inf):
            return
        inputs = cast_inputs(loaded.workload, dict(port.inputs), about.dtype, about.device)
        with flags(about.dtype, subject.threads):
            eager = ModuleEngine(module).port(inputs, [one.name for one in loaded.workload.outputs])
            eager.call()
        for name, wanted in eager.outputs.items():
            entry, limit = compared(port.outputs.get(name), wanted), limits.get(name, math.inf)
            if entry.problem is not None or entry.rel_l2 > limit:
                error = entry.problem or f"{entry.rel_l2:.2e}, limit {limit:.2e}"
                first[place] = f"{made.name} is the first wrong program: {name} {error}"
                return

    return judge
