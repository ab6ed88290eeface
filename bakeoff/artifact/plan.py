"""Plan of an export: the variant that is asked for, and the other programs of its stream."""

from dataclasses import replace
from pathlib import Path

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.backends.format import ArtifactFormat
from bakeoff.machine import host
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.plan.rows import Row


def plan_export(request: Request) -> Plan:
    """The exported variant's row first, then those of the other programs of its stream.

    Raises BakeoffError where the request names no single variant, or one that cannot run here or has no artifact
    format.
    """
    plan = make_plan(request)
    if not plan.rows:
        raise BakeoffError(f"{request.component}: nothing to export; name a backend", "not-exportable")
    main = plan.rows[0] if request.dtypes else _usual(plan)
    if artifact_format(main) is None:
        known = ", ".join(name for name in backend_names() if resolve_backend(name).artifact is not None)
        text = f"{main.variant.backends[-1].name} has no artifact format; backends that have one: {known}"
        raise BakeoffError(text, "not-exportable")
    config = plan.component.preset(main.variant.preset).config
    if plan.component.workload(config, main.variant.workload, main.subject.batch).axes:
        text = f"{main.variant}: an artifact has one size of each input; sweep without --sizes, and export that"
        raise BakeoffError(text, "not-exportable")
    stream = plan.component.stream(config, main.variant.workload)
    others = tuple(name for name in (stream.workloads if stream else ()) if name != main.variant.workload)
    whole = make_plan(replace(request, workloads=(main.variant.workload, *others)))
    chosen = tuple(row for row in whole.rows if _built_alike(row, main))
    for row in chosen:
        if row.never_runs is not None:
            raise BakeoffError(f"{row.variant}: {row.never_runs}", "not-exportable")
    return replace(whole, rows=chosen)


def _usual(plan: Plan) -> Row:
    """Return the row where no dtype is asked for: the first options that run in the device's 16-bit dtype."""
    half = host.half_dtype(plan.rows[0].subject.device)
    return next((row for row in plan.rows if row.variant.dtype == half and row.never_runs is None), plan.rows[0])


def artifact_format(row: Row) -> ArtifactFormat | None:
    """Return the row's last backend's format; None for a user's own backend, which another host could not open."""
    reference = row.steps[-1].backend
    return resolve_backend(reference).artifact if reference in backend_names() else None


def default_folder(plan: Plan) -> Path:
    """artifacts/COMPONENT-PRESET-BACKEND-DTYPE of the working folder, with -WORKLOAD after the preset where the
    component has several: two workloads of one model are two artifacts."""
    variant = plan.rows[0].variant
    several = len(plan.component.workload_names(plan.component.preset(variant.preset).config)) > 1
    workload = f"-{variant.workload}" if several else ""
    name = f"{variant.component}-{variant.preset}{workload}-{_safe(variant.backend)}-{variant.dtype}"
    return Path("artifacts") / name


def _built_alike(row: Row, other: Row) -> bool:
    return (row.variant.backend, row.variant.dtype) == (other.variant.backend, other.variant.dtype)


def _safe(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._=" else "-" for letter in text).strip("-")
