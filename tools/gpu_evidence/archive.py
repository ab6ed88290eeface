"""The one file that leaves the host: new records, logs, tables and manifests; no weights, no programs."""

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from gpu_evidence.state import State

LONGEST_LOG = 200_000
"""Bytes kept of the end of a log."""
_KEPT = (".json", ".log", ".txt")


def record_names(runs: Path) -> list[str]:
    return [path.relative_to(runs).as_posix() for path in runs.glob("*/records/*.json")]


def write_archive(state: State, runs: Path, target: Path) -> int:
    """Write a .tar.gz, whole or not at all, and return its bytes. Unpacked in a checkout's root, records and state lie
    where the next call looks for them."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.tmp")
    with tarfile.open(part, "w:gz", compresslevel=6) as archive:
        for name, path in _members(state, runs):
            data = path.read_bytes()
            if path.suffix == ".log":
                data = data[-LONGEST_LOG:]
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), int(path.stat().st_mtime)
            archive.addfile(entry, io.BytesIO(data))
    os.replace(part, target)
    return target.stat().st_size


def _members(state: State, runs: Path) -> Iterator[tuple[str, Path]]:
    before = set(state.before)
    for name in sorted(set(record_names(runs)) - before):
        yield f"runs/{name}", runs / name
    for path in sorted(state.folder.rglob("*")):
        inside = path.relative_to(state.folder)
        if path.suffix in _KEPT and path.is_file() and inside.parts[0] in ("logs", "tables", "manifests", path.name):
            yield f"runs/evidence/{inside.as_posix()}", path
