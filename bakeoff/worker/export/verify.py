"""Verifies an artifact: loads it as a deployment would, compares its outputs with its sample, and times calls."""

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import torch
from msgspec import UNSET
from torch import Tensor

from bakeoff.backends.backend import Outputs
from bakeoff.export import Artifact, BadArtifact, FlagsWarning, load
from bakeoff.export.manifest import MANIFEST, OutputCheck, Span
from bakeoff.export.sample import Reader, calls, limits_of, sizes, thinned
from bakeoff.machine.processes import peak_bytes
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import VerifyJob, VerifyResult
from bakeoff.record.policy import Policy
from bakeoff.record.regimes import Regime
from bakeoff.worker.clocks.clock import TimingConfig, time_often
from bakeoff.worker.failures import first_line, is_out_of_memory
from bakeoff.worker.reference.error import Difference, difference, not_comparable
from bakeoff.worker.reference.regimes import REGIMES, model_outputs
from bakeoff.worker.reporter import Report
from bakeoff.worker.torch_flags import flags

_COPIES, _BESIDE_BYTES = 1.5, 2 << 30
"""Memory that loaded programs take: 1.5 times their files, since an engine may repack weights, and 2 GiB for calls."""
_WARM_UP, _LEAST, _MOST, _TIMED_S = 3, 10, 200, 10.0
Differences = dict[tuple[str, str], list[tuple[int, Difference]]]
"""(program, output) to (frame, difference)."""


def verify_artifact(job: VerifyJob, report: Report) -> VerifyResult:
    """Load an artifact, compare its outputs with its sample, and time its main program if requested.

    Raises BakeoffError if the folder was changed since the export, or if this host lacks what the artifact requires.
    """
    report("open")
    started = time.perf_counter()
    artifact = load(job.folder, threads=job.threads, allow_mismatch=job.allow_mismatch)
    open_s = time.perf_counter() - started
    manifest = artifact.manifest
    reader = Reader(Path(job.folder), manifest)
    found: Differences = {}
    not_run = lacking_memory(artifact)
    frames = manifest.sample.frames if not not_run else 1
    with flags(manifest.dtype, artifact.threads, search=manifest.device == "cuda"), warnings.catch_warnings():
        warnings.simplefilter("error", FlagsWarning)  # the manifest states the flags that are in force here
        _follow(artifact, reader, frames, bool(not_run), found, report)
        samples_ns = _time(artifact, reader, report) if job.timed else []
        in_regimes, spans = _replay(artifact, reader, report)
        for opening in manifest.stream.opening if manifest.stream else ():
            for program in manifest.programs:
                artifact.close(program.name)
            report("sample", opening)
            outputs = artifact.program(opening)(**_given(artifact, reader, 0, opening))
            _compare(artifact, reader, 0, opening, outputs, found)
    lacking = {(one.name, port.name) for one in manifest.programs for port in one.outputs} - found.keys()
    if lacking:
        raise BakeoffError(
            f"The sample never produces output {'/'.join(min(lacking))}, so the artifact cannot be verified.",
            code="bad-artifact",
        )
    return VerifyResult(
        checked=(
            *(
                worst_of(program, output, limits_of(manifest, program)[output], entries)
                for (program, output), entries in found.items()
            ),
            *in_regimes,
        ),
        frames=frames,
        not_run=not_run,
        open_s=open_s,
        samples_ns=tuple(samples_ns),
        peak_bytes=peak_bytes(),
        mismatches=artifact.mismatches,
        spans=spans,
    )


def lacking_memory(artifact: Artifact) -> str:
    """Return why memory does not suffice to load the programs of a stream together; "" if it does."""
    manifest = artifact.manifest
    if manifest.stream is None or manifest.device != "cpu":
        return ""
    each = manifest.stream.each
    constants = {file for name in each for file in manifest.program(name).constants}
    others = tuple(f"{one.name}." for one in manifest.programs if one.name not in each)
    size = 0
    for name, file in manifest.files.items():
        if name == manifest.sample.file or (name.startswith(others) and name not in constants):
            continue
        whose = name in constants or name.startswith(tuple(f"{one}." for one in each))
        size += file.bytes * (1 if whose else len(each))  # files without a program's name are loaded by each of them
    needed, free = round(size * _COPIES) + _BESIDE_BYTES, psutil.virtual_memory().available
    if needed <= free:
        return ""
    return f"{' and '.join(each)} together need {needed >> 20} MiB, {free >> 20} MiB are free"


