"""Pages on exported artifacts: what one contains and needs (`inspect`), and the result of `export` and `verify`."""

import math
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import UNSET

from bakeoff.export.folder import port_bytes
from bakeoff.export.manifest import Manifest, OutputCheck, Port, Program
from bakeoff.export.mix import MixManifest
from bakeoff.export.sample import BLOCK, MOST
from bakeoff.models.brought.about import OWN_WEIGHTS
from bakeoff.models.component import Stream
from bakeoff.models.grouping import grouped
from bakeoff.models.words import counted
from bakeoff.process.jobs import VerifyResult
from bakeoff.report.document import (
    Cell,
    Command,
    Document,
    Heading,
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
from bakeoff.report.format import size_text

_SHOWN = 8
"""Largest number of ports, and of a verification's outputs, that are listed."""


def inspected(manifest: Manifest, unmet: Sequence[str]) -> Document:
    """Return the page of everything in a manifest; `unmet` are the host requirements that this host does not meet."""
    measured = manifest.measured
    figures = "no record: not measured on the host that exported it; to measure it, run bakeoff sweep"
    if measured is not None:
        figures = (
            f"{measured.median_ms:.2f} ms ({measured.p1_ms:.2f} to {measured.p99_ms:.2f} ms, 1st to 99th percentile), "
            f"{measured.calls_per_s:.1f} calls/s with {counted(measured.threads, 'thread')} on {measured.host} "
            f"({measured.record}){f'; {measured.range}' if measured.range else ''}"
        )
    facts = {
        "variant": _named(manifest),
        "format": f"{manifest.artifact}, opened by {manifest.backend}; {counted(len(manifest.files), 'file')}, "
        f"{_size(manifest)}",
        "model": _model(manifest),
        "made": f"{manifest.created} by: {manifest.command}",
        "measured": figures,
        "parity": _parity(manifest.parity),
        "regimes": _regimes(manifest.parity),
        "compared": _compared(manifest),
        "needs": "; ".join(f"{need.what} {need.rule} {need.value}" for need in manifest.needs),
    }
    files = [(name, size_text(file.bytes), file.sha256) for name, file in manifest.files.items()]
    return Document(
        manifest.variant,
        blocks(
            listed([*stated(facts), _here(unmet)]),
            *map(_program, manifest.programs),
            *([_stream(manifest.stream)] if manifest.stream is not None else []),
            _conditions(manifest),
            Section("Files", blocks(table(["file", number("size"), "SHA-256"], files))),
        ),
    )


def _here(unmet: Sequence[str]) -> Text:
    return Text("; ".join(unmet), "here", "bad") if unmet else Text("this host meets all requirements", "here", "good")


def inspected_mix(folder: Path, mix: MixManifest, held: Mapping[str, Manifest], unmet: Sequence[str]) -> Document:
    """Return the page of a mix: its artifacts, and the calls of its units in order.

    `held` are the manifests of its artifacts by folder; `unmet` is as in `inspected`.
    """
    facts = {
        "mix": mix.mix,
        "loop": f"{mix.loop}, source {mix.loop_hash}",
        "made": f"{mix.created} by: {mix.command}",
        "measured": mix.record,
    }
    rows = [(name, held[own].variant, own, _size(held[own])) for name, own in mix.artifacts.items()]
    headings = ("program", "variant", "folder", number("size"))
    units = ("opening a session", *(f"unit {number}" for number in range(len(mix.calls) - 2)), "each later unit")
    calls = dict(zip(units, map(", ".join, mix.calls), strict=True))
    where = shlex.quote(str(folder / next(iter(held))))
    return Document(
        mix.mix,
        blocks(
            listed([*stated(facts), _here(unmet)]),
            Section("Artifacts", blocks(table(headings, rows), Command(f"bakeoff inspect {where}"))),
            listed(stated(calls), "Calls, in order"),
        ),
    )


def _named(manifest: Manifest) -> str:
    """Return the variant with the label of its preset, which for a user's model is the file that it came from."""
    return f"{manifest.variant}{f' ({manifest.label})' if manifest.label else ''}"


def _model(manifest: Manifest) -> str:
    """Describe a model's authors, if they are known, and its weights with their fingerprint."""
    source, fingerprint = manifest.weights.source, manifest.weights.fingerprint[:16]
    weights = source if source.startswith(OWN_WEIGHTS) else f"weights {source}"
    if fingerprint not in weights:
        weights += f", {fingerprint}"
    return f"{manifest.credit}; {weights}" if manifest.credit else weights


def _size(manifest: Manifest) -> str:
    return size_text(sum(file.bytes for file in manifest.files.values()))


def _program(program: Program) -> Section:
    """Return a section on a program: its first inputs and outputs, and one row each way for all others."""
    facts = "".join(f", {name} {value}" for name, value in program.facts.items())
    headings = ("", "name", "dtype", "shape", number("size"), Heading("values", leaves=1))
    rows = []
    for direction, ports in (("in", program.inputs), ("out", program.outputs)):
        rows += [(direction, port.name, *_port(port)) for port in ports[:_SHOWN]]
        if ports[_SHOWN:]:
            rows.append(("", f"... {len(ports) - _SHOWN} more, to {ports[-1].name}", *_port(ports[-1])))
    about = Text(f"{program.summary}; {program.file}{facts}")
    return Section(f"Program {program.name}", blocks(about, table(headings, rows)))


def _port(port: Port) -> tuple[str, str, str, str]:
    return port.dtype, "x".join(map(str, port.shape)), size_text(port_bytes(port)), port.values


def _stream(stream: Stream) -> Section:
    """Return a section on the order of calls, and which outputs of one call are inputs of the next."""
    opening = f"first {', '.join(stream.opening)}, then " if stream.opening else ""
    zeros = ""
    if stream.zeros:
        first = stream.workloads[0]
        zeros = f"; {counted(len(stream.zeros), f'input of {first} starts', f'inputs of {first} start')} as zeros"
    pairs = grouped(((one.workload, one.to, one.axis), f"{one.output} -> {one.input}") for one in stream.carries)
    carried = []
    for (source, target, axis), names in pairs.items():
        how = "replaces it" if axis is None else f"appended along axis {axis}, the oldest dropped"
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        carried.append(f"{source} to {target}: {names[0]}{more} ({how})")
    calls = Text(f"{opening}repeatedly {', '.join(stream.each)}{zeros}", "calls")
    return Section("Stream", blocks(calls, listed(carried)))


def exported(folder: Path, manifest: Manifest, result: VerifyResult | None) -> Document:
    """Return the page of a new artifact: its parity, format and memory, and the next command.

    `result` is None for an artifact that another GPU has to verify.
    """
    parity = "not compared here; the files were checked"
    if result is not None:
        frames = f", {counted(result.frames, 'frame')} of its stream computed" if manifest.stream is not None else ""
        parity = f"{_parity(result.checked)}{frames}"
    needs = "; ".join(f"{need.what} {need.rule} {need.value}" for need in manifest.needs)
    facts = {
        "artifact": f"{folder}: {_named(manifest)}",
        "parity": parity,
        "needs": "" if result is not None else needs,
        "compared": _compared(manifest),
        "format": f"{manifest.artifact}, {counted(len(manifest.programs), 'program')}, {_size(manifest)}",
        "memory": f"{size_text(manifest.export_peak_bytes)} at its peak while exporting",
        "next": "verify it in a fresh process" if result is not None else "copy the folder to such a GPU; there run",
    }
    return Document(str(folder), blocks(listed(stated(facts)), Command(shlex.join(["bakeoff", "verify", str(folder)]))))


def _parity(checked: Sequence[OutputCheck]) -> str:
    """Describe how many outputs are within their limits, and the one nearest to its limit."""
    if not checked:
        return "not checked"
    given = [one for one in checked if not one.regime]
    worst = max(given, key=lambda one: (one.rel_l2 is None, (one.rel_l2 or 0) / one.limit))
    passed = sum(one.passed for one in given)
    figure = "not comparable" if worst.rel_l2 is None else f"{worst.rel_l2:.2e} of {worst.limit:.2e}"
    outputs = counted(len(given), "output within its limit", "outputs within their limits")
    return f"{passed} of {outputs}; nearest to its limit is {worst.program}/{worst.output}, {figure}"


def _regimes(checked: Sequence[OutputCheck]) -> str:
    """Name the regimes in which all outputs are within their limits, and those in which one is not."""
    tried = dict.fromkeys(str(one.regime) for one in checked if one.regime)
    lost = dict.fromkeys(str(one.regime) for one in checked if one.regime and not _within(one))
    held = [name for name in tried if name not in lost]
    parts = [f"{what} {', '.join(names)}" for what, names in (("right at", held), ("not at", lost)) if names]
    return "; ".join(parts)


def _within(one: OutputCheck) -> bool:
    return one.rel_l2 is not None and one.rel_l2 <= one.limit


def _compared(manifest: Manifest) -> str:
    """Say how many of the outputs' values the sample has, and that it repeats values of large inputs."""
    made = {f"{one.name}/{port.name}": math.prod(port.shape) for one in manifest.programs for port in one.outputs}
    stored = sum(-(-count // manifest.sample.every.get(name, 1)) for name, count in made.items())
    each = " of one call of each program" if manifest.programs[1:] else ""
    inputs = [port for one in manifest.programs for port in one.inputs if port.values != "given"]
    repeated = (
        f", for inputs that repeat {BLOCK:,} values" if any(math.prod(one.shape) > MOST for one in inputs) else ""
    )
    return f"{stored:,} of {sum(made.values()):,} output values{each}{repeated}"


def verified(manifest: Manifest, result: VerifyResult) -> Document:
    """Return the page of a verification: whether outputs equal the exported sample's, frames, time and peak memory."""
    wrong = sum(not one.passed for one in result.checked)
    verdict = Text("verified: the outputs match the exported sample", tone="good")
    if wrong:
        verdict = Text(f"not verified: {counted(wrong, 'output differs', 'outputs differ')}", tone="bad")
    frames = f"{result.frames} of {manifest.sample.frames} computed" if manifest.stream is not None else ""
    facts = {
        "variant": _named(manifest),
        "frames": frames + (f"; stopped there: {result.not_run}" if frames and result.not_run else ""),
        "parity": _parity(result.checked),
        "regimes": _regimes(result.checked),
        "compared": _compared(manifest),
        "opened": f"in {result.open_s:.1f} s, hashes included; peak {size_text(result.peak_bytes)}",
        "time": timing(manifest, result) if result.samples_ns else "",
    }
    allowed = (Text(f"allowed: {one}", "mismatch", "open") for one in result.mismatches)
    made = (listed([*stated(facts), *allowed]), *_outputs(result.checked), _conditions(manifest))
    return Document(manifest.variant, blocks(verdict, *made))


_TONES: Mapping[str, Tone] = {"right": "good", "wrong": "bad", "crashed": "bad"}


def _conditions(manifest: Manifest) -> Section | None:
    """Return a section on the checked conditions of use; None if none were."""
    kept = manifest.conditions
    if kept is UNSET:
        return None
    headings = ("condition", "result", Heading("time", numeric=True), "seen")
    rows = [
        (
            one.name,
            Cell(one.result, tone=_TONES.get(one.result, "open")),
            f"{one.factor:.1f}x" if one.result == "slower" else "",
            one.seen,
        )
        for one in kept.rows
    ]
    about = f"{kept.checked}, idle for {kept.idle_s:g} s, on {kept.host.get('cpu', 'another host')}"
    return section("Conditions of use", (Text(about, "checked"), table(headings, rows, wraps=True)))


def _outputs(checked: Sequence[OutputCheck]) -> Iterator[Table | Listed | None]:
    """Yield a table of wrong outputs and those nearest to their limits, and a list of their problems."""
    shown = sorted(checked, key=lambda one: (one.passed, -(one.rel_l2 or 0) / one.limit))
    rows = [
        (
            one.name,
            str(one.frame),
            "-" if one.rel_l2 is None else f"{one.rel_l2:.2e}",
            f"{one.limit:.2e}",
            "FAIL" if not one.passed else "pass" if _within(one) else "narrow",
        )
        for one in shown[:_SHOWN]
    ]
    numbers = map(number, ("worst frame", "relative L2", "limit"))
    yield table(["output", *numbers, "verdict"], rows)
    more = [Text(one.problem, one.name, "bad") for one in shown[:_SHOWN] if one.problem]
    if shown[_SHOWN:]:
        words = ("more output, further from its limit", "more outputs, further from their limits")
        more.append(Text(f"and {counted(len(shown) - _SHOWN, *words)}"))
    yield listed(more)


def timing(manifest: Manifest, result: VerifyResult) -> str:
    """Describe the median of the calls made now, and whether it is within the record's 1st to 99th percentile."""
    median = statistics.median(result.samples_ns) / 1e6
    text = f"{median:.2f} ms a call, median of {len(result.samples_ns)}"
    measured = manifest.measured
    if measured is None:
        return f"{text}; no record to compare it with"
    within = "no, slower" if median > measured.p99_ms else "no, faster" if median < measured.p1_ms else "yes"
    spread = f"{measured.p1_ms:.2f} to {measured.p99_ms:.2f} ms, median {measured.median_ms:.2f}, on {measured.host}"
    return f"{text}; within the record's 1st to 99th percentile: {within} ({spread})"
