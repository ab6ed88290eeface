"""`bakeoff pipeline --dry-run`: the programs of each mix with their records, and its estimated time and memory."""

from collections.abc import Mapping
from typing import Any

from bakeoff.models.words import counted
from bakeoff.report import document
from bakeoff.report.document import Block, Document, Heading, Section, Text, blocks
from bakeoff.report.format import MIB, size_text

_HEADINGS = (
    Heading("program"),
    Heading("variant"),
    Heading("calls", "of the program in a steady unit", True),
    Heading("ms", "of a call, by the newest record of the program", True),
    Heading("from", "the record, with its variant where that has another name", leaves=2),
    Heading("memory MiB", "of the program alone", True, leaves=1),
)


def document_of(plan: Mapping[str, Any]) -> Document:
    """How many mixes and how long, then each mix, of an `estimate`."""
    filling = f" after {plan['filling']} that fill windows" if plan["filling"] else ""
    mixes, units = counted(len(plan["mixes"]), "mix", "mixes"), counted(plan["units"], "steady unit")
    total = Text(f"{mixes}, {units} each{filling}, about {plan['seconds'] / 60:.1f} minutes by estimate")
    return Document("", (total, *map(Text, plan["notes"]), *(block for mix in plan["mixes"] for block in _mix(mix))))


def _mix(mix: Mapping[str, Any]) -> tuple[Block | Section, ...]:
    rows = []
    for line in mix["programs"]:
        ms = "none" if line["median_ms"] is None else f"{line['median_ms']:.2f}"
        part, variant = line["part"].rpartition("_")[2], line["part_variant"]
        part += f" ({variant})" if variant not in ("", line["variant"]) else ""
        rows.append((line["program"], line["variant"], str(line["calls"]), ms, part, f"{line['memory_bytes'] // MIB}"))
    unit_ms = mix["predicted_unit_ms"]
    predicted = "unknown" if unit_ms is None else f"{unit_ms:.1f} ms"
    memory = f"{size_text(mix['memory_bytes'])} with all programs in place"
    cost = f"about {mix['seconds']:.0f} s (from {mix['seconds_from']}), {memory}"
    told = Text(f"a steady unit by its parts: {predicted}; {cost}")
    return blocks(
        Text(mix["mix"], mix["role"]),
        document.table(_HEADINGS, rows),
        Text(mix["precheck"], tone="bad") if mix["precheck"] else told,
    )
