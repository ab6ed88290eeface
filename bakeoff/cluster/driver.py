"""Sweeps on a cluster of Ray: an actor on each node owns a GPU, or all CPUs, and carries out one order after the other.

The driver asks for all that the nodes have, and gives the next order to whatever Ray grants. It measures nothing: it
stores what the nodes report, as they report it. Ray ends the actors of a driver that is gone, and their processes end
with them.
"""

import io
import logging
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakeoff.backends.install import extra_command
from bakeoff.cluster import order, relay
from bakeoff.cluster.reports import Assignment, Reports
from bakeoff.machine import host
from bakeoff.machine.processes import DRIVER, global_name
from bakeoff.models.errors import BakeoffError
from bakeoff.process.guard import CALLER
from bakeoff.record.store import load_all
from bakeoff.sweeps.progress import Progress

_ADDRESS = "RAY_ADDRESS"
_LOCAL = "local"
_REACH_S = 5.0
_LOOK_S = 5.0
"""Between two looks which nodes are there: Ray does not say that the one that a call waits for died."""
_BUSY_S = 30.0
"""Without a place for so long, the driver says that it waits."""
_CANCEL_S = 75.0
"""In which orders end that are stopped; a node's process takes up to `relay._END_S` of them."""


@contextmanager
def connected() -> Iterator[Any]:
    """Connect to the cluster at $RAY_ADDRESS, or one of this machine alone, which ends with the block; yield `ray`.

    Nothing is printed on stdout in the block. Raises BakeoffError where Ray is not installed, or the cluster cannot be
    joined.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        text = f"--on ray: the library ray is not installed; run {extra_command('ray')}"
        raise BakeoffError(text, "missing-library") from error
    asked = os.environ.get(_ADDRESS, "") or _LOCAL
    of_local: dict[str, Any] = {"include_dashboard": False} if asked == _LOCAL else {}
    _check_reachable(asked)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(asked, log_to_driver=False, logging_level=logging.ERROR, **of_local)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        text = f"--on ray: the cluster at {asked} cannot be joined: {str(error).splitlines()[0]}"
        raise BakeoffError(text, "missing-device") from error
    for number, handler in handlers.items():  # ray's own would end this process at once
        signal.signal(number, handler)
    with redirect_stdout(io.StringIO()):  # Ray prints there what its nodes log
        try:
            yield ray
        finally:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Connect to the address once: Ray itself goes on trying for minutes.

    Raises BakeoffError if nothing answers. Names such as `local`, `auto` and `ray://...` are left to Ray.
    """
    host_name, _, port = address.rpartition(":")
    if host_name and "/" not in address and port.isdigit():
        try:
            socket.create_connection((host_name.strip("[]"), int(port)), _REACH_S).close()
        except (OSError, OverflowError) as error:
            text = f"--on ray: the cluster at {address} cannot be joined: {error}; is it started, and the port right?"
            raise BakeoffError(text, "missing-device") from error


def _named(ray: Any) -> dict[str, dict[str, Any]]:
    """Return the nodes that are there by name, as started or of the host; where several have one, each with the
    beginning of its id."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    names = [
        node["NodeName"] if node["NodeName"] != node["NodeManagerAddress"] else node["NodeManagerHostname"]
        for node in nodes
    ]
    return {
        name if names.count(name) == 1 else f"{name}-{node['NodeID'][:6]}": node
        for name, node in zip(names, nodes, strict=True)
    }


def default_device(ray: Any) -> str:
    return "cuda" if places(ray, "cuda") else "cpu"


def places(ray: Any, device: str) -> list[str]:
    """Return the name of the node of each GPU, or of each node with CPUs."""
    return [name for name, node in _named(ray).items() for _ in _places(node, device)]


def _places(node: Mapping[str, Any], device: str) -> dict[str, dict[str, float]]:
    """Return what each place of a node asks Ray for, a GPU or all CPUs of the node, by its share of the CPUs."""
    resources = node["Resources"]
    if device == "cuda":
        gpus = int(resources.get("GPU", 0))
        return {f"{number}/{gpus}": {"num_cpus": 0, "num_gpus": 1} for number in range(gpus)}
    return {"0/1": {"num_cpus": resources["CPU"]}} if resources.get("CPU") else {}


def carry_out(ray: Any, orders: Sequence[Assignment], runs: Path, progress: Progress) -> None:
    """Have the nodes carry out these orders, store what they report in `runs`, and note how each ended.

    All are for the same device. Raises BakeoffError where no node has it or what came cannot be stored, and
    KeyboardInterrupt; all orders are stopped before that.
    """
    driver = _Driver(ray, orders, runs, progress)
    if not places(ray, driver.device):
        name = "GPU" if driver.device == "cuda" else "CPU"
        text = f"no node of the cluster has a {name} for Ray; start one with: ray start --num-{name.lower()}s=1"
        raise BakeoffError(f"--device {driver.device}: {text}", "missing-device")
    try:
        driver.run()
    finally:
        driver.end()


@dataclass(slots=True, eq=False)
class _Place:
    """A GPU of a node, or all its CPUs."""

    node: str
    """Its id."""
    name: str
    share: str
    """Share of the node's CPUs, as `host.take_share` reads it."""
    relay: Any
    call: Any
    """What the relay was asked last."""
    assignment: Assignment | None = None


