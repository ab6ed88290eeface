"""Runs one mix for minutes, unit after unit, and keeps each unit's stamp on disk as soon as the unit is ready."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import msgspec

from bakeoff.models.plain_file import read_plain
from bakeoff.monitor.cpu import RaplProbe
from bakeoff.monitor.request import CpuQuantity
from bakeoff.pipeline.mix_worker import Limits, MixWorker
from bakeoff.process.phases import UnitStamp
from bakeoff.process.supervisor import Event
from bakeoff.process.watch import Watched, start_monitor
from bakeoff.record.deadline import Timeline, Viewer
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.monitor import Monitored
from bakeoff.record.pipeline import Sustained
from bakeoff.sweeps.progress import Running

MOST_UNITS = 1_000_000
"""Largest number of units of a mix, which bounds the size of its record: 35 bytes a unit."""
_IDLE_S = 10.0
_QUANTITIES: tuple[CpuQuantity, ...] = ("process", "memory", "load", "energy")


class StampFile:
    """Stamps of a mix's units, one JSON line each; a context manager, which begins the file anew."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> "StampFile":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def add(self, stamp: UnitStamp) -> None:
        """Write a stamp in one piece: if this process is killed, what was written stays."""
        os.write(self._descriptor, msgspec.json.encode(stamp) + b"\n")


def read_stamps(path: Path) -> list[UnitStamp]:
    """Return the stamps in a file; empty if there is none. A last line that is incomplete is left out."""
    with contextlib.suppress(FileNotFoundError):
        data = read_plain(path)
        return [msgspec.json.decode(line, type=UnitStamp) for line in data[: data.rfind(b"\n") + 1].splitlines()]
    return []


@dataclass(slots=True)
class _Live:
    """What the line of a running mix says of its units so far."""

    timeline: Timeline
    viewer: Viewer
    frames: int = 0
    first_ns: int | None = None
    """Beginning of the first steady unit on the time axis; None before it."""

    def add(self, stamp: UnitStamp) -> str:
        """Add a unit, and return the line."""
        if self.first_ns is None and stamp.kind != "steady":
            return "warming up"
        opened_ns = stamp.opened_ns if self.first_ns is not None else 0
        laid = self.timeline.add(stamp.started_ns, stamp.wall_ns, stamp.frames, opened_ns)
        self.first_ns = laid.submit_ns if self.first_ns is None else self.first_ns
        self.frames += stamp.frames
        self.viewer.add(laid)
        seen, passed_ns = self.viewer, laid.ready_ns - self.first_ns
        rate = f"{self.frames * 1e9 / passed_ns:.2f} fps"
        stall = f"worst stall {seen.longest_stall_ns / 1e6:,.0f} ms" if seen.stalls else "no stall"
        return f"{rate}, {seen.misses:,} late at {seen.fps:g}, {stall}"


def run_sustained(
    worker: MixWorker, limits: Limits, how: Sustained, stop: Callable[[], bool], running: Running
) -> Sequence[Finding]:
    """Run units until `limits.seconds` after the first steady one, until the mix fails, or until `stop`.

    Returns a finding if the time was not over.
    """
    live, since = _Live(Timeline(how.paced), Viewer(how.fps, how.buffer)), 0.0
    for count, stamp in enumerate(worker.sustained(), 1):
        running.event(Event("rounds", live.add(stamp)))
        since = since or (time.monotonic() if stamp.kind == "steady" else 0.0)
        passed_s = time.monotonic() - since if since else 0.0
        if stop() or count >= MOST_UNITS:
            asked = f"{limits.seconds / 60:g} minutes"
            why = "the command was told to end" if stop() else f"a run has at most {MOST_UNITS:,} units"
            return (new_finding("few-units", f"{passed_s / 60:.2g} of {asked}: {why}"),)
        if passed_s >= limits.seconds or (not since and count >= limits.unsettled):
            break
    return ()


@contextlib.contextmanager
def watched(worker: MixWorker) -> Iterator[Callable[[], Watched]]:
    """Watch the worker's processes and its device within the block; the yielded function ends that and returns the
    recording."""
    monitor = start_monitor(worker.guard, worker.gpu, _QUANTITIES)
    began_ns = time.monotonic_ns()
    try:
        yield lambda: Watched(monitor.stop(began_ns), (0, time.monotonic_ns() - began_ns))
    finally:
        monitor.stop()


def watch_idle(worker: MixWorker) -> Monitored | None:
    """Watch the machine for ten seconds while the worker waits; None at once if the machine shows no energy."""
    if not worker.gpu and not RaplProbe().domains:
        return None
    with watched(worker) as seen:
        time.sleep(_IDLE_S)
        made = seen().monitored
    return replace(made, series=()) if made is not None else None
