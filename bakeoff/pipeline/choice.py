"""The slots of the mixes asked for: as typed, eager, or the best by the records."""

from collections.abc import Mapping, Sequence

from bakeoff.mix import SlotVariant
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import Program, Slot
from bakeoff.pipeline.making import Making
from bakeoff.pipeline.parts import best_way
from bakeoff.pipeline.request import Asked, Role, filled
from bakeoff.plan.plan import Plan


def chosen_mixes(
    making: Making, asked: Sequence[Asked], eager: Mapping[Program, Plan]
) -> tuple[list[tuple[Role, tuple[SlotVariant, ...]]], list[str]]:
    """The slots of each mix asked for; `best` is left out, with a note, where the records do not say what is best.

    Raises BakeoffError where that leaves no mix.
    """
    chosen: list[tuple[Role, tuple[SlotVariant, ...]]] = []
    notes: list[str] = []
    for mix in asked:
        if mix.role not in ("best", "best-full"):
            chosen.append((mix.role, filled(mix.slots, making.pipeline)))
            continue
        slots, missing = _best(making, eager, quantised=mix.role == "best")
        if missing:
            sweeps = "; ".join(f"bakeoff {sweep}" for sweep in missing)
            notes.append(f"{mix.role}: no ok records of this machine and code for every slot; run: {sweeps}")
        else:
            chosen.append((mix.role, slots))
    if not chosen:
        raise BakeoffError(notes[0], "no-record")
    return chosen, notes


def _best(
    making: Making, eager: Mapping[Program, Plan], quantised: bool
) -> tuple[tuple[SlotVariant, ...], tuple[str, ...]]:
    """The best slots by the records, and the sweeps that lack."""
    slots: list[SlotVariant] = []
    missing: list[str] = []
    for slot in making.loop.slots:
        programs = {
            program.workload: making.parts.of(making.components[slot.name], plan.rows[0].subject)
            for program, plan in eager.items()
            if program.slot == slot.name
        }
        calls = {program: count for (of, program), count in making.loop.calls().items() if of == slot.name}
        found = best_way(programs, calls, quantised)
        if found is None:
            missing.append(_sweep(making, slot, [name for name in programs if calls.get(name)] or list(programs)))
        else:
            slots.append(SlotVariant(slot.name, found[0].backends, found[0].dtype))
    return tuple(slots), tuple(missing)


def _sweep(making: Making, slot: Slot, programs: Sequence[str]) -> str:
    """The sweep whose records say how to fill a slot, as it is typed."""
    request = making.request
    batch = next(program.batch for program in making.loop.programs if program.slot == slot.name)
    given = {
        "--batch": str(batch) if batch > 1 else "",
        "--device": request.device,
        "--threads": str(request.threads or ""),
        "--seed": str(request.weight_seed or ""),
        "--checkpoint": making.checkpoints.get(slot.name, ""),
    }
    more = "".join(f" {option} {value}" for option, value in given.items() if value)
    return f"sweep {slot.component} --preset {making.loop.presets[slot.name]} --workload {','.join(programs)}{more}"
