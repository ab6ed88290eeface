"""Promises a pipeline's mixes by the records of its programs: for `best`, plans, budgets and the pages of runs.

A choice for a slot needs a usable record of each program that a steady unit calls and that any choice has such a record
of, and no failure in the newest record of any program. A mix is promised only if each of its calls has a record.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.backends.backend import by_options
from bakeoff.mix import SlotChoice
from bakeoff.models.component import Quantisation
from bakeoff.models.options import options_of
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.pipeline.parts import usable
from bakeoff.plan.memory import kept_copies
from bakeoff.record.budget import sqnr_db
from bakeoff.record.forecast import BETWEEN, calls_ms, combined, least
from bakeoff.record.pipeline import Forecast
from bakeoff.record.schema import Record

if TYPE_CHECKING:
    from bakeoff.pipeline.plan import PipelinePlan

_MAY_WORK = ("ok", "unstable")
"""Statuses of a newest record whose variant ran and computed the right outputs."""


def forecasts(
    made: "PipelinePlan",
    slot: str,
    classes: tuple[Quantisation, ...] | None = None,
    exportable: bool = False,
    means: bool = True,
    in_loop: bool = True,
) -> dict[SlotChoice, Forecast]:
    """Return what the records promise of each way of filling a slot, beyond the process.

    `classes` are the kinds of quantisation that may be used (None: all). With `exportable`, choices without an artifact
    format are left out. Without `means`, medians are promised, without `in_loop` calls outside of a loop.
    """
    programs = made.parts_of(slot)
    known = {name: {way for way, part in own.items() if usable(part.record)} for name, own in programs.items()}
    calls = {key.program: count for key, count in made.loop.calls().items() if key.slot == slot}
    needed = [known[name] for name in calls or programs if known[name]]
    failed = {way for own in programs.values() for way, part in own.items() if part.record.status not in _MAY_WORK}
    found = {}
    for choice in sorted(set.intersection(*needed) - failed if needed else (), key=str):
        records = {name: own[choice].record for name, own in programs.items() if choice in known[name]}
        kinds = {record.quantisation for record in records.values()} - {""}
        if (classes is None or kinds <= {*classes}) and not (exportable and not is_exported(choice)):
            times = {slot: calls_ms(records, calls, means, in_loop), **_between_ms(made.loop, choice)}
            sqnr = least([sqnr_db(record.measurement.parity) for record in records.values()])
            found[choice] = Forecast(
                slots=str(choice),
                ms=sum(times.values()),
                memory_bytes=_memory_bytes([*records.values()], len(programs), process_bytes(made)),
                sqnr_db=sqnr if len(records) == len(programs) else None,
                parts_ms=times,
            )
    return found


def unknown(made: "PipelinePlan", slot: str) -> list[str]:
    """Return the programs of a slot that a steady unit calls and that no usable record is of."""
    parts = made.parts_of(slot)
    called = [key.program for key in made.loop.calls() if key.slot == slot]
    return [name for name in called if not any(usable(part.record) for part in parts[name].values())]


def promised(made: "PipelinePlan", choices: Sequence[SlotChoice]) -> Forecast | None:
    """Return what the records promise of a mix; None if they lack a program that a steady unit calls."""
    called, found = {key.slot for key in made.loop.calls()}, list[Forecast]()
    for choice in choices:
        known = forecasts(made, choice.slot).get(choice)
        if choice.slot in called and (known is None or unknown(made, choice.slot)):
            return None
        found.append(known or Forecast(str(choice), 0.0, None, None))
    return combined(found, process_bytes(made), made.spread) if called else None


def is_exported(choice: SlotChoice) -> bool:
    """Return whether the choice's backend has an artifact format."""
    backend = choice.backends[-1].name
    return backend in backend_names() and resolve_backend(backend).artifact is not None


def _between_ms(loop: Loop, choice: SlotChoice) -> dict[str, float]:
    """Return the slot's share of the time between programs: by its calls, and by how its engines are fed."""
    calls = loop.calls()
    share = sum(count for key, count in calls.items() if key.slot == choice.slot) / max(1, sum(calls.values()))
    if not loop.between_ns:
        return {}
    use = choice.backends[-1]
    backend = resolve_backend(use.name)
    binds = by_options(backend.binds_memory, options_of(backend, dict(use.options)))
    kind = "bound" if binds else "passed"
    return {BETWEEN: loop.between_ns[kind] * share / 1e6}


def _memory_bytes(records: Sequence[Record], programs: int, process: int) -> int | None:
    """Return the largest peak of a program beyond the process, and the copies of weights that its others keep."""
    peaks = [record.peak_bytes for record in records if record.peak_bytes]
    weights = [record.measurement.memory.weights_bytes for record in records if record.measurement.memory is not None]
    if not peaks or not weights:
        return None
    variant = records[0].variant
    copies = kept_copies([resolve_backend(use.name) for use in variant.backends], variant.device) * (programs - 1)
    return max(peaks) - process + round(copies * max(weights))


def process_bytes(made: "PipelinePlan") -> int:
    """Return the least memory of a process that any record tells: before its calls, without its weights.

    On CUDA it is that of the context.
    """
    known = []
    for record in (
        part.record for slot in made.loop.slots for own in made.parts_of(slot.name).values() for part in own.values()
    ):
        memory = record.measurement.memory
        if memory is not None and record.variant.device == "cuda":
            known += [memory.context_bytes] if memory.context_bytes else []
        elif memory is not None and memory.host_peak_bytes and memory.host_call_bytes is not None:
            known.append(memory.host_peak_bytes - memory.host_call_bytes - memory.weights_bytes)
    return max(0, min(known, default=0))
