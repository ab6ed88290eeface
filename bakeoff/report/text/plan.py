"""`bakeoff sweep --dry-run`: the rows of a plan with their estimated time, memory and disk."""

from collections.abc import Iterator

from tabulate import tabulate

from bakeoff.models.words import counted
from bakeoff.plan.budget import budget_text
from bakeoff.plan.dry_run import Estimate
from bakeoff.record.objective import LATENCY
from bakeoff.report.format import MIB


def render(plan: Estimate) -> str:
    several = len(plan.batches) > 1
    rows = [
        [
            line.variant,
            *([line.batch] if several else []),
            *([line.build_number] if plan.builds > 1 else []),
            *([line.process] if plan.processes > 1 else []),
            line.precheck.partition(":")[0] or f"{line.seconds:.0f}",
            *(["" if line.precheck else "yes" if line.fits else "no"] if plan.budget_s else []),
            line.seconds_from,
            line.memory_bytes // MIB,
            line.disk_bytes // MIB,
        ]
        for line in plan.lines
    ]
    which = (
        (["batch"] if several else [])
        + (["build"] if plan.builds > 1 else [])
        + (["process"] if plan.processes > 1 else [])
    )
    in_time = ["in time"] if plan.budget_s else []
    headers = ("variant", *which, "about s", *in_time, "from", "memory MiB", "disk MiB")
    body = tabulate(rows, headers=headers, disable_numparse=True)
    reasons = "\n".join(_reasons(plan))
    objective = [f"objective: {plan.objective}"] if plan.objective != str(LATENCY) else []
    rows_text = size(plan)
    if plan.budget_s:
        able = [line for line in plan.lines if not line.precheck]
        fitting = sum(line.fits for line in able)
        rows_text += f"; within {budget_text(plan.budget_s)} about {fitting} of {len(able)}, in this order"
    parts = [body, *([reasons] if reasons else []), *objective, rows_text]
    return "\n\n".join(parts)


def size(plan: Estimate) -> str:
    """How many rows, and about how long they take."""
    builds = f" ({plan.builds} builds of each compiled variant)" if plan.builds > 1 else ""
    total = f"about {plan.seconds / 60:.1f} minutes by estimate, {plan.disk_bytes // MIB} MiB of disk"
    finals = f", {counted(plan.finals, 'final')} included" if plan.finals else ""
    return f"{counted(len(plan.lines), 'row')}{builds}, {total}{finals}"


def _reasons(plan: Estimate) -> Iterator[str]:
    """Why rows do not run: each reason once, with the first row that has it and how many others have it too."""
    rows: dict[str, dict[str, None]] = {}
    for line in plan.lines:
        if line.precheck:
            name = f"{line.variant}, batch {line.batch}" if len(plan.batches) > 1 else line.variant
            rows.setdefault(line.precheck, {})[name] = None
    for reason, names in rows.items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"{next(iter(names))}{others}: {reason}"
