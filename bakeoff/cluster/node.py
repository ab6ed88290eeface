"""A process on a node that carries out one order: it reads it from stdin, and writes a line for whatever happens.

    python -m bakeoff.cluster.node < ORDER

A line is a JSON list of a kind and its values. Entries are stored on the node too, beside its caches, until that
folder is cleared: what a driver did not get, it gets when it resumes.
"""

import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import BinaryIO

import msgspec

from bakeoff.bring.bring import bring
from bakeoff.cluster.order import FINAL, PLAN, Order, PlannedRow, differences
from bakeoff.machine import host, paths
from bakeoff.machine.files import digest, write_atomically
from bakeoff.machine.identity import Machine, this_machine
from bakeoff.models.errors import BakeoffError
from bakeoff.models.sizes import parse_sizes
from bakeoff.plan.plan import make_plan
from bakeoff.process.guard import end_with_caller
from bakeoff.process.signals import ending_signals
from bakeoff.process.supervisor import Event
from bakeoff.record.codec import Entry, decode, encode
from bakeoff.record.schema import Record, Supersede
from bakeoff.record.store import load_all, record_files, save
from bakeoff.sweeps.context import shuffled
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.resume import SweepState, key_of, write_state
from bakeoff.sweeps.run import SweepResult, run_sweep

FOLDER = "cluster"
"""In the cache folder: records by sweep, and files of users."""


def main() -> None:
    """Carry out the order that comes on stdin. What anybody prints meanwhile goes to stderr."""
    end_with_caller()
    host.take_share()
    lines = Lines(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    with ending_signals():
        try:
            carry_out(msgspec.json.decode(sys.stdin.buffer.read(), type=Order), lines)
        except BakeoffError as error:
            lines.write("failed", str(error), error.code)
        except KeyboardInterrupt:
            lines.write("failed", "it was stopped", "")


def carry_out(order: Order, lines: "Lines") -> None:
    """Run the sweep of an order, unless this node differs from the driver or lacks the device."""
    refusal = differences(order.expected) or host.missing_device(order.request.device)
    if refusal:
        lines.write("refused", refusal)
    else:
        run_order(order, lines)


def run_order(order: Order, lines: "Lines") -> None:
    """Run the sweep with what the driver knows of it."""
    started, request = time.monotonic(), order.request
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    runs = paths.ensure_writable(cache / FOLDER / order.sweep / order.part, "records")
    machine = this_machine(request.device)
    sent = [decode(data, "what the driver sent") for data in order.known]
    lines.watch(runs, [save(runs, entry) for entry in sent if _counts(entry, machine, order.part)])
    lines.write_stored()  # what lies here of an earlier try, and never reached the driver
    component, preset = _component(order, cache), request.presets[0] if len(request.presets) == 1 else ""
    sizes, seed, threads = parse_sizes(list(order.sizes)), request.weight_seed, request.threads
    component = bring(component, seed, threads, lines, sizes, request.batches, preset, request.device)
    plan = make_plan(replace(request, component=component))
    if order.part == PLAN:
        rows = shuffled(plan.rows, order.order_seed)
        told = [PlannedRow(row.key, row.variant.subject, row.never_runs is None, row.is_eager_fp32) for row in rows]
        lines.write("planned", told)
        lines.write("done", SweepResult(order.sweep, (), ()))
        return
    if order.part:
        known = {key_of(entry.record) for entry in load_all(runs).current}
        only = known.intersection(order.only) if order.part.startswith(FINAL) else order.only
        plan = replace(plan, rows=tuple(row for row in plan.rows if row.key in only))
    name, place = plan.component.name, str(runs.resolve())
    state = SweepState(order.sweep, plan.key, place, name, False, order.order_seed, order.part)
    write_state(cache, state)
    lines.write("rows", len(plan.rows))
    done = run_sweep(plan, runs, order.note, True, lines, started)
    lines.write_stored()
    lines.write("done", replace(done, stored=(), finals=()))


def _counts(entry: Entry, machine: Machine, part: str) -> bool:
    """Return whether this node takes an entry of the driver's: of its own machine; for a part, a row of one like it."""
    if part and isinstance(entry, Record):
        return entry.machine.machine_class == machine.machine_class
    return not isinstance(entry, Supersede) and entry.machine.id == machine.id


def _component(order: Order, cache: Path) -> str:
    """The component as this node finds it: a user's files lie in the cache."""
    if not order.files:
        return order.request.component
    folder = cache / FOLDER / "files" / digest([order.files])
    for name, data in order.files.items():
        write_atomically(folder / name, data)
    first, _, function = order.request.component.rpartition(":")
    file = str(folder / next(iter(order.files)))
    return f"{file}:{function}" if first else file


class Lines:
    """The progress of a sweep as lines; each entry that was stored has one too."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._runs: Path | None = None
        self._written: set[str] = set()
        self._started = 0

    def write(self, kind: str, *values: object) -> None:
        """Write a line; one that nobody reads any more is lost."""
        data = msgspec.json.encode([kind, *values]) + b"\n"
        with self._lock:
            self._file.write(data)
            self._file.flush()

    def watch(self, runs: Path, sent: Sequence[str]) -> None:
        """Write the entries of this folder from now on, but for those with the ids that the driver sent."""
        self._runs = runs
        self._written = {f"{name}.json" for name in sent}

    def write_stored(self) -> None:
        """Write the entries that were stored since the last time."""
        for path in record_files(self._runs) if self._runs is not None else ():
            if path.name not in self._written:
                self._written.add(path.name)
                self.write("stored", msgspec.Raw(path.read_bytes().rstrip()))

    def start(self, position: int, total: int, what: str) -> Running:
        self._started += 1
        self.write("start", self._started, position, total, what)
        return _Line(self, self._started)

    def say(self, text: str) -> None:
        self.write("say", text)

    def result(self, record: Record) -> None:
        self.write_stored()
        self.write("result", msgspec.Raw(encode(record).rstrip()))

    def ranked(self, to_come: str) -> None:
        self.write("say", to_come)

    def expect(self, seconds: float | None, _limit_s: float = inf, /) -> None:
        self.write("expect", seconds)


class _Line:
    """A Running whose events are lines."""

    def __init__(self, lines: Lines, number: int) -> None:
        self._lines, self._number = lines, number

    def event(self, event: Event) -> None:
        self._lines.write("event", self._number, event.phase, event.detail)

    def finish(self, status: str = "", text: str = "") -> None:
        self._lines.write_stored()
        self._lines.write("finish", self._number, status, text)


if __name__ == "__main__":
    main()
