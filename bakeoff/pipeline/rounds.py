"""Live workers take turns: in each round every mix runs one unit, in random order, while the others idle."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff.pipeline.mix_worker import MixWorker
from bakeoff.process.supervisor import Event
from bakeoff.record.schema import Finding, new_finding
from bakeoff.sweeps.progress import Running

_IDLE = 0.05
"""Of a core: a mix that takes more while another one runs is not idle."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When the rounds end."""

    units: int
    """Steady units that each mix is to have."""
    unsettled: int
    """Units without a steady one, after which a mix is given up."""
    seconds: float
    """Of all rounds."""


def take_turns(
    workers: Sequence[MixWorker], limits: Limits, order: random.Random, running: Running
) -> tuple[Finding, ...]:
    """Run units until each mix has enough steady ones, fails, does not settle, or the time is over.

    Every mix runs in every round, one that has enough too: what changes on the machine meets all alike. Returns
    findings that hold for all.
    """
    started = time.monotonic()
    racing = [worker for worker in workers if worker.live]
    while any(worker.steady < limits.units for worker in racing):
        counts = ", ".join(f"{worker.mix.label} {worker.steady}/{limits.units}" for worker in racing)
        running.event(Event("rounds", counts))
        for worker in order.sample(racing, len(racing)):
            worker.run_unit()
        racing = [worker for worker in racing if worker.live and worker.unsettled < limits.unsettled]
        if time.monotonic() - started > limits.seconds:
            break
    return _not_idle(workers)


def _not_idle(workers: Sequence[MixWorker]) -> tuple[Finding, ...]:
    """A finding for the mixes that used the CPU while others ran."""
    found = []
    for worker in workers:
        others = [other for other in workers if other is not worker]
        others_s = sum(sum(block.samples_ns) for other in others for block in other.blocks) / 1e9
        # Before its first unit a mix has just finished building.
        idle_s = sum(block.idle_cpu_s for block in worker.blocks[1:])
        if others_s and idle_s > _IDLE * others_s:
            text = f"{worker.mix.label} took {idle_s / others_s:.0%} of a core while the other mixes ran"
            found.append(new_finding("not-idle", text))
    return tuple(found)
