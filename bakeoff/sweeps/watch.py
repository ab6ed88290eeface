"""Watching a worker with a monitor, and workers that build beside each other and are timed in turns.

The monitor is a process of its own, beside the worker's and started while the worker imports. A monitor that cannot run
costs a finding and nothing else. Nothing is timed while anything is built, or built while anything is timed.
"""

import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol

from bakeoff.process.jobs import Job
from bakeoff.process.phases import TIMED
from bakeoff.process.supervisor import Event, Launch, LiveWorker, Outcome, wait_for
from bakeoff.record.monitor import Monitored
from bakeoff.record.redact import without_folders
from bakeoff.record.schema import Finding, new_finding

GPU_INTERVAL_S, CPU_INTERVAL_S = 0.5, 1.0
POINTS = 240
"""Of a series: a record stays below 200 KB, and of a worker of two minutes every sample is kept."""


class Watching(Protocol):
    """A monitor that runs."""

    def stop(self, start_ns: int | None = None) -> Monitored: ...


@dataclass(frozen=True, slots=True)
class Watched:
    """What a record keeps of it."""

    monitored: Monitored | None = None
    window_ns: tuple[int, int] | None = None
    """Start and end of the timed phases, by the times of the series; None where no timed phase was entered."""
    findings: tuple[Finding, ...] = ()


NOT_WATCHED = Watched()


class WorkerWatch:
    """A context manager; leaving it stops the monitor. Where none was asked for, it does nothing."""

    def __init__(self, launch: Launch, timed: Collection[str], asked: bool) -> None:
        """`timed` are the phases that samples are taken in; the worker must be started by `self.launch`."""
        self.launch = replace(launch, on_event=self._on_event) if asked else launch
        self.watched = NOT_WATCHED
        """What was seen, once it has stopped."""
        self._told, self._timed, self._asked = launch, timed, asked
        self._monitor: Watching | None = None
        self._pid: int | None = None
        self._problem = "its worker ended before it announced anything"
        self._began_ns = self._entered_ns = self._left_ns = 0

    def __enter__(self) -> "WorkerWatch":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> Watched:
        """Stop the monitor if it runs; returns what it saw."""
        if not self._asked:
            return self.watched
        self._asked, window = False, self._window()
        monitored = self._kept(self._monitor.stop(self._began_ns)) if self._monitor is not None else None
        if monitored is not None and not monitored.series:
            self._problem = "; ".join(monitored.missing) or "the monitor took no sample"
        findings = () if monitored is not None and monitored.series else (_not_monitored(self._problem),)
        self.watched = Watched(monitored, window if monitored is not None else None, findings)
        return self.watched

    def _on_event(self, event: Event) -> None:
        if not self._began_ns:
            self._began_ns = time.monotonic_ns()
            self._start()
        self._mark(event.phase)
        self._told.on_event(event)

    def _mark(self, phase: str) -> None:
        """Note when the first timed phase was entered and when the last one was left."""
        now = time.monotonic_ns()
        if phase in self._timed:
            self._entered_ns, self._left_ns = self._entered_ns or now, 0
        elif self._entered_ns and not self._left_ns:
            self._left_ns = now

    def _window(self) -> tuple[int, int] | None:
        if not self._entered_ns:
            return None
        left_ns = self._left_ns or time.monotonic_ns()
        return self._entered_ns - self._began_ns, left_ns - self._began_ns

    def _start(self) -> None:
        self._pid = find_guard(self._told.log)
        if self._pid is None:
            self._problem = "its worker's processes were not found"
            return
        self._monitor = start_monitor(self._pid, self._told.gpu)

    def _kept(self, monitored: Monitored) -> Monitored:
        """The report as a record keeps it: without folders, and without the end of the worker, which comes first."""
        ended = f"process {self._pid} was not found"
        missing = (without_folders(text) for text in monitored.missing if not text.startswith(ended))
        return replace(monitored, missing=tuple(missing))


def find_guard(log: Path) -> int | None:
    """Process id of the guard whose worker writes this log, a child of this process; None where there is none.

    The worker and all that it starts are below it.
    """
    import psutil

    for child in psutil.Process().children():
        try:
            if str(log) in child.cmdline():
                return int(child.pid)
        except psutil.Error:  # ended meanwhile
            continue
    return None


def start_monitor(pid: int, gpu: str) -> Watching:
    """A monitor of the tree of a process and of the GPU with this UUID; "" is none.

    It is not waited for: meanwhile the phases that the worker announces would be noted late.
    """
    from bakeoff.monitor.client import Monitor
    from bakeoff.monitor.request import MonitorRequest

    return Monitor.start(
        MonitorRequest(
            pid=pid,
            devices=(gpu,) if gpu else (),
            gpu=("memory", "busy", "temperature", "power", "clocks", "throttle") if gpu else (),
            cpu=("process", "memory", "load"),
            gpu_interval_s=GPU_INTERVAL_S,
            cpu_interval_s=CPU_INTERVAL_S,
            points=POINTS,
        ),
        ready_s=0.0,
    )


def _not_monitored(why: str) -> Finding:
    return new_finding("not-monitored", f"a monitor was asked for and saw nothing: {why}")


@dataclass(frozen=True, slots=True)
class Task:
    """One worker, which announces the phase "turn" before it times or traces anything, or ends without it."""

    job: Job
    result_type: type
    launch: Launch
    monitor: bool = False
    """Watch it with a monitor."""


Timeline = tuple[tuple[str, float], ...]
"""Each phase that a worker entered, and when by time.monotonic(); "" at its end."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a worker ended."""

    outcome: Outcome
    watched: Watched
    timeline: Timeline

    @property
    def built(self) -> tuple[float, float]:
        """From when to when it built, possibly beside others."""
        ends = [at for phase, at in self.timeline if phase in ("turn", "")]
        return self.timeline[0][1], ends[0]

    @property
    def alone(self) -> tuple[float, float] | None:
        """From when to when it had the machine to itself; None where it ended before its turn."""
        phases = [phase for phase, _ in self.timeline]
        if "turn" not in phases:
            return None
        after = phases.index("turn") + 1
        return self.timeline[after][1], self.timeline[-1][1]


def _ignore(_timeline: Timeline) -> None:
    pass


def in_turns(tasks: Sequence[Task], on_stopped: Callable[[Timeline], None] = _ignore) -> Generator[Ended, None, None]:
    """Start all workers at once; when all are built or have ended, let one after the other go on.

    Yields how each ended, in their order. Close the iterator where it is not read to its end: that ends the workers,
    and `on_stopped` is told what each of them did until then. Raises BakeoffError when no worker can be started at all.
    """
    with ExitStack() as stack:
        left: list[LiveWorker] = []

        def tell() -> None:
            for worker in left:
                on_stopped(tuple(worker.timeline))

        stack.callback(tell)  # called after the workers have ended
        watches = [stack.enter_context(WorkerWatch(task.launch, TIMED, task.monitor)) for task in tasks]
        workers = [
            stack.enter_context(LiveWorker(task.job, watch.launch)) for task, watch in zip(tasks, watches, strict=True)
        ]
        left += workers
        waiting = wait_for(dict.fromkeys(workers, "turn"))
        for task, worker, watch in zip(tasks, workers, watches, strict=True):
            if waiting[worker] is not None:
                worker.tell("go")
                worker.wait()
            outcome = worker.finish(task.result_type)
            left.remove(worker)
            yield Ended(outcome, watch.stop(), tuple(worker.timeline))
