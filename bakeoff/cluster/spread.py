"""Spreads the rows of sweeps over several machines: an order for each variant, then one for each final.

Rows of machines of one class may stand in one table because each of these measures the same row first, eager fp32.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bakeoff.cluster.order import FINAL, PLAN, PlannedRow
from bakeoff.cluster.reports import Assignment
from bakeoff.models.grouping import grouped
from bakeoff.plan.rows import Key
from bakeoff.record.codec import encode
from bakeoff.record.schema import MEASURED, Calibration, Record
from bakeoff.record.store import load_all
from bakeoff.sweeps.resume import key_of
from bakeoff.sweeps.run import SweepResult

Subject = tuple[str, int]
"""A subject and its batch."""


def carry_out_spread(
    sweeps: Sequence[Assignment],
    places: Sequence[str],
    runs: Path,
    carry_out: Callable[[Sequence[Assignment]], None],
) -> None:
    """Have `carry_out` carry out the variants of these sweeps one by one, and note how each sweep ended.

    `places` has the name of each device; of a node with several, as often. Raises what `carry_out` raises.
    """
    spread = [_Spread(whole, runs) for whole in sweeps]
    for stage in (_Spread.plan, lambda each: each.calibrating(places), _Spread.variants, _Spread.finals):
        parts = [(each, [*stage(each)]) for each in spread if not each.whole.problem]
        if any(made for _, made in parts):
            carry_out([part for _, made in parts for part in made])
        for each, made in parts:
            each.take(made)
    for each in spread:
        if not each.whole.problem:
            each.whole.done = SweepResult(each.whole.order.sweep, (), (), objective=each.whole.order.request.objective)


@dataclass(slots=True)
class _Spread:
    """A sweep whose rows are spread."""

    whole: Assignment
    runs: Path
    planned: tuple[PlannedRow, ...] = ()

    def plan(self) -> Iterator[Assignment]:
        """Yield the part that says which rows there are."""
        yield self._part(PLAN, ())

    def calibrating(self, places: Sequence[str]) -> Iterator[Assignment]:
        """Yield a part for each place that has not measured the calibrating rows yet."""
        rows = {row.key for row in self.planned if row.calibrates}
        before = {(record.node, record.machine.id) for record in self._records() if key_of(record) in rows}
        left = Counter(places) - Counter(node for node, _ in before)
        for number, place in enumerate(left.elements() if rows else ()):
            mine = (Calibration(self.whole.order.sweep),)
            yield self._part(f"calibration-{number}", tuple(rows), pinned=place, calibrations=mine)

    def variants(self) -> Iterator[Assignment]:
        """Yield a part for each variant, with its builds and processes, and one for all that cannot run."""
        records = self._records()
        done = {key_of(record) for record in records}
        found = grouped((row.key[:2] if row.runs else None, row) for row in self.planned)
        for number, rows in enumerate(found.values()):
            left = tuple(row.key for row in rows if row.key not in done)
            if left:
                calibrations = self._calibrations(records, (rows[0].subject, rows[0].key[1]))
                yield self._part(str(number), left, calibrations=calibrations)

    def finals(self) -> Iterator[Assignment]:
        """Yield a part for the final of each subject on each class of machines, with what these measured."""
        request = self.whole.order.request
        found = grouped(
            ((_subject(record), record.machine.machine_class), record)
            for record in (self._records() if request.final_s else ())
            if record.status in MEASURED
        )
        for number, (of, rows) in enumerate(found.items()):
            known = (*self.whole.order.known, *map(encode, rows))
            calibrations = self._calibrations(rows, of[0])
            part = self._part(f"{FINAL}-{number}", tuple(map(key_of, rows)), rows[0].node, known, calibrations)
            part.order = replace(part.order, request=replace(part.order.request, final_s=request.final_s))
            yield part

    def take(self, parts: Sequence[Assignment]) -> None:
        """Note what came of parts: the rows of a plan, or why one of them did not end."""
        for part in parts:
            self.planned = self.planned or part.planned
            self.whole.rows = len(self.planned)
            done, why = part.done, part.problem
            if done is None or done.interrupted:
                why = why or "the node's process was interrupted"
                self.whole.problem, self.whole.node, self.whole.code = why, part.node, part.code

    def _records(self) -> list[Record]:
        """Return the rows of the sweep that are stored."""
        sweep = self.whole.order.sweep
        return [entry.record for entry in load_all(self.runs).current if entry.record.sweep == sweep]

    def _calibrations(self, records: Iterable[Record], subject: Subject) -> tuple[Calibration, ...]:
        """Return what was calibrated with a subject, for each class of machines."""
        found: dict[str, dict[str, int]] = {}
        for record in records:
            if record.calibration == Calibration(record.sweep) and record.latency and _subject(record) == subject:
                median_ns = round(record.latency.median_ms * 1e6)
                found.setdefault(record.machine.machine_class, {})[record.machine.id] = median_ns
        return tuple(Calibration(self.whole.order.sweep, medians_ns) for medians_ns in found.values())

    def _part(
        self,
        name: str,
        only: tuple[Key, ...],
        pinned: str = "",
        known: tuple[bytes, ...] = (),
        calibrations: tuple[Calibration, ...] = (),
    ) -> Assignment:
        whole = self.whole.order
        request = replace(whole.request, final_s=0.0, calibrations=calibrations)
        return Assignment(replace(whole, request=request, known=known, part=name, only=only), pinned=pinned)


def _subject(record: Record) -> Subject:
    return record.variant.subject, record.batch
