"""Sweeps on GPUs of this host: each GPU carries out one order after the other, in a process with its share of the CPUs.

A process sees its own GPU alone, holds that GPU's lock, and is bound to CPUs that no other one of them uses, so that
builds for one GPU do not slow down what is timed on another.
"""

import select
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bakeoff.cluster import order
from bakeoff.cluster.relay import Relay
from bakeoff.cluster.reports import Assignment, Reports
from bakeoff.machine import host
from bakeoff.machine.gpus import VISIBLE
from bakeoff.models.errors import BakeoffError
from bakeoff.process.guard import CALLER
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
    reports, waiting, running = Reports(runs, progress), list(orders), dict[Device, tuple[Relay, Assignment]]()
    try:
        while waiting or running:
            for device, assignment in _dealt([each for each in devices if each not in running], waiting, devices):
                relay, variables = Relay(), {VISIBLE: device.uuid, host.NODE: device.name, host.SHARE: device.share}
                relay.begin(reports.begin(assignment, device.name), order.NODE, CALLER, variables)
                running[device] = relay, assignment
            ready, _, _ = select.select([relay.output for relay, _ in running.values()], [], [])
            _take(running, ready, reports)
    finally:
        for relay, _ in running.values():
            relay.stop()
        while running:
            with suppress(BakeoffError):  # the first one is on its way to the caller
                _take(running, [relay.output for relay, _ in running.values()], reports)


def _take(running: dict[Device, tuple[Relay, Assignment]], ready: Collection[int], reports: Reports) -> None:
    """Take the lines of those processes whose outputs are `ready`, and remove those that have ended."""
    for device, (relay, assignment) in [*running.items()]:
        if relay.output in ready:
            lines, goes_on = relay.take()
            if not goes_on:
                del running[device]
            for line in lines:
                reports.tell(assignment, line)
            if not goes_on:
                reports.ended(assignment)


def _dealt(
    free: Sequence[Device], waiting: list[Assignment], devices: Sequence[Device]
) -> Iterator[tuple[Device, Assignment]]:
    """Yield free devices with an order for each, and take that from `waiting`.

    An order that was begun goes to the device that has measured rows of it, if that is one of `devices`.
    """
    names = [device.name for device in devices]
    for device in free:
        fitting = (each for each in waiting if each.pinned == device.name or each.pinned not in names)
        if assignment := next(fitting, None):
            waiting.remove(assignment)
            yield device, assignment
