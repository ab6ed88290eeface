"""Exported artifacts: what one holds and needs (`inspect`), and the result of opening it (`export`, `verify`)."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from bakeoff.export.folder import port_bytes
from bakeoff.export.manifest import Checked, Manifest, Port, Program
from bakeoff.models.brought.about import OWN_WEIGHTS
from bakeoff.models.words import counted
from bakeoff.process.jobs import VerifyResult
from bakeoff.report.format import MIB

_SHOWN = 8


def inspect(manifest: Manifest, unmet: Sequence[str]) -> str:
    """Everything in a manifest; `unmet` are the host requirements that this host does not meet."""
    measured = manifest.measured
    figures = "no record: not measured on the host that exported it; to measure it, run bakeoff sweep"
    if measured is not None:
        figures = (
            f"{measured.median_ms:.2f} ms ({measured.p1_ms:.2f} to {measured.p99_ms:.2f} ms, 1st to 99th percentile), "
            f"{measured.calls_per_s:.1f} calls/s with {counted(measured.threads, 'thread')} on {measured.host} "
            f"({measured.record})"
        )
    size = sum(file.bytes for file in manifest.files.values())
    files = f"{counted(len(manifest.files), 'file')}, {size / MIB:.0f} MiB"
    lines = [
        f"variant   {_named(manifest)}",
        f"format    {manifest.artifact}, opened by {manifest.backend}; {files}",
        f"model     {_model(manifest)}",
        f"made      {manifest.created} by: {manifest.command}",
        f"measured  {figures}",
        f"parity    {_parity(manifest.parity)}",
        "needs     " + "; ".join(f"{need.what} {need.rule} {need.value}" for need in manifest.needs),
        "here      " + ("; ".join(unmet) if unmet else "this host meets all requirements"),
    ]
    for program in manifest.programs:
        lines += ["", *_program(program)]
    if manifest.stream is not None:
        lines += ["", *_stream(manifest)]
    lines += [
        "",
        tabulate(
            [(name, f"{file.bytes / MIB:.1f}", file.sha256) for name, file in manifest.files.items()],
            headers=("file", "MiB", "SHA-256"),
            disable_numparse=True,
        ),
    ]
    return "\n".join(lines)


def _named(manifest: Manifest) -> str:
    """The variant, with the label of a preset: of a user's model the file that it came from."""
    return f"{manifest.variant}{f' ({manifest.label})' if manifest.label else ''}"


def _model(manifest: Manifest) -> str:
    """Whose it is, where that is known, and its weights; the source of a brought model's names their fingerprint."""
    source, fingerprint = manifest.weights.source, manifest.weights.fingerprint[:16]
    weights = source if source.startswith(OWN_WEIGHTS) else f"weights {source}"
    if fingerprint not in weights:
        weights += f", {fingerprint}"
    return f"{manifest.credit}; {weights}" if manifest.credit else weights


def _program(program: Program) -> list[str]:
    facts = "".join(f", {name} {value}" for name, value in program.facts.items())
    rows = [(direction, *_row(port)) for direction, port in _shown(program)]
    table = tabulate(rows, headers=("", "name", "dtype", "shape", "MiB", "values"), disable_numparse=True)
    return [f"program {program.name}: {program.summary}; {program.file}{facts}", table]


def _shown(program: Program) -> list[tuple[str, Port]]:
    """The first inputs and outputs; the others in one row each way."""
    rows = []
    for direction, ports in (("in", program.inputs), ("out", program.outputs)):
        rows += [(direction, port) for port in ports[:_SHOWN]]
        if len(ports) > _SHOWN:
            last = ports[-1]
            rows.append(
                ("", Port(f"... {len(ports) - _SHOWN} more, to {last.name}", last.dtype, last.shape, last.values))
            )
    return rows


def _row(port: Port) -> tuple[str, str, str, str, str]:
    return port.name, port.dtype, "x".join(map(str, port.shape)), f"{port_bytes(port) / MIB:.2f}", port.values


