"""Times the units of several mixes in turns, in one process, before each runs in a process of its own."""

import random
from collections.abc import Sequence

from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import AnchorJob
from bakeoff.record.pipeline import Units
from bakeoff.worker.clocks.clock import now_ns
from bakeoff.worker.device import watching
from bakeoff.worker.failures import call_stage
from bakeoff.worker.pipeline.parity import pipeline_of
from bakeoff.worker.pipeline.programs import LoopProgram, build_programs
from bakeoff.worker.pipeline.runner import LoopRunner
from bakeoff.worker.pipeline.units import TimedUnits, UnitLog, counters
from bakeoff.worker.reporter import Reporter, wait_for_idle_threads
from bakeoff.worker.torch_flags import apply_flags, flags

_TURN_NS = 25_000_000
"""Shortest turn of a mix, about as in its run: its first unit finds threads asleep and caches cold there too."""


def anchor(job: AnchorJob, report: Reporter) -> tuple[Units, ...]:
    """Return the units of each mix; all of them have a steady one.

    Raises BakeoffError if a program is not ok, and StageError if one fails in the loop.
    """
    device = job.subject.device
    with flags("fp32", job.subject.threads, search=device == "cuda"), watching(device) as watch:
        built, failed, _ = build_programs(job, report)
        if failed is not None:
            raise BakeoffError(f"{failed.name} is {failed.status}: {failed.reason}", "check-failed")

        def timed(programs: Sequence[LoopProgram]) -> TimedUnits:
            engines = {program.key: program.engine(job.subject.loop) for program in programs}
            dtypes = {program.made.slot: program.job.dtype for program in programs}
            runner = call_stage(lambda: LoopRunner(pipeline_of(job.subject), job.subject, engines, dtypes))
            log = UnitLog(job.subject.loop, counters(engines), programs[0].job.policy.settle_ratio)
            return TimedUnits(runner, log, watch, device, report)

        mixes = [timed([built[place] for place in places]) for places in job.mixes]
        own = [built[places[0]].flags for places in job.mixes]
        """Of each mix; a runner whose programs have the same flags sets none."""
        report("timing")
        for mix, of_mix in zip(mixes, own, strict=True):
            apply_flags(of_mix)
            while not mix.log.steady:
                mix.turn(1)
        ends_ns = now_ns() + round(job.seconds * 1e9)
        while now_ns() < ends_ns:
            for mix, of_mix in random.sample([*zip(mixes, own, strict=True)], len(mixes)):
                wait_for_idle_threads()
                apply_flags(of_mix)
                turn_ends_ns = now_ns() + _TURN_NS
                mix.turn(1)
                while now_ns() < turn_ends_ns:
                    mix.turn(1)
    return tuple(units for mix in mixes if (units := mix.log.units()) is not None)
