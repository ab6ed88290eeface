"""The page of an inspection: what is worth a sweep, the tree of modules, and what compilers could gain in each.

The most that a perfect compiler could gain follows from Amdahl's law on the time of a pass: making a share s of it k
times as fast makes the pass 1 / (1 - s + s / k) times as fast (Amdahl, AFIPS 1967).
"""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from bakeoff.machine.floors import Ceiling, find_floors
from bakeoff.machine.host import Host
from bakeoff.models.words import counted
from bakeoff.process.inspected import Inspection, Node, Recorded
from bakeoff.record.statistics import Summary, half_width, summarise_ns
from bakeoff.report.document import Command, Document, Heading, Table, Text, blocks, listed, table
from bakeoff.report.format import median_and_interval, milliseconds, shorten

WORTH = 0.1
"""Smallest share of a pass that makes a module worth a sweep; below it, the pass can become at most 1.11x as fast."""
_MOST_ROWS = 60
_NAME = 29
_LONG_MS = 10_000
"""Times of at least this are shown without fractions of a millisecond."""
_OUTSIDE = "outside modules"


@dataclass(frozen=True, slots=True)
class AtFloor:
    """Gain if a module ran at its floor, the time of its work in its own dtype at this machine's peak rates."""

    floor_ms: float
    """Floor of all calls in a pass together."""
    saved_ms: float
    speedup: float
    source: str
    """Source of the device's peak rates: `datasheet` or `measured`."""
    above: bool
    """Whether the module is faster than its floor, which means that the ceilings are too low for it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A module or method that is called from outside all modules; figures cover all of its calls in a pass."""

    name: str
    cls: str
    calls: float
    """Mean number of calls in a pass."""
    ns: tuple[int, ...]
    """Time in each pass, with all modules that it calls."""
    share: float
    """Share of the time of all passes together."""
    speedup: float
    """Speedup of the whole pass if this module took no time at all; inf if the pass consists of it alone."""
    flops: int | None
    """FLOPs in a pass; None if some were not counted."""
    at_floor: AtFloor | None = None


def candidates(inspection: Inspection, host: Host, ceilings: Sequence[Ceiling]) -> tuple[Candidate, ...]:
    """Return the candidates, largest time first. Without `ceilings` or a known GPU they have no floors."""
    top = dict.fromkeys(node.name for node in inspection.nodes if node.parent < 0)
    found = [_candidate(inspection, name, host, ceilings) for name in top]
    return tuple(sorted(found, key=lambda one: -sum(one.ns)))


def worth_sweeping(found: Sequence[Candidate]) -> tuple[str, ...]:
    """Return the names of the candidates that take at least a tenth of a pass (`WORTH`)."""
    return tuple(one.name for one in found if one.share >= WORTH)


def _candidate(inspection: Inspection, name: str, host: Host, ceilings: Sequence[Ceiling]) -> Candidate:
    nodes = inspection.nodes
    tops = [index for index, node in enumerate(nodes) if node.name == name]  # none is below another: recursion is one
    subtree = sorted({position for index in tops for position in inspection.below(index)})
    ns, passes = inspection.sum_ns(subtree), len(inspection.pass_ns)
    calls = sum(sum(nodes[index].calls) for index in tops) / passes
    whole, own = sum(inspection.pass_ns), sum(ns)
    counts = [nodes[index].own_flops for index in subtree]
    found = Candidate(
        name=name,
        cls=nodes[tops[0]].cls,
        calls=calls,
        ns=ns,
        share=own / whole,
        speedup=whole / (whole - own) if whole > own else float("inf"),
        flops=None if None in counts else sum(count or 0 for count in counts),
    )
    return replace(found, at_floor=_at_floor(inspection, found, subtree, nodes[tops[0]].dtype, host, ceilings))


