"""Explains why the times of two records differ: what was changed, what the records tell of it, and where the time
went."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from bakeoff.record.diff import Difference, differences
from bakeoff.record.schema import Clock, Record, TraceRecord

_CHANGED = (
    "subject", "backend", "dtype", "device", "machine", "objective", "threads", "batch", "checkpoint", "weight seed",
    "input seed", "environment variables", "settings", "versions", "values of the config", "graph", "sources",
    "weights", "facts of the host", "cache of the build", "times of sampling",
)  # fmt: skip
"""Kinds of what somebody changes, in the order in which they are listed: an earlier one often brings later ones."""
_FIRST = {"torch", "component"}
"""Names of the difference that a kind is named after."""
_BY_THREADS = {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "threads", "interop_threads"}
"""Variables and settings that follow from the number of threads."""
_GRAPH = {"graph hash", "operators inside", "operators outside", "graphs", "graph breaks", "number of kernels"}
_DISTURBED = {"contention", "gpu-shared", "throttled", "power-cap", "drift", "bimodal"}
"""Findings that tell of a disturbed window."""
_EITHER_WAY = {"drift", "bimodal"}
"""Those that may have made calls faster as well as slower."""
_LEAST_SHARE = 0.5
"""Share of the difference from which on what the records put in milliseconds comes before what they only name."""
_LEAST_CLOCK = 0.01
"""Least relative difference of two clock rates."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that differs and may change the time; `ms` is its part of B's time less A's, None if nothing tells."""

    kind: str
    what: str
    a: str
    b: str
    ms: float | None = None
    how: str = ""
    """How `ms` is known."""
    brought: tuple[str, ...] = ()
    """What else of its kind changed."""


@dataclass(frozen=True, slots=True)
class Place:
    """Time of a kernel, or of waiting, in the traced calls of both records."""

    name: str
    a_ms: float | None
    """None if the record may have left it out, since it states only longer kernels."""
    b_ms: float | None

    @property
    def grew_ms(self) -> float:
        return (self.b_ms or 0.0) - (self.a_ms or 0.0)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Times of two records, by the clock of each one's objective, with the causes and places of their difference."""

    a: Record
    b: Record
    a_ms: float
    b_ms: float
    causes: tuple[Cause, ...]
    """What explains most comes first."""
    places: tuple[Place, ...]
    """The largest change comes first; empty without traces of both."""

    @property
    def difference_ms(self) -> float:
        return self.b_ms - self.a_ms

    @property
    def both_disturbed(self) -> bool:
        """Whether the difference is of two disturbances as much as of what changed, so that no cause has a size."""
        return _are_disturbed(self.a, self.b)

    @property
    def unsized(self) -> list[Cause]:
        return [cause for cause in self.causes if cause.ms is None]

    @property
    def left_ms(self) -> float:
        """What of the difference is left for the causes without a size."""
        return self.difference_ms - sum(cause.ms or 0.0 for cause in self.causes)


def explain(a: Record, b: Record) -> Explanation | None:
    """Return the explanation; None if one of the records has no samples."""
    times = [_median_ms(record, record.objective.goal) for record in (a, b)]
    if times[0] is None or times[1] is None:
        return None
    total = times[1] - times[0]
    found = [*_measured(a, b, times[0], total), *_changed(a, b), *_disturbances(a, b, total > 0)]
    told = {cause.kind for cause in found if cause.ms is not None}
    causes = [cause for cause in found if cause.ms is not None or cause.kind not in told]
    if _are_disturbed(a, b):
        causes = [replace(cause, ms=None) for cause in causes]

    def weight(cause: Cause) -> tuple[bool, float]:
        share = cause.ms / total if cause.ms is not None and total else 0.0
        return share < _LEAST_SHARE, -share

    traces = [proof.trace if (proof := record.measurement.proof) is not None else None for record in (a, b)]
    places = _places(traces[0], traces[1]) if traces[0] is not None and traces[1] is not None else ()
    return Explanation(a, b, times[0], times[1], tuple(sorted(causes, key=weight)), tuple(places))


def _median_ms(record: Record, goal: str) -> float | None:
    clock: Clock | None = getattr(record.measurement, goal)
    return clock.figures.median_ms if clock is not None and clock.figures is not None else None


