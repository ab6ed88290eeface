"""Sweeps on GPUs of this host: each GPU carries out one order after the other, in a process with its share of the CPUs.

A process sees its own GPU alone, holds that GPU's lock, and is bound to CPUs that no other one of them uses, so that
builds for one GPU do not slow down what is timed on another.
"""

import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bakeoff.cluster import order, relay
from bakeoff.cluster.reports import Assignment, Reports
from bakeoff.machine import host
from bakeoff.machine.gpus import VISIBLE
from bakeoff.models.errors import BakeoffError
from bakeoff.process.guard import CALLER
from bakeoff.record.codec import encode
from bakeoff.record.store import load_all
from bakeoff.sweeps.progress import Progress


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU of this host."""

    name: str
    """As typed: `cuda:1`."""
    uuid: str
    share: str
    """Share of the CPUs, as `host.take_share` reads it."""


def parse_devices(asked: str) -> tuple[Device, ...]:
    """Return the GPUs of a list such as `cuda:0,cuda:1`, in CUDA's order of the visible ones.

    Raises BakeoffError for another text, for a GPU that is not there, and for one that is named twice.
    """
    names, gpus = [name.strip() for name in asked.split(",")], host.read_host().gpus
    if problem := host.missing_device("cuda"):
        raise BakeoffError(f"--device {asked}: {problem}", "missing-device")
    found = []
    for place, name in enumerate(names):
        kind, _, number = name.partition(":")
        if kind != "cuda" or not (number.isascii() and number.isdigit()) or name in names[:place]:
            raise BakeoffError(f"--device {asked}: give each GPU once, as in cuda:0,cuda:1", "bad-option")
        if int(number) >= len(gpus):
            text = f"CUDA sees {len(gpus)} here, cuda:0 to cuda:{len(gpus) - 1}"
            raise BakeoffError(f"--device {asked}: there is no {name}; {text}", "missing-device")
        found.append(Device(name, str(gpus[int(number)]["uuid"]), f"{place}/{len(names)}"))
    return tuple(found)


def carry_out(devices: Sequence[Device], orders: Sequence[Assignment], runs: Path, progress: Progress) -> None:
    """Have the devices carry out these orders, store what they report in `runs`, and note how each ended.

    Raises BakeoffError where it cannot be stored, and KeyboardInterrupt; all processes are ended before that.
    """
    reports, waiting, free = Reports(runs, progress), list(orders), list(devices)
    names = [device.name for device in devices]
    running: dict[int, _Process] = {}
    """By the descriptors of their output."""
    try:
        with selectors.DefaultSelector() as ready:
            while waiting or running:
                for device, assignment in _dealt(free, waiting, names):
                    process = _Process(device, assignment, runs)
                    running[process.output] = process
                    reports.running.append(assignment)
                    ready.register(process.output, selectors.EVENT_READ)
                for key, _ in ready.select():
                    process = running[key.fd]
                    for line in process.lines():
                        reports.tell(process.assignment, line)
                    if process.ended:
                        ready.unregister(key.fd)
                        process.stop()
                        reports.ended(process.assignment, process.assignment.refused)
                        free.append(running.pop(key.fd).device)
    finally:
        for process in running.values():
            process.interrupt()
        for process in running.values():
            process.stop()


def _dealt(
    free: list[Device], waiting: list[Assignment], names: Collection[str]
) -> Iterator[tuple[Device, Assignment]]:
    """Yield free devices with an order for each, and take both from their lists.

    An order that was begun goes to the device that has measured rows of it, if that is one of `names`.
    """
    for device in [*free]:
        fitting = (each for each in waiting if each.pinned == device.name or each.pinned not in names)
        if assignment := next(fitting, None):
            free.remove(device)
            waiting.remove(assignment)
            yield device, assignment


class _Process:
    """A process that carries out an order on a device."""

    def __init__(self, device: Device, assignment: Assignment, runs: Path) -> None:
        """Start it, with the ceilings that earlier orders have stored in `runs`."""
        self.device, self.assignment, self.ended = device, assignment, False
        self._errors, self._rest = tempfile.TemporaryFile(), b""  # noqa: SIM115 - closed by stop()
        own = {VISIBLE: device.uuid, host.NODE: device.name, host.SHARE: device.share, CALLER: str(os.getpid())}
        self._child = subprocess.Popen(
            [sys.executable, *order.NODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | own,
            start_new_session=True,
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._stdout, self.output = self._child.stdout, self._child.stdout.fileno()
        assignment.node = device.name
        ceilings = tuple(encode(entry.record) for entry in load_all(runs).ceilings)
        known = (*assignment.order.known, *ceilings)
        with suppress(BrokenPipeError), self._child.stdin as stdin:  # one that has ended says why
            stdin.write(msgspec.json.encode(replace(assignment.order, known=known)))

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that it has written; the last one of all says how it ended."""
        data = os.read(self.output, 1 << 20)
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from lines
        if not data:
            self.ended = True
            yield relay.ended(self._child, self._errors)

    def interrupt(self) -> None:
        """Have it end what it does, as Ctrl-C would."""
        self._child.terminate()

    def stop(self) -> None:
        """Wait until it has ended; kill it where that takes too long."""
        relay.stop(self._child)
        self._stdout.close()
        self._errors.close()
