"""Asks workers about models before anything is planned or measured, and keeps the answers in the cache folder."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypeVar

from bakeoff.machine import host
from bakeoff.machine.files import slug
from bakeoff.machine.locks import device_lock
from bakeoff.models.component import Work
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.plan.plan import Plan
from bakeoff.process.environment import user_code_path, worker_environment
from bakeoff.process.jobs import CountJob, CountResult, DescribeJob, DescribeLoopJob, Subject
from bakeoff.process.supervisor import Deadlines, Launch, run_job
from bakeoff.record.work import keep_work, read_work
from bakeoff.sweeps.progress import Progress

_DEADLINE_S = 1200.0
"""For weights that are loaded from a slow disk, and some eager calls."""
_Result = TypeVar("_Result")


def describe(
    job: DescribeJob | DescribeLoopJob | CountJob,
    result: type[_Result],
    name: str,
    cache: Path,
    progress: Progress,
    threads: int = 0,
) -> _Result:
    """Return a worker's answer about the model or pipeline `name`. Raises BakeoffError where there is none."""
    log = cache / "logs" / f"describe-{slug(name)}.log"
    running = progress.start(0, 0, f"describing {name}")
    environment = worker_environment(threads or host.usable_cores(), user_code_path())
    alone: AbstractContextManager[object] = nullcontext()
    if isinstance(job, DescribeJob | DescribeLoopJob) and job.device == "cuda":
        alone = device_lock(job.device, progress.say)
    with alone:
        outcome = run_job(job, result, Launch(environment, Deadlines(_DEADLINE_S), log, running.event))
    if outcome.kind == "result":
        running.finish("ok", f"{outcome.wall_s:.1f} s")
        found: _Result = outcome.value
        return found
    running.finish(outcome.kind, "")
    if outcome.kind == "refused":
        raise BakeoffError(outcome.reason, outcome.code)
    raise BakeoffError(f"{name} cannot be described: {outcome.reason}; its output is in {log}", "worker-failed")


def works_of(plan: Plan, cache: Path, progress: Progress) -> dict[Subject, Work]:
    """The work of a call of each subject; one worker counts all that is not known yet.

    Of a network that fails it is 0, and is said: its rows fail too, and say more.
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
