"""`bakeoff show`: one record in full."""

from collections.abc import Iterator

from bakeoff.machine import paths
from bakeoff.machine.terminal import lines_of
from bakeoff.models.words import counted
from bakeoff.record.floor import floors
from bakeoff.record.limit_checks import LimitCheck, check_limits
from bakeoff.record.objective import LATENCY
from bakeoff.record.schema import BuildCost, Memory, OutputParity, Parity, Record
from bakeoff.record.statistics import Summary
from bakeoff.record.store import Stored
from bakeoff.report import sizes
from bakeoff.report.columns import build_seconds
from bakeoff.report.format import MIB
from bakeoff.report.groups import title
from bakeoff.report.monitored import sentences
from bakeoff.report.notes import selftest_text
from bakeoff.report.objectives import limit_text
from bakeoff.report.text import proof

_OUTPUTS = 6
"""Listed at most, those with the largest errors."""


def log_path(record: Record) -> str:
    """Where the worker's log is on this machine, or what its name was on another."""
    path = paths.cache_folder() / record.log
    return str(path) if path.exists() else f"not on this machine (was {record.log} in the cache folder)"


def render(stored: Stored) -> str:
    """Everything but the samples, a line for each fact."""
    record, made = stored.record, stored.record.measurement
    lines = [str(record.variant), title(record), *_origin(stored), *_timing(record)]
    if made.build is not None:
        lines.append(_build(made.build))
    if made.memory is not None:
        lines.append(_memory(made.memory))
    if made.parity is not None:
        lines += _parity(made.parity)
    lines += proof.render(record)
    lines += sizes.certificate(record)
    lines += [f"finding   {finding.code}: {finding.text}" for finding in made.findings]
    lines += [f"monitor   {text}" for text in sentences(record)]
    lines.append("versions  " + ", ".join(f"{name} {version}" for name, version in record.versions.items()))
    settings = made.settings | made.device_state
    lines.append("settings  " + ", ".join(f"{name} {value}" for name, value in settings.items()))
    lines.append(f"log       {log_path(record)}")
    return lines_of(lines) + (f"\n\n{made.traceback.rstrip()}" if made.traceback else "")


def _origin(stored: Stored) -> Iterator[str]:
    """Which record it is, how it ended, and when, by which code and where it was made."""
    record, made = stored.record, stored.record.measurement
    note = f", note: {record.note}" if record.note else ""
    commit = f"{record.commit[:12] or 'not in a checkout'}{' with changes' if record.dirty else ''}"
    yield f"record    {stored.id}"
    yield f"status    {made.status}{': ' + made.reason if made.reason else ''}"
    yield (
        f"made      {record.created}, sweep {record.sweep}, build {record.build_number}, process {record.process}, "
        f"{record.wall_s:.0f} s{note}"
    )
    yield f"code      {commit}, code hash {record.code or 'not stated'}; {selftest_text(record)}"
    backends = ", ".join(f"{used.reference} ({used.file}) {used.hash}" for used in record.source.backends)
    yield f"source    component {record.source.component}, measuring side {record.source.instrument}, {backends}"
    if record.position:
        by = "by what it was likely to tell" if record.order_seed is None else f"drawn with seed {record.order_seed}"
        yield f"order     row {record.position} of its sweep, {by}"
    if record.objective != LATENCY:
        yield f"objective {record.objective}"
        yield from (f"limit     {check.limit}: {check.word}: {limit_text(check)}" for check in _checks(record))
    kind = f", class {stored.machine.machine_class}" if stored.machine.machine_class else ""
    yield f"machine   {stored.machine.name}, id {stored.machine.id}{kind}"
    yield (f"host      {record.host.system}, {record.host.memory_bytes // MIB} MiB, {' '.join(record.host.cpu_flags)}")


def _checks(record: Record) -> tuple[LimitCheck, ...]:
    """The limits of its sweep, where there are figures to check."""
    return check_limits(record, record.objective) if record.latency is not None else ()


