"""The one file that leaves the host: new records, logs, tables and manifests; no weights, no programs."""

import io
import json
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


def unfinished(runs: Path, cache: Path) -> list[tuple[str, Path]]:
    """Return the sweeps that write to `runs` with the folders of their rows that are timed but not stored yet."""
    found = []
    for state in sorted((cache / "sweeps").glob("*.json")):
        try:
            told = json.loads(state.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # it is being written
            continue
        if told.get("runs") == str(runs.resolve()):
            found.append((told["sweep"], state.with_suffix("")))
    return found


def write_archive(state: State, runs: Path, cache: Path, target: Path) -> int:
    """Write a .tar.gz, whole or not at all, and return its bytes. Unpacked in a checkout's root, records and state lie
    where the next call looks for them; rows that are timed but not stored lie in runs/unfinished."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.tmp")
    with tarfile.open(part, "w:gz", compresslevel=6) as archive:
        for name, path in _members(state, runs, cache):
            try:
                data = path.read_bytes()
            except FileNotFoundError:  # stored meanwhile
                continue
            if path.suffix == ".log":
                data = data[-LONGEST_LOG:]
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), int(path.stat().st_mtime)
            archive.addfile(entry, io.BytesIO(data))
    os.replace(part, target)
    return target.stat().st_size


def _members(state: State, runs: Path, cache: Path) -> Iterator[tuple[str, Path]]:
    sweeps = unfinished(runs, cache)
    # Unfinished rows first: one that is stored meanwhile is in the archive twice, not at all otherwise.
    for _, folder in sweeps:
        yield from ((f"runs/unfinished/{path.name}", path) for path in sorted(folder.glob("*.json")))
    yield from ((f"runs/{name}", runs / name) for name in sorted(set(record_names(runs)) - set(state.before)))
    for sweep, _ in sweeps:
        logs = sorted((cache / "logs" / sweep).glob("*.log"))
        yield from ((f"runs/evidence/logs/{sweep}/{log.name}", log) for log in logs)
    for path in sorted(state.folder.rglob("*")):
        inside = path.relative_to(state.folder)
        if path.suffix in _KEPT and path.is_file() and inside.parts[0] in ("logs", "tables", "manifests", path.name):
            yield f"runs/evidence/{inside.as_posix()}", path
