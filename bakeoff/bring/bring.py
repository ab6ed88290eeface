"""Describes a user's model in a folder of the cache, which sweeps and exports then take.

The model is run once to describe it, and again after its code or the libraries have changed.
"""

import ast
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any

import msgspec

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest
from bakeoff.machine.locks import entry_lock
from bakeoff.mix import parse_subject
from bakeoff.models import component_names
from bakeoff.models.brought.about import ABOUT, LIVE, LOOP, LOOPS, SCHEMA, About, Source, read_about
from bakeoff.models.errors import BakeoffError
from bakeoff.models.plain_file import read_plain
from bakeoff.models.sizes import Dimension
from bakeoff.plan.brought import brought_reference, described_elsewhere
from bakeoff.process.jobs import DescribeJob
from bakeoff.record.source import archive_hash, content_hash, file_hash
from bakeoff.sweeps.describe import describe
from bakeoff.sweeps.progress import Progress

USUAL = "model"
"""Usual name of the only model function in a file; such a model is named after the file alone."""
_FUNCTION = re.compile(r"(?P<path>.+\.py):(?P<name>[^\W\d]\w*)")


def is_brought(reference: str) -> bool:
    """Return whether a reference names a user's model: FILE.py[:FUNCTION], FILE.pt2 or the folder of a live module."""
    return bool(
        _FUNCTION.fullmatch(reference)
        or reference.endswith((".py", ".pt2"))
        or os.path.isfile(os.path.join(reference, LIVE))  # False for a name that is too long for a path
    )


def is_pipeline(reference: str) -> bool:
    """Return whether a reference is FILE.py:NAME, with or without preset and options, and NAME a class in that file."""
    match = _FUNCTION.fullmatch(parse_subject(reference)[0])
    if match is None:
        return False
    try:
        tree = ast.parse(read_plain(Path(match["path"])))
    except (OSError, SyntaxError, ValueError):  # said where the file is read for its model
        return False
    return any(isinstance(node, ast.ClassDef) and node.name == match["name"] for node in tree.body)


def read_source(reference: str) -> tuple[Source, str, str]:
    """Return the source, component name and preset name of a reference that `is_brought` accepts.

    `unet.py:model` is named `unet`, and a function `decoder` of that file `unet.decoder`, so that a function added
    later renames none. The preset states the kind of source: `py`, `pt2` or `live`. Raises BakeoffError if the file is
    missing, no function is named, or a name is taken or cannot be part of a variant's name.
    """
    match = _FUNCTION.fullmatch(reference)
    if reference.endswith(".py"):
        text = f"{reference}: name the function too, as in {reference}:model; it returns (module, inputs)"
        raise BakeoffError(text, "bad-user-code")
    here = str(Path.cwd())
    if match is not None:
        path = _file(match["path"])
        source = Source("function", str(path), match["name"], file_hash(path), here)
        stem, function = _plain(path.stem), _name(match["name"], reference)
        alone = match["name"] == USUAL and stem not in component_names()
        return source, stem if alone else f"{stem}.{function}", "py"
    if reference.endswith(".pt2"):
        path = _file(reference)
        return Source("archive", str(path), "", archive_hash(path), here), _checked(_plain(path.stem), reference), "pt2"
    folder = Path(reference).absolute()
    name = ".".join(map(_plain, folder.name.split(".")))
    pipeline = _pipeline_of(folder)
    here = str(Path(pipeline).parent) if pipeline else here
    return Source("live", str(folder), "", content_hash(folder), here, pipeline), _checked(name, reference), "live"


def _pipeline_of(folder: Path) -> str:
    """Return the pipeline that the live module in this folder is of, as FILE.py:CLASS; "" if it is of no file's."""
    if folder.parents[1].name != LOOPS:
        return ""
    with suppress(OSError, msgspec.MsgspecError):
        reference: str = msgspec.json.decode(read_plain(folder.parent / LOOP), type=dict[str, Any])["reference"]
        return reference if ".py:" in reference else ""
    return ""


def _file(typed: str) -> Path:
    path = Path(typed).absolute()
    if not path.is_file():
        text = f"{typed} is a folder; give a file" if path.is_dir() else f"there is no file {typed}; give another path"
        raise BakeoffError(text, "bad-user-code")
    return path


def _name(function: str, reference: str) -> str:
    plain = function.strip("_")
    if not plain.isascii() or not plain:
        raise BakeoffError(
            f"{reference}: '{function}' cannot be part of a variant's name; use ASCII letters", "bad-user-code"
        )
    return plain


def _checked(name: str, reference: str) -> str:
    """Return the name. Raises BakeoffError if one of the lab's components has it."""
    if name in component_names():
        raise BakeoffError(
            f"{reference}: '{name}' is a component of this lab; give yours another name", "bad-user-code"
        )
    return name


def _plain(stem: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_") or "mine"


def bring(
    reference: str,
    seed: int,
    threads: int,
    progress: Progress,
    sizes: tuple[Dimension, ...] = (),
    batches: Sequence[int] = (),
    preset: str = "",
    device: str = "",
    python: str = "",
) -> str:
    """Describe a user's model and return the folder of its description; return any other reference as it is.

    The description in the cache is reused if code, libraries, seed and options are the same; workers check the weights.
    The model is described on `device`, by default the device of a sweep, by the interpreter `python`, by default this
    one. Its workloads get `sizes`, if given, and are
    also run with `batches`, multiples of the given batch. With either of them, `reference` may also be the name of a
    model brought before, and `preset` its preset. Raises BakeoffError, with the reason, if the model cannot be
    described, if both `sizes` and `batches` are given, or if `sizes` are given for a model that is not a user's.
    """
    more = tuple(sorted({batch for batch in batches if batch > 1}))
    if is_brought(reference):
        about = described_elsewhere(reference)
        if about is not None:
            progress.say(f"{reference} is {about.source.shown}.")
        source, name, preset = read_source(reference) if about is None else _read_again(about)
    else:
        known = brought_reference(reference, preset) if sizes or more else reference
        if known == reference:
            if sizes:
                text = f"--sizes: {reference} has fixed shapes; sizes are for models of yours, as in mine.py:model"
                raise BakeoffError(text, "bad-option")
            return reference
        source, name, preset = _read_again(read_about(Path(known)))
    if sizes and more:
        raise BakeoffError("--sizes and --batch: give one of them, since a batch is a size of axis 0", "bad-option")
    device = host.usable_device(device)
    more_facts = filter(None, [sizes, more, device if device != "cpu" else "", python])
    key = digest([source, name, preset, seed, host.read_versions(python), SCHEMA, *more_facts])
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    folder = cache / "brought" / f"{name}-{preset}-{key}"
    with entry_lock(cache, folder, progress.say):
        if not (folder / ABOUT).is_file():
            threads = threads or host.usable_cores()
            job = DescribeJob(source, name, preset, seed, threads, str(folder), sizes, more, device)
            describe(job, NoneType, name, cache, progress, threads, python)
    for note in read_about(folder).notes:
        progress.say(f"{name}: {note}.")
    return str(folder)


def _read_again(about: About) -> tuple[Source, str, str]:
    """Read the source of a described model again; its function keeps the working folder that it ran in before."""
    known = about.source
    source, name, preset = read_source(f"{known.path}:{known.function}" if known.function else known.path)
    return msgspec.structs.replace(source, working_folder=known.working_folder), name, preset
