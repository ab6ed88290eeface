"""The page of `bakeoff show`: one record of a variant in full, apart from its samples."""

from collections.abc import Iterator, Mapping

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.machine import paths
from bakeoff.models.words import counted, some_of
from bakeoff.record.finalists import check_limits
from bakeoff.record.floor import floors
from bakeoff.record.objective import LATENCY
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import (
    BuildCost,
    Clock,
    KernelTime,
    Memory,
    OutputParity,
    Parity,
    ProofRecord,
    Record,
    SizeResult,
    TraceRecord,
)
from bakeoff.record.store import Stored, StoredPipeline
from bakeoff.report.columns import build_seconds
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
    section,
    stated,
    table,
)
from bakeoff.report.format import MIB, duration, kernel_name, median_and_interval, shorten, size_text
from bakeoff.report.groups import title
from bakeoff.report.notes import policy_text, selftest_text, sentences
from bakeoff.report.wording import limit_text

_OUTPUTS = 6
"""Largest number of outputs that are listed, those with the largest errors."""
_OPERATORS, _LAYERS = 12, 4
"""Largest numbers of operators, and of layers, that are named of each kind."""
_KERNEL_LETTERS = 70
_SENSITIVITY = (
    "reference outputs of other inputs, and of slightly changed ones, differ by so much: an engine that ignores its "
    "inputs would be off by it"
)
_WHICH: Mapping[str, str] = {"usual": " (usual)", "seen": "", "unseen": " (not listed)"}


def log_path(record: Record | PipelineRecord) -> str:
    """Return the path of the worker's log or, if it is not on this machine, a text with its name."""
    path = paths.cache_folder() / record.log
    return str(path) if path.exists() else f"not on this machine (was {record.log} in the cache folder)"


def document(stored: Stored) -> Document:
    """Return the page of a record: status and figures; then the evidence, the checks, the settings and its origin."""
    record, made = stored.record, stored.record.measurement
    seen = (Text(sentence, "monitor") for sentence in sentences(record))
    findings = (Text(finding.text, finding.code) for finding in made.findings)
    return Document(
        str(record.variant),
        blocks(
            listed([Text(str(record.variant)), Text(title(record)), Text(stored.id, "record")]),
            listed(_outcome(record)),
            _clocks(made.latency, made.throughput),
            listed([*_timing(record), *seen]),
            listed(findings, "findings"),
            _memory(made.memory) if made.memory is not None else None,
            _proof(record, made.proof) if made.proof is not None else None,
            _parity(made.parity) if made.parity is not None else None,
            _sizes(record),
            section("Settings", [settings(record)]),
            section("Origin", [_origin(stored)]),
            Lines(tuple(made.traceback.rstrip().splitlines())) if made.traceback else None,
        ),
    )


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


def _clocks(latency: Clock | None, queued: Clock | None) -> Table | None:
    """Return a table of the statistics of both clocks, a column each; None without samples."""
    clocks = [(name, clock) for name, clock in (("one by one", latency), ("queued", queued)) if clock is not None]
    timed = [(name, clock, clock.figures) for name, clock in clocks if clock.figures is not None]
    if not timed:
        return None
    facts = {"median": "median", "95 % from": "low", "95 % to": "high"}
    facts |= {fact: fact for fact in ("mean", "min", "p90", "p99", "max", "std")}
    held = {name: [getattr(each, f"{fact}_ms") for *_, each in timed] for name, fact in facts.items()}
    rows = [
        *([name, *("" if ms is None else f"{ms:.3f}" for ms in each)] for name, each in held.items() if any(each)),
        ["samples", *(str(figures.count) for *_, figures in timed)],
        ["calls a sample", *(str(clock.calls_per_sample) for _, clock, _ in timed)],
        ["stopped by", *(clock.stopped for _, clock, _ in timed)],
    ]
    return table(["ms a call", *(Heading(name, numeric=True) for name, *_ in timed)], rows)


