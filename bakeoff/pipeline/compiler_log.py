"""The compiler's log of a mix: every program that torch compiles is built once more, untimed, with TORCH_TRACE set.

Sources: torch/_logging/_internal.py; tlparse 0.4.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bakeoff.backends import resolve_backend
from bakeoff.pipeline.mixes import MixPlan, MixProgram
from bakeoff.pipeline.session import PipelineSession
from bakeoff.process.jobs import TraceJob, TraceResult
from bakeoff.process.supervisor import Event, run_job
from bakeoff.record.pipeline import PipelineMeasurement
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.row import measure_job

_OUTPUT, _SECONDS = "tl_out", 300
HOW = "pip install tlparse and profile again, or read the log elsewhere: tlparse LOG -o tl_out --no-browser"


def with_compiler_log(
    session: PipelineSession, mix: MixPlan, measurement: PipelineMeasurement, running: Running
) -> PipelineMeasurement:
    """The measurement with the folder of its compiler's logs; as it is where none was asked for."""
    asked, profile = session.plan.request.profile, measurement.profile
    if asked is None or not asked.compiler or profile is None:
        return measurement
    folder = session.cache / "traces" / session.run / f"{mix.slug}.compiler"
    compiled = [program for program in mix.programs if _is_compiled(program)]
    notes = [profile.note] if profile.note else []
    for program in compiled:
        notes += _log(session, mix, program, folder / program.name, running)
    if not compiled:
        notes.append("no program of this mix is compiled by torch, so there is no compiler's log")
    path = folder.relative_to(session.cache).as_posix() if compiled else ""
    return replace(measurement, profile=replace(profile, compiler=path, note="; ".join(dict.fromkeys(notes))))


def _is_compiled(program: MixProgram) -> bool:
    return resolve_backend(program.row.steps[-1].backend).evidence.uses_inductor


def _log(session: PipelineSession, mix: MixPlan, program: MixProgram, folder: Path, running: Running) -> list[str]:
    """Build the program with a log in `folder` and let tlparse read it; returns what went wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    running.event(Event("traced build", f"{program.name} with the compiler's log"))
    launch = session.launch_of(mix, running)
    environment: Mapping[str, str] = {**launch.environment, **_environment(folder)}
    log = launch.log.with_suffix(f".{program.name}.compiler.log")
    policy = replace(session.plan.request.policy, trace=False)
    job = TraceJob(measure_job(program.row, policy, None), rebuild=True)
    outcome = run_job(job, TraceResult, replace(launch, environment=environment, log=log))
    if outcome.kind != "result" or outcome.value.problem:
        return [f"{program.name}: no compiler's log: {outcome.reason or outcome.value.problem}"]
    logs = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_size)
    if not logs:
        return [f"{program.name}: the compiler wrote no log"]
    return _parsed(logs[-1], folder)


def _environment(folder: Path) -> dict[str, str]:
    """Caches would keep most of the log away; kernels get names of their own and a benchmark each."""
    return {
        "TORCH_TRACE": str(folder),
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "TORCHINDUCTOR_BENCHMARK_KERNEL": "1",
        "TORCHINDUCTOR_UNIQUE_KERNEL_NAMES": "1",
    }


def _parsed(log: Path, folder: Path) -> list[str]:
    """Let tlparse make its pages; what it cannot do is said, and the log stays."""
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
