"""Opening an artifact in a fresh process and comparing it with its own sample."""

from pathlib import Path
from typing import Any

from bakeoff.export.loader import check_here
from bakeoff.export.manifest import Manifest
from bakeoff.machine import host, paths
from bakeoff.machine.locks import device_lock
from bakeoff.models.errors import BakeoffError
from bakeoff.process.environment import worker_environment
from bakeoff.process.jobs import VerifyJob, VerifyResult
from bakeoff.process.supervisor import Deadlines, Launch, Outcome, run_job
from bakeoff.sweeps.progress import Progress


def verify(
    folder: Path, manifest: Manifest, allow_mismatch: bool, seconds: float, memory_bytes: int, progress: Progress
) -> VerifyResult:
    """Open the artifact in a fresh process, within `seconds` in all, and compare it with its sample.

    Raises BakeoffError where the artifact is refused, or its process ends without a result.
    """
    check_here(folder.absolute(), manifest, allow_mismatch)
    threads = min(manifest.threads, host.usable_cores())
    job = VerifyJob(str(folder.absolute()), manifest.device, threads, allow_mismatch, True, memory_bytes)
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    log = cache / "logs" / "verify" / f"{folder.absolute().name}-{manifest.digest[:12]}.log"
    with device_lock(manifest.device, progress.say, cache):
        running = progress.start(0, 0, manifest.variant)
        outcome = run_job(
            job,
            VerifyResult,
            Launch(worker_environment(threads), Deadlines(seconds, total=seconds), log, running.event),
        )
        running.finish("ok" if outcome.kind == "result" else outcome.kind, f"{outcome.wall_s:.0f} s")
    value: VerifyResult = value_of(outcome, "verification", log)
    return value


def value_of(outcome: Outcome, what: str, log: Path) -> Any:
    """The worker's result.

    Raises BakeoffError with the message and code of the worker's own error, or, where it ended without a result, with
    how it ended and where its log is.
    """
    if outcome.kind == "refused":
        raise BakeoffError(outcome.reason, outcome.code)
    if outcome.kind != "result":
        raise BakeoffError(f"{what}: {outcome.kind}: {outcome.reason}; see {log}", "worker-failed")
    return outcome.value