class _Driver:
    """The orders that wait, and the places that carry out the others."""

    def __init__(self, ray: Any, orders: Sequence[Assignment], runs: Path, progress: Progress) -> None:
        self._ray, self._runs, self._progress = ray, runs, progress
        self._reports = Reports(runs, progress)
        self._waiting = [*orders]
        self.device = orders[0].order.request.device
        self._places: list[_Place] = []
        self._began = self._looked = time.monotonic()
        self._stopping = self._busy = False
        self._refused: dict[str, str] = {}
        """Names of nodes that are given no more orders, by their ids."""
        ray.cloudpickle.register_pickle_by_value(relay)

    def run(self) -> None:
        """Give all orders to places, and take what these report until the last one has ended."""
        while self._waiting or self._reports.running:
            self._ask()
            self._take()

    def end(self) -> None:
        """Stop the orders that are carried out, store what comes meanwhile, and free all places."""
        self._stopping = True
        self._waiting.clear()
        for place in self._places:
            if place.assignment is not None:
                place.relay.stop.remote()
        until = time.monotonic() + _CANCEL_S
        try:
            while self._reports.running and time.monotonic() < until:
                with suppress(BakeoffError):  # the first one is on its way to the caller
                    self._take()
        finally:
            for place in [*self._places]:
                self._free(place)

    def _usable(self) -> dict[str, dict[str, Any]]:
        """Return the nodes that may be given orders: they have the device and are not refused."""
        named = _named(self._ray).items() if not self._stopping else ()
        return {
            name: node for name, node in named if node["NodeID"] not in self._refused and _places(node, self.device)
        }

    def _ask(self) -> None:
        """Ask Ray for all places that a waiting order may go to; give up the orders if there is no node for them."""
        usable = self._usable() if self._waiting else {}
        if not usable:
            refused = f"; refused: {', '.join(self._refused.values())}" if self._refused else ""
            for assignment in self._waiting:
                assignment.problem = f"no node is left for it{refused}"
            self._waiting.clear()
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        for name, node in usable.items():
            if any(_may_go(assignment, name, usable) for assignment in self._waiting):
                there = {place.share for place in self._places if place.node == node["NodeID"]}
                for share, needs in _places(node, self.device).items():
                    if share in there:
                        continue
                    only = strategy(node["NodeID"], soft=False)
                    actor = self._ray.remote(relay.Relay).options(**needs, scheduling_strategy=only).remote()
                    self._places.append(_Place(node["NodeID"], name, share, actor, actor.ready.remote()))

    def _take(self) -> None:
        """Wait for any place, take its lines, and give those that are free the next orders."""
        ray = self._ray
        calls = {place.call: place for place in self._places}
        ready, _ = ray.wait([*calls], timeout=_LOOK_S) if calls else ([], [])
        for place in (calls[call] for call in ready):
            if place not in self._places:  # it was free, and no order waits any more
                continue
            try:
                lines, goes_on = ray.get(place.call)
            except ray.exceptions.RayError as error:
                self._lost(place, f"{type(error).__name__}: {str(error).splitlines()[0].rstrip('.')}")
                continue
            if goes_on:
                place.call = place.relay.take.remote()
            for line in lines:
                assert place.assignment is not None
                self._reports.tell(place.assignment, line)
            if not goes_on:
                self._ended(place)
        if time.monotonic() - self._looked > _LOOK_S:
            self._looked, there = time.monotonic(), self._there()
            for place in [place for place in self._places if place.node not in there]:
                self._lost(place, "")
            if not self._busy and self._looked - self._began > _BUSY_S and not self._reports.running:
                self._busy = True
                self._progress.say("waiting for Ray, which has given others what the nodes have: see ray status")

    def _there(self) -> set[str]:
        """Return the ids of the nodes that are there."""
        return {node["NodeID"] for node in _named(self._ray).values()}

    def _ended(self, place: _Place) -> None:
        """Give a place that has no order any more the next one, or free it."""
        assignment, place.assignment = place.assignment, None
        if assignment is not None:
            self._reports.ended(assignment)
            if assignment.refused:
                self._refuse(place, assignment.refused)
                assignment.refused = assignment.problem = ""
                self._waiting.insert(0, assignment)
        usable = self._usable() if self._waiting else {}
        mine = [each for each in self._waiting if place.name in usable and _may_go(each, place.name, usable)]
        if not mine:
            self._free(place)
            return
        place.assignment = assignment = mine[0]
        self._waiting.remove(assignment)
        driver = global_name(os.getpid())
        variables = {host.NODE: place.name, host.SHARE: place.share, DRIVER: driver}
        place.relay.begin.remote(self._reports.begin(assignment, place.name), order.NODE, CALLER, variables)
        place.call = place.relay.take.remote()
        if not self._waiting:
            for other in [other for other in self._places if other.assignment is None]:
                self._free(other)

    def _lost(self, place: _Place, why: str) -> None:
        """Give the order of a place that died to another node if the node died, and else give it up."""
        self._free(place)
        there = place.node in self._there()
        assignment = place.assignment
        if assignment is None:
            if there:  # Ray cannot start its own process there
                self._refuse(place, why)
            return
        self._reports.ended(assignment)
        if assignment.done is not None:
            return
        if there:
            assignment.problem = f"Ray's process there died: {why}"
            return
        self._progress.say(f"{place.name} died; what it had not finished goes to another node")
        assignment.order = order.with_known(assignment.order, load_all(self._runs))
        self._waiting.insert(0, assignment)

    def _refuse(self, place: _Place, why: str) -> None:
        """Give no more orders to the node of a place."""
        self._progress.say(f"{place.name} is refused: {why}")
        self._refused[place.node] = place.name

    def _free(self, place: _Place) -> None:
        self._places.remove(place)
        self._ray.kill(place.relay)


def _may_go(assignment: Assignment, name: str, usable: Mapping[str, Any]) -> bool:
    """Return whether the order may go to the node `name`: one that was measured in part goes on where it was."""
    return assignment.pinned not in usable or assignment.pinned == name
