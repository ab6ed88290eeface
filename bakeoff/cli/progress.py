"""Shows progress on stderr: a growing table and what runs below it on a terminal, plain lines in files and logs."""

import time
from collections.abc import Sequence
from math import inf
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bakeoff.machine.terminal import one_line, printable
from bakeoff.plan.rows import Key, Row
from bakeoff.process.phases import TIMED, phase_text
from bakeoff.process.supervisor import Event
from bakeoff.record.schema import Record
from bakeoff.report.document import Cell, Heading
from bakeoff.report.document import table as as_table
from bakeoff.report.format import shorten
from bakeoff.report.pages.sweep import tone_of
from bakeoff.report.render import terminal
from bakeoff.report.standings import Standing, Standings, can_run, never_run, reduced, standings, subject_of
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.resume import key_of

_STYLES = {"ok": "green", "built": "green", "unstable": "yellow", "unavailable": "dim", "unsupported": "dim"}
_HEADINGS = (
    "", Heading("ms", numeric=True), Heading("95 % interval", numeric=True, leaves=2),
    Heading("vs eager fp32", numeric=True, leaves=1), "status", Heading("", leaves=3),
)  # fmt: skip
"""Headings of a row's name, its figures, and the reason if it has none."""
_SILENCE_S = 30.0
"""Seconds without a line after which the next phase prints one, if progress is written as lines."""
_REFRESHES = 1
"""Redraws per second; few, because drawing takes CPU time from what is measured."""


class TerminalProgress:
    """Progress of a sweep on a terminal or in a log.

    A context manager: leaving it takes the table off the screen, since the final one follows on stdout.
    """

    def __init__(self, rows: Sequence[Row] = (), console: Console | None = None) -> None:
        """`rows` are the rows of the sweep that is shown."""
        self.console = Console(stderr=True, emoji=False) if console is None else console
        self._several = len({(row.variant.subject, row.subject.batch) for row in rows}) > 1
        subjects = {row.variant.subject for row in rows}
        self._names = {row.label: _name(row, len(subjects) > 1) for row in rows}
        self._labels = {row.key: row.label for row in rows}
        self._live: Live | None = None
        self._running: list[_Shown] = []
        self._records: dict[Key, Record] = {}
        """Reduced to what standings need."""
        self._standings: list[Standings] = []
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
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update("")
            self._live.stop()
            self._live = None
            if error is not None and self._standings:  # then no final table follows
                self.console.print(Group(*self._tables(self.console.height)))
        if counted := never_run([*self._records.values()]):
            self.say(f"{counted}; the records say why.")

    def start(self, position: int, total: int, what: str) -> Running:
        name = self._names.get(what, what)
        running = _Shown(self, f"[{position}/{total}] {name}" if total else name)
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

    def say(self, text: str) -> None:
        self.spoke = time.monotonic()
        self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def result(self, record: Record) -> None:
        self._records[key_of(record)] = record = reduced(record)
        self._standings = standings([*self._records.values()])
        if self._total and can_run(record) and not self.is_live:
            self._tell_row(record)

    def ranked(self, to_come: str) -> None:
        if not self.is_live:
            self.console.print(Group(*self._tables(len(self._records) + 2 * len(self._standings))))
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

    def _tell_row(self, record: Record) -> None:
        table = next(each for each in self._standings if each.subject == subject_of(record))
        row = table.row(record)
        label = self._labels.get(key_of(record), str(record.variant))
        figures = f"{row.median} ms {row.interval}" if row.median else ""
        gain = f"{row.gain} eager fp32" if row.gain and record is not table.base else ""
        on = record.node and f"on {record.node}"
        more = "; ".join(filter(None, [on, table.place(record), self._left_text()]))
        parts = [figures, gain, row.reason, f"({more})" if more else ""]
        what = f"[{record.position}/{self._total}] {self._names.get(label, label)}"
        self.tell(what, record.status, "  ".join(filter(None, parts)))

    def __rich__(self) -> Group:
        """Return the rows so far, what runs, and the times, in no more lines than the terminal has."""
        running, counted = tuple(self._running), never_run([*self._records.values()])
        notes = [Text(counted, "dim")] if counted else []
        times = f"{_spoken(time.monotonic() - self._began)} so far"
        below = Text(", ".join(filter(None, [times, self._left_text()])), "dim")
        tables = self._tables(self.console.height - len(running) - len(notes) - 3)
        gap = [Text("")] if tables or notes else []
        now = [_running_table(running, self.console.width)] if running else []
        return Group(*tables, *notes, *gap, *now, below)

    def _tables(self, room: int) -> list[RenderableType]:
        """Return the subjects' tables in `room` lines together; only the last subjects' if they are too many."""
        head = 1 + self._several
        shown = self._standings[-max(1, room // (head + 2)) :]
        most = room // max(1, len(shown)) - head
        return [part for table in shown for part in _table(table, self.console.width, most, self._several)]

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


def _table(table: Standings, width: int, most: int, titled: bool) -> list[RenderableType]:
    """Return the best rows in `most` lines; a narrow terminal gets fewer columns and shortened names."""
    shown = table.rows if len(table.rows) <= most else table.rows[: max(1, most - 1)]
    made = as_table(_HEADINGS, map(_cells, shown))
    lines: list[RenderableType] = [Text(table.subject, "bold")] if titled else []
    if made is not None:
        lines.append(terminal.grid(terminal.fit(made, width), rule=False))
    if len(shown) < len(table.rows):
        lines.append(Text(f"and {len(table.rows) - len(shown)} more", "dim"))
    return lines


def _cells(row: Standing) -> tuple[Cell | str, ...]:
    status, reason = Cell(row.status, tone=tone_of(row.status)), Cell(row.reason, tone="faint")
    return row.name, row.median, row.interval, row.gain, status, reason


def _running_table(running: Sequence[_Shown], width: int) -> Table:
    """Return a table with a line for each running job: its name, its phase, and the time since that phase began."""
    made = Table.grid(padding=(0, 2, 0, 0))
    now = time.monotonic()
    times = [_spoken(now - each.entered) for each in running]
    room = width - max(map(len, times)) - 4
    phases = [_sentence(each.last) for each in running]
    names = min(max(len(each.what) for each in running), max(room // 2, room - max(map(len, phases))))
    for each, phase, taken in zip(running, phases, times, strict=True):
        shown = Text(phase, "cyan")
        shown.truncate(room - names, overflow="ellipsis")
        made.add_row(Text(shorten(each.what, names)), shown, Text(taken, "dim"))
    return made


def _sentence(event: Event) -> str:
    what = phase_text(event.phase)
    return one_line(f"{what}: {event.detail}" if event.detail else what)


def _spoken(seconds: float, step: int = 1) -> str:
    """Format a time as `40 s`, `4 min` or `2 h 5 min`; seconds are rounded to multiples of `step`."""
    if seconds < 100:
        return f"{round(seconds / step) * step} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
