"""One row from its reference to its record: a worker each for the reference, the measurement and the traced build."""

from dataclasses import replace

from bakeoff.machine import build_cache, host
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.rows import Row
from bakeoff.process.jobs import MeasureJob, TraceJob, TraceResult
from bakeoff.process.phases import PHASES, TIMED, DeadlineClass
from bakeoff.process.supervisor import Deadlines, Event, Launch, Outcome, run_job
from bakeoff.record.policy import Policy
from bakeoff.record.schema import MEASURED, Measurement, Record, new_finding
from bakeoff.record.store import now
from bakeoff.sweeps.assemble import make_record
from bakeoff.sweeps.references import References, make_reference
from bakeoff.sweeps.session import Session
from bakeoff.sweeps.trace import with_trace
from bakeoff.sweeps.watch import NOT_WATCHED, Watched, WorkerWatch


def run_row(session: Session, row: Row) -> Record:
    """Measure one row and return its record, whatever came of it.

    Raises BakeoffError when the request itself is wrong (a bad checkpoint).
    """
    watched, obstacle = NOT_WATCHED, row.obstacle()
    if obstacle is not None:
        outcome = Outcome("result", value=Measurement(obstacle.status, obstacle.reason))
    else:
        outcome, references = make_reference(session, row, launch_of(session, row))
        if outcome.kind == "result":
            with session.entry_lock(row.cache_folder):
                outcome, watched = _measure(session, row, references)
            outcome = _with_changed_references(outcome, references)
    return make_record(session, row, outcome, watched)


def _with_changed_references(outcome: Outcome, references: References) -> Outcome:
    """The outcome, with a finding where files of the references changed while the row ran.

    Its own limits were read before any of its code ran, and the next row gets references made anew.
    """
    changed = references.changed()
    if not changed or outcome.kind != "result":
        return outcome
    finding = new_finding("tampered", f"{', '.join(changed)} of its references changed while this row ran")
    return replace(outcome, value=replace(outcome.value, findings=(*outcome.value.findings, finding)))


def _measure(session: Session, row: Row, references: References) -> tuple[Outcome, Watched]:
    """Measure in one worker; in another build again where the caches were cold, and trace that build."""
    open_cache(row, anew=row.builds > 1 and row.process == 1)
    request = session.plan.request
    job, launch = measure_job(row, request.policy, references), launch_of(session, row)
    with WorkerWatch(launch, TIMED, request.monitor) as watch:
        outcome = run_job(job, Measurement, watch.launch)
    watched = watch.watched
    if outcome.kind == "refused":
        raise BakeoffError(outcome.reason, outcome.code)
    measurement: Measurement = outcome.value
    if outcome.kind != "result" or measurement.status not in MEASURED or measurement.build is None:
        return outcome, watched
    rebuild = measurement.build.cache == "cold"
    if not rebuild and not job.policy.trace:
        return outcome, watched
    session.progress.event(Event("traced build"))
    again = run_job(TraceJob(job, rebuild), TraceResult, replace(launch, log=launch.log.with_suffix(".trace.log")))
    traced = again.value if again.kind == "result" else TraceResult(None, None, {}, {}, again.reason)
    measurement = with_trace(measurement, traced, job.policy.trace)
    if rebuild and not traced.rebuilt:
        findings = (*measurement.findings, new_finding("rebuild", f"no warm build: {traced.problem}"))
        measurement = replace(measurement, findings=findings)
    return replace(outcome, value=measurement), watched


def measure_job(row: Row, policy: Policy, references: References | None) -> MeasureJob:
    """The job that builds the row's variant; without references it cannot be checked."""
    return MeasureJob(
        subject=row.subject,
        variant=str(row.variant),
        steps=row.steps,
        dtype=row.variant.dtype,
        policy=policy,
        reference_folder="" if references is None else str(references.folder),
        reference_hashes={} if references is None else references.hashes,
        cache_folder=str(row.cache_folder),
        quantisation=row.quantisation,
    )


def open_cache(row: Row, anew: bool = False) -> None:
    """Make the folder of the row's compiler cache; `anew` without what an earlier build left there.

    What a build left that did not succeed is removed too, as is everything of a backend that states no caches: what it
    keeps all the same would make its next build look fast. Raises BakeoffError where that cannot be removed.
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
    if anew or not row.caches or not build_cache.is_warm(row.cache_folder):
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
    gpu = str(host.read_host().gpus[0]["uuid"]) if row.subject.device == "cuda" else ""
    return Launch(row.environment, deadlines, session.log_of(row), session.progress.event, gpu)
