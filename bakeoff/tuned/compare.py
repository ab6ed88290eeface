"""`Applied.compare`: times a user's pipeline with the originals and with the programs, in randomly ordered pairs."""

import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from bakeoff.models.errors import BakeoffError
from bakeoff.models.signature import fields_of
from bakeoff.models.words import counted
from bakeoff.process.phases import Block
from bakeoff.race import take_turns
from bakeoff.record.statistics import Summary, summarise_ns
from bakeoff.record.verdict import FEWEST_FOR_INTERVAL, PairRatio, pair_ratio, turned
from bakeoff.report.format import median_and_interval

if TYPE_CHECKING:
    from bakeoff.tuned.apply import Applied

_WARM_UP = 2
"""Untimed pairs of passes at the start. The first tuned pass also compares programs with originals and computes
both."""
_PLACE = (
    "in this process, on this machine as it is now: no clock was fixed, and nothing else that runs here was stopped"
)
Numbers = Mapping[str, NDArray[np.float64]]
"""Arrays of the numbers in a tree of outputs, by their paths."""


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """Difference between the outputs of two passes."""

    rel_l2: float | None
    """Relative L2 over all numbers together, the largest of all rounds; None if outputs cannot be compared."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """Result of `Applied.compare`. Both summaries are of the time of one pass, in milliseconds."""

    original: Summary
    tuned: Summary
    ratio: PairRatio
    """Time of the original pipeline divided by that of the tuned one; above 1 if the tuned one is faster."""
    outputs: OutputDifference
    """Difference of the tuned outputs from the original's in the same pair of passes."""
    itself: OutputDifference
    """Difference of the original's outputs from those of its first pass."""
    calls_tuned: int
    """Number of calls in the timed tuned passes that programs computed."""
    calls_original: int
    reasons: Mapping[str, int]
    """Number of calls for each reason why they ran the original; they add up to `calls_original`."""
    original_ns: tuple[int, ...]
    tuned_ns: tuple[int, ...]

    def __str__(self) -> str:
        return "\n".join(_text(self))

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def compare(applied: "Applied", run: Callable[[], Any], rounds: int, seed: Callable[[], object] | None) -> EndToEnd:
    """Carry out `Applied.compare`. The programs are installed afterwards, even if `run` raises."""
    if rounds < 1:
        raise BakeoffError(f"rounds={rounds}: give 1 or more, {FEWEST_FOR_INTERVAL} for an interval", "bad-option")
    original, tuned = sides = (_Pass(applied, run, seed, tuned=False), _Pass(applied, run, seed, tuned=True))
    against, itself = [], []
    try:
        original.block()
        first = original.numbers
        if not first:
            text = "run() returned no numbers; let it return the pipeline's output, such as its images"
            raise BakeoffError(text, "bad-input")
        for _ in range(_WARM_UP):
            for side in sides:
                side.block()
        before = _calls(applied)

        def goes_on(done: int) -> bool:
            if done:
                against.append(_difference(tuned.numbers, original.numbers))
                itself.append(_difference(original.numbers, first))
            return done < rounds

        turns = take_turns(dict(enumerate(sides)), random.Random(), goes_on)
        counted = _calls(applied) - before
    finally:
        applied.install()
    original_ns, tuned_ns = (tuple(each.blocks[place].samples_ns[0] for each in turns) for place in (0, 1))
    calls_tuned = counted.pop(None, 0)
    return EndToEnd(
        original=summarise_ns(original_ns),
        tuned=summarise_ns(tuned_ns),
        ratio=pair_ratio(original_ns, tuned_ns),
        outputs=_worst(against),
        itself=_worst(itself),
        calls_tuned=calls_tuned,
        calls_original=counted.total(),
        reasons={str(reason): count for reason, count in counted.items()},
        original_ns=original_ns,
        tuned_ns=tuned_ns,
    )


@dataclass(slots=True)
class _Pass:
    """One side of the comparison: passes with the originals or, if `tuned`, with the programs."""

    applied: "Applied"
    run: Callable[[], Any]
    seed: Callable[[], object] | None
    tuned: bool
    numbers: Numbers = field(default_factory=dict)
    """Outputs of the newest pass, copied, since the next one may write to the same memory."""

    @property
    def live(self) -> bool:
        return True

    def block(self) -> Block:
        (self.applied.install if self.tuned else self.applied.suspend)()
        if self.seed is not None:
            self.seed()
        _synchronise()
        started = time.perf_counter_ns()
        returned = self.run()
        _synchronise()
        elapsed_ns = time.perf_counter_ns() - started
        self.numbers = dict(_numbers("output", returned))
        return Block((elapsed_ns,), 0.0)


