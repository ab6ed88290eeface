"""Exports a mix of a pipeline as one folder, and verifies it: a fresh process plays the loop on its programs."""

from dataclasses import replace
from pathlib import Path

from bakeoff.artifact.export import export, plan_export, staged
from bakeoff.export.folder import hash_file, read_manifest
from bakeoff.export.manifest import MANIFEST, MIX
from bakeoff.export.mix import (
    MIX_SCHEMA,
    OUTPUTS,
    MixManifest,
    encode_mix,
    is_mix,
    read_mix,
    seal_mix,
)
from bakeoff.machine import host, paths
from bakeoff.machine.locks import device_lock
from bakeoff.mix import SlotChoice
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines import pipeline_names
from bakeoff.models.words import counted
from bakeoff.pipeline.plan import PipelinePlan, in_way
from bakeoff.process.environment import user_code_path, worker_environment
from bakeoff.process.jobs import LoopSubject, PlayJob, PlayResult
from bakeoff.process.supervisor import Deadlines, Launch, run_job
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.source import pipeline_hash
from bakeoff.record.store import StoredPipeline, now
from bakeoff.sweeps.progress import Progress

UNITS = 10
"""Units of a session that are recorded and played again."""
_DEADLINE_S = 1800.0


def export_mix(
    made: PipelinePlan, entry: StoredPipeline, target: Path, force: bool, runs: Path, command: str, progress: Progress
) -> MixManifest:
    """Write the mix that a run confirmed to `target`, whole or not at all; with `force`, replace a mix that is there.

    Each slot is an artifact of its own, or several where no stream holds all of its programs together. Raises
    BakeoffError if a slot cannot be exported, or if the written programs do not play the loop.
    """
    record, loop = entry.record, made.loop
    with staged(target, force, is_whole) as part:
        artifacts: dict[str, str] = {}
        for way in record.mix.slots:
            artifacts |= _export_slot(made, way, part, runs, command, progress)
        job = PlayJob(
            str(part), _subject(made, record), {way.slot: way.dtype for way in record.mix.slots}, artifacts, UNITS, 0
        )
        played = _play(job, progress)
        manifests = {name: read_manifest(part / name) for name in dict.fromkeys(artifacts.values())}
        manifest = MixManifest(
            schema=MIX_SCHEMA,
            kind=MIX,
            mix=str(record.mix),
            loop=replace(
                loop,
                reference=Path(loop.reference).name,
                slots=tuple(replace(slot, component="") if slot.users else slot for slot in loop.slots),
            ),
            loop_hash=pipeline_hash(loop.reference),
            dtypes={way.slot: way.dtype for way in record.mix.slots},
            device=record.mix.device,
            threads=record.threads,
            input_seed=record.input_seed,
            artifacts=artifacts,
            digests={name: one.digest for name, one in manifests.items()},
            opening=played.opening,
            steady=played.steady,
            outputs=hash_file(part, OUTPUTS),
            units=UNITS,
            limit=max(limit for one in manifests.values() for limit in one.sample.limits.values()),
            weight_bytes=sum(file.bytes for one in manifests.values() for file in one.files.values()),
            created=now(),
            command=command,
            record=entry.id,
        )
        (part / MANIFEST).write_bytes(encode_mix(seal_mix(manifest)))
    return seal_mix(manifest)


def is_whole(folder: Path) -> bool:
    """Return whether a folder holds an exported mix and nothing else."""
    try:
        return is_mix(folder) and {path.name for path in folder.iterdir()} <= {
            MANIFEST,
            OUTPUTS,
            *read_mix(folder).digests,
        }
    except BakeoffError:
        return False


def _export_slot(
    made: PipelinePlan, way: SlotChoice, part: Path, runs: Path, command: str, progress: Progress
) -> dict[str, str]:
    """Export all programs of a slot; return the folder with each, as `slot.program`."""
    found: dict[str, str] = {}
    own = made.of(way.slot)
    plans = [(name, plan_export(in_way(plan, way))) for name, plan in own.items()]
    for name, plan in sorted(plans, key=lambda pair: -len(pair[1].rows)):  # a stream's programs share their weights
        if f"{way.slot}.{name}" not in found:
            folder = f"{way.slot}.{name}"
            export(plan, part / folder, False, runs, command, progress)
            held = {row.variant.workload for row in plan.rows}
            found |= {f"{way.slot}.{each}": folder for each in own if each in held}
    return found


def _subject(made: PipelinePlan, record: PipelineRecord) -> LoopSubject:
    return LoopSubject(made.loop, record.weight_seed, record.input_seed, {}, record.mix.device, record.threads)


def verify_mix(
    folder: Path, loop: str, allow_mismatch: bool, seconds: float, progress: Progress
) -> tuple[MixManifest, PlayResult]:
    """Play the loop on a folder's programs in a fresh process and compare its outputs with the recorded ones.

    `loop` is FILE.py:CLASS of a user's loop, "" for a pipeline of this lab. Raises BakeoffError if the folder was
    changed, if the loop's source is another one, or if the process ends without a result.
    """
    manifest = read_mix(folder)
    named = manifest.loop.reference
    if not loop and named not in pipeline_names():
        raise BakeoffError(f"{folder.name} is played by {named}; give its file, as in --loop {named}", "bad-option")
    reference = loop or named
    if pipeline_hash(reference) != manifest.loop_hash and not allow_mismatch:
        text = f"the source of {reference} differs from that of the exported loop; give the same, or --allow-mismatch"
        raise BakeoffError(text, "host-mismatch")
    threads = min(manifest.threads, host.usable_cores())
    subject = LoopSubject(
        replace(manifest.loop, reference=reference), 0, manifest.input_seed, {}, manifest.device, threads
    )
    dtypes = dict[str, str](manifest.dtypes)
    job = PlayJob(
        str(folder.absolute()), subject, dtypes, manifest.artifacts, manifest.units, manifest.limit, allow_mismatch
    )
    return manifest, _play(job, progress, seconds)


def _play(job: PlayJob, progress: Progress, seconds: float = _DEADLINE_S) -> PlayResult:
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    log = cache / "logs" / "play" / f"{Path(job.folder).name.strip('.')}.log"
    environment = worker_environment(job.subject.threads, user_code_path())
    with device_lock(job.subject.device, progress.say, cache):
        running = progress.start(
            0, 0, f"{job.subject.loop.name}: {counted(job.units, 'unit')} on the exported programs"
        )
        outcome = run_job(job, PlayResult, Launch(environment, Deadlines(seconds, total=seconds), log, running.event))
        running.finish("ok" if outcome.kind == "result" else outcome.kind, f"{outcome.wall_s:.0f} s")
    value: PlayResult = outcome.result_of("playing the loop", log)
    return value
