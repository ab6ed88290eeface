"""Sweeps on a cluster of Ray: each order is a task that owns a GPU, or all CPUs of a node, and carries out one sweep.

Ray decides which node runs what. The driver measures nothing: it stores what the nodes report, as they report it.
"""

import logging
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bakeoff.cluster import order, relay
from bakeoff.cluster.reports import Assignment, Reports
from bakeoff.models.errors import BakeoffError
from bakeoff.process.guard import CALLER
from bakeoff.sweeps.progress import Progress

_ADDRESS = "RAY_ADDRESS"
_LOCAL = "local"
_REACH_S = 5.0
_LOOK_S = 5.0
"""After so many seconds of silence the driver looks whether the nodes that it waits for are there."""
_CANCEL_S = 75.0
"""In which cancelled tasks end; a node's process takes up to `relay._END_S` of them."""


@contextmanager
def connected(address: str, code: Path | None) -> Iterator["Nodes"]:
    """Connect to the cluster at `address`, $RAY_ADDRESS or one of this machine alone, which ends with the block.

    `code` is a checkout that all nodes run instead of their own. Raises BakeoffError where Ray is not installed, or the
    cluster cannot be joined.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        text = "--on ray: the library ray is not installed; run in a checkout of bakeoff: pip install -e '.[ray]'"
        raise BakeoffError(text, "missing-library") from error
    asked = address or os.environ.get(_ADDRESS, "") or _LOCAL
    shipped = {"working_dir": str(code)} if code is not None else None
    of_local: dict[str, Any] = {"include_dashboard": False} if asked == _LOCAL else {}
    _check_reachable(asked)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(asked, runtime_env=shipped, log_to_driver=False, logging_level=logging.ERROR, **of_local)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        text = f"--on ray: the cluster at {asked} cannot be joined: {str(error).splitlines()[0]}"
        raise BakeoffError(text, "missing-device") from error
    for number, handler in handlers.items():  # ray's own would end this process at once
        signal.signal(number, handler)
    try:
        yield Nodes(ray)
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


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of a cluster."""

    ray: Any
    """The module."""

    def named(self) -> dict[str, dict[str, Any]]:
        """Those that are there, by name."""
        return relay.named(self.ray.nodes())

    def default_device(self) -> str:
        return "cuda" if any(_has(node, "GPU") for node in self.named().values()) else "cpu"

    def needs(self, device: str) -> dict[str, float]:
        """What a task asks for: a GPU, or the CPUs of the largest node, so that it has that to itself.

        Raises BakeoffError where no node has it.
        """
        name = "GPU" if device == "cuda" else "CPU"
        most = max((_has(node, name) for node in self.named().values()), default=0.0)
        if not most:
            text = f"no node of the cluster has a {name} for Ray; start one with: ray start --num-{name.lower()}s=1"
            raise BakeoffError(f"--device {device}: {text}", "missing-device")
        return {"num_cpus": 0, "num_gpus": 1} if device == "cuda" else {"num_cpus": most}


def _has(node: Mapping[str, Any], resource: str) -> float:
    return float(node["Resources"].get(resource, 0.0))


def carry_out(nodes: Nodes, orders: Sequence[Assignment], runs: Path, progress: Progress) -> None:
    """Have the nodes carry out these orders, store what they report in `runs`, and note how each ended.

    Raises BakeoffError where it cannot be stored, and KeyboardInterrupt; all tasks are ended before that.
    """
    driver = _Driver(nodes, runs, progress)
    try:
        for assignment in orders:
            driver.submit(assignment)
        while driver.tasks:
            driver.take()
    finally:
        driver.cancel()


class _Driver:
    """Tasks, and what is done with each of their lines."""

    def __init__(self, nodes: Nodes, runs: Path, progress: Progress) -> None:
        self._nodes, self._progress = nodes, progress
        self._reports = Reports(runs, progress)
        self.tasks: dict[Any, Assignment] = {}
        """By the generators of their lines."""
        self._refused: dict[str, str] = {}
        """Ids of nodes that are given no more orders, with their names."""
        nodes.ray.cloudpickle.register_pickle_by_value(relay)
        self._relay = nodes.ray.remote(relay.relay)

    def submit(self, assignment: Assignment) -> None:
        """Give the order to Ray, for the node that it is pinned to, or for any that is not refused."""
        named = self._nodes.named()
        only = {"ray.io/node-id": f"!in({', '.join(self._refused)})"} if self._refused else {}
        pinned = named.get(assignment.pinned)
        if pinned is not None and pinned["NodeID"] not in self._refused:
            only = {"ray.io/node-id": pinned["NodeID"]}
        device = assignment.order.request.device
        task = self._relay.options(**self._nodes.needs(device), max_retries=0, label_selector=only)
        self.tasks[task.remote(msgspec.json.encode(assignment.order), order.NODE, CALLER)] = assignment
        self._reports.running.append(assignment)

    def take(self) -> None:
        """Wait for lines of any task, and take them."""
        ray = self._nodes.ray
        ready, _ = ray.wait(list(self.tasks), num_returns=1, timeout=_LOOK_S)
        if not ready:
            self._look()
        for task in ready:
            assignment = self.tasks[task]
            try:
                lines = ray.get(next(task))
            except StopIteration:
                self._ended(task, "")
            except ray.exceptions.RayError as error:
                self._ended(task, _death(error))
            else:
                for line in lines:
                    self._reports.tell(assignment, line)

    def cancel(self) -> None:
        """End all tasks, and wait until their nodes have ended what they started."""
        ray = self._nodes.ray
        for task in self.tasks:
            ray.cancel(task, force=False)
        if self.tasks:
            ray.wait([task.completed() for task in self.tasks], num_returns=len(self.tasks), timeout=_CANCEL_S)
        for task in self.tasks:
            with suppress(ray.exceptions.RayError):
                ray.cancel(task, force=True)

    def _ended(self, task: Any, death: str) -> None:
        assignment = self.tasks.pop(task)
        self._reports.ended(assignment, death)
        if assignment.refused:
            self._refuse(assignment)

    def _refuse(self, assignment: Assignment) -> None:
        """Give no more orders to the node, and this one to another."""
        node = self._nodes.named().get(assignment.node)
        self._progress.say(f"{assignment.node} is refused: {assignment.refused}")
        assignment.refused = assignment.problem = ""
        if node is not None:
            self._refused[node["NodeID"]] = assignment.node
        if self._left(assignment):
            self.submit(assignment)
        else:
            assignment.problem = f"no node is left for it; refused: {', '.join(self._refused.values())}"

    def _look(self) -> None:
        """Give up the orders that no node is there for."""
        for task, assignment in [*self.tasks.items()]:
            if not assignment.steps and not assignment.node and not self._left(assignment):
                self._nodes.ray.cancel(task, force=False)
                self._ended(task, "no node is left for it")

    def _left(self, assignment: Assignment) -> bool:
        """Whether a node that is not refused has what the order asks for."""
        name = "GPU" if assignment.order.request.device == "cuda" else "CPU"
        return any(_has(node, name) and node["NodeID"] not in self._refused for node in self._nodes.named().values())


def _death(error: Exception) -> str:
    """How a task ended that could not say so itself."""
    kind = type(error).__name__
    if kind in ("NodeDiedError", "WorkerCrashedError", "LocalRayletDiedError", "ObjectLostError"):
        return "the node, or Ray's process there, died"
    return f"{kind}: {str(error).splitlines()[0]}"
