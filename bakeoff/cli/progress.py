"""Shows progress on stderr: a line for each row that has ended and, on a terminal, what runs below the last one."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from bakeoff.machine.terminal import one_line, printable
from bakeoff.plan.rows import Key, Row
from bakeoff.process.phases import TIMED, phase_text
from bakeoff.process.supervisor import Event
from bakeoff.record.comparable import subject_key
from bakeoff.record.schema import NEVER_RUN, Measurement, Record
from bakeoff.record.store import Stored
from bakeoff.report.format import median_and_interval
from bakeoff.report.groups import baselines, groups, name_of, newest, speedup, stated_over
from bakeoff.report.pages.sweep import never_run
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.resume import key_of

_STYLES = {"ok": "green", "built": "green", "unstable": "yellow", "unavailable": "dim", "unsupported": "dim"}
_SILENCE_S = 30.0
"""Seconds without a line after which the next phase prints one, if progress is written as lines."""
_REFRESHES = 1
"""Redraws per second; few, because drawing takes CPU time from what is measured."""


class TerminalProgress:
    """Progress of a sweep on a terminal or in a log.

    A context manager: leaving it takes what ran off the screen.
    """

    def __init__(self, rows: Sequence[Row] = (), console: Console | None = None) -> None:
        """`rows` are the rows of the sweep that is shown."""
        self.console = Console(stderr=True, emoji=False) if console is None else console
        subjects = {row.variant.subject for row in rows}
        self._names = {row.label: _name(row, len(subjects) > 1) for row in rows}
        self._labels = {row.key: row.label for row in rows}
        self._live: Live | None = None
        self._running: list[_Shown] = []
        self._able = {row.label for row in rows if row.never_runs is None}
        """Rows that can run: only these are counted."""
        self._numbers: dict[str, int] = {}
        self._records: dict[Key, Record] = {}
        """Without samples."""
        self._left: tuple[float, float] | None = None
        """Estimated seconds that were left, and when that was estimated."""
        self._until = inf
        """When the time of the sweep is up."""
        self._total = 0
        """Number of rows of the sweep; 0 before the first is started, when results are those of a resumed sweep."""
        self._began = self.spoke = time.monotonic()
        """When progress began, and when it last printed a line."""

    @property
    def is_live(self) -> bool:
        """Whether it redraws in place; False in a file, even if colours are forced upon it."""
        return self.console.is_interactive and not self.console.is_dumb_terminal and self.console.file.isatty()

    def __enter__(self) -> "TerminalProgress":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update("")
            self._live.stop()
            self._live = None
        if counted := never_run([*self._records.values()]):
            self.say(f"{counted}; the records say why.")

    def start(self, position: int, total: int, what: str) -> Running:
        name = self._names.get(what, what)
        running = _Shown(self, f"{self._place(what, position, total)}{name}")
        self._running.append(running)
        self._total = max(self._total, total)
        if self._live is None and self.is_live:
            self._live = Live(
                self,
                console=self.console,
                refresh_per_second=_REFRESHES,
                transient=True,
                redirect_stdout=False,
            )
            self._live.start()
        return running

    def _place(self, label: str, position: int, total: int) -> str:
        """Return the number of a row among those that can run, as `[1/7] `; "" for other jobs."""
        if label in self._able:
            return f"[{self._numbers.setdefault(label, len(self._numbers) + 1)}/{len(self._able)}] "
        return f"[{position}/{total}] " if total and not self._able else ""

    def say(self, text: str) -> None:
        self.spoke = time.monotonic()
        self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def result(self, record: Record) -> None:
        measured = record.measurement
        clock = measured.latency.without_samples() if measured.latency is not None else None
        less = Measurement(measured.status, reason=measured.reason, latency=clock)
        self._records[key_of(record)] = record = replace(record, measurement=less, ceilings=(), monitored=None)
        label = self._labels.get(key_of(record), str(record.variant))
        what = f"{self._place(label, record.position, self._total)}{self._names.get(label, label)}"
        if self._total and record.status not in NEVER_RUN:
            self._tell_row(record, what)

    def ranked(self, to_come: str) -> None:
        for rows, base in standings(self._records.values()):
            ranked = (f"{name_of(row)} {_figures(row, base)[0]} ms" for row in rows if row.status == "ok")
            self.say(f"{rows[0].variant.subject}, batch {rows[0].batch}: {', '.join(ranked) or 'no row is ok'}")
        self.say(to_come)

    def expect(self, seconds: float | None, limit_s: float = inf, /) -> None:
        self._left = None if seconds is None else (seconds, time.monotonic())
        self._until = inf if seconds is None else time.monotonic() + limit_s

    def tell(self, what: str, status: str, text: str) -> None:
        """Print the line of a job that has ended; `text` must be printable."""
        self.spoke = time.monotonic()
        line = Text(f"{printable(what)}  ")
        line.append(status, style=_STYLES.get(status, "red"))
        line.append(f"  {text}")
        line.rstrip()
        self.console.print(line, soft_wrap=True)

    def remove(self, running: "_Shown") -> None:
        self._running.remove(running)

    def _tell_row(self, record: Record, what: str) -> None:
        found = standings(self._records.values())
        rows, base = next((rows, base) for rows, base in found if subject_key(rows[0]) == subject_key(record))
        ranked = [str(row.variant) for row in rows if row.status == "ok"]
        place = ranked.index(str(record.variant)) + 1 if str(record.variant) in ranked and len(ranked) > 1 else 0
        so_far = {0: "", 1: "fastest so far"}.get(place, f"{place} of {len(ranked)} so far")
        median, interval, gain = _figures(record, base)
        more = "; ".join(filter(None, [record.node and f"on {record.node}", so_far, self._left_text()]))
        parts = [
            f"{median} ms {interval}" if median else "",
            f"{gain} eager fp32" if gain and record is not base else "",
            one_line(record.measurement.reason),
            f"({more})" if more else "",
        ]
        self.tell(what, record.status, "  ".join(filter(None, parts)))

    def __rich__(self) -> Group:
        """Return a line for each running job, with the time since its phase began, and the times of the sweep."""
        now = time.monotonic()
        running = [
            f"{_spoken(now - each.entered):>6}  {one_line(each.what)}  {_sentence(each.last)}" for each in self._running
        ]
        times = ", ".join(filter(None, [f"{_spoken(now - self._began)} so far", self._left_text()]))
        return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in (*running, times)))

    def _left_text(self) -> str:
        if self._left is None:
            return ""
        seconds, since = self._left
        left = seconds - (time.monotonic() - since)
        if self._until < inf:
            limit_s = self._until - time.monotonic()
            return f"{_spoken(limit_s)} until the time is up" if limit_s > 0 else "the time is up"
        if left < -10:
            return "longer than estimated"
        return f"about {_spoken(left, 10)} left" if left >= 10 else "almost done"


class _Shown:
    """A running job as the terminal shows it; implements `Running`."""

    def __init__(self, progress: TerminalProgress, what: str) -> None:
        self.what, self.last = what, Event("start")
        self._progress, self._started = progress, time.monotonic()
        self.entered = self._started
        """When its phase began."""
        self._is_told = False

    def event(self, event: Event) -> None:
        alternating = {event.phase, self.last.phase} <= set(TIMED)  # the two clocks run in turn, ten times each
        changed = event.phase != self.last.phase and not alternating
        self.last = event
        now = time.monotonic()
        if changed:
            self.entered = now
        if self._progress.is_live:
            return
        if not self._is_told:
            self._is_told = True
            self._progress.say(f"{self.what}: started")
        elif changed and now - self._progress.spoke > _SILENCE_S:
            self._progress.say(f"{self.what}: {_sentence(event)} ({_spoken(now - self._started)} since it started)")

    def finish(self, status: str = "", text: str = "") -> None:
        self._progress.remove(self)
        if status:
            self._progress.tell(self.what, status, one_line(text))


def _name(row: Row, several: bool) -> str:
    """Return a row's name, with its subject only if there are `several`."""
    suffix = row.label.removeprefix(str(row.variant))
    subject = f"{row.variant.subject} " if several else ""
    return f"{subject}{row.variant.backend} {row.variant.dtype}{suffix}"


