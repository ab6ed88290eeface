"""Opens a run of a sweep or a pipeline under its device's lock, and keeps the state that `--resume` needs."""

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest, write_atomically
from bakeoff.machine.locks import device_lock
from bakeoff.models.errors import BakeoffError
from bakeoff.models.plain_file import read_plain
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Key
from bakeoff.record.codec import decode, encode
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, load_all, now, read_record, save
from bakeoff.sweeps.progress import Progress

FOLDER = "sweeps"
"""Folder of the run states, within the cache folder."""


@dataclass(frozen=True, slots=True)
class SweepState:
    """State of a run of a sweep or pipeline, by which `--resume` recognises the run."""

    sweep: str
    key: str
    """Key of the plan."""
    runs: str
    component: str
    finished: bool
    order_seed: int = 0
    """Seed of the order in which the rows run."""
    part: str = ""
    """Of a sweep that is spread over several machines: the part that runs here."""

    @property
    def name(self) -> str:
        """Name of its file, and of the folder of its incomplete records."""
        return f"{self.sweep}{self.part and '.'}{self.part}"


def key_of(record: Record) -> Key:
    """Return the key that identifies a record within its sweep; equal to `Row.key` of its row."""
    return str(record.variant), record.batch, record.process


@dataclass(frozen=True, slots=True)
class RowRecords:
    """Records of a sweep's rows so far; each is on disk as soon as its row's turn has ended."""

    runs: Path
    folder: Path
    """Folder in the cache for records that could not be written to `runs`."""
    stored: dict[Key, Stored] = field(default_factory=dict)

    def keep(self, record: Record) -> None:
        """Store a record. Raises BakeoffError if it cannot be written; the cache then keeps it for `--resume`."""
        key = key_of(record)
        try:
            self.stored[key] = Stored(save(self.runs, record), record)
        except BakeoffError:
            with contextlib.suppress(BakeoffError):
                write_atomically(self.folder / f"{digest(list(key))}.json", encode(record))
            raise


@dataclass(frozen=True, slots=True)
class OpenRun:
    """An opened run, which holds the lock of its device."""

    state: SweepState
    cache: Path
    load: host.Load
    """`present_load` before the run began."""
    waited_s: float
    """Seconds spent waiting for other runs."""

    def finish(self) -> None:
        """Mark the run as finished. Raises BakeoffError if its state cannot be written."""
        write_state(self.cache, replace(self.state, finished=True))


@contextmanager
def open_run(
    key: str, name: str, device: str, measures: bool, runs: Path, resume: bool, progress: Progress, adds: bool = False
) -> Iterator[OpenRun]:
    """Lock the device and begin a run of the plan with this key, or `resume` the newest unfinished one.

    A run that `adds` goes on with the newest one, finished or not, and begins one if there is none. `name` names the
    component or pipeline. If the run measures nothing (`measures`), it does not wait for the device.
    Raises BakeoffError before it waits if there is no run to resume, or if records cannot be written.
    """
    paths.ensure_writable(runs, "records")
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    if resume:
        find_unfinished(key, name, runs, cache)
    asked = time.monotonic()
    with device_lock(device, progress.say, cache, measures) as idle_s:
        waited_s = time.monotonic() - asked
        # Under the lock: the run that was waited for was the load, and may have been this one, resumed twice.
        load = host.present_load(idle_s)
        newest = find_newest(key, runs, cache) if adds else None
        state = newest or (find_unfinished(key, name, runs, cache) if resume else begin(key, name, runs, cache))
        if load.others > host.usable_cores() / 2:
            progress.say(f"This host is busy ({load}); each record will say so.")
        yield OpenRun(state, cache, load, waited_s)


def begin(key: str, name: str, runs: Path, cache: Path) -> SweepState:
    """Begin a new run of the plan with this key, and return its state. Raises BakeoffError if the state cannot be
    written.

    `name` names the component or pipeline.
    """
    created = now()
    run = f"{created[:19].replace('-', '').replace(':', '')}-{digest([key, created, os.getpid()])[:6]}"
    state = SweepState(run, key, str(runs.resolve()), name, False, secrets.randbits(32))
    write_state(cache, state)
    return state


def measured_of(state: SweepState, runs: Path, cache: Path) -> RowRecords:
    """Return the records of a sweep so far, after storing those that the cache kept.

    Raises BakeoffError if one of these cannot be read, or still cannot be stored.
    """
    stored = {key_of(entry.record): entry for entry in load_all(runs).current if entry.record.sweep == state.sweep}
    measured = RowRecords(runs, cache / FOLDER / state.name, stored)
    for file in sorted(measured.folder.glob("*.json")):
        record = decode(read_record(file), file.name)
        if isinstance(record, Record):
            measured.keep(record)
        file.unlink()
    return measured


def left_of(plan: Plan, runs: Path, cache: Path) -> Plan:
    """Return the plan with the rows that its newest unfinished run did not measure. Raises BakeoffError if there is
    none."""
    known = measured_of(find_unfinished(plan.key, plan.component.name, runs, cache), runs, cache).stored
    return replace(plan, rows=tuple(row for row in plan.rows if row.key not in known))


def find_unfinished(key: str, name: str, runs: Path, cache: Path) -> SweepState:
    """Return the newest unfinished run of the plan with this key. Raises BakeoffError if there is none."""
    unfinished = [state for state in _states(runs, cache) if not state.finished]
    for state in unfinished:
        if state.key == key:
            return state
    if any(state.component == name for state in unfinished):
        text = "--resume: the unfinished run had another plan, host, version or commit; run without --resume"
    else:
        text = f"--resume: no unfinished run of {name} writes to {runs}; run without --resume"
    raise BakeoffError(text, "nothing-to-resume")


def find_newest(key: str, runs: Path, cache: Path) -> SweepState | None:
    """Return the newest run of the plan with this key, finished or not; None if there is none."""
    return next((state for state in _states(runs, cache) if state.key == key), None)


def _states(runs: Path, cache: Path) -> Iterator[SweepState]:
    """Yield the states of all runs that write to this folder, the newest first; unreadable ones are skipped."""
    for path in sorted((cache / FOLDER).glob("*.json"), reverse=True):
        with contextlib.suppress(msgspec.MsgspecError, OSError):
            state = msgspec.json.decode(read_plain(path), type=SweepState)
            if state.runs == str(runs.resolve()):
                yield state


def write_state(cache: Path, state: SweepState) -> None:
    """Write the state that `--resume` needs. Raises BakeoffError if it cannot be written."""
    write_atomically(cache / FOLDER / f"{state.name}.json", msgspec.json.encode(state))