def _follow(artifact: Artifact, reader: Reader, frames: int, apart: bool, found: Differences, report: Report) -> None:
    """Call each frame's programs in order, carry state between calls, and compare the outputs with the sample.

    The differences are added to `found`. With `apart`, load one program at a time, and take its state from the sample.
    """
    manifest = artifact.manifest
    stream = artifact.stream() if manifest.stream else None
    for frame, name in calls(manifest, range(frames)):
        report("sample", f"frame {frame + 1} of {frames}, {name}")
        given = _given(artifact, reader, frame, name)
        if stream is None or apart:
            outputs = artifact.program(name)(**given)
        else:
            stream.fill({(name, port): tensor for port, tensor in given.items()})
            outputs = stream.call(name)
        _compare(artifact, reader, frame, name, outputs, found)
        if apart:
            artifact.close(name)


def _replay(artifact: Artifact, reader: Reader, report: Report) -> tuple[list[OutputCheck], dict[str, Span]]:
    """Call the main program on frame 0's inputs in each regime of the sample.

    Return the check of each output, and for each changed input the values on which all were within their limits.
    Raises BadArtifact for a regime that this version does not know.
    """
    manifest, main = artifact.manifest, artifact.manifest.program(artifact.manifest.main)
    checks: list[OutputCheck] = []
    spans, held = {port.name: port.checked for port in main.inputs if port.checked is not UNSET}, set[str]()
    for regime, limits in (manifest.sample.regimes or {}).items():
        report("sample", regime)
        if regime not in REGIMES:
            raise BadArtifact(f"{MANIFEST} has the regime '{regime}', which this version does not know; update bakeoff")
        given = reader.inputs(0, main.name, manifest.device, REGIMES[regime])
        found: Differences = {}
        try:
            _compare(artifact, reader, 0, main.name, artifact.program(main.name)(**given), found, regime)
        except Exception as error:  # whatever an engine raises for values that eager takes
            if isinstance(error, BakeoffError) or is_out_of_memory(error):
                raise
            found = {(main.name, port.name): [(0, not_comparable(first_line(error)))] for port in main.outputs}
        holds = True
        for (_, port), entries in found.items():
            if port in limits:
                one = worst_of(main.name, port, limits[port], entries)
                entry = Regime(regime, one.rel_l2, None, one.limit, not manifest.quantisation)
                checks.append(replace(one, passed=not entry.wrong, regime=regime))
                holds &= entry.holds
        if holds and (regime != "x16" or "x4" in held):
            held.add(regime)
            for name, span in spans.items():
                size, largest = map(float, sizes(given[name]))
                spans[name] = min(span[0], size), max(span[1], size), max(span[2], largest)
    return checks, spans


def _given(artifact: Artifact, reader: Reader, frame: int, name: str) -> dict[str, Tensor]:
    return reader.inputs(frame, name, artifact.manifest.device)


def _compare(
    artifact: Artifact,
    reader: Reader,
    frame: int,
    name: str,
    outputs: Mapping[str, Tensor],
    found: Differences,
    regime: str = "",
) -> None:
    wanted = reader.outputs(model_outputs(regime) if regime else frame, name)
    for port in artifact.manifest.program(name).outputs:
        output = outputs[port.name]
        step = artifact.manifest.sample.every.get(f"{name}/{port.name}", 1)
        if tuple(output.shape) != port.shape or str(output.dtype) != f"torch.{port.dtype}":
            gave = f"{str(output.dtype).removeprefix('torch.')} {list(output.shape)}"
            entry = not_comparable(f"{gave} instead of {port.dtype} {list(port.shape)}")
        elif torch.isnan(output).any():
            entry = not_comparable("values are not numbers")
        else:
            entry = difference(thinned(output, step), wanted[port.name].flatten(), output.dtype)
        found.setdefault((name, port.name), []).append((frame, entry))


def worst_of(program: str, output: str, limit: float, entries: Sequence[tuple[int, Difference]]) -> OutputCheck:
    """Return the check of an output by the first frame that cannot be compared, or else by that of the largest error.

    `entries` are frames with their differences.
    """
    for frame, entry in entries:
        if entry.problem is not None:
            return OutputCheck(program, output, None, limit, False, frame, entry.problem)
    frame, entry = max(entries, key=lambda one: math.inf if math.isnan(one[1].rel_l2) else one[1].rel_l2)
    return OutputCheck(program, output, entry.rel_l2, limit, entry.rel_l2 <= limit, frame)


def _time(artifact: Artifact, reader: Reader, report: Report) -> list[int]:
    """Time synchronised calls of the main program through the loader, in ns, after three calls for warm-up."""
    report("timing")
    main, device = artifact.manifest.main, artifact.manifest.device
    program, given = artifact.program(main), _given(artifact, reader, 0, main)
    config = TimingConfig(device, Policy(), lambda _index, _outputs: None)

    def call() -> Outputs:
        return tuple(program(**given).values())

    time_often([call], config, _WARM_UP, _WARM_UP, 0.0)
    return time_often([call], config, _LEAST, _MOST, _TIMED_S)