def _calls(applied: "Applied") -> Counter[str | None]:
    """Count the calls that ran an original by reason, and under None the calls that programs computed."""
    found: Counter[str | None] = Counter()
    for place in applied.report().places:
        found.update(place.reasons)
        found[None] += place.tuned
    return found


def _synchronise() -> None:
    """Wait for the GPUs, if torch has begun to use one."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()


def _numbers(path: str, value: Any) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield path and copy of each tensor, array, picture and number in a tree, with complex numbers as real pairs."""
    if isinstance(value, str | bytes) or value is None:
        return
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.resolve_conj().numpy() if value.is_complex() else value.double().numpy()
    fields = fields_of(value)
    parts: Iterable[tuple[object, Any]]
    if hasattr(value, "__array_interface__") or isinstance(value, int | float | complex):
        array = np.array(value)
        if array.dtype.kind == "c":
            array = np.stack((array.real, array.imag))
        if array.dtype.kind in "biuf":
            yield path, array.astype(np.float64)
        return
    if isinstance(value, Mapping):
        parts = value.items()
    elif fields is not None:
        parts = fields.items()
    elif isinstance(value, Sequence):
        parts = enumerate(value)
    else:
        parts = ()
    for name, part in parts:
        yield from _numbers(f"{path}.{name}", part)


def _difference(found: Numbers, wanted: Numbers) -> OutputDifference:
    if found.keys() != wanted.keys():
        name = min(found.keys() ^ wanted.keys())
        return OutputDifference(None, f"{name} is in one of them only")
    distance, norm = 0.0, 0.0
    for name, array in wanted.items():
        if found[name].shape != array.shape:
            return OutputDifference(None, f"{name} has the shape {found[name].shape} and not {array.shape}")
        distance += float(np.sum((found[name] - array) ** 2))
        norm += float(np.sum(array**2))
    if not math.isfinite(distance + norm):
        return OutputDifference(None, "values are not finite")
    return OutputDifference(math.sqrt(distance / norm) if norm else float(distance > 0))


def _worst(differences: Sequence[OutputDifference]) -> OutputDifference:
    problem = next((one for one in differences if one.problem), None)
    return problem or max(differences, key=lambda one: one.rel_l2 or 0.0)


def _text(found: EndToEnd) -> Iterator[str]:
    pairs = f"{counted(found.ratio.pairs, 'pair')} of passes in random order"
    yield f"end to end, {pairs}, {_PLACE}"
    for name, side in (("original", found.original), ("tuned", found.tuned)):
        median, interval = median_and_interval(side)
        shown = interval if found.ratio.interval is not None else f"[n/a, needs {FEWEST_FOR_INTERVAL} passes]"
        yield f"  {name:<9} {median} ms {shown}"
    yield f"  ratio     {_verdict(found.ratio)}"
    against, itself = _stated(found.outputs), _stated(found.itself)
    yield f"  outputs   tuned against original: {against}; original against itself: {itself}"
    if found.itself.problem or found.itself.rel_l2:
        yield "            the original's own passes differ: its output is random or goes on; seed= may settle it"
    yield f"  calls     {found.calls_tuned} of {found.calls_tuned + found.calls_original} tuned"
    for reason, count in found.reasons.items():
        yield f"            {count} ran the original: {reason}"


def _verdict(ratio: PairRatio) -> str:
    lost = ratio.ratio < 1
    factor, interval = turned(ratio.ratio, ratio.interval) if lost else (ratio.ratio, ratio.interval)
    who = "original" if lost else "tuned"
    if interval is None:
        return f"{factor:.3f}x for the {who}; no verdict, which needs {FEWEST_FOR_INTERVAL} pairs"
    figures = f"{factor:.3f}x [{interval[0]:.3f}, {interval[1]:.3f}] for the {who}"
    words = {"faster": "tuned is faster", "slower": "tuned lost: it is slower than the original"}
    return f"{figures}: {words.get(ratio.word, ratio.word)}"


def _stated(difference: OutputDifference) -> str:
    if difference.rel_l2 is None:
        return f"not comparable, {difference.problem}"
    return f"{difference.rel_l2:.2e} relative L2" if difference.rel_l2 else "equal"
