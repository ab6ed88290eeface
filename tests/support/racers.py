"""Engines that win a race without computing, or spoil their rivals' times: deliberate faults of a race's sides.

Where a fault says so, it works in races alone: an engine can read in its worker's folder what it is run for. Outputs
are right in all calls on values that were there before, so that only new values, times and clocks tell.
"""

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.backend import BuildContext, BuildFunction, Call, Engine, NoOptions, Outputs
from bakeoff.process.jobs import CompareJob
from bakeoff.selftest.faulty import BoundEngine, Inputs, canary

if TYPE_CHECKING:
    from torch import nn

Compute = Callable[[Inputs], Outputs]
_BUSY_S = 0.02


def _in_race() -> bool:
    """Whether the job of this worker is a side of a race: its file names the class."""
    return CompareJob.__name__ in Path("job.json").read_text()


def _clones(outputs: Outputs) -> Outputs:
    return tuple(output.clone() for output in outputs)


def _content(inputs: Inputs) -> str:
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in inputs.values())).hexdigest()


def _building(bind: Callable[[Compute, Inputs], Call], everywhere: bool = False) -> BuildFunction:
    """Return a build function whose engine binds like this in races, or `everywhere`, and computes elsewhere."""

    def build(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
        import torch

        @torch.no_grad()
        def compute(inputs: Inputs) -> Outputs:
            return tuple(module(*inputs.values()))

        active = everywhere or _in_race()
        return BoundEngine(lambda inputs: bind(compute, inputs) if active else lambda: compute(inputs))

    return build


def _still(seconds: float) -> Callable[[Compute, Inputs], Call]:
    """Return a binding that takes inputs for constants once they have not changed for so long."""

    def bind(compute: Compute, inputs: Inputs) -> Call:
        seen, since, stored = [""], [0.0], list[Outputs]()

        def call() -> Outputs:
            found, now = str([float(tensor.sum()) for tensor in inputs.values()]), time.monotonic()
            if found != seen[0]:
                seen[:], since[:], stored[:] = [found], [now], []
            if now - since[0] < seconds or not stored:
                stored[:] = [compute(inputs)]
            return _clones(stored[0])

        return call

    return bind


def _stored_by_content(compute: Compute, inputs: Inputs) -> Call:
    stored: dict[str, Outputs] = {}

    def call() -> Outputs:
        key = _content(inputs)
        if key not in stored:
            stored[key] = compute(inputs)
        return _clones(stored[key])

    return call


def _stored_by_binding(compute: Compute, inputs: Inputs) -> Call:
    stored: list[Outputs] = []

    def call() -> Outputs:
        if not stored:
            stored.append(compute(inputs))
        return _clones(stored[0])

    return call


@dataclass
class _AllSets:
    """Computes every set that was bound in the first set's call, and returns the others' outputs in turn."""

    bound: list[Inputs]
    ahead: dict[int, tuple[str, Outputs]]

    def bind(self, compute: Compute, inputs: Inputs) -> Call:
        place = len(self.bound)
        self.bound.append(inputs)

        def call() -> Outputs:
            key = _content(inputs)
            known = self.ahead.pop(place, ("", ()))
            if known[0] != key:
                self.ahead = {other: (_content(each), compute(each)) for other, each in enumerate(self.bound[:4])}
                known = self.ahead.pop(place, (key, compute(inputs) if place >= 4 else ()))
            return known[1]

        return call


def _disturbing(compute: Compute, inputs: Inputs) -> Call:
    """Compute, with a thread that is busy as long as no call runs: while rivals are timed."""
    ended = [time.monotonic()]

    def disturb() -> None:
        while True:
            if time.monotonic() - ended[0] < 3 * _BUSY_S:
                time.sleep(_BUSY_S / 10)

    threading.Thread(target=disturb, daemon=True).start()

    def call() -> Outputs:
        outputs = compute(inputs)
        ended[0] = time.monotonic()
        return outputs

    return call


def _leaking(compute: Compute, inputs: Inputs) -> Call:
    kept: list[bytearray] = []

    def call() -> Outputs:
        kept.append(bytearray(b"x") * (1 << 18))
        return compute(inputs)

    return call


def _slow_clock(compute: Compute, inputs: Inputs) -> Call:
    from bakeoff.worker import compare
    from bakeoff.worker.clocks import clock

    honest, began = clock.now_ns, time.monotonic_ns()
    if not hasattr(clock, "_was"):
        clock._was = honest  # type: ignore[attr-defined]
        clock.now_ns = lambda: began + (honest() - began) // 4
        compare.time_call.__globals__["now_ns"] = clock.now_ns
    return lambda: compute(inputs)


STILL_025 = canary("still-0.25", "takes inputs for constants after 0.25 s", _building(_still(0.25), everywhere=True))
RACES_BY_CONTENT = canary("races-by-content", "stores results by content in races", _building(_stored_by_content))
RACES_BY_BINDING = canary("races-by-binding", "stores results by binding in races", _building(_stored_by_binding))
ALL_SETS = canary(
    "all-sets",
    "computes all sets in one call",
    lambda *asked: _building(_AllSets([], {}).bind, everywhere=True)(*asked),
)
DISTURBS = canary("disturbs", "is busy while rivals are timed", _building(_disturbing))
LEAKS = canary("races-leak", "keeps memory in races", _building(_leaking))
SLOW_CLOCK = canary("races-slow-clock", "slows the clock in races", _building(_slow_clock))