def _timing(record: Record) -> Iterator[Text]:
    """Yield the floors, copies of inputs, checks between timed calls, the clocks' own cost, and the build."""
    made = record.measurement
    for bound in floors(record):
        reached = f", {bound.ms / record.latency.median_ms:.0%} of it reached" if record.latency is not None else ""
        if record.status == "ok" and record.latency is not None and bound.ms > record.latency.median_ms:
            reached += ": no floor, the ceilings are too low"
        limits = f"compute {bound.compute_ms:.4g}, traffic {bound.traffic_ms:.4g}"
        yield Text(f"{bound.ms:.4g} ms by {bound.source} {bound.bound} ({limits}){reached}", "floor")
    copy, checks = made.input_copy, made.window_checks
    if copy is not None:
        taken = "within each call" if copy.median_ms is None else f"{copy.median_ms:.3f} ms besides each call"
        yield Text(f"{copy.bytes / MIB:.1f} MiB of inputs into the buffers of a captured graph: {taken}", "copies")
    if checks is not None:
        yield Text(
            f"{counted(checks.compared, 'call')} compared in full and {checks.changed} on changed inputs between "
            f"timed ones, at moments drawn with seed {checks.seed}, {checks.seconds:.1f} s",
            "checked",
        )
    if made.overhead is not None:
        one_by_one, queued = made.overhead.latency_ns / 1000, made.overhead.throughput_ns / 1000
        yield Text(f"{one_by_one:.2f} us a call on the latency clock, {queued:.2f} us on the queued one", "overhead")
    if made.build is not None:
        yield Text(_build(made.build), "build")


def _build(build: BuildCost) -> str:
    peak = "" if build.peak_bytes is None else f", peak {size_text(build.peak_bytes)}"
    children = build.children_peak_bytes
    compilers = "" if children is None else f", no compiler process above {size_text(children)}"
    cpu = "" if build.cpu_s is None or build.overlapped else f", {build.cpu_s:.1f} s of CPU"
    beside = " (cpu: CPU seconds, because other builds ran at the same time)" if build.shown_as_cpu else ""
    left_out = f", hashing and the like {build.untimed_s:.1f} s besides" if build.untimed_s else ""
    return f"{build_seconds(build)} s cold/warm{beside}{cpu}{left_out}{peak}{compilers}"


def _memory(memory: Memory) -> Table | None:
    meters = {
        "weights": memory.weights_bytes,
        "inputs": memory.io_bytes,
        f"host peak{f' (freed memory {memory.allocator})' if memory.allocator else ''}": memory.host_peak_bytes,
        "helper processes": memory.helpers_peak_bytes or None,
        "besides, at most": memory.unseen_bytes or None,
        "calls add": memory.host_call_bytes,
        "allocated peak": memory.allocated_peak_bytes,
        "reserved peak": memory.reserved_peak_bytes,
        f"device ({memory.device_meter})": memory.device_peak_bytes,
        "CUDA context": memory.context_bytes,
        "unexplained": memory.unexplained_bytes,
        "device peak of the build": memory.device_build_peak_bytes,
    }
    rows = [(name, size_text(size)) for name, size in meters.items() if size is not None]
    return table(["memory", Heading("size", numeric=True)], rows)


def _proof(record: Record, proof: ProofRecord) -> Section | None:
    """Return a section on the evidence that the backend ran: graphs, operators, quantised layers, kernels."""
    graphs = {"graphs": proof.graphs, "graph breaks": proof.graph_breaks, "recompiles": len(proof.recompiles)}
    said = [
        Text(proof.fell_back, "fell back", "bad"),
        Text(proof.incomplete, "incomplete", "open"),
        *(Text(meaning, f"evidence that {name} ran") for name, meaning in _meanings(record)),
        Text(_pairs({**graphs, **proof.facts}), "facts"),
        *(Text(reason, "recompiled") for reason in proof.recompiles),
        Text(_operators(proof.operators_inside), "compiled"),
        Text(_operators(proof.operators_outside), "run by the framework or a library, by its names"),
        *_layers(proof),
    ]
    traced = () if proof.trace is None else _trace(proof.trace, record.quantisation in ("fp8", "mxfp8"))
    return section("Proof", [listed(text for text in said if text.text), *traced])


