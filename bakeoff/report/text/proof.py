"""The evidence in a record that its backend ran: graphs, operators, quantised layers, kernels of a traced call."""

from collections.abc import Iterator, Mapping, Sequence

from tabulate import tabulate

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.models.words import counted
from bakeoff.record.schema import KernelTime, ProofRecord, Record, TraceRecord
from bakeoff.report.format import shorten

_NAMES = 12
_LAYERS = 4
_KERNEL_LETTERS = 70


def render(record: Record) -> list[str]:
    """Lines of the record's page; none where the record has no proof."""
    proof = record.measurement.proof
    if proof is None:
        return []
    facts = {
        "graphs": proof.graphs,
        "graph breaks": proof.graph_breaks,
        "recompiles": len(proof.recompiles),
        **proof.facts,
    }
    lines = ["proof     " + ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)]
    lines += [f"  evidence that {name} ran: {meaning}" for name, meaning in _meanings(record)]
    if proof.fell_back:
        lines.append(f"  fell back: {proof.fell_back}")
    if proof.incomplete:
        lines.append(f"  incomplete: {proof.incomplete}")
    lines += [f"  recompiled: {reason}" for reason in proof.recompiles]
    for where, operators in (("inside", proof.operators_inside), ("outside", proof.operators_outside)):
        if operators:
            lines.append(f"  operators {where}: {_counted(operators)}")
    lines += _layers(proof)
    if proof.trace is not None:
        lines += _trace(proof.trace, record.quantisation in ("fp8", "mxfp8"))
    return lines


def _meanings(record: Record) -> Iterator[tuple[str, str]]:
    """For each backend of the row, its name and the evidence that it ran.

    Only bakeoff's own backends are looked up: a record may come from an untrusted source, and resolving
    `package.module:ATTRIBUTE` imports that module.
    """
    for use in record.variant.backends:
        meaning = resolve_backend(use.name).evidence.checks if use.name in backend_names() else ""
        if meaning:
            yield use.name, meaning


def _counted(operators: Mapping[str, int]) -> str:
    """Names with their counts, the most frequent first."""
    ordered = sorted(operators.items(), key=lambda pair: -pair[1])
    return _some([f"{name} {count}" for name, count in ordered], _NAMES)


def _some(names: Sequence[str], shown: int) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _layers(proof: ProofRecord) -> Iterator[str]:
    """Quantised layers by method, and layers that were not quantised by reason."""
    for word, layers in (("quantised", proof.quantised), ("left", proof.skipped)):
        by_reason: dict[str, list[str]] = {}
        for name, reason in layers.items():
            by_reason.setdefault(reason, []).append(name)
        ordered = sorted(by_reason.items(), key=lambda pair: -len(pair[1]))
        for reason, names in ordered[:_LAYERS]:
            yield f"  {word}: {len(names)}, {reason}: {_some(names, _LAYERS)}"
        if len(ordered) > _LAYERS:
            rest = sum(len(names) for _, names in ordered[_LAYERS:])
            yield f"  {word}: {rest} more for {counted(len(ordered) - _LAYERS, 'other reason')}"


def _trace(trace: TraceRecord, fp8: bool) -> Iterator[str]:
    longest = f"the {len(trace.kernels)} longest of {trace.kernel_count}"
    in_fp8 = f", {share(trace.fp8_ns, trace)} in kernels with float8 operands" if fp8 else ""
    if trace.span_ns:
        idle = max(0, trace.span_ns - trace.busy_ns) / trace.span_ns
        yield f"  the GPU is idle for {idle:.0%} of the {trace.span_ns / 1e6:.3f} ms between events around a call"
    yield (
        f"  a traced call took {trace.total_ns / 1e6:.3f} ms, {share(trace.named_ns, trace)} in named kernels, "
        f"{share(trace.own_ns, trace)} in the compiler's own (*){in_fp8}; {longest}:"
    )
    cells = [
        [
            shorten(kernel.name, _KERNEL_LETTERS) + (" *" if kernel.own else ""),
            f"{kernel.calls:g}",
            f"{kernel.ns / 1e6:.4f}",
            share(kernel.ns, trace),
        ]
        for kernel in trace.kernels
    ]
    body = tabulate(
        cells,
        headers=("kernel", "calls", "ms", "share"),
        disable_numparse=True,
        colalign=("left", "right", "right", "right"),
    )
    yield from (f"    {line}" for line in body.splitlines())


def share(ns: int, trace: TraceRecord) -> str:
    return f"{ns / trace.total_ns:.0%}" if trace.total_ns else "0%"


def longest_kernels(record: Record, count: int) -> tuple[tuple[KernelTime, str], ...]:
    """The longest kernels of a row's traced call with their shares; none where it was not traced."""
    proof = record.measurement.proof
    if proof is None or proof.trace is None:
        return ()
    return tuple((kernel, share(kernel.ns, proof.trace)) for kernel in proof.trace.kernels[:count])