def _timing(record: Record) -> Iterator[str]:
    """Both clocks, the floors, and what the clocks themselves take."""
    made = record.measurement
    for name, clock in (("latency", made.latency), ("queued", made.throughput)):
        if clock is not None and clock.figures is not None:
            calls = counted(clock.calls_per_sample, "call")
            yield f"{name:9} {_figures(clock.figures)}; {calls} each, stopped: {clock.stopped}"
    copy = made.input_copy
    if copy is not None:
        taken = "within each call" if copy.median_ms is None else f"{copy.median_ms:.3f} ms besides each call"
        yield f"copies    {copy.bytes / MIB:.1f} MiB of inputs into the buffers of a captured graph: {taken}"
    checks = made.window_checks
    if checks is not None:
        yield (
            f"checked   {counted(checks.compared, 'call')} compared in full and {checks.changed} on changed inputs "
            f"between timed ones, at moments drawn with seed {checks.seed}, {checks.seconds:.1f} s"
        )
    for bound in floors(record):
        reached = f", {bound.ms / record.latency.median_ms:.0%} of it reached" if record.latency is not None else ""
        if record.status == "ok" and record.latency is not None and bound.ms > record.latency.median_ms:
            reached += ": no floor, the ceilings are too low"
        yield (
            f"floor     {bound.ms:.4g} ms by {bound.source} {bound.bound} (compute {bound.compute_ms:.4g}, traffic "
            f"{bound.traffic_ms:.4g}){reached}"
        )
    if made.overhead is not None:
        latency_us, throughput_us = made.overhead.latency_ns / 1000, made.overhead.throughput_ns / 1000
        yield f"overhead  {latency_us:.2f} us a call on the latency clock, {throughput_us:.2f} us on the queued one"


def _figures(figures: Summary) -> str:
    return (
        f"median {figures.median_ms:.3f} ms [{figures.low_ms:.3f}, {figures.high_ms:.3f}], mean {figures.mean_ms:.3f}, "
        f"min {figures.min_ms:.3f}, p90 {figures.p90_ms:.3f}, p99 {figures.p99_ms:.3f}, max {figures.max_ms:.3f}, "
        f"std {figures.std_ms:.3f}, {counted(figures.count, 'sample')}"
    )


def _build(build: BuildCost) -> str:
    peak = "" if build.peak_bytes is None else f", peak {build.peak_bytes // MIB} MiB"
    children = build.children_peak_bytes
    compilers = "" if children is None else f", no compiler process above {children // MIB} MiB"
    cpu = "" if build.cpu_s is None or build.overlapped else f", {build.cpu_s:.1f} s of CPU"
    beside = " (cpu: CPU seconds, because other builds ran at the same time)" if build.shown_as_cpu else ""
    left_out = f", hashing and the like {build.untimed_s:.1f} s besides" if build.untimed_s else ""
    return f"build     {build_seconds(build)} s cold/warm{beside}{cpu}{left_out}{peak}{compilers}"


def _memory(memory: Memory) -> str:
    meters = {
        "weights": memory.weights_bytes,
        "inputs": memory.io_bytes,
        f"host peak{f' (freed memory {memory.allocator})' if memory.allocator else ''}": memory.host_peak_bytes,
        "helper processes": memory.helpers_peak_bytes or None,
        "calls add": memory.host_call_bytes,
        "allocated peak": memory.allocated_peak_bytes,
        "reserved peak": memory.reserved_peak_bytes,
        f"device ({memory.device_meter})": memory.device_peak_bytes,
        "CUDA context": memory.context_bytes,
        "unexplained": memory.unexplained_bytes,
        "device peak of the build": memory.device_build_peak_bytes,
    }
    return "memory    " + ", ".join(f"{name} {size // MIB} MiB" for name, size in meters.items() if size is not None)


def _parity(parity: Parity) -> Iterator[str]:
    """The reference, then the outputs, the largest errors first."""
    where = f" on {parity.reference_device}" if parity.reference_device else ""
    sets = counted(parity.sets, "set")
    yield f"reference {parity.reference}, eager {parity.reference_dtype}{where}, {sets} of inputs"
    ordered = sorted(parity.outputs, key=lambda output: -(output.rel_l2 or 0))
    for output in ordered[:_OUTPUTS]:
        signal = "" if output.signal_db is None else f", signal {output.signal_db:.1f} dB"
        error = "not a number" if output.rel_l2 is None else f"{output.rel_l2:.2e}"
        verdict = ("ok, lossless" if output.lossless else "ok") if output.passed else f"FAILED: {output.problem}"
        yield f"  {output.name}: relative L2 {error}, limit {output.limit:.2e}{signal}: {verdict}{_sensitivity(output)}"
    if len(ordered) > _OUTPUTS:
        yield f"  and {counted(len(ordered) - _OUTPUTS, 'output')} with smaller errors"


def _sensitivity(output: OutputParity) -> str:
    """How far apart references of other inputs are: an engine that ignores its inputs would be off by as much."""
    if output.sensitivity is None:
        return ""
    small = "" if output.small_sensitivity is None else f", slightly changed ones by {output.small_sensitivity:.1e}"
    return f"; other inputs differ by {output.sensitivity:.1e}{small}"
