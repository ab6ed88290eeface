"""Where the reference outputs of a subject are cached: by everything that decides them."""

import hashlib
import os
from importlib.util import find_spec
from pathlib import Path

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest
from bakeoff.models.component import Component
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import Subject

_VERSION = 2
"""Of the files' format: another one makes them anew."""


def reference_folder(subject: Subject, component: Component) -> Path:
    """By config, workload, seeds or weights file, device, torch's version and the component's source.

    Raises BakeoffError when the weights file or the component's network module is gone.
    """
    weights: list[object] = ["random", subject.weight_seed]
    if subject.checkpoint:
        try:
            found = os.stat(subject.checkpoint)
        except OSError as error:
            raise BakeoffError(f"--checkpoint {subject.checkpoint}: {error.strerror}", "bad-checkpoint") from error
        weights = [subject.checkpoint, found.st_size, found.st_mtime_ns]
    key = digest(
        [
            component.name,
            component.preset(subject.preset).config,
            subject.workload,
            subject.batch,
            subject.input_seed,
            weights,
            subject.device,
            subject.threads,
            host.read_host().name(subject.device),
            host.read_versions().get("torch", ""),
            source_hash(component),
            _VERSION,
        ]
    )
    return paths.cache_folder() / "references" / f"{component.name}-{subject.preset}-{subject.workload}-{key}"


def source_hash(component: Component) -> str:
    """Hash of the component's own files and of those that draw weights and tables. Raises BakeoffError."""
    try:
        spec = find_spec(component.network)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        text = f"{component.name}: its network module '{component.network}' cannot be found"
        raise BakeoffError(text, "bad-user-code")
    shared = find_spec("bakeoff.models")
    files = sorted(Path(spec.origin).parent.glob("*.py"))
    for folder in (shared.submodule_search_locations or []) if shared else []:
        files += [Path(folder) / "weights.py", Path(folder) / "tables.py"]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