def _measured(a: Record, b: Record, a_ms: float, total: float) -> Iterator[Cause]:
    """Yield the causes that the records put in milliseconds."""
    if a.objective.goal != b.objective.goal:
        same = _median_ms(b, a.objective.goal)
        left = same - a_ms if same is not None else None
        how = f"by the clock of {a.objective.goal}, B takes {same:.4g} ms" if same is not None else ""
        yield Cause(
            "objective", "objective", a.objective.goal, b.objective.goal, None if left is None else total - left, how
        )
    if a.flops != b.flops and a.flops and b.flops:
        a_text, b_text = (f"{record.flops / 1e9:.4g} GFLOP" for record in (a, b))
        more = a_ms * (b.flops / a.flops - 1)
        yield Cause("work", "work of a call", a_text, b_text, more, "if all time followed the work")
    copies = [_copy(record) for record in (a, b)]
    if copies[0] != copies[1] and "in call" in copies:
        inner = copies.index("in call")
        copy = (a, b)[1 - inner].measurement.input_copy
        ms = copy.median_ms if copy is not None else None
        how = "time of these copies outside the other's calls" if ms is not None else ""
        yield Cause("copies", "input copies", copies[0], copies[1], None if ms is None else ms if inner else -ms, how)
    clocks = [record.measurement.device_state.get("sm_mhz") for record in (a, b)]
    if isinstance(clocks[0], int) and isinstance(clocks[1], int) and clocks[0] and clocks[1]:
        slower = clocks[0] / clocks[1] - 1
        if abs(slower) >= _LEAST_CLOCK:
            a_text, b_text = (f"{clock} MHz" for clock in clocks)
            yield Cause("clock", "clock of the GPU", a_text, b_text, a_ms * slower, "if all time followed the clock")


def _copy(record: Record) -> str:
    copy = record.measurement.input_copy
    return "none" if copy is None else "in call" if copy.in_call else "before the call"


def _changed(a: Record, b: Record) -> Iterator[Cause]:
    """Yield each kind of what somebody changed, without what follows from other threads or another machine."""
    by_threads, by_machine = a.threads != b.threads, a.machine.host != b.machine.host
    found: dict[str, list[Difference]] = {}
    for difference in differences(a, b):
        kind = difference.kinds or difference.what
        follows = (
            (by_threads and difference.kind and difference.name in _BY_THREADS)
            or (by_machine and kind == "facts of the host")
            or (kind == "settings" and not (difference.a and difference.b))  # one of the two does not state it
        )
        if not follows:
            found.setdefault("graph" if kind in _GRAPH else kind, []).append(difference)
    if a.objective != b.objective and a.objective.goal == b.objective.goal:
        found["objective"] = [Difference("", "objective", *(str(one) for one in (a.objective, b.objective)))]
    for kind in filter(found.__contains__, _CHANGED):
        one, *others = sorted(found[kind], key=lambda one: one.name not in _FIRST)
        brought = tuple(f"{each.what} {each.a or 'none'} to {each.b or 'none'}" for each in others)
        yield Cause(kind, one.what, one.a, one.b, brought=brought)


def _are_disturbed(*records: Record) -> bool:
    return all(
        record.status == "unstable" or _DISTURBED & {finding.code for finding in record.measurement.findings}
        for record in records
    )


def _disturbances(a: Record, b: Record, b_is_slower: bool) -> Iterator[Cause]:
    """Yield what disturbed one side alone: the slower one where it can only slow calls down."""
    texts = [
        {finding.code: finding.text for finding in record.measurement.findings if finding.code in _DISTURBED}
        for record in (a, b)
    ]
    for code in sorted({*texts[0]} ^ {*texts[1]}):
        if code in _EITHER_WAY or code in texts[b_is_slower]:
            yield Cause("disturbance", code, texts[0].get(code, ""), texts[1].get(code, ""))


def _places(a: TraceRecord, b: TraceRecord) -> list[Place]:
    """Return where traced calls spend more or less time. A record states its longest kernels: one that only one of them
    states is a change if the other states all, or any that is shorter."""
    sides = [{kernel.name: kernel.ns / 1e6 for kernel in trace.kernels} for trace in (a, b)]
    whole = [trace.kernel_count == len(trace.kernels) for trace in (a, b)]
    least_ms = [0.0 if every else min(side.values(), default=inf) for every, side in zip(whole, sides, strict=True)]
    found = [
        Place(name, *(side.get(name, 0.0 if every else None) for side, every in zip(sides, whole, strict=True)))
        for name in dict.fromkeys((*sides[0], *sides[1]))
        if all(
            name in side or other[name] > least for side, other, least in zip(sides, sides[::-1], least_ms, strict=True)
        )
    ]
    if a.span_ns and b.span_ns:
        a_ms, b_ms = (max(0, trace.span_ns - trace.busy_ns) / 1e6 for trace in (a, b))
        found.append(Place("idle GPU between kernels", a_ms, b_ms))
    return sorted((place for place in found if place.grew_ms), key=lambda place: -abs(place.grew_ms))
