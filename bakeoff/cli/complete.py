"""What a shell may complete: components with suites, backends, and records; nothing here imports torch.

Each function returns the names that begin with what was typed. A folder that cannot be read completes nothing.
"""

import tomllib
from contextlib import suppress
from pathlib import Path

from bakeoff.models.errors import BakeoffError

SUITES = "bakeoff.toml"
"""Usual file of suites, in the working folder."""


def subjects(incomplete: str) -> list[str]:
    """Return components, pipelines, and the suites of bakeoff.toml as `@NAME`."""
    from bakeoff.models import component_names
    from bakeoff.models.pipelines import pipeline_names

    suites: list[str] = []
    with suppress(OSError, ValueError, AttributeError):
        suites = [f"@{name}" for name in tomllib.loads(Path(SUITES).read_text()).get("suites", {})]
    return _beginning(incomplete, [*component_names(), *pipeline_names(), *suites])


def backends(incomplete: str) -> list[str]:
    """Return backends, after what precedes the last comma or plus."""
    from bakeoff.backends import backend_names

    typed = max(incomplete.rfind(","), incomplete.rfind("+")) + 1
    return _beginning(incomplete, [incomplete[:typed] + name for name in backend_names()])


def records(incomplete: str) -> list[str]:
    """Return the names of the records in the usual folders."""
    from bakeoff.machine import paths
    from bakeoff.record.store import record_files

    with suppress(BakeoffError):
        folders = paths.with_published(paths.runs_folder())
        return _beginning(incomplete, [path.stem for folder in folders for path in record_files(folder)])
    return []


def _beginning(incomplete: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
