"""The page of `bakeoff show`: one record of a variant in full, apart from its samples.

A record's parts are shown by the names of their fields, which docs/files-and-formats.md explains; what equals its
default is left out.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from types import MappingProxyType
from typing import Any

from bakeoff.machine import paths
from bakeoff.machine.floors import Ceiling
from bakeoff.models.grouping import grouped
from bakeoff.models.words import some_of
from bakeoff.record.finalists import check_limits
from bakeoff.record.floor import floors, is_above
from bakeoff.record.objective import LATENCY
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import KernelTime, Record, Samples, TraceRecord
from bakeoff.record.store import Stored, StoredPipeline
from bakeoff.report.document import (
    Document,
    Heading,
    Lines,
    Listed,
    Section,
    Table,
    Text,
    Tone,
    blocks,
    listed,
    number,
    section,
    stated,
    table,
)
from bakeoff.report.format import kernel_name, median_and_interval, milliseconds, shorten, size_text, with_interval
from bakeoff.report.groups import title
from bakeoff.report.notes import policy_text, selftest_text, sentences
from bakeoff.report.wording import limit_text

_ROWS, _NAMES, _LAYERS, _LETTERS = 12, 60, 4, 40
"""Largest numbers of rows of a table, of names in a line, of layers with one value, and of letters of a name."""
_KEPT = 3
"""Number of columns that a table of a narrow terminal keeps."""
_UNITS: Mapping[str, Callable[[Any], str]] = {
    "_bytes": size_text,
    "_ns": lambda ns: f"{ns / 1e6:.4g} ms",
    "_ms": lambda ms: f"{milliseconds(ms)} ms",
    "_s": lambda seconds: f"{seconds:.1f} s",
}
"""How numbers of a field are written, by the end of its name."""
_PARTS = ("build", "memory", "window_checks", "input_copy", "overhead", "proof")
"""Parts of a measurement that have a list each."""
_NOT_OF_ORIGIN = (
    "schema", "kind", "variant", "mix", "policy", "measurement", "ceilings", "objective", "monitored", "log",
    "selftest", "budget", "sustained", "starts", "options",
)  # fmt: skip


def log_path(record: Record | PipelineRecord) -> str:
    """Return the path of the worker's log or, if it is not on this machine, a text with its name."""
    path = paths.cache_folder() / record.log
    return str(path) if path.exists() else f"not on this machine (was {record.log} in the cache folder)"


def document(stored: Stored, ceilings: Sequence[Ceiling] | None = None) -> Document:
    """Return the page of a record: status and figures; then the evidence, the checks, the settings and its origin.

    Its floors are by `ceilings`, the best known of its machine, as in tables; by default by its own.
    """
    record, made = stored.record, stored.record.measurement
    parts = ((name, getattr(made, name)) for name in _PARTS)
    trace = made.proof.trace if made.proof is not None else None
    return Document(
        str(record.variant),
        blocks(
            listed([Text(str(record.variant)), Text(title(record)), Text(stored.id, "record")]),
            listed([*_outcome(record), *_floors(record, ceilings)]),
            _clocks(record),
            listed(Text(sentence, "monitor") for sentence in sentences(record)),
            listed((Text(finding.text, finding.code) for finding in made.findings), "findings"),
            *(listed(labelled(part, {"trace"}), _label(name)) for name, part in parts if part is not None),
            _trace(trace) if trace is not None else None,
            _parity(record),
            section("Sizes, one engine for all", [_by_field(made.sizes, _size_figures(record))]),
            section("Settings", [settings(record)]),
            section("Origin", [origin(stored)]),
            Lines(tuple(made.traceback.rstrip().splitlines())) if made.traceback else None,
        ),
    )


def labelled(part: Any, without: Collection[str] = ()) -> list[Text]:
    """Return a text for each field of a record's part that differs from its default, labelled with its name."""
    texts = {each.name: _field(part, each) for each in fields(part) if each.name not in without}
    return [Text(text, _label(name)) for name, text in texts.items() if text]


def _field(part: Any, field: Field[Any]) -> str:
    """Return a field's value in one line; "" if it is the default."""
    usual = field.default_factory() if field.default_factory is not MISSING else field.default
    value = getattr(part, field.name)
    return "" if value == usual else _plain(field.name, value)


def _label(name: str) -> str:
    """Return a field's name without its unit; a field that is only named by its unit is a time."""
    if name == "ns":
        return "time"
    unit = next((unit for unit in _UNITS if name.endswith(unit)), "")
    return name.removesuffix(unit).replace("_", " ")


def _plain(name: str, value: Any) -> str:
    """Return the value of a field in one line; "" for samples and None."""
    write = next((write for unit, write in _UNITS.items() if f"_{name}".endswith(unit)), None)
    match value:
        case None | Samples():
            return ""
        case bool():
            return "yes" if value else "no"
        case int() | float() if write is not None:
            return write(value)
        case int():
            return str(value) if name.endswith("seed") else f"{value:,}"
        case float():
            return f"{value:.4g}"
        case Mapping():
            return _pairs(name, value)
        case tuple() if value and all(type(each) is int for each in value):  # a shape
            return "x".join(map(str, value))
        case tuple():
            return "; ".join(filter(None, (_plain(name, each) for each in value)))
    return ", ".join(f"{text.label} {text.text}" for text in labelled(value)) if is_dataclass(value) else str(value)


