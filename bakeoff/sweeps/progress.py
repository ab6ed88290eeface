"""Protocol for reporting the progress of a sweep; `bakeoff.cli.progress` shows it on a terminal."""

from math import inf
from typing import Protocol

from bakeoff.process.supervisor import Event
from bakeoff.record.schema import Record


class Running(Protocol):
    """A running step of a sweep; several may run at once."""

    def event(self, event: Event) -> None: ...
    def finish(self, status: str = "", text: str = "") -> None:
        """End the step. Without a status nothing is printed: `Progress.result` prints the line of a row."""


class Progress(Protocol):
    """Receiver of a sweep's progress."""

    def start(self, position: int, total: int, what: str) -> Running:
        """Report that step `what` begins, as number `position` of `total`; 0 of 0 if it is not one of several."""

    def say(self, text: str) -> None: ...
    def result(self, record: Record) -> None:
        """Show the record of a row in the growing table, after its Running has finished or from a resumed sweep.

        It is called again for a row whose status has changed since.
        """

    def ranked(self, to_come: str) -> None:
        """Report that all rows which fit into the time are in the table; the sentence `to_come` says what follows."""

    def expect(self, seconds: float | None, limit_s: float = inf, /) -> None:
        """Show the estimated seconds until the end of the sweep, None if they are not known, and those until its time
        is up."""


class Unheard:
    """A Running that shows nothing."""

    def event(self, event: Event) -> None:
        pass

    def finish(self, status: str = "", text: str = "") -> None:
        pass
