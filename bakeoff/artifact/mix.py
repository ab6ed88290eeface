"""Exports a mix of a pipeline as one folder: an artifact for each slot, and the list of calls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import UNSET

from bakeoff.artifact.export import DEADLINE_S, export, plan_export, staged
from bakeoff.export.folder import hash_file, read_manifest
from bakeoff.export.manifest import MANIFEST, MIX, formatted
from bakeoff.export.mix import MIX_SCHEMA, MixManifest, is_mix, read_mix, seal_mix
from bakeoff.export.requirements import machines
from bakeoff.export.warmup import WARMUP, WarmCall, WarmUp
from bakeoff.machine import paths
from bakeoff.machine.files import slug
from bakeoff.machine.locks import device_lock
from bakeoff.mix import SlotChoice
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.pipeline.forecast import is_exported
from bakeoff.pipeline.plan import ExportedMix, PipelinePlan, in_way
from bakeoff.process.environment import PASSIVE, user_code_path, worker_environment
from bakeoff.process.jobs import WarmUpJob
from bakeoff.process.supervisor import Deadlines, Launch, run_job
from bakeoff.record.pipeline import Shipped
from bakeoff.record.source import pipeline_hash
from bakeoff.record.store import StoredPipeline, now
from bakeoff.sweeps.progress import Progress


def export_mix(
    made: PipelinePlan, entry: StoredPipeline, target: Path, force: bool, runs: Path, command: str, progress: Progress
) -> None:
    """Write the mix that a run confirmed to `target`, whole or not at all; with `force`, replace a mix that is there.

    Each slot is an artifact of its own, or several where no stream holds all of its programs together. Each is verified
    in a fresh process. Raises BakeoffError if a slot cannot be exported.
    """
    loop, artifacts = made.loop, dict[str, str]()
    with staged(target, force, is_whole) as part:
        for choice in entry.record.mix.slots:
            artifacts |= _export_slot(made, choice, part, runs, command, progress)
        folders = {name: str(part / folder) for name, folder in artifacts.items()}
        found, warmup = _exported(made, entry.record.mix.slots, folders, progress), ""
        if found.warmup is not None:
            (part / WARMUP).write_bytes(formatted(found.warmup))
            warmup = hash_file(part, WARMUP).sha256
        else:
            progress.say(f"The mix is without {WARMUP}: {found.problem}")
        manifest = MixManifest(
            schema=MIX_SCHEMA,
            kind=MIX,
            mix=str(entry.record.mix),
            loop=Path(loop.reference).name,
            loop_hash=pipeline_hash(loop.reference),
            artifacts=artifacts,
            digests={name: read_manifest(part / name).digest for name in artifacts.values()},
            calls=tuple(
                tuple(".".join(call.key) for call in unit.calls) for unit in (loop.opened, *loop.opening, loop.steady)
            ),
            environment={name: value for name, value in entry.record.environment.items() if name in PASSIVE},
            created=now(),
            command=command,
            record=entry.id,
            warmup=warmup or UNSET,
        )
        (part / MANIFEST).write_bytes(formatted(seal_mix(manifest)))


def exported(made: PipelinePlan, folder: Path, runs: Path, progress: Progress) -> dict[str, ExportedMix]:
    """Export each mix to `folder`; return the artifacts by its string."""
    found: dict[str, ExportedMix] = {}
    for mix in made.mixes:
        target, folders = folder / mix.slug, dict[str, str]()
        try:
            for choice in sorted(mix.mix.slots, key=is_exported):  # what cannot be is said before another takes minutes
                folders |= _export_slot(made, choice, target, runs, f"bakeoff deadline {made.loop.typed}", progress)
            folders = {name: str(target / folder) for name, folder in folders.items()}
            found[str(mix.mix)] = _exported(made, mix.mix.slots, folders, progress)
        except BakeoffError as error:
            found[str(mix.mix)] = ExportedMix(problem=str(error))
    return found


def _exported(
    made: PipelinePlan, slots: Sequence[SlotChoice], folders: Mapping[str, str], progress: Progress
) -> ExportedMix:
    """Describe a mix's artifacts, and find the calls that warm it up, each try in a fresh process."""
    cache, subject = paths.ensure_writable(paths.cache_folder(), "caches"), made.subject
    log = cache / "logs" / "export" / f"warm-up-{slug(made.loop.name)}.log"
    environment = worker_environment(subject.threads, user_code_path())

    def find(calls: tuple[WarmCall, ...]) -> WarmUp:
        running = progress.start(0, 0, f"{made.loop.name}: units after {counted(len(calls), 'call')} for warm-up")
        job = WarmUpJob(subject, {each.slot: each.dtype for each in slots}, dict(folders), calls)
        outcome = run_job(job, WarmUp, Launch(environment, Deadlines(DEADLINE_S), log, running.event))
        found: WarmUp = outcome.result_of("warm-up", log)
        running.finish("ok", f"{counted(found.units, 'unit')}, {counted(len(found.calls), 'call')} not warm")
        return found

    manifests = [read_manifest(Path(folder)) for folder in dict.fromkeys(folders.values())]
    files = [file for one in manifests for file in one.files.values()]
    needs = dict.fromkeys(text for one in manifests for text in machines(one))
    made_of = ExportedMix(folders, Shipped(sum(file.bytes for file in files), tuple(needs)))
    try:
        with device_lock(subject.device, progress.say, cache):
            return replace(made_of, warmup=least_plan(find))
    except BakeoffError as error:
        return replace(made_of, problem=str(error))


def least_plan(find: Callable[[tuple[WarmCall, ...]], WarmUp]) -> WarmUp:
    """Return the warm-up plan of a mix. `find` makes calls in a fresh process, runs units of the loop, and returns
    those of their calls in which a counter moved.

    These calls are the plan, less each without which no counter moves either. Raises BakeoffError if a counter moves
    after all of them.
    """
    plan = find(())
    if not plan.calls:
        return plan
    calls, proof = plan.calls, find(plan.calls)
    if proof.calls:
        late = proof.calls[0]
        text = f"{late.program} compiles, allocates or captures in unit {late.unit}, after each such call was made once"
        raise BakeoffError(f"no calls warm the mix up: {text}", "unsupported")
    for call in plan.calls if len(calls) > 1 else ():
        fewer = tuple(each for each in calls if each is not call)
        if fewer and not (without := find(fewer)).calls:
            calls, proof = fewer, without
    return replace(proof, calls=calls)


def is_whole(folder: Path) -> bool:
    """Return whether a folder holds an exported mix and nothing else."""
    known = {MANIFEST, WARMUP}
    try:
        return is_mix(folder) and {path.name for path in folder.iterdir()} <= known | read_mix(folder).digests.keys()
    except BakeoffError:
        return False


def _export_slot(
    made: PipelinePlan, choice: SlotChoice, part: Path, runs: Path, command: str, progress: Progress
) -> dict[str, str]:
    """Export all programs of a slot; return the folder with each, as `slot.program`."""
    folders: dict[str, str] = {}
    own = made.of(choice.slot)
    plans = [(name, plan_export(in_way(plan, choice))) for name, plan in own.items()]
    for name, plan in sorted(plans, key=lambda pair: -len(pair[1].rows)):  # a stream's programs share their weights
        folder = f"{choice.slot}.{name}"
        if folder not in folders:
            export(plan, part / folder, False, runs, command, progress)
            held = {row.variant.workload for row in plan.rows}
            folders |= {f"{choice.slot}.{each}": folder for each in own if each in held}
    return folders
