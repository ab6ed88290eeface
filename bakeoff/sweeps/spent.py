"""Where the wall time of a sweep went: each moment counts for what ran then, in equal parts where several ran."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

Part = Literal[
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
"""What each phase of a measuring worker counts for; one that waits for its turn counts for nothing."""


@dataclass(frozen=True, slots=True)
class Span:
    """From `start` to `end`, in seconds of one clock, something ran that counts for `part`."""

    part: Part
    start: float
    end: float


@dataclass(slots=True)
class Spent:
    """What ran when in one sweep."""

    began: float = field(default_factory=time.monotonic)
    spans: list[Span] = field(default_factory=list)

    @contextmanager
    def on(self, part: Part) -> Iterator[None]:
        """All time within it counts for this part."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.spans.append(Span(part, start, time.monotonic()))

    def worker(self, timeline: Sequence[tuple[str, float]], part: Part | None = None) -> None:
        """The phases of a worker, each with the moment when it began; all but waiting count for `part` if given."""
        for (phase, start), (_, end) in pairwise(timeline):
            of_phase = _PART.get(phase)
            if phase != "turn" and (part or of_phase):
                self.spans.append(Span(part or of_phase, start, end))  # type: ignore[arg-type]

    def stopped(self, timeline: Sequence[tuple[str, float]]) -> None:
        """The phases of a worker that was stopped, with the time at its end: until its turn it was a stopped build."""
        phases = [phase for phase, _ in timeline]
        turn = phases.index("turn") if "turn" in phases else len(phases) - 1
        self.worker(timeline[: turn + 1], "stopped builds")
        self.worker(timeline[turn:])

    def since_began(self, span: tuple[float, float] | None) -> tuple[float, float] | None:
        """The span in seconds since the sweep began."""
        return None if span is None else (round(span[0] - self.began, 3), round(span[1] - self.began, 3))

    def seconds(self) -> dict[str, float]:
        """Seconds of each part, the largest first; what is left of the time until now as "other"."""
        found = share_out(self.spans)
        found["other"] = max(0.0, time.monotonic() - self.began - sum(found.values()))
        return dict(sorted(found.items(), key=lambda entry: -entry[1]))


def share_out(spans: Iterable[Span]) -> dict[str, float]:
    """Seconds by part; a moment that lies in several spans is shared by them in equal parts."""
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
