"""Reads and checks an artifact's folder. The folder may be hostile, so it is checked before any of it is used."""

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.backends.format import ArtifactFormat, BadArtifact
from bakeoff.export.manifest import LARGEST_MANIFEST, MANIFEST, File, Manifest, Port, unseal
from bakeoff.models.errors import BakeoffError
from bakeoff.models.plain_file import open_plain, read_plain

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=-]{0,120}")
"""A valid file name: a single path component, so that no path leads out of the folder."""
_CHUNK = 4 << 20
_EXPORT_AGAIN = "do not open it; export the artifact again"


def is_plain_name(name: str) -> bool:
    """Return whether a manifest may list this name: no path leads out of the folder."""
    return _NAME.fullmatch(name) is not None


def read_manifest(folder: Path) -> Manifest:
    """Read a folder's manifest, and compare it with the names and sizes of the other files without reading those.

    Raises BadArtifact if the manifest is missing or unreadable, names a path outside the folder or a file that it does
    not list, or does not match the folder: a file is missing, not listed, of another size, or not a plain file.
    """
    try:
        found = sorted(os.listdir(folder))
    except OSError as error:
        raise BadArtifact(f"{folder}: {error.strerror}; give the folder that bakeoff export made") from error
    if MANIFEST not in found:
        raise BadArtifact(f"{folder} holds no {MANIFEST}; give the folder that bakeoff export made")
    size = _plain_file_size(folder, MANIFEST)
    if size > LARGEST_MANIFEST:
        raise BadArtifact(
            f"{MANIFEST} has {size} bytes, and a manifest has at most {LARGEST_MANIFEST}; copy or export it again"
        )
    with _open_plain_file(folder, MANIFEST) as file:
        manifest = unseal(file.read(LARGEST_MANIFEST + 1))
    for name in manifest.files:
        if not is_plain_name(name) or name == MANIFEST:
            raise BadArtifact(
                f"{MANIFEST} lists the file '{name}', which is not a plain name in the folder; {_EXPORT_AGAIN}"
            )
    missing = sorted(manifest.files.keys() - set(found))
    if missing:
        raise BadArtifact(f"{missing[0]} is missing; copy the whole folder again")
    unlisted = sorted(set(found) - manifest.files.keys() - {MANIFEST})
    if unlisted:
        raise BadArtifact(f"'{unlisted[0]}' is not a file of the artifact; remove it, or copy the folder again")
    for name, listed in manifest.files.items():
        size = _plain_file_size(folder, name)
        if size != listed.bytes:
            raise BadArtifact(f"{name} has {size} bytes instead of {listed.bytes}; copy the folder again")
    for program in manifest.programs:
        for name in (manifest.sample.file, program.file, *program.constants):
            if name not in manifest.files:
                raise BadArtifact(
                    f"{MANIFEST} has a sample or program in '{name}', which is not a file of the artifact; "
                    f"{_EXPORT_AGAIN}"
                )
    return manifest


def is_artifact(folder: Path) -> bool:
    """Return whether a folder contains an artifact, complete or not and of any version, and no other files."""
    try:
        about = json.loads(read_plain(folder / MANIFEST, LARGEST_MANIFEST))
        named = {*about["files"], MANIFEST}
        return {"digest", "sample", "schema"} <= about.keys() and set(os.listdir(folder)) <= named
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def port_bytes(port: Port) -> int:
    """Return the size in bytes of a tensor for this input or output."""
    bits = int(port.dtype.lstrip("abfilnotu") or 8)
    return bits // 8 * math.prod(port.shape)


def artifact_format_of(manifest: Manifest) -> ArtifactFormat:
    """Return the format that opens an artifact.

    Raises BadArtifact if the artifact's backend is unknown or opens another format.
    """
    if manifest.backend not in backend_names():
        raise BadArtifact(
            f"{MANIFEST} has the unknown backend '{manifest.backend}'; known: {', '.join(backend_names())}"
        )
    artifact_format = resolve_backend(manifest.backend).artifact
    if artifact_format is None or artifact_format.name != manifest.artifact:
        raise BadArtifact(
            f"{MANIFEST} has the format '{manifest.artifact}', which {manifest.backend} does not open; {_EXPORT_AGAIN}"
        )
    return artifact_format


def check_content(folder: Path, manifest: Manifest) -> None:
    """Compare every file's hash with the manifest, then check each program file as its format requires.

    Raises BadArtifact for the first problem, BakeoffError if a library that checks a program is not installed.
    """
    artifact_format = artifact_format_of(manifest)
    for name, file in manifest.files.items():
        found = hash_file(folder, name)
        if found != file:
            raise BadArtifact(
                f"{name} differs from the exported file: its SHA-256 is {found.sha256[:16]}..., but {MANIFEST} has "
                f"{file.sha256[:16]}...; copy the folder again"
            )
    sizes: Mapping[str, int] = {name: file.bytes for name, file in manifest.files.items()}
    for program in manifest.programs:
        try:
            artifact_format.check(folder / program.file, sizes)
        except ImportError as error:
            raise BakeoffError(
                f"{program.file} cannot be checked because {error.name} is not installed; run pip install {error.name}",
                code="missing-library",
            ) from error


def hash_file(folder: Path, name: str) -> File:
    """Return the size and SHA-256 of a file. Raises BadArtifact if it cannot be opened or is a symbolic link."""
    digest = hashlib.sha256()
    size = 0
    with _open_plain_file(folder, name) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return File(size, digest.hexdigest())


def _open_plain_file(folder: Path, name: str) -> BufferedReader:
    try:
        return open_plain(folder / name, os.O_NOFOLLOW)
    except OSError as error:
        raise BadArtifact(f"{name}: {error.strerror}; copy the folder again") from error


def _plain_file_size(folder: Path, name: str) -> int:
    """Return a file's size in bytes. Raises BadArtifact if it is missing, a symbolic or hard link, or not plain."""
    try:
        found = os.lstat(folder / name)
    except OSError as error:
        raise BadArtifact(f"{name}: {error.strerror}; copy the folder again") from error
    if stat.S_ISLNK(found.st_mode):
        raise BadArtifact(f"{name} is a symbolic link, not a plain file; copy the folder again")
    if not stat.S_ISREG(found.st_mode):
        raise BadArtifact(f"{name} is not a plain file; copy the folder again")
    if found.st_nlink != 1:
        raise BadArtifact(
            f"{name} has {found.st_nlink} hard links, so it can be changed under another name; copy the folder again"
        )
    return found.st_size
