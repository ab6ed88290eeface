"""From what a user typed to a described folder in the cache: run once, and again where code or libraries changed."""

from pathlib import Path

from bakeoff.bring.source import is_brought, read_source
from bakeoff.machine import host, paths
from bakeoff.machine.files import digest
from bakeoff.machine.locks import entry_lock
from bakeoff.models.brought.about import ABOUT, SCHEMA, Source, read_about
from bakeoff.models.errors import BakeoffError
from bakeoff.process.environment import user_code_path, worker_environment
from bakeoff.process.jobs import DescribeJob, DescribeResult
from bakeoff.process.supervisor import Deadlines, Launch, run_job
from bakeoff.sweeps.progress import Progress

_DEADLINE_S = 1200.0
"""For weights that are loaded from a slow disk, and some eager calls."""


def bring(reference: str, seed: int, threads: int, progress: Progress) -> str:
    """The reference that names a brought model to everything else; any other reference as it is.

    A description that is in the cache is taken where the code, the libraries and the seed are the same; workers check
    the weights. Raises BakeoffError where the model cannot be described; the message says why.
    """
    if not is_brought(reference):
        return reference
    source, name, preset = read_source(reference)
    key = digest([source, name, preset, seed, host.read_versions(), SCHEMA])
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    folder = cache / "brought" / f"{name}-{preset}-{key}"
    with entry_lock(cache, folder, f"description of {name}", progress.say):
        if not (folder / ABOUT).is_file():
            _describe(source, name, preset, seed, threads, folder, progress)
    paths.mark_used(folder)
    for note in read_about(folder).notes:
        progress.say(f"{name}: {note}.")
    return str(folder)


def first_program(folder: str) -> str:
    """The first input set of a described model, as component:preset.workload."""
    about = read_about(Path(folder))
    return f"{about.name}:{about.preset}.{about.sets[0].name}"


def _describe(
    source: Source, name: str, preset: str, seed: int, threads: int, folder: Path, progress: Progress
) -> None:
    threads = threads or host.usable_cores()
    log = folder.parents[1] / "logs" / f"describe-{folder.name}.log"
    progress.start(0, 0, f"describing {name}")
    launch = Launch(worker_environment(threads, user_code_path()), Deadlines(_DEADLINE_S), log, progress.event)
    outcome = run_job(DescribeJob(source, name, preset, seed, threads, str(folder)), DescribeResult, launch)
    if outcome.kind == "result":
        progress.finish("ok", f"{outcome.wall_s:.1f} s")
        return
    progress.finish(outcome.kind, "")
    if outcome.kind == "refused":
        raise BakeoffError(outcome.reason, outcome.code)
    raise BakeoffError(f"{name} cannot be described: {outcome.reason}; its output is in {log}", "worker-failed")