def _at_floor(
    inspection: Inspection,
    found: Candidate,
    subtree: Sequence[int],
    dtype: str,
    host: Host,
    ceilings: Sequence[Ceiling],
) -> AtFloor | None:
    """Return the gain at the floor of a candidate's calls; None if its FLOPs, dtype, time or peak rates are unknown.

    The memory traffic of a call is taken to be the weights that it reads, which is a lower bound.
    """
    nodes, passes, calls = inspection.nodes, len(inspection.pass_ns), found.calls
    if found.flops is None or not dtype or not calls or not median(found.ns):
        return None
    read = {nodes[index].name: nodes[index].read_bytes for index in subtree}
    often = dict.fromkeys(read, 0.0)
    for index in subtree:
        often[nodes[index].name] += sum(nodes[index].calls) / passes
    dtypes = tuple(dict.fromkeys((dtype, *inspection.autocast)))
    if inspection.device == "cuda" and dtype == "fp32":
        dtypes += ("tf32",)
    floors = find_floors(
        flops=round(found.flops / calls),
        minimum_bytes=round(sum(size * min(1.0, often[name] / calls) for name, size in read.items())),
        dtypes=dtypes,
        device=inspection.device,
        host=host,
        ceilings=ceilings,
    )
    if not floors:
        return None
    floor = max(floors, key=lambda one: one.source == "measured")
    own_ms, floor_ms = median(found.ns) / 1e6, floor.ms * calls
    saved_ms = max(0.0, own_ms - floor_ms)
    return AtFloor(floor_ms, saved_ms, 1 / (1 - found.share * saved_ms / own_ms), floor.source, floor_ms > own_ms)


def document(what: str, inspection: Inspection, found: Sequence[Candidate], depth: int, runs: str = "") -> Document:
    """Return the page of an inspection of `what`.

    The tree shows modules down to `depth` levels below those that the pass calls directly. `runs`, the folder of
    records if one was given, is added to the commands that the page shows: to record what is worth a sweep, or to sweep
    what was recorded.
    """
    names = worth_sweeping(found)
    verdict = Text(f"no module takes {WORTH:.0%} of a pass: look outside modules first", tone="open")
    if names:
        verdict = Text(f"worth a sweep: {', '.join(names)} (each at least {WORTH:.0%} of a pass)", tone="good")
    folders = [one.folder for one in inspection.recorded if one.folder]
    words = ["sweep", *folders] if folders else ["inspect", what, "--record", ",".join(names)]
    return Document(
        what,
        blocks(
            verdict,
            listed(_head(what, inspection)),
            *_tree(inspection, depth),
            _gains(found),
            listed(_remarks(inspection, found, runs)),
            listed(map(_recorded, inspection.recorded)),
            Command(shlex.join(["bakeoff", *words]) + _runs(runs)) if folders or names else None,
        ),
    )


def _runs(runs: str) -> str:
    """Return ` --runs FOLDER` to append to a command; "" if no folder was given."""
    return f" --runs {shlex.quote(runs)}" if runs else ""


def _recorded(one: Recorded) -> Text:
    if one.problem:
        return Text(f"{one.name} was not recorded: {one.problem}", tone="bad")
    return Text(
        f"{counted(one.calls, 'different call')} of {one.seen} as {', '.join(one.sets)}, in {one.folder}", one.name
    )


def overhead(inspection: Inspection) -> float:
    """Return how much longer the median instrumented pass took than the median plain one, as a share."""
    return median(inspection.whole_ns) / median(inspection.plain_ns) - 1


def _head(what: str, inspection: Inspection) -> Iterator[str]:
    plain, whole = summarise_ns(inspection.plain_ns), summarise_ns(inspection.whole_ns)
    steady = "" if inspection.steady else ", which did not become steady"
    passes, warm = counted(len(inspection.plain_ns), "pass", "passes"), counted(len(inspection.warm_ns), "warm one")
    yield f"{what}: {passes} after {warm}{steady}"
    hooks_ms = milliseconds(median(inspection.hooks_ns) / 1e6)
    yield f"a pass takes {_interval(plain)} ms"
    yield f"instrumented {_interval(whole)} ms, {overhead(inspection):+.1%}; {hooks_ms} ms are charged to no module"
    if inspection.clock == "synchronised":
        yield "the GPU was waited for at each entry and exit, so that no kernels of two modules overlap"


def _interval(figures: Summary) -> str:
    return " ".join(median_and_interval(figures))


def _tree(inspection: Inspection, depth: int) -> Iterator[Table | Text | None]:
    whole = sum(inspection.pass_ns)
    rows = [
        (
            shorten(name, _NAME),
            node.cls,
            _calls(node.calls),
            _median(total_ns),
            _median(node.own_ns),
            f"{sum(total_ns) / whole:.1%}",
            _count(node.parameters),
        )
        for name, node, total_ns in _walk(inspection, depth)
    ]
    outside = inspection.outside_ns
    last = (_OUTSIDE, "", "", _median(outside), _median(outside), f"{sum(outside) / whole:.1%}", "")
    headings = (
        "module or method", Heading("class", leaves=2), Heading("calls", numeric=True),
        Heading("total ms", numeric=True), Heading("own ms", numeric=True), Heading("share", numeric=True),
        Heading("params", numeric=True, leaves=1),
    )  # fmt: skip
    yield table(headings, [*rows[:_MOST_ROWS], last])
    if rows[_MOST_ROWS:]:
        yield Text(f"and {len(rows) - _MOST_ROWS} more; --json has all", tone="faint")


