"""Makes the plan of a sweep from a request: all its rows, resolved and checked."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import psutil

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest
from bakeoff.models import resolve_component
from bakeoff.models.component import Component
from bakeoff.models.errors import BakeoffError
from bakeoff.models.types import DTYPES
from bakeoff.plan.brought import brought_reference
from bakeoff.plan.request import Request, Settings, check_request, with_enough_samples
from bakeoff.plan.rows import Key, Row, Target, row_of
from bakeoff.plan.suites import compositions, default_preset, default_workloads
from bakeoff.process.environment import user_code_path, worker_environment
from bakeoff.process.jobs import Subject
from bakeoff.record.source import component_hash


@dataclass(frozen=True, slots=True)
class Plan:
    """Rows of a sweep, grouped by subject as in tables; the sweep runs them in another order."""

    request: Request
    component: Component
    rows: tuple[Row, ...]
    key: str
    """Hash of what must be the same for `--resume`: variants, policy, objective, host, versions and commit."""
    environment: Mapping[str, str]
    """Environment of workers that run no compiler, such as those that make references."""


def make_plan(request: Request) -> Plan:
    """Return the plan of a request. Raises BakeoffError for a name, size or combination that does not exist."""
    preset = request.presets[0] if len(request.presets) == 1 else ""
    request = replace(request, component=brought_reference(request.component, preset, request.workloads))
    component = resolve_component(request.component)
    request = replace(request, policy=with_enough_samples(request.policy, request.objective))
    if request.build_for:
        if request.device not in ("", "cpu"):
            text = f"--device {request.device}: with --build-for nothing runs on a device; leave it out"
            raise BakeoffError(text, "bad-option")
        request = replace(request, device="cpu", ceilings=False, final_s=0.0)
    settings = check_request(request)
    component_hash(request.component)  # raises if its network's module is gone
    if settings.checkpoint and component.weights:
        text = f"--checkpoint {request.checkpoint}: {component.name} brings its own weights; load them in its function"
        raise BakeoffError(text, "bad-option")
    chosen = compositions(request, component, settings.device)
    rows = (
        row_of(target, composition.steps, dtype)
        for target in _targets(request, component, settings)
        for dtype in settings.dtypes or DTYPES
        for composition in chosen
        if dtype in (settings.dtypes or composition.dtypes)
    )
    environment = worker_environment(settings.threads, user_code_path() if request.user_code else {})
    return _plan(request, component, rows, environment)


def _targets(request: Request, component: Component, settings: Settings) -> Iterable[Target]:
    for preset in request.presets or (default_preset(component, settings.device),):
        config = component.preset(preset).config
        for name in request.workloads or default_workloads(component, config, settings.device, request.suite):
            for batch in request.batches:
                workload = component.workload(config, name, batch)
                subject = Subject(
                    component=request.component,
                    preset=preset,
                    workload=workload.name,
                    batch=batch,
                    weight_seed=request.weight_seed,
                    input_seed=request.input_seed,
                    checkpoint=settings.checkpoint,
                    device=settings.device,
                    threads=settings.threads,
                    checkpoint_hash=checkpoint_hash(settings.checkpoint) if settings.checkpoint else "",
                    python=request.python,
                )
                yield Target(request, component, config, workload, subject)


def _plan(request: Request, component: Component, rows: Iterable[Row], environment: Mapping[str, str]) -> Plan:
    unique: dict[Key, Row] = {}
    for row in rows:
        if unique.setdefault(row.key, row).steps != row.steps:
            text = f"two different backends are called {row.variant.backend}; rename one"
            raise BakeoffError(text, "not-composable")
    ordered = tuple(
        replace(row, process=process, label=_label(row, process, request))
        for process in range(1, request.processes + 1)
        for row in unique.values()
    )
    commit, dirty = paths.commit()
    facts = [request.policy, request.objective, host.read_host(), host.read_versions(request.python), commit, dirty]
    key = digest([[row.key for row in ordered], [row.config_id for row in ordered], *facts])
    return Plan(request, component, ordered, key, environment)


def _label(row: Row, process: int, request: Request) -> str:
    of_sizes = f", batch {row.subject.batch}" if len(request.batches) > 1 else ""
    of_processes = f", process {process} of {request.processes}" if request.processes > 1 else ""
    return f"{row.variant}{of_sizes}{of_processes}"


def checkpoint_hash(path: str) -> str:
    """Return the SHA-256 of a weights file, 12 hexadecimal digits; this process reads an unchanged file once.

    Raises BakeoffError if the file cannot be read, or is larger than this machine's memory and so cannot be loaded.
    """
    try:
        found = os.stat(path)
        total = psutil.virtual_memory().total
        if found.st_size > total:
            text = f"{found.st_size >> 20} MiB, this machine has {total >> 20} MiB of memory; take smaller weights"
            raise BakeoffError(f"--checkpoint {path}: {text}", "bad-checkpoint")
        return _hash_of(os.path.abspath(path), found.st_size, found.st_mtime_ns, found.st_ino)
    except OSError as error:
        raise BakeoffError(f"--checkpoint {path}: {error.strerror}", "bad-checkpoint") from error


@cache
def _hash_of(path: str, *_state: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]
