"""Has torch's C++ headers precompiled before the first compiled row, so that no row's build pays for them alone.

With them come the libraries by which inductor finds out which vector instructions it can use.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bakeoff.backends import resolve_backend
from bakeoff.machine.build_cache import HOME, is_warm
from bakeoff.machine.header_cache import (
    HeaderFile,
    Stamp,
    describe_header,
    header_folder,
    is_undamaged,
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
    """A backend's step that needs a set of headers, and the row that it is of."""

    step: BackendStep
    row: Row


def _ignore(_event: Event) -> None:
    pass


def make_headers(
    rows: Iterable[Row], cache: Path, say: Callable[[str], None], on_event: Callable[[Event], None] = _ignore
) -> None:
    """Precompile the headers that cold builds of these rows need and the cache folder lacks; `on_event` as `Launch`'s.

    Where it has them, no process is started; their files are read once, to see that they are whole. Damaged ones are
    deleted and made again. What goes wrong costs a sentence: builds then precompile headers for themselves. Raises
    nothing but KeyboardInterrupt. The caller holds the lock of the CPUs, since this takes half a minute of their time.
    """
    needed = _needed(rows)
    if not needed:
        return
    try:
        folder = header_folder(cache)
        with entry_lock(cache, folder, say):
            stamp = read_stamp(folder)
            if not stamp.sets or not is_undamaged(folder, stamp):
                stamp = Stamp((), ())
                shutil.rmtree(folder, ignore_errors=True)
            missing = {name: use for name, use in needed.items() if name not in stamp.sets}
            if missing:
                say("Precompiling torch's C++ headers, once for all builds with this compiler.")
                made = _make(folder, missing, cache / "logs" / "headers.log", on_event)
                write_stamp(folder, _joined(stamp, missing, made))
    except (BakeoffError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        say(f"torch's C++ headers are not precompiled: {reason}. Each cold build compiles them itself.")


def _needed(rows: Iterable[Row]) -> dict[str, _Use]:
    """Each set of headers that a cold build on the CPU needs; of several uses the one with the fewest options."""
    found: dict[str, _Use] = {}
    for row in rows:
        for name, step in header_sets(row).items():
            if name not in found or len(step.options) < len(found[name].step.options):
                found[name] = _Use(step, row)
    return found


def _make(folder: Path, uses: Mapping[str, _Use], log: Path, on_event: Callable[[Event], None]) -> list[HeaderFile]:
    """Run a worker for each set, all at the same time: a compiler keeps one core busy.

    Raises BakeoffError where a worker did not end with a result, and OSError.
    """
    scratch = folder / "scratch"
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        (scratch / HOME / ".cache").mkdir(parents=True)
        workers: list[LiveWorker] = []
        for name, use in uses.items():
            # A row's environment but for its caches: they must be empty. What both need is compiled once there.
            own = resolve_backend(use.step.backend).footprint.environment(scratch)
            environment = {**use.row.environment, **own_home(scratch), **own}
            launch = Launch(environment, Deadlines(_DEADLINE_S), log.with_suffix(f".{name}.log"), on_event)
            job = HeadersJob(use.step, str(folder), use.row.subject.threads)
            workers.append(stack.enter_context(LiveWorker(job, launch)))
        wait_for(dict.fromkeys(workers, ""))
        outcomes = [worker.finish(HeadersResult) for worker in workers]
    for outcome in outcomes:
        if outcome.kind != "result":
            raise BakeoffError(f"{outcome.kind}: {outcome.reason}", code="worker-failed")
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.value.names)
    return [describe_header(folder / name) for name in names]


def _joined(stamp: Stamp, more: Mapping[str, _Use], made: Iterable[HeaderFile]) -> Stamp:
    files = {file.name: file for file in (*stamp.files, *made)}
    return Stamp(tuple(sorted({*stamp.sets, *more})), tuple(files.values()))


def header_sets(row: Row) -> Mapping[str, BackendStep]:
    """Sets of headers by name, each with the step that needs it; empty where nothing is built cold on a CPU."""
    if row.subject.device != "cpu" or row.never_runs is not None or not _builds_cold(row):
        return {}
    found = {}
    for step in row.steps:
        backend = resolve_backend(step.backend)
        name = backend.footprint.headers(options_of(backend, step.options))
        if name:
            found[name] = step
    return found


def _builds_cold(row: Row) -> bool:
    """Whether the row's first worker finds no caches of a finished build."""
    return (row.builds > 1 and row.process == 1) or not row.caches or not is_warm(row.cache_folder)
