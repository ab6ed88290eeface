"""A deployable mix: a folder with artifacts of all programs of a pipeline, and manifest.json, which lists the calls."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from bakeoff.backends.format import BadArtifact
from bakeoff.export.folder import hash_file, is_plain_name, read_manifest
from bakeoff.export.manifest import LARGEST_MANIFEST, MANIFEST, MIX, Head, digest_of, exported_digest, formatted
from bakeoff.export.warmup import WARMUP, WarmUp
from bakeoff.models.plain_file import read_plain

MIX_SCHEMA = 3


@dataclass(frozen=True, slots=True)
class MixManifest:
    """The manifest of a mix. The loop's code is not in the folder: it is named, with the hash of its source."""

    schema: int
    kind: Literal["mix"]
    mix: str
    loop: str
    """The pipeline's name, or FILE.py:CLASS without folders."""
    loop_hash: str
    artifacts: dict[str, str]
    """Folder of the artifact with each `slot.program`."""
    digests: dict[str, str]
    """Digest of the manifest of each folder, which has the hashes of its files."""
    calls: tuple[tuple[str, ...], ...]
    """Calls in order, each as `slot.program`: of the opening of a session, of each unit that differs, and last of every
    later unit."""
    environment: dict[str, str]
    """Variables that the process needs before it imports torch, to run as the run that confirmed the mix did."""
    created: str
    command: str
    record: str
    """Id of the run that confirmed the mix."""
    warmup: str | msgspec.UnsetType = msgspec.UNSET
    """SHA-256 of warmup.json, the calls to make before the first unit; absent if none warm the mix up."""
    digest: str = ""
    """Hash of this manifest with an empty `digest`."""


def seal_mix(manifest: MixManifest) -> MixManifest:
    """Return the manifest with its digest set."""
    return replace(manifest, digest=digest_of(msgspec.json.decode(msgspec.json.encode(manifest))))


def is_mix(folder: Path) -> bool:
    """Return whether a folder's manifest is that of a mix, of any schema."""
    try:
        return msgspec.json.decode(read_plain(folder / MANIFEST, LARGEST_MANIFEST), type=Head).kind == MIX
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def read_mix(folder: Path) -> MixManifest:
    """Read a mix's manifest and compare it with the manifests of the artifacts in the folder.

    Raises BadArtifact if it cannot be read, was edited, has another schema, names a path outside of the folder, or if
    something differs.
    """
    again = "export the mix again"
    try:
        data = read_plain(folder / MANIFEST, LARGEST_MANIFEST)
        content = msgspec.json.decode(data)
        schema = content.get("schema") if isinstance(content, dict) else None
        if schema != MIX_SCHEMA:
            advice = "update bakeoff" if isinstance(schema, int) and schema > MIX_SCHEMA else again
            raise BadArtifact(f"{MANIFEST} has the schema {schema} of a mix, this version reads {MIX_SCHEMA}; {advice}")
        manifest = msgspec.json.decode(data, type=MixManifest)
    except OSError as error:
        raise BadArtifact(f"{folder}: {error.strerror}; give the folder of an exported mix") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadArtifact(f"{MANIFEST} cannot be read: {error}; copy or export the mix again") from error
    if (formatted(manifest), digest_of(content)) != (data, manifest.digest):
        raise BadArtifact(f"{MANIFEST} was edited: its digest does not match; copy or export the mix again")
    folders = {*manifest.digests, *manifest.artifacts.values()}
    wrong = next((name for name in sorted(folders) if not is_plain_name(name) or name not in manifest.digests), None)
    if wrong is not None:
        raise BadArtifact(f"{MANIFEST} lists the artifact '{wrong}', which is not a folder of the mix; {again}")
    missing = {*manifest.digests, *([WARMUP] if manifest.warmup else [])} - set(os.listdir(folder))
    if missing:
        raise BadArtifact(f"{min(missing)} is missing; copy the whole folder again")
    for name, digest in manifest.digests.items():
        if exported_digest(read_manifest(folder / name)) != digest:
            raise BadArtifact(f"{name} is not the artifact that was exported; copy the whole folder again")
    if manifest.warmup and hash_file(folder, WARMUP).sha256 != manifest.warmup:
        raise BadArtifact(f"{WARMUP} is not the one that was exported; copy the whole folder again")
    return manifest


def read_warmup(folder: Path, mix: MixManifest) -> WarmUp:
    """Read the warm-up plan of a mix in `folder`. Raises BadArtifact if it has none, or if it cannot be read."""
    if not mix.warmup:
        raise BadArtifact(f"{folder.name} has no {WARMUP}, since no calls warm it up; load it without warm_up")
    try:
        return msgspec.json.decode(read_plain(folder / WARMUP, LARGEST_MANIFEST), type=WarmUp)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadArtifact(f"{WARMUP} cannot be read: {error}; export the mix again") from error
