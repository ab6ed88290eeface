"""State shared by all mixes of one run of a pipeline, and the references of its loop."""

import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest
from bakeoff.machine.identity import this_machine
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.pipeline.plan import MixPlan, PipelinePlan
from bakeoff.process.environment import PASSIVE, user_code_path, worker_environment
from bakeoff.process.jobs import LoopReferenceJob, ProfileOptions, floor_file
from bakeoff.process.supervisor import Launch, Outcome, run_job
from bakeoff.record.source import component_hash, pipeline_hash
from bakeoff.record.store import StoredPipeline
from bakeoff.sweeps.context import SweepContext, changed_files, discard, read_seal, seal_folder
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.row import References, made_launch


@dataclass(frozen=True, slots=True)
class PipelineSession:
    """State of a run, created once when the device is locked."""

    plan: PipelinePlan
    slots: Mapping[str, SweepContext]
    """For each slot, the context of a sweep in which the references of its programs are made."""
    runs: Path
    order: random.Random
    """Random generator for the order of the mixes in each round."""
    stored: dict[str, StoredPipeline]
    """Records so far, including those before an interruption, by the string of the mix."""

    @property
    def context(self) -> SweepContext:
        """One of these contexts, for what they share: id and note of the run, load, cache, progress, selftest."""
        return next(iter(self.slots.values()))

    def file_of(self, mix: MixPlan, folder: str, ending: str) -> Path:
        """Return the mix's file in a folder of the cache, as in `logs/RUN/MIX.log`."""
        return self.context.cache / folder / self.context.sweep / f"{mix.slug}{ending}"

    def log_of(self, mix: MixPlan) -> Path:
        """Return the file of what its worker prints; that of one whose threads sleep is another, since both may run."""
        return self.file_of(mix, "logs", ".passive.log" if PASSIVE.items() <= mix.environment.items() else ".log")

    def profile_of(self, mix: MixPlan) -> ProfileOptions | None:
        """Return what the mix's worker must trace, and into which files; None if no profile was requested."""
        asked, trace = self.plan.request.profile, str(self.file_of(mix, "traces", ".json.gz"))
        if asked is None:
            return None
        snapshot = asked.memory and mix.mix.device == "cuda"
        memory = str(self.file_of(mix, "traces", ".memory.pickle")) if snapshot else ""
        return replace(asked, folder=str(self.context.cache), file=trace, snapshot=memory)

    def launch_of(self, mix: MixPlan, running: Running) -> Launch:
        """Return how to start a mix's worker: environment, log, deadlines by phase, and receiver of its events."""
        build_s = max(row.build_deadline_s for row in mix.rows.values())
        policy, log = self.plan.request.policy, self.log_of(mix)
        return made_launch(policy, build_s, mix.environment, log, mix.mix.device, running)


_VERSION = 4
"""Version of the reference files' format; files of another version are made again."""


def loop_reference_folder(plan: PipelinePlan) -> Path:
    """Return the folder of the loop's references; its name is a hash of everything that determines them.

    Raises BakeoffError if a module of the pipeline or its components cannot be found.
    """
    key = digest(
        [
            plan.subject_id,
            plan.reference_units,
            plan.subject.device,
            plan.subject.threads,
            this_machine(plan.subject.device).machine_class,
            host.read_versions().get("torch", ""),
            pipeline_hash(plan.loop.reference),
            [component_hash(slot.component) for slot in plan.loop.slots],
            _VERSION,
            *(["free"] if plan.request.horizon_db is not None else []),
        ]
    )
    return paths.cache_folder() / "references" / f"loop-{plan.loop.name}-{plan.loop.preset}-{key}"


def make_loop_reference(plan: PipelinePlan, mixes: Sequence[MixPlan], launch: Launch) -> tuple[Outcome, References]:
    """Make the references of these mixes that are not cached; return the outcome and the references.

    The caller holds the folder's lock. Raises BakeoffError if the request itself is wrong.
    """
    folder = loop_reference_folder(plan)
    seal = read_seal(folder)
    if seal is None or changed_files(folder, seal, trust_stat=False):
        discard(folder)
        seal = {}
    dtypes: list[dict[str, str]] = [{slot.slot: slot.dtype for slot in mix.mix.slots} for mix in mixes]
    free = plan.request.horizon_db is not None
    if all(floor_file(one) in seal for one in dtypes) and not plan.subject.checkpoints:
        return Outcome("result"), References(folder, seal)
    if not seal:
        _check_space(plan, folder)
    # Not a mix's environment: no compiler runs here.
    environment = worker_environment(plan.subject.threads, user_code_path())
    launch = replace(launch, environment=environment, log=launch.log.with_suffix(".reference.log"))
    outcome = Outcome("result")
    missing = [(one,) for one in dtypes if floor_file(one) not in seal]
    for some in missing if free else [tuple(dtypes)]:  # each is kept if the next one is interrupted
        job = LoopReferenceJob(plan.subject, some, plan.reference_units, str(folder), free)
        outcome = run_job(job, NoneType, launch)
        outcome.raise_refusal()
        if outcome.kind != "result":
            reason = f"no reference loop to compare with: its worker: {outcome.reason}"
            return replace(outcome, reason=reason), References(folder, {})
        seal = seal_folder(folder)
    return outcome, References(folder, seal)


def _check_space(plan: PipelinePlan, folder: Path) -> None:
    """Raise BakeoffError if the disk of the cache folder is too small for the loop's reference."""
    needed, free = plan.reference_bytes, shutil.disk_usage(paths.cache_folder()).free
    if needed > free:
        text = f"the reference of {counted(plan.reference_units, plan.loop.unit)} takes {needed >> 20:,} MiB in "
        text += f"{folder.parent}, which has {free >> 20:,} MiB free; give fewer --units, or set BAKEOFF_CACHE"
        raise BakeoffError(text, "not-writable")
