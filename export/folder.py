"""The folder of an artifact, read as something a stranger may have made: checked whole before any of it is used."""

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.backends.format import ArtifactFormat, BadArtifact
from bakeoff.export.manifest import LARGEST_MANIFEST, MANIFEST, File, Manifest, Port, unseal
from bakeoff.models.errors import BakeoffError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=-]{0,120}")
"""Of a file: one component, so that no path leads anywhere else."""
_CHUNK = 4 << 20
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder, and what can be said of it without looking at any other file's content.

    Raises BadArtifact where there is none, it cannot be read, names a place outside of the folder, or is not what lies
    there: a file too few, too many, of another size, or no plain file.
    """
    try:
        found = sorted(os.listdir(folder))
    except OSError as error:
        raise BadArtifact(f"{folder}: {error.strerror}; give the folder that bakeoff export made") from error
    if MANIFEST not in found:
        raise BadArtifact(f"{folder} holds no {MANIFEST}; give the folder that bakeoff export made")
    size = _plain(folder, MANIFEST)
    if size > LARGEST_MANIFEST:
        raise BadArtifact(f"{MANIFEST} has {size} bytes; no manifest has more than {LARGEST_MANIFEST}")
    with _opened(folder, MANIFEST) as file:
        manifest = unseal(file.read(LARGEST_MANIFEST + 1))
    for name in manifest.files:
        if not _NAME.fullmatch(name) or name == MANIFEST:
            raise BadArtifact(f"{MANIFEST} names the file '{name}'; files of an artifact lie in its folder, by name")
    missing = sorted(manifest.files.keys() - set(found))
    if missing:
        raise BadArtifact(f"{missing[0]} is not there; copy the whole folder again")
    strangers = sorted(set(found) - manifest.files.keys() - {MANIFEST})
    if strangers:
        raise BadArtifact(f"'{strangers[0]}' is no file of the artifact; remove it, or copy the folder again")
    for name, file in manifest.files.items():
        size = _plain(folder, name)
        if size != file.bytes:
            raise BadArtifact(f"{name} has {size} bytes and should have {file.bytes}; copy the folder again")
    _refuse_nonsense(manifest)
    return manifest


def is_artifact(folder: Path) -> bool:
    """Whether a folder holds an artifact of whatever version, whole or not, and nothing besides."""
    try:
        about = json.loads((folder / MANIFEST).read_bytes())
        named = {*about["files"], MANIFEST}
        return {"digest", "sample", "schema"} <= about.keys() and set(os.listdir(folder)) <= named
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _refuse_nonsense(manifest: Manifest) -> None:
    """What a manifest says of its own parts must fit together, and be of a size that a host can hold."""
    programs = {program.name: program for program in manifest.programs}
    if len(programs) != len(manifest.programs) or manifest.main not in programs:
        raise BadArtifact(f"{MANIFEST} names the program '{manifest.main}', and has {', '.join(programs) or 'none'}")
    for program in manifest.programs:
        for name in (program.file, *program.constants):
            if name not in manifest.files:
                raise BadArtifact(f"{MANIFEST} has {program.name} in '{name}', which is no file of the artifact")
        for ports in (program.inputs, program.outputs):
            if not ports or len({port.name for port in ports}) != len(ports):
                raise BadArtifact(f"{MANIFEST}: the inputs or outputs of {program.name} are none, or named twice")
        needed, free = sum(map(port_bytes, program.inputs + program.outputs)), _memory_bytes()
        if needed > free:
            raise BadArtifact(f"{MANIFEST}: {program.name} takes and gives {needed} bytes, this host has {free}")
    if manifest.sample.file not in manifest.files:
        raise BadArtifact(f"{MANIFEST} has its sample in '{manifest.sample.file}', which is no file of the artifact")
    if manifest.stream is None:
        return
    stream = manifest.stream
    unknown = {*stream.each, *filter(None, (stream.prime,))} - programs.keys()
    if not stream.each or unknown:
        raise BadArtifact(f"{MANIFEST} has a stream of {', '.join(sorted(unknown)) or 'nothing'}, which is no program")
    first = programs[stream.prime or stream.each[0]]
    if not set(stream.zeros) <= {port.name for port in first.inputs}:
        raise BadArtifact(f"{MANIFEST} begins its stream with zeros that {first.name} does not take")
    for carry in stream.carries:
        ends = ((carry.workload, carry.output, False), (carry.to, carry.input, True))
        for name, port, taken in ends:
            ports = (programs[name].inputs if taken else programs[name].outputs) if name in programs else ()
            if port not in {entry.name for entry in ports}:
                raise BadArtifact(f"{MANIFEST} carries {name}'s '{port}', which is no {'in' if taken else 'out'}put")
        given = next(port for port in programs[carry.workload].outputs if port.name == carry.output)
        taker = next(port for port in programs[carry.to].inputs if port.name == carry.input)
        if not _fits(given, taker, carry.axis):
            raise BadArtifact(f"{MANIFEST} carries {given.name} of {given.shape} to {taker.name} of {taker.shape}")


def _fits(given: Port, taker: Port, axis: int | None) -> bool:
    """Whether an output can take an input's place, or go behind its window along `axis`."""
    if given.dtype != taker.dtype or len(given.shape) != len(taker.shape):
        return False
    if axis is None:
        return given.shape == taker.shape
    return 0 <= axis < len(taker.shape) and all(
        one <= other if index == axis else one == other
        for index, (one, other) in enumerate(zip(given.shape, taker.shape, strict=True))
    )