def _walk(inspection: Inspection, depth: int) -> Iterator[tuple[str, Node, tuple[int, ...]]]:
    """Yield each node's indented name, the node and its total time in each pass; siblings by time, longest first."""
    nodes = inspection.nodes
    below: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        below.setdefault(node.parent, []).append(index)
    totals = [inspection.inclusive_ns(index) for index in range(len(nodes))]

    def visit(parent: int, level: int) -> Iterator[tuple[str, Node, tuple[int, ...]]]:
        if level > depth:
            return
        for index in sorted(below.get(parent, ()), key=lambda one: -sum(totals[one])):
            name = nodes[index].name
            if parent >= 0:
                name = name.removeprefix(_module_of(nodes, parent))
            yield "· " * level + name, nodes[index], totals[index]
            yield from visit(index, level + 1)

    yield from visit(-1, 0)


def _module_of(nodes: Sequence[Node], index: int) -> str:
    """Return the part of the name that a node shares with its children: a method's module, else the node's own name."""
    name = nodes[index].name
    submodules = [node.name for node in nodes if node.parent == index]
    stem = name.rpartition(".")[0]
    return stem if stem and submodules and all(one.startswith(f"{stem}.") for one in submodules) else name


def _gains(found: Sequence[Candidate]) -> Table | None:
    floors = any(one.at_floor is not None for one in found)
    rows = []
    for one in found:
        faster = "all" if math.isinf(one.speedup) else f"{one.speedup:.2f}x"
        row = [shorten(one.name, _NAME), f"{one.share:.1%}", _median(one.ns, interval=False), faster]
        at = one.at_floor
        floor = (milliseconds(at.floor_ms) + (" !" if at.above else ""), milliseconds(at.saved_ms)) if at else ("", "")
        rows.append([*row, *floor, f"{at.speedup:.2f}x" if at else ""])
    numbers = ("share", "saves ms", "the pass", "floor ms", "saves ms", "the pass")
    title = "the most a perfect compiler could gain: if a module took no time"
    return table(
        ["module or method", *(Heading(text, numeric=True) for text in numbers)],
        rows,
        title + (", or its floor" if floors else ""),
    )


def _remarks(inspection: Inspection, found: Sequence[Candidate], runs: str) -> Iterator[str]:
    yield f"± half of the median's 95 % interval over {counted(len(inspection.pass_ns), 'pass', 'passes')}"
    if any(one.at_floor is not None for one in found):
        yield "floor: the counted FLOPs and the weights at this machine's peak rates, in the dtype of the weights"
        if any(one.at_floor is not None and one.at_floor.above for one in found):
            again = f"bakeoff doctor --ceilings{_runs(runs)}"
            yield f"!: faster than its floor, the ceilings are too low there; measure them again: {again}"
    else:
        yield f"no floors: this machine's ceilings are not known; measure them: bakeoff doctor --ceilings{_runs(runs)}"
    varying = [node.name for node in inspection.nodes if len(set(node.calls)) > 1]
    if varying:
        yield f"not as many calls in each pass: {', '.join(varying[:3])}{' and others' if len(varying) > 3 else ''}"
    if inspection.other_threads:
        names = [f"{name} ({counted(calls, 'call')})" for name, calls in list(inspection.other_threads.items())[:3]]
        yield f"called on other threads, which are not timed: {', '.join(names)}"
    yield from inspection.notes


def _calls(calls: Sequence[int]) -> str:
    low, high = min(calls), max(calls)
    return str(low) if low == high else f"{low}-{high}"


def _median(samples_ns: Sequence[int], interval: bool = True) -> str:
    figures = summarise_ns(samples_ns)
    text = f"{figures.median_ms:.0f}" if figures.median_ms >= _LONG_MS else milliseconds(figures.median_ms)
    if not interval or not figures.median_ms:
        return text
    return f"{text} ±{min(half_width(samples_ns), 9.99):.0%}"


def _count(parameters: int) -> str:
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if parameters >= size:
            return f"{parameters / size:.1f}{unit}"
    return str(parameters) if parameters else ""
