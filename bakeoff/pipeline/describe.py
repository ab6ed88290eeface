"""Describes a pipeline's loop: a worker runs its first units once, and the result is cached."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from bakeoff.bring.bring import bring
from bakeoff.machine import host, paths
from bakeoff.machine.files import digest, write_atomically
from bakeoff.machine.locks import entry_lock
from bakeoff.models.brought.about import LOOP, LOOPS
from bakeoff.models.lookup import file_of
from bakeoff.models.options import OptionValue
from bakeoff.models.pipelines import pipeline_names, resolve_pipeline
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.models.pipelines.single import PREFIX, single
from bakeoff.models.plain_file import read_plain
from bakeoff.models.types import Device
from bakeoff.process.jobs import DescribeLoopJob
from bakeoff.record.codec import encode_json
from bakeoff.record.source import code_hash, pipeline_hash
from bakeoff.sweeps.describe import describe
from bakeoff.sweeps.progress import Progress


def described_loop(
    reference: str,
    preset: str,
    options: Mapping[str, OptionValue],
    device: Device,
    threads: int,
    seed: int,
    progress: Progress,
) -> Loop:
    """Return the loop of a pipeline with this preset ("": the device's default) and these options, which may be text.

    A slot filled with a module of the pipeline's author names as its component the folder into which the module was
    saved. Raises BakeoffError if the pipeline, the preset or an option does not exist, or if its units cannot be run.
    """
    if reference.startswith(PREFIX):
        one = single(reference.removeprefix(PREFIX))
        return replace(one(one.preset_of(preset, device), one.options_of(options)).loop(), reference=reference)
    if reference in pipeline_names():  # wrong names are told at once
        facts = resolve_pipeline(reference)
        preset, _ = facts.preset_of(preset, device), facts.options_of(options)
    versions = host.read_versions().get("torch", "")
    typed = _in_any_folder(reference)
    key = digest([typed, preset, dict(options), device, seed, pipeline_hash(reference), code_hash(), versions])
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    kept = cache / LOOPS / key / LOOP
    with entry_lock(cache, kept.parent, progress.say):
        loop = _read(kept)
        if loop is None:
            threads = threads or host.usable_cores()
            job = DescribeLoopJob(reference, preset, dict(options), device, threads, seed, str(kept.parent))
            loop = replace(describe(job, Loop, reference, cache, progress, threads), reference=typed)
            write_atomically(kept, encode_json(loop))
    return replace(loop, reference=reference)


def with_models(loop: Loop, device: Device, threads: int, progress: Progress) -> Loop:
    """Return the loop with its author's modules described as brought models. Raises BakeoffError if one cannot be
    described."""
    slots = tuple(
        replace(slot, component=bring(slot.component, 0, threads, progress, device=device)) if slot.users else slot
        for slot in loop.slots
    )
    return replace(loop, slots=slots)


def _in_any_folder(reference: str) -> str:
    """Return a reference with the whole path of its file, so that a pipeline is the same one from wherever it is typed.

    Raises BakeoffError if there is no such file.
    """
    file, _, name = reference.rpartition(":")
    if not file.endswith(".py"):
        return reference
    path = file_of(file)
    return f"{path.parent.resolve() / path.name}:{name}"


def _read(file: Path) -> Loop | None:
    try:
        return msgspec.json.decode(read_plain(file), type=Loop)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
