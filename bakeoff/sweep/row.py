"""One row from its reference to its record: a worker each for the reference, the measurement and the traced build."""

from dataclasses import replace
from pathlib import Path

from bakeoff.machine import build_cache, host, paths
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.reference import reference_folder
from bakeoff.plan.rows import Row
from bakeoff.process.jobs import MeasureJob, ReferenceJob, ReferenceResult, TraceJob, TraceResult
from bakeoff.process.phases import PHASES, DeadlineClass
from bakeoff.process.supervisor import Deadlines, Event, Launch, Outcome, run_job
from bakeoff.record.policy import Policy
from bakeoff.record.schema import MEASURED, Measurement, Record, new_finding
from bakeoff.record.store import now
from bakeoff.sweep.assemble import make_record
from bakeoff.sweep.session import Session
from bakeoff.sweep.trace import with_trace


def run_row(session: Session, row: Row) -> Record:
    """Measure one row and return its record, whatever came of it.

    Raises BakeoffError when the request itself is wrong (a bad checkpoint).
    """
    if row.precheck is not None:
        outcome = Outcome("result", value=Measurement(row.precheck.status, row.precheck.reason))
    else:
        outcome, folder = make_reference(session, row)
        if outcome.kind == "result":
            outcome = _measure(session, row, folder)
    return make_record(session, row, outcome)


def make_reference(session: Session, row: Row) -> tuple[Outcome, Path]:
    """Make the references of the row's subject where they are not cached; returns how that ended, and their folder.

    Tried once in a session. When a component is edited meanwhile its folder is another one, and the rows that follow
    get a new reference. Raises BakeoffError when the request itself is wrong (a bad checkpoint).
    """
    folder = reference_folder(row.subject, session.plan.component)
    if folder not in session.references:
        session.references[folder] = _make_reference(session, row, folder)
    return session.references[folder], folder


def _make_reference(session: Session, row: Row, folder: Path) -> Outcome:
    paths.mark_used(folder)
    same = [other for other in session.plan.rows if other.subject == row.subject and other.precheck is None]
    dtypes = sorted({other.variant.dtype for other in same})
    files = ["reference.json", *(f"eager-{dtype}.json" for dtype in dtypes)]
    if not row.subject.checkpoint and all((folder / name).exists() for name in files):
        return Outcome("result")
    # Not the row's own environment: no compiler runs here, and nothing may be left in a compiler's cache.
    launch = launch_of(session, row)
    launch = replace(launch, environment=session.plan.environment, log=launch.log.with_suffix(".reference.log"))
    outcome = run_job(ReferenceJob(row.subject, tuple(dtypes), str(folder)), ReferenceResult, launch)
    if outcome.kind == "refused":
        raise BakeoffError(outcome.reason, outcome.code)
    if outcome.kind != "result":
        return replace(outcome, reason=f"no reference to compare with: its worker: {outcome.reason}")
    return outcome


def _measure(session: Session, row: Row, folder: Path) -> Outcome:
    """Measure in one worker; in another build again where the caches were cold, and trace that build."""
    open_cache(row, anew=row.builds > 1 and row.process == 1)
    job, launch = measure_job(row, session.plan.request.policy, folder), launch_of(session, row)
    outcome = run_job(job, Measurement, launch)
    if outcome.kind == "refused":
        raise BakeoffError(outcome.reason, outcome.code)
    measurement: Measurement = outcome.value
    if outcome.kind != "result" or measurement.status not in MEASURED or measurement.build is None:
        return outcome
    rebuild = measurement.build.cache == "cold"
    if not rebuild and not job.policy.trace:
        return outcome
    session.progress.event(Event("traced build"))
    again = run_job(TraceJob(job, rebuild), TraceResult, replace(launch, log=launch.log.with_suffix(".trace.log")))
    traced = again.value if again.kind == "result" else TraceResult(None, None, {}, {}, again.reason)
    measurement = with_trace(measurement, traced, job.policy.trace)
    if rebuild and traced.warm_s is None:
        findings = (*measurement.findings, new_finding("rebuild", f"no warm build: {traced.problem}"))
        measurement = replace(measurement, findings=findings)
    return replace(outcome, value=measurement)


def measure_job(row: Row, policy: Policy, folder: Path | None) -> MeasureJob:
    """The job that builds the row's variant; without a reference `folder` it cannot be checked."""
    return MeasureJob(
        subject=row.subject,
        variant=str(row.variant),
        steps=row.steps,
        dtype=row.variant.dtype,
        policy=policy,
        reference_folder="" if folder is None else str(folder),
        cache_folder=str(row.cache_folder),
        quantisation=row.quantisation,
    )


def open_cache(row: Row, anew: bool = False) -> None:
    """Make the folder of the row's compiler cache; `anew` without what an earlier build left there.

    Raises BakeoffError where that cannot be removed.
    """
    about = build_cache.About(
        variant=str(row.variant),
        build_number=row.build_number,
        batch=row.subject.batch,
        threads=row.subject.threads,
        checkpoint=row.checkpoint,
        versions=host.read_versions(),
        created=now(),
    )
    if anew:
        build_cache.delete_earlier_build(row.cache_folder)
    build_cache.open_folder(row.cache_folder, about)


def launch_of(session: Session, row: Row) -> Launch:
    """How the row's worker is started: environment, log, and deadlines by phase."""
    policy = session.plan.request.policy
    seconds: dict[DeadlineClass, float] = {
        "startup": policy.startup_deadline_s,
        "build": row.build_deadline_s,
        "phase": policy.phase_deadline_s,
    }
    limits: dict[str, float] = {phase: seconds[info.deadline] for phase, info in PHASES.items()}
    deadlines = Deadlines(policy.phase_deadline_s, limits)
    return Launch(row.environment, deadlines, session.log_of(row), session.progress.event)
