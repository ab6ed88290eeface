"""Accounts for the time of a sweep: what each worker's phases and the parent's own work count towards.

Time in which several workers run is divided among them.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

Part = Literal[
    "counting work",
    "ceilings",
    "references",
    "precompiled headers",
    "imports",
    "builds",
    "stopped builds",
    "sampling",
    "checks",
    "warm and traced builds",
    "builds of the final",
    "timing of the final",
]
_PART: Mapping[str, Part] = {
    "start": "imports",
    "import": "imports",
    "weights": "builds",
    "build": "builds",
    "prove": "builds",
    "check": "checks",
    "warm-up": "sampling",
    "latency": "sampling",
    "throughput": "sampling",
    "memory": "checks",
    "fresh inputs": "checks",
    "sizes": "checks",
    "trace": "warm and traced builds",
}
"""Part of the sweep that each phase of a measuring worker counts towards; waiting for a turn counts towards none."""


@dataclass(frozen=True, slots=True)
class Span:
    """Time from `start` to `end`, in seconds of one clock, that counts towards `part`."""

    part: Part
    start: float
    end: float


@dataclass(slots=True)
class TimeSpent:
    """Account of the time that a sweep spent on each of its parts."""

    began: float = field(default_factory=time.monotonic)
    spans: list[Span] = field(default_factory=list)

    @contextmanager
    def on(self, part: Part) -> Iterator[None]:
        """Count the time within the block towards this part."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.spans.append(Span(part, start, time.monotonic()))

    def worker(self, timeline: Sequence[tuple[str, float]], part: Part | None = None) -> None:
        """Count a worker's phases, given with their starts, each towards its usual part, or all towards `part` if it is
        given.

        Waiting for a turn does not count.
        """
        for (phase, start), (_, end) in pairwise(timeline):
            of_phase = _PART.get(phase)
            if phase != "turn" and (part or of_phase):
                self.spans.append(Span(part or of_phase, start, end))  # type: ignore[arg-type]

    def stopped(self, timeline: Sequence[tuple[str, float]]) -> None:
        """Count the phases of a worker that was stopped: those before its turn as "stopped builds", later ones as
        usual.

        `timeline` ends with the time at which the worker was stopped.
        """
        phases = [phase for phase, _ in timeline]
        turn = phases.index("turn") if "turn" in phases else len(phases) - 1
        self.worker(timeline[: turn + 1], "stopped builds")
        self.worker(timeline[turn:])

    def since_began(self, span: tuple[float, float] | None) -> tuple[float, float] | None:
        """Convert a span (start, end by time.monotonic()) to seconds since the sweep began; None remains None."""
        return None if span is None else (round(span[0] - self.began, 3), round(span[1] - self.began, 3))

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each part, the largest first; "other" is the time since the start that no part accounts
        for."""
        found = share_out(self.spans)
        found["other"] = max(0.0, time.monotonic() - self.began - sum(found.values()))
        return dict(sorted(found.items(), key=lambda entry: -entry[1]))


def share_out(spans: Iterable[Span]) -> dict[str, float]:
    """Return the seconds of each part; time that several spans cover is divided among them equally."""
    changes = sorted((at, change, span.part) for span in spans for at, change in ((span.start, 1), (span.end, -1)))
    running: dict[Part, int] = defaultdict(int)
    found: dict[str, float] = defaultdict(float)
    for (at, change, part), (until, _, _) in pairwise(changes):
        running[part] += change
        total = sum(running.values())
        for name, count in running.items():
            if count:
                found[name] += (until - at) * count / total
    return dict(found)
