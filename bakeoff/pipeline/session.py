"""What all mixes of one run share: its session, and the references of the loop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest, write_atomically
from bakeoff.machine.identity import this_machine
from bakeoff.models.errors import BakeoffError
from bakeoff.pipeline.mixes import MixPlan
from bakeoff.pipeline.plan import PipelinePlan
from bakeoff.process.jobs import LoopReferenceJob, ProfileRequest, ReferenceResult
from bakeoff.process.phases import PHASES, DeadlineClass
from bakeoff.process.supervisor import Deadlines, Launch, Outcome, run_job
from bakeoff.record.source import component_hash, loop_hash
from bakeoff.sweeps.progress import Progress, Running
from bakeoff.sweeps.row import References
from bakeoff.sweeps.seal import changed_files, discard, read_seal, seal_folder
from bakeoff.sweeps.session import Session, open_session


@dataclass(frozen=True, slots=True)
class PipelineSession:
    """Opened once, when the device's lock is held."""

    plan: PipelinePlan
    run: str
    note: str
    load: float
    """`present_load` before it began."""
    cache: Path
    progress: Progress
    slots: Mapping[str, Session]
    """By slot, a sweep's session, in which the references of its programs are made."""

    def log_of(self, mix: MixPlan) -> Path:
        return self.cache / "logs" / self.run / f"{mix.slug}.log"

    def profile_of(self, mix: MixPlan) -> ProfileRequest | None:
        """What the mix's worker is to trace, and into which files; None where no profile was asked for."""
        asked = self.plan.request.profile
        if asked is None:
            return None
        folder = self.cache / "traces" / self.run
        snapshot = asked.memory and mix.mix.device == "cuda"
        return ProfileRequest(
            units=asked.units,
            level=asked.level,
            top=asked.top,
            memory=asked.memory,
            folder=str(self.cache),
            file=str(folder / f"{mix.slug}.json.gz"),
            snapshot=str(folder / f"{mix.slug}.memory.pickle") if snapshot else "",
            capture=asked.capture,
        )

    def launch_of(self, mix: MixPlan, running: Running) -> Launch:
        """How a mix's worker is started: environment, log, deadlines by phase, and who hears its events."""
        policy = self.plan.request.policy
        seconds: dict[DeadlineClass, float] = {
            "startup": policy.startup_deadline_s,
            "build": mix.build_deadline_s,
            "reference": max(mix.build_deadline_s, policy.phase_deadline_s),
            "phase": policy.phase_deadline_s,
        }
        limits: dict[str, float] = {phase: seconds[info.deadline] for phase, info in PHASES.items()}
        gpu = str(host.read_host().gpus[0]["uuid"]) if mix.mix.device == "cuda" else ""
        deadlines = Deadlines(policy.phase_deadline_s, limits)
        return Launch(mix.environment, deadlines, self.log_of(mix), running.event, gpu)


def open_pipeline_session(
    plan: PipelinePlan, run: str, note: str, runs: Path, cache: Path, load: float, progress: Progress
) -> PipelineSession:
    slots = {
        slot: open_session(of_slot, run, note, runs, cache, load, progress) for slot, of_slot in plan.slots.items()
    }
    return PipelineSession(plan, run, note, load, cache, progress, slots)


_VERSION = 2
"""Of the files' format: another one makes them anew."""
_STEADY = 2
"""Steady units of a reference: the second one takes all its state from the first."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a folder of references holds, kept beside it."""

    dtypes: tuple[dict[str, str], ...]


def _reference_units(plan: PipelinePlan) -> int:
    """How many units of a session the reference has: its opening ones, and two steady ones."""
    return min(len(plan.loop.opening) + _STEADY, plan.loop.max_units or _STEADY + len(plan.loop.opening))


def loop_reference_folder(plan: PipelinePlan) -> Path:
    """By everything that decides the references. Raises BakeoffError when a module of a component is gone."""
    key = digest(
        [
            plan.subject_id,
            _reference_units(plan),
            plan.subject.device,
            plan.subject.threads,
            this_machine(plan.subject.device).machine_class,
            host.read_versions().get("torch", ""),
            loop_hash(plan.subject.pipeline, plan.loop.glue),
            [component_hash(slot.component) for slot in plan.loop.slots],
            _VERSION,
        ]
    )
    return paths.cache_folder() / "references" / f"loop-{plan.pipeline.name}-{plan.subject.preset}-{key}"


def _dtypes_of(mix: MixPlan) -> dict[str, str]:
    """Slot to dtype."""
    return {slot.slot: str(slot.dtype) for slot in mix.mix.slots}


def make_loop_reference(plan: PipelinePlan, mixes: Sequence[MixPlan], launch: Launch) -> tuple[Outcome, References]:
    """Make what is not cached of the references of these mixes; the caller holds the folder's lock.

    Returns how that ended, and what there is. Raises BakeoffError when the request itself is wrong.
    """
    folder = loop_reference_folder(plan)
    wanted = [_dtypes_of(mix) for mix in mixes]
    seal = read_seal(folder)
    if seal is None or changed_files(folder, seal, trust_stat=False):
        discard(folder)
        seal = None
    known = _known(folder) if seal is not None else []
    dtypes = [*known]
    for combination in wanted:
        if combination not in dtypes:
            dtypes.append(combination)
    if seal is not None and dtypes == known and not plan.subject.checkpoints:
        return Outcome("result"), References(folder, seal)
    # Not a mix's environment: no compiler runs here.
    launch = replace(launch, environment=plan.environment, log=launch.log.with_suffix(".reference.log"))
    job = LoopReferenceJob(plan.subject, tuple(dtypes), _reference_units(plan), str(folder))
    outcome = run_job(job, ReferenceResult, launch)
    if outcome.kind == "refused":
        raise BakeoffError(outcome.reason, outcome.code)
    if outcome.kind != "result":
        reason = f"no reference loop to compare with: its worker: {outcome.reason}"
        return replace(outcome, reason=reason), References(folder, {})
    seal = seal_folder(folder)
    write_atomically(_made_file(folder), msgspec.json.encode(Made(tuple(dtypes))))
    return outcome, References(folder, seal)


def _known(folder: Path) -> list[dict[str, str]]:
    try:
        return list(msgspec.json.decode(_made_file(folder).read_bytes(), type=Made).dtypes)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return []


def _made_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.made.json")
