"""What came of orders: stores what the processes that carry them out report, as they report it, and shows it."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from bakeoff.cluster.order import Order, PlannedRow
from bakeoff.models.errors import ErrorCode
from bakeoff.process.supervisor import Event
from bakeoff.record.codec import decode, encode
from bakeoff.record.schema import CeilingsRecord, Record
from bakeoff.record.store import load_all, save
from bakeoff.sweeps.progress import Progress, Running
from bakeoff.sweeps.run import SweepResult


@dataclass(slots=True)
class Assignment:
    """An order, and what came of it."""

    order: Order
    node: str = ""
    """The one that carries it out, or did so last."""
    rows: int = 0
    planned: tuple[PlannedRow, ...] = ()
    done: SweepResult | None = None
    """How the node's sweep ended, without its entries; None where it did not."""
    problem: str = ""
    """Why not."""
    code: ErrorCode = ""
    pinned: str = ""
    """Node that measured rows of it before, to which it goes while that is there."""
    refused: str = ""
    """Why its node refused it, until another one takes it."""
    steps: dict[int, Running] = field(default_factory=dict)
    """What runs now, by numbers of its process."""
    left_s: float | None = None
    """Estimated seconds until its end."""


class Reports:
    """What is done with the lines of the orders that are carried out now."""

    def __init__(self, runs: Path, progress: Progress) -> None:
        self._runs, self._progress = runs, progress
        self.running: list[Assignment] = []
        self._ceilings = [encode(entry.record) for entry in load_all(runs).ceilings]

    def begin(self, assignment: Assignment, node: str) -> bytes:
        """Note that a node carries out the order, and return it as it is sent: with all ceilings that are known now."""
        assignment.node = node
        self.running.append(assignment)
        known = (*assignment.order.known, *self._ceilings)
        return msgspec.json.encode(replace(assignment.order, known=known))

    def tell(self, assignment: Assignment, line: bytes) -> None:
        """Do what a line says."""
        kind, *raw = msgspec.json.decode(line, type=list[msgspec.Raw])
        said = msgspec.json.decode(kind)
        if said in ("stored", "result"):
            entry = decode(bytes(raw[0]), f"what {assignment.node} sent")
            if said == "stored":
                save(self._runs, entry)
                if isinstance(entry, CeilingsRecord):
                    self._ceilings.append(encode(entry))
            elif isinstance(entry, Record):
                self._progress.result(entry)
            return
        if said == "done":
            assignment.done = msgspec.json.decode(raw[0], type=SweepResult)
            return
        match said, *map(msgspec.json.decode, raw):
            case "rows", count:
                assignment.rows = count
            case "planned", rows:
                assignment.planned = msgspec.convert(rows, tuple[PlannedRow, ...])
            case "start", number, position, total, what:
                assignment.steps[number] = self._progress.start(position, total, f"{what} on {assignment.node}")
            case "event", number, phase, detail:
                assignment.steps[number].event(Event(phase, detail))
            case "finish", number, status, text:
                assignment.steps.pop(number).finish(status, text)
            case "say", text:
                self._progress.say(f"{assignment.node}: {text}")
            case "expect", seconds:
                assignment.left_s = seconds
                known = [other.left_s for other in self.running if other.left_s is not None]
                self._progress.expect(max(known) if len(known) == len(self.running) else None)
            case "refused", text:
                assignment.refused = text
            case "failed", text, code:
                assignment.problem, assignment.code = text, code
            case "ended", code, last if not (assignment.done or assignment.problem or assignment.refused):
                text = last.splitlines()[-1] if last else "it wrote nothing"
                if "No module named" in text:
                    assignment.refused = text
                assignment.problem = f"its process ended with exit code {code}: {text}"

    def ended(self, assignment: Assignment) -> None:
        """Note that nobody carries out the order any more."""
        self.running.remove(assignment)
        for running in assignment.steps.values():
            running.finish()
        assignment.steps.clear()
        if assignment.done is None:
            assignment.problem = assignment.problem or assignment.refused
