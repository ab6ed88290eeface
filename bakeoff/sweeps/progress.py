"""Progress of a sweep: one live line per variant on a terminal, plain lines elsewhere."""

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

_STYLES = {"ok": "green", "unstable": "yellow", "unavailable": "dim", "unsupported": "dim"}


class Progress(Protocol):
    """Where a sweep reports to."""

    def start(self, position: int, total: int, what: str) -> None:
        """`what` begins: number `position` of `total`; 0 of 0 where it is not one of several."""

    def event(self, event: Event) -> None: ...
    def finish(self, status: str, text: str) -> None: ...
    def say(self, text: str) -> None: ...


class TerminalProgress:
    """Finished variants stay as lines; the running one shows its phase and elapsed time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._what, self._event, self._started = "", Event("start"), 0.0

    def __enter__(self) -> "TerminalProgress":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stop()

    def start(self, position: int, total: int, what: str) -> None:
        self._what = f"[{position}/{total}] {what}" if total else what
        self._event, self._started = Event("start"), time.monotonic()
        if self._console.is_terminal:
            self._live = Live(self, console=self._console, refresh_per_second=2, transient=True)
            self._live.start()
        else:
            self._console.print(self._what, markup=False, highlight=False, soft_wrap=True)

    def event(self, event: Event) -> None:
        alternating = {event.phase, self._event.phase} <= set(TIMED)  # the two clocks run in turn, ten times each
        changed = event.phase != self._event.phase and not alternating
        self._event = event
        if self._live is None and changed:
            self._console.print(
                f"  {self._elapsed()} {_sentence(event)}", markup=False, highlight=False, soft_wrap=True
            )

    def finish(self, status: str, text: str) -> None:
        self._stop()
        line = Text(f"{self._what}  ")
        line.append(status, style=_STYLES.get(status, "red"))
        line.append(f"  {printable(text)}")
        self._console.print(line, soft_wrap=True)

    def say(self, text: str) -> None:
        self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def __rich__(self) -> Table:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(
            Spinner("dots"), Text(self._what), Text(self._elapsed(), "dim"), Text(_sentence(self._event), "cyan")
        )
        return grid

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._started:4.0f} s"

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _sentence(event: Event) -> str:
    what = phase_text(event.phase)
    return printable(f"{what}: {event.detail}") if event.detail else what
