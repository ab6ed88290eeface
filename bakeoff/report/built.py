"""Rows whose engines were built for GPUs that their machine lacks: they have no times, and a table of their own."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from bakeoff.models.words import some_of
from bakeoff.record.schema import NEVER_RUN, BuildCost, ProofRecord, Record
from bakeoff.record.store import Stored
from bakeoff.report.document import Cell, Heading, Table, number, table
from bakeoff.report.format import MIB
from bakeoff.report.links import Cited
from bakeoff.variant import Variant

_HEADINGS: Final = (
    Heading("variant"),
    Heading("dtype"),
    Heading("target", "the GPUs that the engines run on, by compute capability"),
    number("engines", leaves=3),
    number("in engines", "ONNX operators that TensorRT compiled, of all"),
    Heading("outside", "ONNX operators that run outside the engines"),
    number("size MiB", "all engines together"),
    number("build s", "the whole build, export included", leaves=1),
    number("build MiB", "peak resident size of the process that compiled", leaves=2),
    Heading("record", leaves=4),
)
_OPERATORS: Final = 6
"""Largest number of operators that a row names."""


def target_of(record: Record) -> str:
    """Return the compute capability that a row was built for, such as `sm89`; "" if the record lacks it."""
    return str((record.measurement.proof or ProofRecord()).facts.get("target", ""))


def only_built(rows: Iterable[Stored]) -> str:
    """Return the targets, as in `sm89, sm120`, if rows were built and no other but eager could run; otherwise ""."""
    able = [entry.record for entry in rows if entry.record.status not in NEVER_RUN and not entry.record.baseline]
    found = dict.fromkeys(target_of(record) for record in able if record.status == "built")
    return ", ".join(found) if all(record.status == "built" for record in able) else ""


def untargeted(variant: Variant) -> Variant:
    """Return the variant without its target, as `bakeoff export --for TARGET` takes it."""
    uses = (
        replace(use, options=tuple(pair for pair in use.options if pair[0] != "target")) for use in variant.backends
    )
    return replace(variant, backends=tuple(uses))


def built_table(rows: Iterable[Stored], cited: Cited | None = None) -> Table | None:
    """Return a table of the built rows among `rows`, which link to their records with `cited`; None if none was."""
    made = [_cells(entry, cited) for entry in rows if entry.record.status == "built"]
    return table(_HEADINGS, made, "Built for other GPUs")


def _cells(entry: Stored, cited: Cited | None) -> tuple[Cell | str, ...]:
    variant, made = entry.record.variant, entry.record.measurement
    proof, cost = made.proof or ProofRecord(), made.build or BuildCost("none", None)
    inside, outside = proof.operators_inside.values(), proof.operators_outside
    peak = proof.facts.get("engine_peak_bytes")
    named = [f"{count} {name}" for name, count in sorted(outside.items(), key=lambda pair: -pair[1])]
    return (
        untargeted(variant).backend,
        variant.dtype,
        target_of(entry.record),
        str(proof.facts.get("engines", "")),
        f"{sum(inside)} of {sum(inside) + sum(outside.values())}",
        some_of(named, _OPERATORS) or "none",
        "" if cost.artifact_bytes is None else f"{cost.artifact_bytes / MIB:,.1f}",
        "" if cost.build_s is None else f"{cost.build_s:,.0f}",
        f"{peak / MIB:,.0f}" if isinstance(peak, int) else "",
        Cell("", entry.id, cited(entry)) if cited is not None else "",
    )


def as_data(record: Record) -> dict[str, object]:
    """Return what a built row's engines are under stable keys, with sizes in bytes; empty for other rows."""
    made = record.measurement
    if record.status != "built" or made.proof is None:
        return {}
    operators = {"operators_inside": made.proof.operators_inside, "operators_outside": made.proof.operators_outside}
    return {**made.proof.facts, **operators, "engine_bytes": made.build and made.build.artifact_bytes}
