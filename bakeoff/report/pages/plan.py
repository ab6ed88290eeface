"""`bakeoff sweep --dry-run`: the rows of a plan with their estimated time, memory and disk."""

from collections.abc import Mapping

from bakeoff.models.words import counted
from bakeoff.plan.budget import budget_text
from bakeoff.plan.dry_run import Estimate, Line
from bakeoff.record.objective import LATENCY
from bakeoff.report.document import Block, Cell, Document, Heading, Section, Table, Text, blocks, listed, table
from bakeoff.report.format import MIB


def document(plans: Mapping[str, Estimate]) -> Document:
    """The rows that would run, of several plans below the name of each, and once for all why the others cannot."""
    made = [(name, _page(plan)) for name, plan in plans.items()]
    parts = (
        [Section(name, page) for name, page in made] if len(made) > 1 else [block for _, page in made for block in page]
    )
    having: dict[str, dict[str, None]] = {}
    for plan in plans.values():
        for line in plan.lines:
            if line.precheck:
                name = f"{line.variant}, batch {line.batch}" if len(plan.batches) > 1 else line.variant
                having.setdefault(line.precheck, {})[name] = None
    reasons = listed((Text(reason, _names(list(names))) for reason, names in having.items()), "cannot run here")
    return Document("Dry run", blocks(*parts, reasons))


def _page(plan: Estimate) -> tuple[Block | Section, ...]:
    """How long it takes, and the rows in their order."""
    able = [line for line in plan.lines if not line.precheck]
    summary = size(plan)
    if plan.budget_s:
        fitting = sum(line.fits for line in able)
        summary += f"; within {budget_text(plan.budget_s)} about {fitting} of {len(able)}, in this order"
    objective = Text(plan.objective, "objective") if plan.objective != str(LATENCY) else None
    return blocks(Text(summary), objective, _rows(plan, able))


def size(plan: Estimate) -> str:
    """How many rows, and about how long they take."""
    builds = f" ({plan.builds} builds of each compiled variant)" if plan.builds > 1 else ""
    total = f"about {plan.seconds / 60:.1f} minutes by estimate, {plan.disk_bytes // MIB} MiB of disk"
    finals = f", {counted(plan.finals, 'final')} included" if plan.finals else ""
    return f"{counted(len(plan.lines), 'row')}{builds}, {total}{finals}"


def _rows(plan: Estimate, able: list[Line]) -> Table | None:
    """A row for each record; batch, build and process only where there are several."""
    return table(
        (
            "variant", *(Heading(name, numeric=True) for name in ("batch", "build", "process", "about s")), "in time",
            Heading("memory MiB", numeric=True, leaves=1), Heading("disk MiB", numeric=True, leaves=2),
            Heading("estimated from", leaves=3),
        ),
        [
            (
                line.variant,
                str(line.batch) if len(plan.batches) > 1 else "",
                str(line.build_number) if plan.builds > 1 else "",
                str(line.process) if plan.processes > 1 else "",
                f"{line.seconds:.0f}",
                Cell("yes" if line.fits else "no", tone="good" if line.fits else "open") if plan.budget_s else "",
                f"{line.memory_bytes // MIB}",
                f"{line.disk_bytes // MIB}",
                line.seconds_from,
            )
            for line in able
        ],
    )  # fmt: skip


def _names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
