"""One record, for reading."""

from bakeoff.machine import paths
from bakeoff.machine.floors import Floor
from bakeoff.record.floor import floors
from bakeoff.record.schema import Record
from bakeoff.record.statistics import Summary
from bakeoff.record.store import Stored
from bakeoff.report.columns import build_seconds
from bakeoff.report.format import MIB
from bakeoff.report.groups import title
from bakeoff.report.notes import selftest_text
from bakeoff.report.text import proof


def log_place(record: Record) -> str:
    """Where the worker's log is on this machine, or what became of it."""
    path = paths.cache_folder() / record.log
    return str(path) if path.exists() else f"not on this machine (was {record.log} in the cache folder)"


def render(stored: Stored) -> str:
    record, made = stored.record, stored.record.measurement
    lines = [
        str(record.variant),
        title(record),
        f"record    {stored.id}",
        f"status    {made.status}{': ' + made.reason if made.reason else ''}",
        f"made      {record.created}, sweep {record.sweep}, build {record.build_number}, process {record.process}, "
        f"{record.wall_s:.0f} s" + (f", note: {record.note}" if record.note else ""),
        f"code      {record.commit[:12] or 'not in a checkout'}{' with changes' if record.dirty else ''}, instrument "
        f"{record.code or 'not stated'}; {selftest_text(record)}",
        f"host      {record.host.system}, {record.host.memory_bytes // MIB} MiB, {' '.join(record.host.cpu_flags)}",
    ]
    for name, clock in (("latency", made.latency), ("queued", made.throughput)):
        if clock is not None and clock.figures is not None:
            lines.append(
                f"{name:9} {_figures(clock.figures)}; {clock.calls_per_sample} calls each, stopped: {clock.stopped}"
            )
    lines += [
        f"floor     {bound.ms:.4g} ms by {bound.source} {bound.bound} (compute {bound.compute_ms:.4g}, traffic "
        f"{bound.traffic_ms:.4g}){_reached(record, bound)}"
        for bound in floors(record)
    ]
    if made.overhead is not None:
        clocks = (made.overhead.latency_ns / 1000, made.overhead.throughput_ns / 1000)
        lines.append("overhead  {:.2f} us a call on the latency clock, {:.2f} us on the queued one".format(*clocks))
    if made.build is not None:
        peak = "" if made.build.peak_bytes is None else f", peak {made.build.peak_bytes // MIB} MiB"
        children = made.build.children_peak_bytes
        compilers = "" if children is None else f", no compiler process above {children // MIB} MiB"
        lines.append(f"build     {build_seconds(made.build)} s cold/warm{peak}{compilers}")
    if made.memory is not None:
        meters = {
            "weights": made.memory.weights_bytes,
            "inputs": made.memory.io_bytes,
            "host peak": made.memory.host_peak_bytes,
            "calls add": made.memory.host_call_bytes,
            "allocated peak": made.memory.allocated_peak_bytes,
            "reserved peak": made.memory.reserved_peak_bytes,
            f"device peak ({made.memory.device_meter})": made.memory.device_peak_bytes,
            "unexplained": made.memory.unexplained_bytes,
        }
        lines.append(
            "memory    " + ", ".join(f"{name} {size // MIB} MiB" for name, size in meters.items() if size is not None)
        )
    if made.parity is not None:
        lines.append(
            f"judge     {made.parity.judge}, eager {made.parity.judge_dtype}, {made.parity.sets} sets of inputs"
        )
        shown = sorted(made.parity.outputs, key=lambda output: -(output.rel_l2 or 0))
        for output in shown[:6]:
            signal = "" if output.signal_db is None else f", signal {output.signal_db:.1f} dB"
            error = "not a number" if output.rel_l2 is None else f"{output.rel_l2:.2e}"
            verdict = "ok" if output.passed else f"FAILED: {output.problem}"
            lines.append(f"  {output.name}: relative L2 {error}, limit {output.limit:.2e}{signal}: {verdict}")
        if len(shown) > 6:
            lines.append(f"  and {len(shown) - 6} outputs with smaller errors")
    lines += proof.render(record)
    lines += [f"finding   {finding.code}: {finding.text}" for finding in made.findings]
    lines.append("versions  " + ", ".join(f"{name} {version}" for name, version in record.versions.items()))
    lines.append(
        "settings  " + ", ".join(f"{name} {value}" for name, value in (made.settings | made.device_state).items())
    )
    lines.append(f"log       {log_place(record)}")
    if made.traceback:
        lines += ["", made.traceback.rstrip()]
    return "\n".join(lines)


def _reached(record: Record, bound: Floor) -> str:
    return f", {bound.ms / record.latency.median_ms:.0%} of it reached" if record.latency is not None else ""


def _figures(figures: Summary) -> str:
    return (
        f"median {figures.median_ms:.3f} ms [{figures.low_ms:.3f}, {figures.high_ms:.3f}], mean {figures.mean_ms:.3f}, "
        f"min {figures.min_ms:.3f}, p90 {figures.p90_ms:.3f}, p99 {figures.p99_ms:.3f}, max {figures.max_ms:.3f}, "
        f"std {figures.std_ms:.3f}, {figures.count} samples"
    )
