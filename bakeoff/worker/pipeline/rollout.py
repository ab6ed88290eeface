"""Runs a loop free, without setting it back to the reference's state, and finds the program behind a wrong unit."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from bakeoff.backends.backend import ModuleEngine
from bakeoff.backends.port import Port
from bakeoff.models.component import TensorSpec
from bakeoff.models.pipelines.pipeline import OPENING, Key, Loop
from bakeoff.process.jobs import LoopSubject
from bakeoff.record.pipeline import Curve, SlotProgram
from bakeoff.worker.pipeline.parity import STATE, Begin, LoopFiles, StateBefore, compared, first_units, program_subject
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
    counts = [count for count in (1, threads + 1) if count != threads] if device == "cpu" else []
    for count in counts:
        yield Equivalent(f"{count} thread{'' if count == 1 else 's'}", count, nullcontext())
    yield Equivalent("math attention", threads, sdpa_kernel(SDPBackend.MATH))
    for seed in range(1, EQUIVALENTS - len(counts)):
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
            judge = _Judge(subject, about.dtype, about.device, key, programs, first)
            runner.session = OPENING
            runner.on_call = judge if unit == OPENING else None
            runner.open()
            if unit != OPENING:
                runner.on_call = judge
                runner.set_state(files.state_before(unit), unit)
                runner.unit()
    runner.on_call, runner.session = None, OPENING
    return first[min(first)] if first else ""


@dataclass(slots=True)
class NotANumber:
    """Notes the programs whose outputs are not numbers, which a second run of their unit may not show again."""

    runner: LoopRunner
    first: dict[int, str] = field(default_factory=dict)
    """The first such program by unit; the opening counts as unit 0."""

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Within this context, look at the outputs of each call."""
        self.runner.on_call = self._look
        try:
            yield
        finally:
            self.runner.on_call = None

    def _look(self, key: Key, port: Port, _inputs: object) -> None:
        bad = next((name for name, value in port.outputs.items() if torch.isnan(value).any()), None)
        if bad is not None:
            text = f"{key} is the first wrong program: {bad} has values that are not numbers"
            self.first.setdefault(self.runner.next_unit, text)


class _Judge:
    """Compares the calls of one program with eager in high precision."""

    def __init__(
        self,
        subject: LoopSubject,
        dtype: str,
        device: str,
        program: Key,
        programs: Sequence[SlotProgram],
        first: dict[int, str],
    ) -> None:
        """`first` maps the place of a call within the unit to what is wrong with it; this judge adds to it."""
        made = next(one for one in programs if one.name == str(program))
        self._name, self._limits = (
            made.name,
            {one.name: one.limit for one in made.parity.outputs} if made.parity else {},
        )
        self._loaded = load_subject(program_subject(subject, program))
        self._module = Widened(self._loaded.cast(dtype, device), dtype)
        self._dtype, self._device, self._threads, self._key = dtype, device, subject.threads, program
        self._first, self._place = first, 0

    def __call__(self, key: Key, port: Port, _inputs: object) -> None:
        place, self._place = self._place, self._place + 1
        if key != self._key or place >= min(self._first, default=math.inf):
            return
        workload = self._loaded.workload
        inputs = cast_inputs(workload, dict(port.inputs), self._dtype, self._device)
        with flags(self._dtype, self._threads):
            eager = ModuleEngine(self._module).port(inputs, [one.name for one in workload.outputs])
            eager.call()
        for name, wanted in eager.outputs.items():
            entry, limit = compared(port.outputs.get(name), wanted), self._limits.get(name, math.inf)
            if entry.problem is not None or entry.rel_l2 > limit:
                error = entry.problem or f"{entry.rel_l2:.2e}, limit {limit:.2e}"
                self._first[place] = f"{self._name} is the first wrong program: {name} {error}"
                return