def port_bytes(port: Port) -> int:
    count = _BYTES[port.dtype]
    for length in port.shape:
        count *= length
    return count


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def form_of(manifest: Manifest) -> ArtifactFormat:
    """How the artifact is opened. Raises BadArtifact for a backend that this version does not bring or cannot open."""
    if manifest.backend not in backend_names():
        raise BadArtifact(f"{MANIFEST} wants the backend '{manifest.backend}'; known: {', '.join(backend_names())}")
    form = resolve_backend(manifest.backend).artifact
    if form is None or form.name != manifest.artifact:
        raise BadArtifact(f"{MANIFEST}: {manifest.backend} opens no artifact of the format '{manifest.artifact}'")
    return form


def check_content(folder: Path, manifest: Manifest, on_file: Callable[[str], None] = lambda _name: None) -> None:
    """Hash every file, then have the format look into each program. Raises BadArtifact for the first mismatch."""
    form = form_of(manifest)
    for name, file in manifest.files.items():
        on_file(name)
        found = hash_file(folder, name)
        if found != file:
            text = f"{name} is not what was exported: its SHA-256 is {found.sha256[:16]}..., {MANIFEST} says "
            raise BadArtifact(f"{text}{file.sha256[:16]}...; copy the folder again")
    sizes: Mapping[str, int] = {name: file.bytes for name, file in manifest.files.items()}
    for program in manifest.programs:
        try:
            form.check(folder / program.file, sizes)
        except ImportError as error:
            text = f"{error.name} is not installed, by which {program.file} is checked: pip install it"
            raise BakeoffError(text, "missing-library") from error


def hash_file(folder: Path, name: str) -> File:
    """Size and SHA-256 of one plain file. Raises BadArtifact where it is anything else."""
    digest = hashlib.sha256()
    size = 0
    with _opened(folder, name) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return File(size, digest.hexdigest())


def _opened(folder: Path, name: str):  # type: ignore[no-untyped-def]  # an open binary file
    try:
        return os.fdopen(os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    except OSError as error:
        raise BadArtifact(f"{name}: {error.strerror}; copy the folder again") from error


def _plain(folder: Path, name: str) -> int:
    """The size of a file that is no link of any kind. Raises BadArtifact."""
    try:
        found = os.lstat(folder / name)
    except OSError as error:
        raise BadArtifact(f"{name}: {error.strerror}; copy the folder again") from error
    if stat.S_ISLNK(found.st_mode):
        raise BadArtifact(f"{name} is a symbolic link; an artifact's files are plain files")
    if not stat.S_ISREG(found.st_mode):
        raise BadArtifact(f"{name} is no plain file")
    if found.st_nlink != 1:
        raise BadArtifact(f"{name} has {found.st_nlink} names (hard links): what it holds may change from elsewhere")
    return found.st_size
