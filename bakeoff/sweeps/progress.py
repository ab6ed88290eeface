"""Protocol that a sweep reports its progress to; `bakeoff.cli.progress` shows it on a terminal."""

from typing import Protocol

from bakeoff.process.supervisor import Event
from bakeoff.record.schema import Record


class Running(Protocol):
    """One thing that runs; several may at once."""

    def event(self, event: Event) -> None: ...
    def finish(self, status: str = "", text: str = "") -> None:
        """End it. Prints nothing without a status: `Progress.result` prints the line of a row."""


class Progress(Protocol):
    """Receiver of a sweep's progress."""

    def start(self, position: int, total: int, what: str) -> Running:
        """`what` begins: number `position` of `total`; 0 of 0 where it is not one of several."""

    def say(self, text: str) -> None: ...
    def result(self, record: Record) -> None:
        """A row of the growing table, after its Running has finished; or one of the sweep that is resumed. Told again
        where its status has changed since."""

    def ranked(self, to_come: str) -> None:
        """The rows are in the table, those that did not fit into a budget excepted; a sentence says what is to come."""

    def expect(self, seconds: float | None) -> None:
        """Show how long all that is left takes from now on, by estimate; None where it is not known."""


class Unheard:
    """A Running that shows nothing."""

    def event(self, event: Event) -> None:
        pass

    def finish(self, status: str = "", text: str = "") -> None:
        pass
