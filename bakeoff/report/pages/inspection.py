"""The page of an inspection: what is worth a sweep, the tree of modules, and what compilers could gain in each.

The most that a perfect compiler could gain follows from Amdahl's law on the time of a pass: making a share s of it k
times as fast makes the pass 1 / (1 - s + s / k) times as fast (Amdahl, AFIPS 1967).
"""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bakeoff.models.grouping import grouped
from bakeoff.models.words import counted, si
from bakeoff.process.inspected import Inspection, Node, Recorded
from bakeoff.record.statistics import half_width, summarise_ns
from bakeoff.report.document import Command, Document, Heading, Table, Text, blocks, listed, number, table
from bakeoff.report.format import milliseconds, shorten, with_interval

WORTH = 0.1
"""Smallest share of a pass that makes a module worth a sweep; below it, the pass can become at most 1.11x as fast."""
_MOST_ROWS = 60
_NAME = 29
_LONG_MS = 10_000
"""Times of at least this are shown without fractions of a millisecond."""
_OUTSIDE = "outside modules"


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


def candidates(inspection: Inspection) -> tuple[Candidate, ...]:
    """Return the candidates, largest time first."""
    top = dict.fromkeys(node.name for node in inspection.nodes if node.parent < 0)
    return tuple(sorted((_candidate(inspection, name) for name in top), key=lambda one: -sum(one.ns)))


def worth_sweeping(found: Sequence[Candidate]) -> tuple[str, ...]:
    """Return the names of the candidates that take at least a tenth of a pass (`WORTH`)."""
    return tuple(one.name for one in found if one.share >= WORTH)


def _candidate(inspection: Inspection, name: str) -> Candidate:
    nodes = inspection.nodes
    tops = [index for index, node in enumerate(nodes) if node.name == name]  # none is below another: recursion is one
    ns = inspection.sum_ns(sorted({position for index in tops for position in inspection.below(index)}))
    whole, own = sum(inspection.pass_ns), sum(ns)
    return Candidate(
        name=name,
        cls=nodes[tops[0]].cls,
        calls=sum(sum(nodes[index].calls) for index in tops) / len(inspection.pass_ns),
        ns=ns,
        share=own / whole,
        speedup=whole / (whole - own) if whole > own else float("inf"),
    )


def document(what: str, inspection: Inspection, found: Sequence[Candidate], depth: int) -> Document:
    """Return the page of an inspection of `what`.

    The tree shows modules down to `depth` levels below those that the pass calls directly. The last line is a command:
    to record what is worth a sweep, or to sweep what was recorded.
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
            *_tree(inspection, found, depth),
            listed(_remarks(inspection)),
            listed(map(_recorded, inspection.recorded)),
            Command(shlex.join(["bakeoff", *words])) if folders or names else None,
        ),
    )


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
    yield f"a pass takes {with_interval(plain)} ms"
    yield f"instrumented {with_interval(whole)} ms, {overhead(inspection):+.1%}; {hooks_ms} ms are charged to no module"
    if inspection.clock == "synchronised":
        yield "the GPU was waited for at each entry and exit, so that no kernels of two modules overlap"


def _tree(inspection: Inspection, found: Sequence[Candidate], depth: int) -> Iterator[Table | Text | None]:
    whole, without = sum(inspection.pass_ns), {one.name: one.speedup for one in found}
    rows = [
        (
            shorten(name, _NAME),
            node.cls,
            _calls(node.calls),
            _median(total_ns),
            _median(node.own_ns),
            f"{sum(total_ns) / whole:.1%}",
            _times(without[node.name]) if node.parent < 0 else "",
            si(node.parameters).strip() if node.parameters else "",
        )
        for name, node, total_ns in _walk(inspection, depth)
    ]
    outside = inspection.outside_ns
    last = (_OUTSIDE, "", "", _median(outside), _median(outside), f"{sum(outside) / whole:.1%}", "", "")
    headings = (
        "module or method", Heading("class", leaves=2), number("calls"),
        number("total ms"), number("own ms"), number("share"),
        number("without", "how many times as fast the pass is at most, if a compiler makes the module take no time"),
        number("params", leaves=1),
    )  # fmt: skip
    yield table(headings, [*rows[:_MOST_ROWS], last])
    if rows[_MOST_ROWS:]:
        yield Text(f"and {len(rows) - _MOST_ROWS} more; --json has all", tone="faint")


def _walk(inspection: Inspection, depth: int) -> Iterator[tuple[str, Node, tuple[int, ...]]]:
    """Yield each node's indented name, the node and its total time in each pass; siblings by time, longest first."""
    nodes = inspection.nodes
    below = grouped((node.parent, index) for index, node in enumerate(nodes))
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


def _times(speedup: float) -> str:
    return "all" if math.isinf(speedup) else f"{speedup:.2f}x"


def _remarks(inspection: Inspection) -> Iterator[str]:
    yield f"± half of the median's 95 % interval over {counted(len(inspection.pass_ns), 'pass', 'passes')}"
    varying = [node.name for node in inspection.nodes if len(set(node.calls)) > 1]
    if varying:
        yield f"not as many calls in each pass: {', '.join(varying[:3])}{' and others' if len(varying) > 3 else ''}"
    if inspection.other_threads:
        names = [f"{name} ({counted(calls, 'call')})" for name, calls in list(inspection.other_threads.items())[:3]]
        yield f"called on other threads, which are not timed: {', '.join(names)}"


def _calls(calls: Sequence[int]) -> str:
    low, high = min(calls), max(calls)
    return str(low) if low == high else f"{low}-{high}"


def _median(samples_ns: Sequence[int]) -> str:
    figures = summarise_ns(samples_ns)
    text = f"{figures.median_ms:.0f}" if figures.median_ms >= _LONG_MS else milliseconds(figures.median_ms)
    if not figures.median_ms:
        return text
    return f"{text} ±{min(half_width(samples_ns), 9.99):.0%}"
