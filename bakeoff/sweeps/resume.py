"""The state of an unfinished sweep, kept in the cache folder, so that `--resume` can go on with it."""

import contextlib
import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bakeoff.machine.files import digest, write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Key
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, load_all, now


@dataclass(frozen=True, slots=True)
class SweepState:
    """What `--resume` needs to recognise a sweep."""

    sweep: str
    key: str
    """Of the plan."""
    runs: str
    component: str
    finished: bool
    order_seed: int = 0
    """Of the order in which the rows run."""


def key_of(record: Record) -> Key:
    """Identifies a record within its sweep, as `Row.key` does a row."""
    return str(record.variant), record.batch, record.build_number, record.process


def begin(plan: Plan, runs: Path, cache: Path) -> SweepState:
    """A new sweep. Raises BakeoffError when its state cannot be written."""
    return begin_run(plan.key, plan.component.name, runs, cache)


def begin_run(key: str, name: str, runs: Path, cache: Path) -> SweepState:
    """A new run of a plan with this key; `name` says of what. Raises BakeoffError when its state cannot be written."""
    created = now()
    run = f"{created[:19].replace('-', '').replace(':', '')}-{digest([key, created, os.getpid()])[:6]}"
    state = SweepState(run, key, str(runs.resolve()), name, False, secrets.randbits(32))
    _save(cache, state)
    return state


def mark_finished(cache: Path, state: SweepState) -> None:
    """Mark the sweep as complete. Raises BakeoffError when that cannot be written."""
    _save(cache, replace(state, finished=True))


def continue_unfinished(plan: Plan, runs: Path, cache: Path) -> tuple[SweepState, dict[Key, Stored]]:
    """The newest unfinished sweep of the same plan, and its records so far. Raises BakeoffError when there is none."""
    state = find_unfinished(plan.key, plan.component.name, "sweep", runs, cache)
    kept = [stored for stored in load_all(runs).current if stored.record.sweep == state.sweep]
    return state, {key_of(stored.record): stored for stored in kept}


def find_unfinished(key: str, name: str, what: str, runs: Path, cache: Path) -> SweepState:
    """The newest unfinished run of the plan with this key; `what` it is called. Raises BakeoffError without one."""
    states = []
    for path in sorted((cache / "sweeps").glob("*.json"), reverse=True):
        with contextlib.suppress(msgspec.MsgspecError, OSError):
            states.append(msgspec.json.decode(path.read_bytes(), type=SweepState))
    unfinished = [state for state in states if not state.finished and state.runs == str(runs.resolve())]
    for state in unfinished:
        if state.key == key:
            return state
    if any(state.component == name for state in unfinished):
        text = f"--resume: the unfinished {what} had another plan, host, version or commit; run without --resume"
    else:
        text = f"--resume: no unfinished {what} of {name} writes to {runs}; run without --resume"
    raise BakeoffError(text, "nothing-to-resume")


def _save(cache: Path, state: SweepState) -> None:
    write_atomically(cache / "sweeps" / f"{state.sweep}.json", msgspec.json.encode(state))
