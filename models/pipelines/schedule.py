"""Derives from a loop's description which of its programs may run beside others, and predicts what a unit then takes.

A schedule puts some programs of a steady unit into a second lane, a thread or a CUDA stream of its own:
- `decode-behind`: those whose results no other program reads, now or in the next unit, run beside the next unit.
- `context-beside-decode`: those that only make state run beside those of the same unit that do not read it.
`one-graph` has no second lane: on CUDA a steady unit is one captured graph.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from bakeoff.models.errors import BakeoffError, no_such
from bakeoff.models.pipelines.pipeline import Key, Loop

SEQUENTIAL: Final = "sequential"
BEHIND: Final = "decode-behind"
BESIDE: Final = "context-beside-decode"
ONE_GRAPH: Final = "one-graph"
NAMES: Final = (SEQUENTIAL, BEHIND, BESIDE, ONE_GRAPH)
_TEXT = re.compile(r"(?P<name>[a-z-]{1,40}):(?P<first>[1-9][0-9]{0,3})\+(?P<second>[1-9][0-9]{0,3})")
Part = tuple[str, float]
"""A program as `slot.program`, or "" for what is between programs, and the milliseconds that it takes alone."""
Slowdowns = Mapping[tuple[str, str], float]
"""How many times as long the first program takes beside the second one."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule with the threads of the first and the second lane, as mixes name it: `decode-behind:1+1`, or
    `one-graph`, which has none."""

    name: str
    threads: tuple[int, ...] = ()

    def __str__(self) -> str:
        return ":".join(filter(None, (self.name, "+".join(map(str, self.threads)))))


def parse_schedule(text: str) -> Schedule:
    """Parse a schedule as mixes name it. Raises BakeoffError for text in another form."""
    match = _TEXT.fullmatch(text)
    if text == ONE_GRAPH:
        return Schedule(text)
    if match is None or match["name"] not in (BEHIND, BESIDE):
        form = f"write {BEHIND} or {BESIDE} with the threads of both lanes, as in {BEHIND}:1+1, or {ONE_GRAPH}"
        raise BakeoffError(f"'{text:.60}' is no schedule; {form}", "bad-variant")
    return Schedule(match["name"], (int(match["first"]), int(match["second"])))


def splits(threads: int) -> tuple[tuple[int, int], ...]:
    """Return the numbers of threads of two lanes that are tried: a quarter and half of all in the second one."""
    seconds = dict.fromkeys((max(1, threads // 4), threads // 2))
    return tuple((threads - second, second) for second in seconds if 1 <= second < threads)


def why_not(loop: Loop, name: str, device: str) -> str:
    """Return in a sentence what forbids a schedule; "" if it keeps every value. Raises BakeoffError for other names."""
    if name == ONE_GRAPH and device != "cuda":
        return "only CUDA captures graphs; use it with --device cuda"
    try:
        put_off(loop, name)
    except BakeoffError as error:
        if error.code != "bad-option":
            raise
        return str(error)
    return ""


def put_off(loop: Loop, name: str) -> frozenset[Key]:
    """Return the programs that the schedule puts into the second lane; none for `sequential` and `one-graph`.

    Raises BakeoffError, code `bad-option`, with what forbids the schedule, and `unknown-name` for another name.
    """
    if name not in NAMES:
        raise no_such("--schedule", "schedule", name, NAMES)
    if name == SEQUENTIAL:
        return frozenset()
    if loop.draws:
        raise _refused("units draw random numbers by themselves, which lanes would share and a graph would not seed")
    if name == ONE_GRAPH:
        return frozenset()
    places = _behind(loop) if name == BEHIND else _beside(loop)
    calls = loop.steady.calls
    chosen = frozenset(calls[place].key for place in places)
    both = next((call.key for place, call in enumerate(calls) if call.key in chosen and place not in places), None)
    if both is not None:
        raise _refused(f"{both} is called in both lanes, and a lane has its programs for itself")
    return chosen


def run_beside(loop: Loop, name: str) -> frozenset[Key]:
    """Return the programs of the first lane that run beside those of the second one. Raises what `put_off` raises."""
    second, keys = put_off(loop, name), [call.key for call in loop.steady.calls]
    first = next(place for place, key in enumerate(keys) if key in second) if name == BESIDE else 0
    return frozenset(keys[first:]) - second


def threads_of(loop: Loop, schedule: Schedule, threads: int) -> dict[Key, int]:
    """Return the threads of each program, of all that there are. Raises what `put_off` raises."""
    second, beside_them = put_off(loop, schedule.name), run_beside(loop, schedule.name)
    chosen = dict.fromkeys(loop.programs, threads if schedule.name == BESIDE else schedule.threads[0])
    return chosen | dict.fromkeys(beside_them, schedule.threads[0]) | dict.fromkeys(second, schedule.threads[1])


def _behind(loop: Loop) -> frozenset[int]:
    """Return the places of the calls whose results only they themselves read, and that make outputs."""
    everywhere = range(len(loop.steady.calls))
    readers = {place: _readers(loop, place) for place in everywhere}
    reached = {place: _closure(readers, place) for place in everywhere}
    makes = [place for place in everywhere if any(_flows(loop, place, where) for where in _outputs(loop))]
    last_read = [place for place in everywhere if all(place in reached[other] for other in reached[place])]
    ends = frozenset(place for place in last_read if {place, *reached[place]} & {*makes})
    if ends and len(ends) < len(everywhere):
        return ends
    if len({_key(loop, place) for place in ends}) > 1 and not any(reached[place] - {place} for place in ends):
        raise _refused(f"{_names(loop, ends)} make outputs and read nothing of each other: no program is left beside")
    for last in makes[-1:]:  # the last call that makes an output, whose results others read all the same
        for other in sorted(readers[last] - {last}):
            reads = loop.flows[f"call {other}"]
            if f"call {last}" in reads:
                raise _refused(_reads(loop, other, last))
            path = next(where for where in _states(loop) if where in reads and _flows(loop, last, where))
            text = f"{_key(loop, other)} reads in the next unit the {path}, which is made from what"
            raise _refused(f"{text} {_key(loop, last)} returns")
    raise _refused("a unit calls one program, or none whose results are outputs: nothing runs beside it")


def _beside(loop: Loop) -> frozenset[int]:
    """Return the places of the calls that only make state, or of those beside them: of the group that comes first."""
    everywhere = range(len(loop.steady.calls))
    context = frozenset(p for p in everywhere if not any(_flows(loop, p, where) for where in _outputs(loop)))
    if not context:
        for writer in (p for p in reversed(everywhere) if any(_flows(loop, p, where) for where in _states(loop))):
            for reader in (p for p in everywhere if p != writer and _flows(loop, writer, f"call {p}")):
                raise _refused(_reads(loop, reader, writer))
        raise _refused("no program makes state alone: each one's results flow into an output of their unit")
    others = [p for p in everywhere if p not in context and not any(_flows(loop, p, f"call {c}") for c in context)]
    free = frozenset(p for p in others if not any(_flows(loop, c, f"call {p}") for c in context))
    if free:
        return context if min(context) < min(free) else free
    if others:
        reader = others[0]
        writer = next(c for c in sorted(context) if _flows(loop, c, f"call {reader}"))
        raise _refused(_reads(loop, reader, writer))
    raise _refused(f"{_names(loop, context)} read what every other program of the unit returns")


def _refused(text: str) -> BakeoffError:
    return BakeoffError(text, "bad-option")


def _key(loop: Loop, place: int) -> Key:
    return loop.steady.calls[place].key


def _names(loop: Loop, places: frozenset[int]) -> str:
    return ", ".join(dict.fromkeys(str(_key(loop, place)) for place in sorted(places)))


def _outputs(loop: Loop) -> list[str]:
    return [where for where in loop.flows if where.startswith("output ")]


def _states(loop: Loop) -> list[str]:
    return [where for where in loop.flows if where.startswith("state ")]


def _reads(loop: Loop, reader: int, writer: int) -> str:
    return f"{_key(loop, reader)} reads what {_key(loop, writer)} writes, call {writer} of the unit"


def _flows(loop: Loop, place: int, where: str) -> bool:
    return f"call {place}" in loop.flows.get(where, ())


def _readers(loop: Loop, place: int) -> set[int]:
    """Return the places of the calls that read what a call returns, in its unit or in the next one."""
    states = {where for where in _states(loop) if _flows(loop, place, where)}
    found = set()
    for other in range(len(loop.steady.calls)):
        reads = loop.flows.get(f"call {other}", ())
        if f"call {place}" in reads or states & {*reads}:
            found.add(other)
    return found


def _closure(readers: Mapping[int, set[int]], place: int) -> set[int]:
    found, left = set[int](), [place]
    while left:
        for other in readers[left.pop()] - found:
            found.add(other)
            left.append(other)
    return found


def beside(first: Sequence[Part], second: Sequence[Part], slow: Slowdowns) -> tuple[float, float]:
    """Return when each of two lanes that begin at once is done, in milliseconds; programs slow each other down."""
    lanes, ends, now = [[*first], [*second]], [0.0, 0.0], 0.0
    while any(lanes):
        names = [lane[0][0] if lane else "" for lane in lanes]
        factors = [slow.get((names[i], names[1 - i]), 1.0) for i in range(2)]
        left = [lane[0][1] * factor if lane else inf for lane, factor in zip(lanes, factors, strict=True)]
        step = min(left)
        now += step
        for i, lane in enumerate(lanes):
            if lane and left[i] <= step:
                lane.pop(0)
                ends[i] = now
            elif lane:
                lane[0] = names[i], (left[i] - step) / factors[i]
    return ends[0], ends[1]


def predicted(
    loop: Loop, name: str, alone: Mapping[str, float], between: tuple[float, float], slow: Slowdowns
) -> tuple[float, float]:
    """Return the milliseconds of a steady unit under a schedule, and from its beginning until its outputs are ready.

    `alone` has the time of one call of each `slot.program`, `between` that of each lane between its programs.
    """
    second = put_off(loop, name)
    parts = [(call.key, (str(call.key), alone[str(call.key)])) for call in loop.steady.calls]
    off = [part for key, part in parts if key in second] + [("", between[1])]
    begins = next(place for place, (key, _) in enumerate(parts) if key in second) if name == BESIDE else 0
    main = [part for place, (key, part) in enumerate(parts) if key not in second and place >= begins]
    before = sum(ms for _, (_, ms) in parts[:begins])
    ends = beside([("", between[0]), *main], off if second else (), slow)
    unit_ms = before + max(ends)
    return unit_ms, unit_ms + (ends[1] if name == BEHIND else 0.0)
