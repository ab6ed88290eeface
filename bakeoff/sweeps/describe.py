"""Runs workers that describe models and pipelines, count the work of a call, and measure this machine's ceilings."""

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypeVar

from bakeoff.machine import host
from bakeoff.machine.files import digest, slug
from bakeoff.machine.floors import WORK_DTYPES, Ceiling
from bakeoff.machine.identity import this_machine
from bakeoff.machine.locks import device_lock
from bakeoff.models.component import Work
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.plan.plan import Plan
from bakeoff.process.environment import user_code_path, worker_environment
from bakeoff.process.jobs import (
    CeilingsJob,
    CeilingsResult,
    CountJob,
    CountResult,
    DescribeJob,
    DescribeLoopJob,
    Subject,
)
from bakeoff.process.supervisor import Deadlines, Launch, run_job
from bakeoff.record.floor import LARGEST_OTHER_SHARE, best_ceilings
from bakeoff.record.kept import keep_work, read_work
from bakeoff.record.schema import SCHEMA, CeilingsRecord
from bakeoff.record.store import Records, StoredCeilings, load_all, now, save
from bakeoff.sweeps.progress import Progress

_DEADLINE_S = 1200.0
"""Seconds for loading weights from a slow disk, and for some eager calls."""
_Result = TypeVar("_Result")
_CEILINGS_DEADLINE_S = 600.0


def describe(
    job: DescribeJob | DescribeLoopJob | CountJob,
    result: type[_Result],
    name: str,
    cache: Path,
    progress: Progress,
    threads: int = 0,
    python: str = "",
) -> _Result:
    """Run a worker for the model or pipeline `name` and return its result. Raises BakeoffError if the worker fails.

    `threads` 0 means all usable cores. `python` is the worker's interpreter, "" for this one.
    """
    log = cache / "logs" / f"describe-{slug(name)}-{digest(repr(job))[:6]}.log"  # other files may have this name
    running = progress.start(0, 0, f"describing {name}")
    environment = worker_environment(threads or host.usable_cores(), user_code_path())
    alone: AbstractContextManager[object] = nullcontext()
    if isinstance(job, DescribeJob | DescribeLoopJob) and job.device == "cuda":
        alone = device_lock(job.device, progress.say)
    launch = Launch(environment, Deadlines(_DEADLINE_S), log, running.event, python=python)
    with alone:
        outcome = run_job(job, result, launch)
    running.finish("ok" if outcome.kind == "result" else outcome.kind, f"{outcome.wall_s:.1f} s")
    return outcome.result_of(f"{name} cannot be described", log)


def works_of(plan: Plan, cache: Path, progress: Progress) -> dict[Subject, Work]:
    """Return the work of a call of each subject; one worker counts all that is not known yet.

    The work of a network that fails is 0 FLOPs, and a message says so: its rows will fail too, with the details.
    """
    component, found = plan.component, dict[Subject, Work]()
    missing: list[Subject] = []
    for subject in dict.fromkeys(row.subject for row in plan.rows):
        config = component.preset(subject.preset).config
        workload = component.workload(config, subject.workload, subject.batch)
        work = workload.work or read_work(subject.component, config, subject.workload, subject.batch)
        found[subject] = work or Work(0, 0, sum(spec.elements for spec in workload.inputs + workload.outputs))
        missing += [] if work else [subject]
    if not missing:
        return found
    job = CountJob(missing[0].component, tuple((one.preset, one.workload, one.batch) for one in missing))
    what = f"{component.name} ({counted(len(missing), 'call')})"
    try:
        result = describe(job, CountResult, what, cache, progress)
    except BakeoffError as error:
        if error.code != "worker-failed":
            raise
        result = CountResult((None,) * len(missing), (str(error),))
    for problem in result.problems:
        progress.say(f"The work of a call is unknown: {problem}.")
    for subject, work in zip(missing, result.works, strict=True):
        if work is not None:
            found[subject] = work
            config = component.preset(subject.preset).config
            keep_work(subject.component, config, subject.workload, subject.batch, work)
    return found


def known_ceilings(
    device: str,
    threads: int,
    runs: Path,
    cache: Path,
    progress: Progress,
    again: bool = False,
    dtypes: Collection[str] | None = None,
) -> tuple[Ceiling, ...]:
    """Return the best known ceilings of this machine, from the records in `runs`. The caller holds the device's lock.

    Missing ceilings of `dtypes` (None: all) are measured and stored first. Ceilings of a dtype are missing if they were
    never measured with this version of torch on an undisturbed machine. With `again`, those of all `dtypes` are
    measured. If measuring fails, a message says so, and rows have no measured floor unless earlier records have
    ceilings. Raises BakeoffError if the records cannot be read.
    """
    records = load_all(runs)
    measured = list(records.ceilings)
    wanted = WORK_DTYPES[device] if again else unmeasured_dtypes(records, device, threads)
    missing = [dtype for dtype in wanted if dtypes is None or dtype in dtypes]
    if missing:
        measured += _measure(CeilingsJob(device, threads, tuple(missing)), runs, cache, progress, again)
    return best_ceilings(records.current, measured, this_machine(device), threads)


def unmeasured_dtypes(records: Records, device: str, threads: int) -> list[str]:
    """Return the dtypes whose matrix products were not yet measured undisturbed on this machine, with this torch and
    `threads`."""
    wanted = (this_machine(device).key, threads, host.read_versions().get("torch"))
    measured = {
        each.dtype
        for found in (entry.record for entry in records.ceilings)
        if (found.machine.key, found.threads, found.versions.get("torch")) == wanted
        and found.other_cpu_share <= LARGEST_OTHER_SHARE
        for each in found.ceilings
        if each.kind == "product"
    }
    return [dtype for dtype in WORK_DTYPES[device] if dtype not in measured]


def _measure(job: CeilingsJob, runs: Path, cache: Path, progress: Progress, again: bool) -> list[StoredCeilings]:
    """Measure ceilings and store them as a record; return it in a list, or an empty list if measuring failed."""
    device, threads = job.device, job.threads
    often = "again" if again else "once"
    running = progress.start(0, 0, f"ceilings of this {device} in {', '.join(job.dtypes)}, measured {often}")
    launch = Launch(
        worker_environment(threads), Deadlines(_CEILINGS_DEADLINE_S), cache / "logs" / "ceilings.log", running.event
    )
    outcome = run_job(job, CeilingsResult, launch)
    if outcome.kind != "result":
        running.finish("unknown", f"{outcome.kind}: {outcome.reason}; rows have no measured floor from this set")
        return []
    result: CeilingsResult = outcome.value
    entry = CeilingsRecord(
        schema=SCHEMA,
        created=now(),
        machine=this_machine(device),
        threads=threads,
        ceilings=result.ceilings,
        other_cpu_share=result.others,
        host=host.read_host(),
        versions=host.read_versions(),
    )
    try:
        name = save(runs, entry)
    except BakeoffError as error:
        running.finish("not stored", f"{error}; used now, and measured again the next time")
        return [StoredCeilings("", entry)]
    if result.others > LARGEST_OTHER_SHARE:
        text = f"other processes took {result.others:.0%} of all cores: measured again the next time"
        running.finish("busy", text)
    else:
        running.finish("ok", counted(len(result.ceilings), "ceiling"))
    return [StoredCeilings(name, entry)]
