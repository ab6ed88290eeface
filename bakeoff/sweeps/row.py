"""What the workers of a row are given: their job, their compiler cache, their deadlines and where they report to."""

from bakeoff.machine import build_cache, host
from bakeoff.plan.rows import Row, reference_folder
from bakeoff.process.environment import WEIGHTS
from bakeoff.process.jobs import MeasureJob
from bakeoff.process.phases import PHASES, DeadlineClass
from bakeoff.process.supervisor import Deadlines, Launch
from bakeoff.record.policy import Policy
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.references import References
from bakeoff.sweeps.session import Session


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
    if anew or not row.caches or not build_cache.is_warm(row.cache_folder):
        build_cache.delete_earlier_build(row.cache_folder)
    build_cache.open_folder(row.cache_folder)


def launch_of(session: Session, row: Row, running: Running, beside: int = 0) -> Launch:
    """How the row's worker is started: environment, log, deadlines by phase, and who hears its events.

    With `beside` other workers that build at the same time, all of them together may take as long as one after the
    other.
    """
    policy = session.plan.request.policy
    seconds: dict[DeadlineClass, float] = {
        "startup": policy.startup_deadline_s * (1 + beside),
        "build": row.build_deadline_s * (1 + beside),
        "reference": max(row.build_deadline_s, policy.phase_deadline_s) * (1 + beside),
        "phase": policy.phase_deadline_s,
    }
    limits: dict[str, float] = {phase: seconds[info.deadline] for phase, info in PHASES.items()}
    deadlines = Deadlines(policy.phase_deadline_s, limits)
    gpu = str(host.read_host().gpus[0]["uuid"]) if row.subject.device == "cuda" else ""
    environment = row.environment
    if session.weights is not None:
        path = session.weights.path_of(reference_folder(row.subject, session.plan.component))
        environment = {**environment, WEIGHTS: path}
    return Launch(environment, deadlines, session.log_of(row), running.event, gpu)
