"""Small artifacts for tests: exported once in a test session; a test that changes one copies it first."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab import Recorder
from shared_headers import share_headers

from bakeoff.artifact.export import ExportResult, export, plan_export
from bakeoff.export.manifest import MANIFEST, Manifest, encode, seal, unseal
from bakeoff.plan.request import Request, request_of
from bakeoff.variant import parse_variant


def exported(variant: str, target: Path, runs: Path, **more: Any) -> ExportResult:
    """Export a variant, as `bakeoff export` does."""
    share_headers([variant])
    request: Request = replace(request_of(parse_variant(variant)), ceilings=False, threads=1)
    return export(plan_export(request), target, more.pop("force", False), runs, "a test", Recorder(), **more)


def copy(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    return target


def manifest_of(folder: Path) -> Manifest:
    return unseal((folder / MANIFEST).read_bytes())


def rewrite(folder: Path, **changes: Any) -> None:
    """A changed manifest with a correct hash."""
    (folder / MANIFEST).write_bytes(encode(seal(replace(manifest_of(folder), **changes))))
