"""`bakeoff sweep --dry-run`: the rows of a plan with their estimated time, memory and disk."""

from tabulate import tabulate

from bakeoff.plan.dry_run import Estimate
from bakeoff.report.format import MIB


def render(plan: Estimate) -> str:
    rows = [
        [
            line.variant,
            *([line.build_number] if plan.builds > 1 else []),
            *([line.process] if plan.processes > 1 else []),
            line.settled.partition(":")[0] or f"{line.seconds:.0f}",
            line.seconds_from,
            line.memory_bytes // MIB,
            line.disk_bytes // MIB,
        ]
        for line in plan.lines
    ]
    which = (["build"] if plan.builds > 1 else []) + (["process"] if plan.processes > 1 else [])
    headers = ("variant", *which, "about s", "from", "memory MiB", "disk MiB")
    body = tabulate(rows, headers=headers, disable_numparse=True)
    builds = f" ({plan.builds} builds of each compiled variant)" if plan.builds > 1 else ""
    total = f"about {plan.seconds / 60:.1f} minutes, {plan.disk_bytes // MIB} MiB of disk"
    settled = "\n".join(dict.fromkeys(f"{line.variant}: {line.settled}" for line in plan.lines if line.settled))
    parts = [body, *([settled] if settled else []), f"{len(plan.lines)} rows{builds}, {total}, finals included"]
    return "\n\n".join(parts)