def standings(records: Iterable[Record]) -> Iterator[tuple[list[Record], Record | None]]:
    """Yield the rows of each table, one for each variant, and eager fp32 if it was measured: rows that are ok, the
    fastest first, then others with figures, then those without. Rows that cannot run are left out."""

    def rank(record: Record) -> tuple[bool, float]:
        return record.status != "ok", record.latency.median_ms if record.latency is not None else inf

    for group in groups(newest(Stored("", record) for record in records if record.status not in NEVER_RUN)):
        yield sorted((entry.record for entry in group), key=rank), stated_over(baselines(group))


def _figures(record: Record, base: Record | None) -> tuple[str, str, str]:
    """Return a row's median and interval in milliseconds, and if it is ok the speed-up over eager fp32."""
    median, interval = median_and_interval(record.latency) if record.latency is not None else ("", "")
    return median, interval, str(speedup(record, base) or "") if record.status == "ok" else ""


def _sentence(event: Event) -> str:
    what = phase_text(event.phase)
    return one_line(f"{what}: {event.detail}" if event.detail else what)


def _spoken(seconds: float, step: int = 1) -> str:
    """Format a time as `40 s`, `4 min` or `2 h 5 min`; seconds are rounded to multiples of `step`."""
    if seconds < 100:
        return f"{round(seconds / step) * step} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