def _meanings(record: Record) -> Iterator[tuple[str, str]]:
    """Yield for each backend of the row its name and the evidence that it ran.

    Only bakeoff's own backends are looked up: a record may come from an untrusted source, and resolving
    `package.module:ATTRIBUTE` imports that module.
    """
    for use in record.variant.backends:
        meaning = resolve_backend(use.name).checks if use.name in backend_names() else ""
        if meaning:
            yield use.name, meaning


def _operators(operators: Mapping[str, int]) -> str:
    """Return the names of operators with their counts, the most frequent first."""
    ordered = sorted(operators.items(), key=lambda pair: -pair[1])
    return some_of([f"{name} {count}" for name, count in ordered], _OPERATORS)


def _layers(proof: ProofRecord) -> Iterator[Text]:
    """Yield quantised layers by method, and layers that were not quantised by reason."""
    for word, layers in (("quantised", proof.quantised), ("left", proof.skipped)):
        by_reason: dict[str, list[str]] = {}
        for name, reason in layers.items():
            by_reason.setdefault(reason, []).append(name)
        ordered = sorted(by_reason.items(), key=lambda pair: -len(pair[1]))
        for reason, names in ordered[:_LAYERS]:
            yield Text(f"{len(names)}, {reason}: {some_of(names, _LAYERS)}", word)
        if len(ordered) > _LAYERS:
            rest = sum(len(names) for _, names in ordered[_LAYERS:])
            yield Text(f"{rest} more for {counted(len(ordered) - _LAYERS, 'other reason')}", word)


