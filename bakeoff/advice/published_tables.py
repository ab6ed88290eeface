"""Busy and idle time from tables that torch's profiler printed, where no trace was kept.

In such a table a `record_function` range has its span on the device as "Self CUDA", and as "Self CUDA %" that span over
the time of all kernels. So span over share is the time of all kernels of that run, although the table never says it.
Runs that profiled other sets of phases then give the kernels of each phase.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bakeoff.advice.evidence import PhaseFact
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """One printed table."""

    units: int
    spans: Mapping[str, tuple[float, float]]
    """Phase to its span in milliseconds over all units, and its share of the kernels' time, 0.92 for 92 %."""

    @property
    def kernels_ms(self) -> float:
        """Time of all kernels a unit: the mean over the phases, whose printed shares are rounded."""
        found = [span / share for span, share in self.spans.values()]
        return sum(found) / len(found) / self.units


def solve(runs: Sequence[PublishedRun], slots: Mapping[str, str]) -> tuple[PhaseFact, ...]:
    """Phases a unit, in the order of the run that has them all; `slots` names the slot of each.

    Spans are those of that run. All idle time counts as waiting for the host, since a table does not say more; with the
    profiler's own cost in it, that is an upper bound (pytorch#82793). Raises BakeoffError where the runs do not tell
    the phases apart.
    """
    whole = max(runs, key=lambda run: len(run.spans), default=PublishedRun(1, {}))
    names = list(whole.spans)
    table = np.array([[float(name in run.spans) for name in names] for run in runs])
    if not names or np.linalg.matrix_rank(table) < len(names):
        text = (
            f"{counted(len(runs), 'table does', 'tables do')} not tell {counted(len(names), 'phase')} apart; "
            "give one more that leaves a phase out"
        )
        raise BakeoffError(text, code="bad-trace")
    busy, *_ = np.linalg.lstsq(table, np.array([run.kernels_ms for run in runs]), rcond=None)
    found = []
    for name, busy_ms in zip(names, busy, strict=True):
        span_ms = whole.spans[name][0] / whole.units
        waited = max(0.0, span_ms - float(busy_ms))
        found.append(PhaseFact(name, slots.get(name, ""), None, span_ms, float(busy_ms), waited, None))
    return tuple(found)
