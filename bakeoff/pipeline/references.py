"""The references of a loop: made where they are not cached, sealed, and made anew where a file was changed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest, write_atomically
from bakeoff.machine.identity import this_machine
from bakeoff.models.errors import BakeoffError
from bakeoff.pipeline.mixes import MixPlan
from bakeoff.pipeline.plan import PipelinePlan
from bakeoff.process.jobs import LoopReferenceJob, ReferenceResult
from bakeoff.process.supervisor import Launch, Outcome, run_job
from bakeoff.record.source import component_hash, loop_hash
from bakeoff.sweeps.references import References
from bakeoff.sweeps.seal import changed_files, discard, read_seal, seal_folder

_VERSION = 2
"""Of the files' format: another one makes them anew."""
_STEADY = 2
"""Steady units of a reference: the second one takes all its state from the first."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a folder of references holds, kept beside it."""

    dtypes: tuple[dict[str, str], ...]


def reference_units(plan: PipelinePlan) -> int:
    """How many units of a session the reference has: its opening ones, and two steady ones."""
    return min(len(plan.loop.opening) + _STEADY, plan.loop.max_units or _STEADY + len(plan.loop.opening))


def loop_reference_folder(plan: PipelinePlan) -> Path:
    """By everything that decides the references. Raises BakeoffError when a module of a component is gone."""
    key = digest(
        [
            plan.subject_id,
            reference_units(plan),
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


def dtypes_of(mix: MixPlan) -> dict[str, str]:
    """Slot to dtype."""
    return {slot.slot: str(slot.dtype) for slot in mix.mix.slots}


def make_loop_reference(plan: PipelinePlan, mixes: Sequence[MixPlan], launch: Launch) -> tuple[Outcome, References]:
    """Make what is not cached of the references of these mixes; the caller holds the folder's lock.

    Returns how that ended, and what there is. Raises BakeoffError when the request itself is wrong.
    """
    folder = loop_reference_folder(plan)
    wanted = [dtypes_of(mix) for mix in mixes]
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
    job = LoopReferenceJob(plan.subject, tuple(dtypes), reference_units(plan), str(folder))
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