def _trace(trace: TraceRecord, fp8: bool) -> Iterator[Text | Table | None]:
    in_fp8 = f", {_share(trace.fp8_ns, trace)} in kernels with float8 operands" if fp8 else ""
    if trace.span_ns:
        idle = max(0, trace.span_ns - trace.busy_ns) / trace.span_ns
        yield Text(f"the GPU is idle for {idle:.0%} of the {trace.span_ns / 1e6:.3f} ms between events around a call")
    named = min(trace.named_ns * 100 // max(trace.total_ns, 1), 100)  # rounded down, as where too few are
    yield Text(
        f"a traced call took {trace.total_ns / 1e6:.3f} ms, "
        f"{named}% in named kernels, {_share(trace.own_ns, trace)} in the compiler's own (*){in_fp8}; the "
        f"{len(trace.kernels)} longest of {trace.kernel_count}:"
    )
    names = [
        shorten(kernel_name(kernel.name), _KERNEL_LETTERS) + (" *" if kernel.own else "") for kernel in trace.kernels
    ]
    figures = [(f"{each.calls:g}", f"{each.ns / 1e6:.4f}", _share(each.ns, trace)) for each in trace.kernels]
    rows = ((name, *found) for name, found in zip(names, figures, strict=True))
    yield table(["kernel", *(Heading(name, numeric=True) for name in ("calls", "ms", "share"))], rows)


def _share(ns: int, trace: TraceRecord) -> str:
    return f"{min(ns / trace.total_ns, 1):.0%}" if trace.total_ns else "0%"


def longest_kernels(record: Record, count: int) -> tuple[tuple[KernelTime, str], ...]:
    """Return the longest kernels of a row's traced call with their shares; empty if no call was traced."""
    proof = record.measurement.proof
    if proof is None or proof.trace is None:
        return ()
    return tuple((kernel, _share(kernel.ns, proof.trace)) for kernel in proof.trace.kernels[:count])


def _parity(parity: Parity) -> Section | None:
    """Return a section on parity: the reference, then the outputs, the largest errors first."""
    where = f" on {parity.reference_device}" if parity.reference_device else ""
    reference = f"{parity.reference}, eager {parity.reference_dtype}{where}, {counted(parity.sets, 'set')} of inputs"
    ordered = sorted(parity.outputs, key=lambda output: -(output.rel_l2 or 0))
    shown = ordered[:_OUTPUTS]
    numbers = (
        Heading("L2 error", "relative L2 against the reference", numeric=True),
        Heading("limit", numeric=True),
        Heading("signal dB", "PSNR of pictures, SNR of audio", numeric=True),
        Heading("others", "how far references of other inputs are apart", numeric=True),
        Heading("changed", "how far those of slightly changed inputs are apart", numeric=True),
    )
    remarks = [Text(output.problem, output.name, "bad") for output in shown if output.problem]
    if ordered[_OUTPUTS:]:
        remarks.append(Text(f"and {counted(len(ordered) - _OUTPUTS, 'output')} with smaller errors"))
    if any(output.sensitivity is not None for output in shown):
        remarks.append(Text(_SENSITIVITY, "others, changed", "faint"))
    outputs = table(["output", *numbers, "verdict"], map(_output, shown))
    return section("Parity", [Text(reference, "reference"), outputs, listed(remarks)])


def _output(output: OutputParity) -> list[str]:
    verdict = ("ok, lossless" if output.lossless else "ok") if output.passed else "FAILED"
    return [
        output.name,
        "not a number" if output.rel_l2 is None else f"{output.rel_l2:.2e}",
        f"{output.limit:.2e}",
        _number(output.signal_db, ".1f"),
        _number(output.sensitivity, ".1e"),
        _number(output.small_sensitivity, ".1e"),
        verdict,
    ]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"


def _sizes(record: Record) -> Section | None:
    """Return a section on what one engine did at each size, and with which inputs."""
    sizes = record.measurement.sizes
    headings = (
        "size", "status", Heading("ms a call [95 %]", numeric=True), Heading("first call", numeric=True, leaves=1),
        Heading("compiled again", numeric=True), Heading("L2 error", numeric=True), Heading("limit", numeric=True),
    )  # fmt: skip
    reasons = (Text(one.reason, one.name) for one in sizes if one.reason)
    return section(
        "Sizes, one engine for all", [table(headings, (_size(record, one) for one in sizes)), listed(reasons)]
    )


def _size(record: Record, result: SizeResult) -> list[str]:
    figures = record.latency if result.which == "usual" else result.figures
    return [
        result.name + _WHICH[result.which],
        result.status,
        " ".join(median_and_interval(figures)) if figures is not None else "",
        duration(result.first_call_ns / 1e6) if result.first_call_ns else "",
        f"{result.compilations}x" if result.compilations else "",
        _number(result.rel_l2, ".1e"),
        _number(result.limit, ".1e"),
    ]


def settings(record: Record | PipelineRecord) -> Listed | None:
    settings = record.measurement.settings | record.measurement.device_state
    return listed(stated({"settings": _pairs(settings), "versions": _pairs(record.versions)}))


def _pairs(facts: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)


def _origin(stored: Stored) -> Listed | None:
    record = stored.record
    by = "by what it was likely to tell" if record.order_seed is None else f"drawn with seed {record.order_seed}"
    backends = ", ".join(f"{used.reference} ({used.file}) {used.hash}" for used in record.source.backends)
    return origin(
        stored,
        f"sweep {record.sweep}, build {record.build_number}, process {record.process}",
        f"component {record.source.component}, measuring side {record.source.instrument}, {backends}",
        f"row {record.position} of its sweep, {by}" if record.position else "",
    )


def origin(stored: Stored | StoredPipeline, run: str, source: str, order: str = "") -> Listed | None:
    """List when, where and by which code a record was made, and its log."""
    record, host, machine = stored.record, stored.record.host, stored.machine
    commit = f"{record.commit[:12] or 'unknown, without a checkout or git'}{' with changes' if record.dirty else ''}"
    kind = f", class {machine.machine_class}" if machine.machine_class else ""
    facts = {
        "made": f"{record.created}, {run}, {record.wall_s:.0f} s{', note: ' if record.note else ''}{record.note}",
        "order": order,
        "machine": f"{machine.name}, id {machine.id}{kind}",
        "host": f"{host.system}, {size_text(host.memory_bytes)}, {' '.join(host.cpu_flags)}",
        "code": f"{commit}, code hash {record.code or 'not stated'}; {selftest_text(record)}",
        "source": source,
        "log": log_path(record),
    }
    return listed(stated(facts))
