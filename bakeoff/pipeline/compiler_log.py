"""Builds programs of a profiled mix again, untimed: to trace kernels hidden in the loop, and to log torch's compiler.

The log exists for programs that torch compiles; TORCH_TRACE is set for it. Sources: torch/_logging/_internal.py;
tlparse 0.4.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import Backend
from bakeoff.models.pipelines.pipeline import Key
from bakeoff.pipeline.plan import MixPlan
from bakeoff.pipeline.session import PipelineSession
from bakeoff.process.jobs import TraceJob, TraceResult
from bakeoff.process.supervisor import Event, run_job
from bakeoff.record.pipeline import PipelineMeasurement, ProgramSight
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.row import measure_job

_OUTPUT, _SECONDS = "tl_out", 300
HOW = "pip install tlparse and profile again, or read the log elsewhere: tlparse LOG -o tl_out --no-browser"
_TRACER = "torch.profiler"


def seen_apart(
    session: PipelineSession, mix: MixPlan, measurement: PipelineMeasurement, running: Running
) -> PipelineMeasurement:
    """Return the measurement with the kernels of its hidden programs and, if requested, the folder of compiler logs.

    A measurement without a profile is returned unchanged.
    """
    profile = measurement.profile
    if profile is None:
        return measurement
    profile = replace(
        profile,
        programs=tuple(
            _seen(session, mix, sight, running) if sight.sight == "hidden" else sight for sight in profile.programs
        ),
    )
    asked = session.plan.request.profile
    if asked is not None and asked.compiler:
        folder = session.file_of(mix, "traces", ".compiler")
        compiled = [key for key in mix.rows if _backend(mix, key).uses_inductor]
        notes = [profile.note] if profile.note else []
        for key in compiled:
            notes += _log(session, mix, key, folder / str(key), running)
        if not compiled:
            notes.append("no program of this mix is compiled by torch, so there is no compiler's log")
        path = folder.relative_to(session.context.cache).as_posix() if compiled else ""
        profile = replace(profile, compiler=path, note="; ".join(dict.fromkeys(notes)))
    return replace(measurement, profile=profile)


def _backend(mix: MixPlan, key: Key) -> Backend:
    """Return the backend that builds the program."""
    return resolve_backend(mix.rows[key].steps[-1].backend)


def _seen(session: PipelineSession, mix: MixPlan, sight: ProgramSight, running: Running) -> ProgramSight:
    """Return the program's entry with its kernels.

    They come from the record that predicts the program's time, which is of the same machine and code, or else from a
    traced build.
    """
    key = Key(sight.slot, sight.program)
    tracer, part = _backend(mix, key).tracer or _TRACER, mix.parts.get(key)
    proof = part.record.measurement.proof if part is not None else None
    if part is not None and proof is not None and proof.trace is not None:
        trace, tracer = proof.trace, f"{tracer}, record {part.id}"
    else:
        running.event(Event("traced build", str(key)))
        traced, problem = _traced(session, mix, key, running, "trace", {})
        if traced is None or traced.trace is None:
            return replace(sight, problem=problem or "no trace was made")
        trace = traced.trace
    return replace(
        sight,
        sight="in its own build",
        tracer=tracer,
        kernels=trace.kernels,
        kernel_count=trace.kernel_count,
        total_ns=trace.total_ns,
        named_ns=trace.named_ns,
    )


def _traced(
    session: PipelineSession,
    mix: MixPlan,
    key: Key,
    running: Running,
    ending: str,
    compiler: Mapping[str, str],
) -> tuple[TraceResult | None, str]:
    """Build the program alone; return the worker's report (None if the worker failed) and what went wrong.

    The build is traced, unless `compiler` has environment variables for a compiler log. `ending` becomes part of the
    log's file name.
    """
    launch = session.launch_of(mix, running)
    log = launch.log.with_suffix(f".{key}.{ending}.log")
    policy = replace(session.plan.request.policy, trace=not compiler)
    job = TraceJob(measure_job(mix.rows[key], policy, None))
    outcome = run_job(job, TraceResult, replace(launch, environment={**launch.environment, **compiler}, log=log))
    if outcome.kind != "result":
        return None, outcome.reason
    return outcome.value, outcome.value.problem


def _log(session: PipelineSession, mix: MixPlan, key: Key, folder: Path, running: Running) -> list[str]:
    """Build the program with a compiler log in `folder` and let tlparse read the log; return messages about what went
    wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    running.event(Event("traced build", f"{key} with the compiler's log"))
    _, problem = _traced(session, mix, key, running, "compiler", _environment(folder))
    if problem:
        return [f"{key}: no compiler's log: {problem}"]
    logs = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_size)
    if not logs:
        return [f"{key}: the compiler wrote no log"]
    return _parsed(logs[-1], folder)


def _environment(folder: Path) -> dict[str, str]:
    """Return variables for a complete log: without caches, which would hide most of it, and with named, benchmarked
    kernels."""
    return {
        "TORCH_TRACE": str(folder),
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "TORCHINDUCTOR_BENCHMARK_KERNEL": "1",
        "TORCHINDUCTOR_UNIQUE_KERNEL_NAMES": "1",
    }


def _parsed(log: Path, folder: Path) -> list[str]:
    """Let tlparse make pages from the log; return messages about what went wrong. The log is kept in any case."""
    tool = shutil.which("tlparse") or shutil.which("tlparse", path=Path(sys.executable).parent)
    if tool is None:
        return [f"tlparse is not installed: {HOW}"]
    command = [tool, str(log), "-o", str(folder / _OUTPUT), "--no-browser", "--overwrite"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"tlparse did not run: {error}"]
    if ran.returncode or not (folder / _OUTPUT / "index.html").is_file():
        return [f"tlparse failed with exit code {ran.returncode}; the log is {log.name}"]
    return []
