"""Progress of a sweep: what runs now and the rows so far, live on a terminal, plain lines elsewhere."""

import time
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from bakeoff.machine.terminal import printable
from bakeoff.process.phases import TIMED, phase_text
from bakeoff.process.supervisor import Event
from bakeoff.record.schema import Record

_STYLES = {"ok": "green", "unstable": "yellow", "unavailable": "dim", "unsupported": "dim"}


class Running(Protocol):
    """One thing that runs; several may at once."""

    def event(self, event: Event) -> None: ...
    def finish(self, status: str = "", text: str = "") -> None:
        """It has ended. Nothing is printed without a status: `Progress.result` prints the line of a row."""


class Progress(Protocol):
    """Where a sweep reports to."""

    def start(self, position: int, total: int, what: str) -> Running:
        """`what` begins: number `position` of `total`; 0 of 0 where it is not one of several."""

    def say(self, text: str) -> None: ...
    def result(self, record: Record) -> None:
        """A row of the growing table, after its Running has finished; or one of the sweep that is resumed."""

    def expect(self, seconds: float | None) -> None:
        """How long all that is left takes from now on, by estimate; None where it is not known."""


class Unheard:
    """A Running that shows nothing."""

    def event(self, event: Event) -> None:
        pass

    def finish(self, status: str = "", text: str = "") -> None:
        pass


class TerminalProgress:
    """Finished variants stay as lines; each running one shows its phase and elapsed time."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None
        self._running: list[_Shown] = []
        self._total = 0

    def __enter__(self) -> "TerminalProgress":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def start(self, position: int, total: int, what: str) -> Running:
        self._total = total
        running = _Shown(self, f"[{position}/{total}] {what}" if total else what)
        self._running.append(running)
        if not self.console.is_terminal:
            self.say(running.what)
        elif self._live is None:
            self._live = Live(self, console=self.console, refresh_per_second=2, transient=True, redirect_stdout=False)
            self._live.start()
        return running

    def say(self, text: str) -> None:
        self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def result(self, record: Record) -> None:
        figures, reason = record.latency, record.measurement.reason
        text = f"{figures.median_ms:.2f} ms [{figures.low_ms:.2f}, {figures.high_ms:.2f}]" if figures else ""
        self.tell(f"[{record.position}/{self._total}] {record.variant}", record.status, f"{text}  {reason}".strip())

    def expect(self, seconds: float | None) -> None:
        pass

    def tell(self, what: str, status: str, text: str) -> None:
        """Print the line of something that ended."""
        line = Text(f"{what}  ")
        line.append(status, style=_STYLES.get(status, "red"))
        line.append(f"  {printable(text)}")
        self.console.print(line, soft_wrap=True)

    def remove(self, running: "_Shown") -> None:
        self._running.remove(running)

    def __rich__(self) -> Table:
        grid = Table.grid(padding=(0, 1))
        for running in tuple(self._running):
            grid.add_row(
                Spinner("dots"),
                Text(running.what),
                Text(running.elapsed(), "dim"),
                Text(_sentence(running.last), "cyan"),
            )
        return grid


class _Shown:
    """A Running of the terminal."""

    def __init__(self, progress: TerminalProgress, what: str) -> None:
        self.what, self.last = what, Event("start")
        self._progress, self._started = progress, time.monotonic()

    def elapsed(self) -> str:
        return f"{time.monotonic() - self._started:4.0f} s"

    def event(self, event: Event) -> None:
        alternating = {event.phase, self.last.phase} <= set(TIMED)  # the two clocks run in turn, ten times each
        changed = event.phase != self.last.phase and not alternating
        self.last = event
        if changed and not self._progress.console.is_terminal:
            self._progress.say(f"  {self.elapsed()} {_sentence(event)}")

    def finish(self, status: str = "", text: str = "") -> None:
        self._progress.remove(self)
        if status:
            self._progress.tell(self.what, status, text)


def _sentence(event: Event) -> str:
    what = phase_text(event.phase)
    return printable(f"{what}: {event.detail}") if event.detail else what
