"""Precompiles torch's C++ headers before the first compiled row, so that no row's build time includes that.

The libraries with which inductor detects the CPU's vector instructions are built at the same time.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import by_options
from bakeoff.machine.build_cache import (
    HOME,
    HeaderFile,
    Stamp,
    describe_header,
    header_folder,
    is_undamaged,
    is_warm,
    read_stamp,
    write_stamp,
)
from bakeoff.machine.locks import entry_lock
from bakeoff.models.errors import BakeoffError
from bakeoff.models.options import options_of
from bakeoff.plan.rows import Row
from bakeoff.process.environment import own_home
from bakeoff.process.jobs import BackendStep, HeadersJob, HeadersResult
from bakeoff.process.supervisor import Deadlines, Event, Launch, LiveWorker, wait_for

_DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class _Use:
    """A backend step that needs a set of headers, and the row that the step belongs to."""

    step: BackendStep
    row: Row


def _ignore(_event: Event) -> None:
    pass


class HeaderBuilds:
    """Workers that precompile headers while nothing is timed, one for each set, since a compiler keeps one core busy.

    A context manager: leaving it kills workers that have not ended. After a failure a message is printed, and builds
    precompile headers themselves. Raises nothing but KeyboardInterrupt.
    """

    def __init__(self, cache: Path, say: Callable[[str], None], on_event: Callable[[Event], None] = _ignore) -> None:
        """Prepare without starting a worker. `on_event` receives the workers' events, as in `Launch`."""
        self._cache, self._say, self._on_event = cache, say, on_event
        self._stack = ExitStack()
        self._workers: list[LiveWorker] = []
        self._asked: set[str] = set()
        """Names of the sets that were requested so far; each is made at most once."""
        self._folder, self._stamp, self._sets = Path(), Stamp((), ()), dict[str, _Use]()

    def __enter__(self) -> "HeaderBuilds":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._workers = []
        self._stack.close()

    def start(self, rows: Iterable[Row]) -> None:
        """Start precompiling the headers that cold builds of these rows need and that are not in the cache folder.

        If all are cached, no process is started; their files are read once to check that they are undamaged. Damaged
        files are deleted and made again. The caller holds the lock of the CPUs, since this takes half a minute of CPU
        time.
        """
        needed = {name: use for name, use in _needed(rows).items() if name not in self._asked}
        if not needed:
            return
        if self._workers:
            self.finish()
        self._asked |= needed.keys()
        try:
            self._folder = header_folder(self._cache)
            self._stack.enter_context(entry_lock(self._cache, self._folder, self._say))
            self._stamp = read_stamp(self._folder)
            if not self._stamp.sets or not is_undamaged(self._folder, self._stamp):
                self._stamp = Stamp((), ())
                shutil.rmtree(self._folder, ignore_errors=True)
            self._sets = {name: use for name, use in needed.items() if name not in self._stamp.sets}
            if self._sets:
                self._say("Precompiling torch's C++ headers, once for all builds with this compiler.")
                self._launch()
            else:
                self._stack.close()
        except (BakeoffError, OSError) as error:
            self._give_up(error)

    @property
    def running(self) -> bool:
        """Whether headers are being made."""
        return bool(self._workers)

    def finish(self) -> None:
        """Wait until all headers that were started are made."""
        if not self._workers:
            return
        try:
            wait_for(dict.fromkeys(self._workers, ""))
            outcomes = [worker.finish(HeadersResult) for worker in self._workers]
            for outcome in outcomes:
                if outcome.kind != "result":
                    raise BakeoffError(f"{outcome.kind}: {outcome.reason}", code="worker-failed")
            names = dict.fromkeys(name for outcome in outcomes for name in outcome.value.names)
            made = [describe_header(self._folder / name) for name in names]
            write_stamp(self._folder, _joined(self._stamp, self._sets, made))
            self.__exit__(None, None, None)
        except (BakeoffError, OSError) as error:
            self._give_up(error)

    def _launch(self) -> None:
        scratch, log = self._folder / "scratch", self._cache / "logs" / "headers.log"
        self._stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        (scratch / HOME / ".cache").mkdir(parents=True)
        for name, use in self._sets.items():
            # A row's environment but for its caches: they must be empty. What both need is compiled once there.
            own = resolve_backend(use.step.backend).environment(scratch)
            environment = {**use.row.environment, **own_home(scratch), **own}
            launch = Launch(environment, Deadlines(_DEADLINE_S), log.with_suffix(f".{name}.log"), self._on_event)
            job = HeadersJob(use.step, str(self._folder), use.row.subject.threads)
            self._workers.append(self._stack.enter_context(LiveWorker(job, launch)))

    def _give_up(self, error: BakeoffError | OSError) -> None:
        self.__exit__(None, None, None)
        reason = error.strerror if isinstance(error, OSError) else error
        self._say(f"torch's C++ headers are not precompiled: {reason}. Each cold build compiles them itself.")


def _needed(rows: Iterable[Row]) -> dict[str, _Use]:
    """Return the sets of headers that cold CPU builds of these rows need, each with the step that has the fewest
    options."""
    found: dict[str, _Use] = {}
    for row in rows:
        for name, step in header_sets(row).items():
            if name not in found or len(step.options) < len(found[name].step.options):
                found[name] = _Use(step, row)
    return found


def _joined(stamp: Stamp, more: Mapping[str, _Use], made: Iterable[HeaderFile]) -> Stamp:
    files = {file.name: file for file in (*stamp.files, *made)}
    return Stamp(tuple(sorted({*stamp.sets, *more})), tuple(files.values()))


def header_sets(row: Row) -> Mapping[str, BackendStep]:
    """Return the sets of headers that the row needs by name, each with its step; empty if it builds nothing cold on a
    CPU."""
    if row.subject.device != "cpu" or row.never_runs is not None or not _builds_cold(row):
        return {}
    found = {}
    for step in row.steps:
        backend = resolve_backend(step.backend)
        name = by_options(backend.headers, options_of(backend, step.options))
        if name:
            found[name] = step
    return found


def _builds_cold(row: Row) -> bool:
    """Return whether the row's first worker finds no caches of a finished build."""
    return (row.builds > 1 and row.process == 1) or not row.caches or not is_warm(row.cache_folder)
