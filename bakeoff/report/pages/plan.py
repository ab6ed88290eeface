"""The page of `--dry-run`: rows of a sweep, or mixes of a pipeline, with estimated time and memory."""

from collections.abc import Mapping
from typing import Any

from bakeoff.models.grouping import grouped
from bakeoff.models.words import counted, some_of
from bakeoff.plan.dry_run import Estimate, Line
from bakeoff.plan.request import time_limit_text
from bakeoff.record.objective import LATENCY
from bakeoff.report.document import Block, Cell, Document, Heading, Section, Table, Text, blocks, listed, number, table
from bakeoff.report.format import MIB, milliseconds, size_text

_MEMORY = "the peak of a record of it, else an upper estimate, with 1 GiB for torch and a compiler"


def document(plans: Mapping[str, Estimate]) -> Document:
    """Return the page of the rows that would run, a section for each of several plans, and why others cannot."""
    made = [(name, _page(plan)) for name, plan in plans.items()]
    parts = (
        [Section(name, page) for name, page in made] if len(made) > 1 else [block for _, page in made for block in page]
    )
    having = grouped(
        (line.precheck, f"{line.variant}, batch {line.batch}" if len(plan.batches) > 1 else line.variant)
        for plan in plans.values()
        for line in plan.lines
        if line.precheck
    )
    texts = (Text(reason, some_of(dict.fromkeys(names), 1)) for reason, names in having.items())
    reasons = listed(texts, "cannot run here")
    return Document("Dry run", blocks(*parts, reasons))


def _page(plan: Estimate) -> tuple[Block | Section, ...]:
    """Return a plan's blocks: how long it takes, and the rows in their order."""
    able = [line for line in plan.lines if not line.precheck]
    summary = size(plan)
    if plan.time_limit_s:
        fitting = sum(line.fits for line in able)
        summary += f"; within {time_limit_text(plan.time_limit_s)} about {fitting} of {len(able)}, in this order"
    objective = Text(plan.objective, "objective") if plan.objective != str(LATENCY) else None
    return blocks(Text(summary), objective, _rows(plan, able))


def size(plan: Estimate) -> str:
    """Describe how many rows a plan has, and its estimated time."""
    able = sum(not line.precheck for line in plan.lines)
    total = f"about {plan.seconds / 60:.1f} minutes by estimate"
    finals = f", {counted(plan.finals, 'final')} included" if plan.finals else ""
    return f"{rows_text(len(plan.lines), able)}, {total}{finals}"


def rows_text(rows: int, able: int) -> str:
    """Return a number of rows, and how many of them can run if that is fewer."""
    return counted(rows, "row") + (f" ({able} can run here)" if able < rows else "")


def _rows(plan: Estimate, able: list[Line]) -> Table | None:
    """Return a table with a row for each record; batch and process are shown only if there are several."""
    return table(
        (
            "variant", *map(number, ("batch", "process", "about s")), "in time",
            Heading("memory MiB", _MEMORY, True, leaves=1), Heading("estimated from", leaves=2),
        ),
        [
            (
                line.variant,
                str(line.batch) if len(plan.batches) > 1 else "",
                str(line.process) if plan.processes > 1 else "",
                f"{line.seconds:.0f}",
                Cell("yes" if line.fits else "no", tone="good" if line.fits else "open") if plan.time_limit_s else "",
                f"{line.memory_bytes // MIB}",
                line.seconds_from,
            )
            for line in able
        ],
    )  # fmt: skip


def of_pipeline(plan: Mapping[str, Any]) -> Document:
    """Return the page of a pipeline's estimate: how many mixes and how long they take, then each mix."""
    filling = f" after {counted(plan['filling'], 'unit')} that fill windows" if plan["filling"] else ""
    mixes, each = counted(len(plan["mixes"]), "mix", "mixes"), " each" if len(plan["mixes"]) > 1 else ""
    units = f"{counted(plan['units'], 'steady unit')}{each}{filling}"
    needs = f"about {plan['seconds'] / 60:.1f} minutes by estimate"
    if plan["reference_bytes"] is not None:
        units = f"{counted(plan['units'], 'unit')}{each}, compared and not timed"
        needs += f", {size_text(plan['reference_bytes'])} of disk for the reference"
    if plan["minutes"] is not None:
        mixes += " one after the other" if each else ""
        units = f"{counted(plan['minutes'], 'minute', form='g')}{each}{filling}"
    total = Text(f"{mixes}, {units}, {needs}")
    return Document("", (total, *map(Text, plan["notes"]), *(block for mix in plan["mixes"] for block in _mix(mix))))


def _mix(mix: Mapping[str, Any]) -> tuple[Block | Section, ...]:
    unit_ms = mix["promised_ms"]
    promised = "unknown" if unit_ms is None else f"{milliseconds(unit_ms)} ms"
    calls = ", ".join(f"{program} {count}x" for program, count in mix["calls"].items())
    cost = f"about {mix['seconds']:.0f} s (from {mix['seconds_from']})"
    memory = f"{size_text(mix['memory_bytes'])} with all programs in place"
    told = Text(f"a steady unit calls {calls}, promised {promised}; {cost}, {memory}")
    return blocks(Text(mix["mix"], mix["role"]), Text(mix["precheck"], tone="bad") if mix["precheck"] else told)
