"""This machine's measured ceilings: measured once in a worker of its own, kept in the cache folder."""

import contextlib
from pathlib import Path

import msgspec

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest, write_atomically
from bakeoff.machine.floors import Ceiling
from bakeoff.models.errors import BakeoffError
from bakeoff.process.environment import worker_environment
from bakeoff.process.jobs import CeilingsJob, CeilingsResult
from bakeoff.process.supervisor import Deadlines, Launch, run_job
from bakeoff.record.codec import encode_json
from bakeoff.sweep.progress import Progress

_DEADLINE_S = 600.0
_BUSY = 0.1
"""Share of all cores; a busier host gives ceilings that are too low, and floors that are too high."""


def known_ceilings(
    device: str, threads: int, cache: Path, progress: Progress, again: bool = False
) -> tuple[Ceiling, ...]:
    """Read them, or measure them where they are not known or `again` is asked for; the caller holds the device's lock.

    A host on which they cannot be measured has none, which is said; its rows have no measured floor.
    """
    path = ceilings_file(device, threads, cache)
    if not again:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            known = msgspec.json.decode(path.read_bytes(), type=CeilingsResult)
            paths.mark_used(path)
            return known.ceilings
    progress.start(0, 0, f"ceilings of this {device}, measured once")
    job = CeilingsJob(device, threads)
    log = cache / "logs" / "ceilings.log"
    launch = Launch(worker_environment(threads), Deadlines(_DEADLINE_S), log, progress.event)
    outcome = run_job(job, CeilingsResult, launch)
    if outcome.kind != "result":
        progress.finish("unknown", f"{outcome.kind}: {outcome.reason}; tables have no measured floors")
        return ()
    result: CeilingsResult = outcome.value
    if result.others > _BUSY:
        text = f"other processes took {result.others:.0%} of all cores: used now, and measured again the next time"
        progress.finish("busy", text)
        return result.ceilings
    with contextlib.suppress(BakeoffError):  # what cannot be kept is measured again
        write_atomically(path, encode_json(result))
    progress.finish("ok", f"{len(result.ceilings)} ceilings")
    return result.ceilings


def ceilings_file(device: str, threads: int, cache: Path) -> Path:
    """By all that decides them: machine, threads, versions."""
    versions = {name: version for name, version in host.read_versions().items() if name in ("torch", "bakeoff")}
    return cache / "ceilings" / f"{device}-{digest([host.read_host(), threads, versions])}.json"
