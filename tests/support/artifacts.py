"""Small artifacts for tests: exported once in a test session; a test that changes one copies it first."""

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab import Recorder
from shared_headers import share_headers

from bakeoff.artifact.export import ExportResult, export, plan_export
from bakeoff.export import load
from bakeoff.export.manifest import MANIFEST, Manifest, encode, seal, unseal
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.request import Request, request_of
from bakeoff.variant import parse_variant

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "deploy"
WARM = re.compile(r"^\w+ +first call \d+\.\d+ ms, median of (\d+) warm calls \d+\.\d+ ms$", re.MULTILINE)
"""A program's line in what the examples print; a single call would be cold."""


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


def called_from_two_threads(folder: Path) -> str:
    """The code of the error in this thread, in which an artifact is opened, after calls in another; "" without one."""
    opened = load(folder)
    inputs = opened.sample()
    with ThreadPoolExecutor(1) as other:
        for _ in range(2):
            other.submit(opened, **inputs).result()
        try:
            opened(**inputs)
        except BakeoffError as error:
            return error.code
        finally:
            other.submit(opened, **inputs).result()
    return ""


def rewrite(folder: Path, **changes: Any) -> None:
    """A changed manifest with a correct hash."""
    (folder / MANIFEST).write_bytes(encode(seal(replace(manifest_of(folder), **changes))))


def check(done: ExportResult) -> None:
    """The export opened the artifact in a new process and compared it with the reference, a stream over ten frames."""
    manifest = done.manifest
    checked = {f"{one.program}/{one.output}": one for one in done.verified.checked}
    assert all(one.passed for one in checked.values())
    assert set(checked) == {f"{one.name}/{port.name}" for one in manifest.programs for port in one.outputs}
    assert done.verified.frames == (10 if manifest.stream else 1)
    if manifest.backend != "torch.export":
        assert any(one.rel_l2 for one in checked.values()), "another compiler is not exact to the bit"
    assert sorted(os.listdir(done.folder)) == sorted([*manifest.files, MANIFEST])
    assert manifest_of(done.folder) == manifest
    assert not [name for name in os.listdir(done.folder.parent) if name.startswith(".")]
