"""What all mixes of one run share."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bakeoff.machine import host
from bakeoff.pipeline.mixes import MixPlan
from bakeoff.pipeline.plan import PipelinePlan
from bakeoff.process.jobs import ProfileRequest
from bakeoff.process.phases import PHASES, DeadlineClass
from bakeoff.process.supervisor import Deadlines, Launch
from bakeoff.sweeps.progress import Progress, Running
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
