"""Which of torch's C++ headers a row's cold build needs precompiled: builds with one compiler share them."""

from collections.abc import Mapping

from bakeoff.backends import resolve_backend
from bakeoff.machine.build_cache import is_warm
from bakeoff.plan.rows import Row
from bakeoff.process.jobs import BackendStep
from bakeoff.variant import options_of


def header_sets(row: Row) -> Mapping[str, BackendStep]:
    """Sets of headers by name, each with the step that needs it; empty where nothing is built cold on a CPU."""
    if row.subject.device != "cpu" or row.never_runs is not None or not _builds_cold(row):
        return {}
    found = {}
    for step in row.steps:
        backend = resolve_backend(step.backend)
        name = backend.footprint.headers(options_of(backend, step.options))
        if name:
            found[name] = step
    return found


def _builds_cold(row: Row) -> bool:
    """Whether the row's first worker finds no caches of a finished build."""
    return (row.builds > 1 and row.process == 1) or not row.caches or not is_warm(row.cache_folder)