def _pairs(name: str, values: Mapping[str, Any]) -> str:
    """Return names with their values; of operators the most frequent, of layers those of each value together."""
    if name in ("quantised", "skipped"):
        by_value = grouped((value, key) for key, value in values.items())
        return "; ".join(f"{len(keys)}, {value}: {some_of(keys, _LAYERS)}" for value, keys in by_value.items())
    if name.startswith("operators"):
        values = dict(sorted(values.items(), key=lambda pair: -pair[1]))
    return some_of([f"{key} {text}" for key, value in values.items() if (text := _plain(name, value))], _NAMES)


def _by_field(rows: Sequence[Any], more: Mapping[str, Callable[[Any], str]] = MappingProxyType({})) -> Table | None:
    """Return a table with a row for each value and a column for each of its fields, those in `more` after the first."""
    if not rows:
        return None
    first, *others = fields(rows[0])
    heads = [_label(first.name), *more, *(_label(each.name) for each in others)]
    cells = [
        [
            shorten(kernel_name(str(getattr(row, first.name))), _LETTERS),
            *(read(row) for read in more.values()),
            *(_field(row, each) for each in others),
        ]
        for row in rows[:_ROWS]
    ]
    headings = [Heading(text, numeric=bool(place), leaves=max(0, place - _KEPT)) for place, text in enumerate(heads)]
    return table(headings, cells, f"the first {_ROWS} of {len(rows)}" if rows[_ROWS:] else "")


def _outcome(record: Record) -> Iterator[Text]:
    """Yield the status of a record, its median if it has one, and its policy and objective if they are unusual."""
    made, figures = record.measurement, record.latency
    tone: Tone = "good" if made.status in ("ok", "built") else "open" if made.status == "unstable" else "bad"
    yield Text(f"{made.status}{': ' + made.reason if made.reason else ''}", "status", tone)
    if policy := policy_text(record.policy):
        yield Text(policy)
    if figures is not None:
        median, interval = median_and_interval(figures)
        yield Text(f"{median} ms {interval}, the median and its 95 % interval", "a call")
    if record.objective != LATENCY:
        yield Text(str(record.objective), "objective")
        checks = check_limits(record, record.objective) if figures is not None else ()
        yield from (Text(f"{check.limit}: {check.word}: {limit_text(check)}", "limit") for check in checks)


def _floors(record: Record, ceilings: Sequence[Ceiling] | None) -> Iterator[Text]:
    for bound in floors(record, ceilings):
        reached = f", {bound.ms / record.latency.median_ms:.0%} of it reached" if record.latency is not None else ""
        reached += ": no floor, the ceilings are too low" if is_above(record, ceilings) else ""
        limits = f"compute {bound.compute_ms:.4g}, traffic {bound.traffic_ms:.4g}"
        yield Text(f"{bound.ms:.4g} ms by {bound.source} {bound.bound} ({limits}){reached}", "floor")


def _clocks(record: Record) -> Table | None:
    """Return a table of the statistics of both clocks, a column each; None without samples."""
    made = record.measurement
    clocks = {"one by one": made.latency, "queued": made.throughput}
    held = {
        name: {text.label: text.text for part in (clock.figures, clock) for text in labelled(part)}
        for name, clock in clocks.items()
        if clock is not None and clock.figures is not None
    }
    labels = dict.fromkeys(label for facts in held.values() for label in facts)
    rows = [[label, *(facts.get(label, "") for facts in held.values())] for label in labels]
    return table(["a call", *map(number, held)], rows)


def _trace(trace: TraceRecord) -> Section | None:
    idle = max(0, trace.span_ns - trace.busy_ns) / trace.span_ns if trace.span_ns else 0.0
    facts = [*labelled(trace, {"kernels"}), *([Text(f"{idle:.0%} of the span", "GPU idle")] if trace.span_ns else [])]
    return section(
        "Traced call", [listed(facts), _by_field(trace.kernels, {"share": lambda kernel: _share(kernel.ns, trace)})]
    )


def _share(ns: int, trace: TraceRecord) -> str:
    return f"{min(ns / trace.total_ns, 1):.0%}" if trace.total_ns else "0%"


def longest_kernels(record: Record, count: int) -> tuple[tuple[KernelTime, str], ...]:
    """Return the longest kernels of a row's traced call with their shares; empty if no call was traced."""
    proof = record.measurement.proof
    if proof is None or proof.trace is None:
        return ()
    return tuple((kernel, _share(kernel.ns, proof.trace)) for kernel in proof.trace.kernels[:count])


def _parity(record: Record) -> Section | None:
    """Return a section on parity: range and reference, outputs, the largest errors first, and regimes."""
    parity = record.measurement.parity
    if parity is None:
        return None
    worst = sorted(parity.outputs, key=lambda output: -output.of_limit)
    facts = [*stated({"range": parity.range_text}), *labelled(parity, {"outputs", "regimes"})]
    return section("Parity", [listed(facts), _by_field(worst), _by_field(parity.regimes)])


def _size_figures(record: Record) -> Mapping[str, Callable[[Any], str]]:
    def median(size: Any) -> str:
        figures = record.latency if size.which == "usual" else size.figures
        return with_interval(figures) if figures is not None else ""

    return {"ms a call [95 %]": median}


def settings(record: Record | PipelineRecord) -> Listed | None:
    """List the settings of torch and the device's state."""
    facts = record.measurement.settings | record.measurement.device_state
    return listed(stated({"settings": _pairs("", facts)}))


def origin(stored: Stored | StoredPipeline) -> Listed | None:
    """List when, where and by which code a record was made, and its log."""
    record = stored.record
    facts = labelled(record, _NOT_OF_ORIGIN)
    return listed([*facts, Text(selftest_text(record)), Text(log_path(record), "log")])
