"""The state of an unfinished sweep in the cache folder, and what it has measured: `--resume` goes on with it."""

import contextlib
import os
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from bakeoff.machine.files import digest, write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Key
from bakeoff.record.codec import decode, encode
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, load_all, now, save

FOLDER = "sweeps"
"""In the cache folder."""


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


@dataclass(frozen=True, slots=True)
class Measured:
    """The rows of a sweep that were measured so far; each is on disk as soon as it was timed."""

    runs: Path
    folder: Path
    """In the cache, for records that are not whole."""
    stored: dict[Key, Stored] = field(default_factory=dict)
    """Those with a whole record, among the others of `runs`."""
    timed: dict[Key, Record] = field(default_factory=dict)
    """Those that still lack a warm build, a trace or a floor."""

    @property
    def known(self) -> dict[Key, Stored]:
        """All of them; the id of one whose record is not whole is the name of its file."""
        timed = {key: Stored(self._file(key).name, record) for key, record in self.timed.items()}
        return {**self.stored, **timed}

    def keep(self, record: Record) -> None:
        """Store a whole record. Raises BakeoffError where it cannot be written."""
        key = key_of(record)
        self.stored[key] = Stored(save(self.runs, record), record)
        if self.timed.pop(key, None) is not None:
            self._file(key).unlink(missing_ok=True)

    def keep_timed(self, record: Record) -> None:
        """Keep a record that is not whole yet. Raises BakeoffError where it cannot be written."""
        key = key_of(record)
        write_atomically(self._file(key), encode(record))
        self.timed[key] = record

    def load(self) -> None:
        """Read what an interrupted sweep left. Raises BakeoffError where it cannot be read."""
        for file in sorted(self.folder.glob("*.json")):
            record = decode(file.read_bytes(), file.name)
            if isinstance(record, Record) and key_of(record) not in self.stored:
                self.timed[key_of(record)] = record

    def _file(self, key: Key) -> Path:
        return self.folder / f"{digest(list(key))}.json"


def begin(plan: Plan, runs: Path, cache: Path) -> tuple[SweepState, Measured]:
    """A new sweep, of which nothing is measured. Raises BakeoffError when its state cannot be written."""
    state = begin_run(plan.key, plan.component.name, runs, cache)
    return state, Measured(runs, cache / FOLDER / state.sweep)


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


def continue_unfinished(plan: Plan, runs: Path, cache: Path) -> tuple[SweepState, Measured]:
    """The newest unfinished sweep of the same plan, and its rows so far. Raises BakeoffError when there is none."""
    state = find_unfinished(plan.key, plan.component.name, "sweep", runs, cache)
    kept = [stored for stored in load_all(runs).current if stored.record.sweep == state.sweep]
    measured = Measured(runs, cache / FOLDER / state.sweep, {key_of(stored.record): stored for stored in kept})
    measured.load()
    return state, measured


def find_unfinished(key: str, name: str, what: str, runs: Path, cache: Path) -> SweepState:
    """The newest unfinished run of the plan with this key; `what` it is called. Raises BakeoffError without one."""
    states = []
    for path in sorted((cache / FOLDER).glob("*.json"), reverse=True):
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
    write_atomically(cache / FOLDER / f"{state.sweep}.json", msgspec.json.encode(state))