def _stream(manifest: Manifest) -> list[str]:
    stream = manifest.stream
    assert stream is not None
    opening = f"first {', '.join(stream.opening)}, then " if stream.opening else ""
    zeros = ""
    if stream.zeros:
        first = stream.workloads[0]
        zeros = f"; {counted(len(stream.zeros), f'input of {first} starts', f'inputs of {first} start')} as zeros"
    lines = [f"stream: {opening}repeatedly {', '.join(stream.each)}{zeros}"]
    pairs: dict[tuple[str, str, int | None], list[str]] = {}
    for one in stream.carries:
        pairs.setdefault((one.workload, one.to, one.axis), []).append(f"{one.output} -> {one.input}")
    for (source, target, axis), names in pairs.items():
        how = "replaces it" if axis is None else f"appended along axis {axis}, the oldest dropped"
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        lines.append(f"  {source} to {target}: {names[0]}{more} ({how})")
    return lines


def exported(folder: Path, manifest: Manifest, result: VerifyResult) -> str:
    """A new artifact: its folder, format, parity and memory, and the next command."""
    size = sum(file.bytes for file in manifest.files.values())
    frames = f", {counted(result.frames, 'frame')} of its stream computed" if manifest.stream is not None else ""
    return "\n".join(
        (
            f"{folder}: {_named(manifest)}",
            f"format    {manifest.artifact}, {counted(len(manifest.programs), 'program')}, {size / MIB:.0f} MiB",
            f"parity    {_parity(result.checked)}{frames}",
            f"memory    {manifest.export_peak_bytes / MIB:.0f} MiB at its peak while exporting",
            f"next      bakeoff verify {folder}",
        )
    )


def _parity(checked: Sequence[Checked]) -> str:
    if not checked:
        return "not checked"
    worst = max(checked, key=lambda one: (one.rel_l2 is None, (one.rel_l2 or 0) / one.limit))
    passed = sum(one.passed for one in checked)
    figure = "not comparable" if worst.rel_l2 is None else f"{worst.rel_l2:.2e} of {worst.limit:.2e}"
    nearest = f"nearest to its limit is {worst.program}/{worst.output}, {figure}"
    outputs = counted(len(checked), "output within its limit", "outputs within their limits")
    return f"{passed} of {outputs}; {nearest}"


def verified(manifest: Manifest, result: VerifyResult) -> str:
    """The result of opening an artifact: parity, frames, time against the record, peak memory."""
    shown = sorted(result.checked, key=lambda one: (one.passed, -(one.rel_l2 or 0) / one.limit))
    rows = [
        (
            f"{one.program}/{one.output}",
            one.frame,
            "-" if one.rel_l2 is None else f"{one.rel_l2:.2e}",
            f"{one.limit:.2e}",
            "pass" if one.passed else f"FAIL {one.problem}".strip(),
        )
        for one in shown[:_SHOWN]
    ]
    lines = [tabulate(rows, headers=("output", "worst frame", "relative L2", "limit", ""), disable_numparse=True)]
    if len(shown) > _SHOWN:
        more = counted(
            len(shown) - _SHOWN, "more output, further from its limit", "more outputs, further from their limits"
        )
        lines.append(f"and {more}")
    lines += ["", f"variant   {_named(manifest)}"]
    if manifest.stream is not None:
        skipped = f"; stopped there: {result.not_run}" if result.not_run else ""
        lines.append(f"frames    {result.frames} of {manifest.sample.frames} computed{skipped}")
    lines.append(f"parity    {_parity(result.checked)}")
    lines.append(f"opened    in {result.open_s:.1f} s, hashes included; peak {result.peak_bytes / MIB:.0f} MiB")
    if result.samples_ns:
        lines.append(f"time      {timing(manifest, result)}")
    lines += [f"mismatch  allowed: {one}" for one in result.mismatches]
    if all(one.passed for one in result.checked):
        lines.append("verified: the outputs match the exported sample")
    return "\n".join(lines)


def timing(manifest: Manifest, result: VerifyResult) -> str:
    """The median of the calls made now, and whether it lies between the record's 1st and 99th percentile."""
    median = statistics.median(result.samples_ns) / 1e6
    text = f"{median:.2f} ms a call, median of {len(result.samples_ns)}"
    measured = manifest.measured
    if measured is None:
        return f"{text}; no record to compare it with"
    within = "no, slower" if median > measured.p99_ms else "no, faster" if median < measured.p1_ms else "yes"
    spread = f"{measured.p1_ms:.2f} to {measured.p99_ms:.2f} ms, median {measured.median_ms:.2f}, on {measured.host}"
    return f"{text}; within the record's 1st to 99th percentile: {within} ({spread})"
