"""Times the programs of several mixes in turns, in one process: each mix makes the calls of a unit in their order."""

import random
from itertools import pairwise
from statistics import fmean

from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import AnchorJob
from bakeoff.worker.clocks.clock import now_ns
from bakeoff.worker.clocks.in_loop import other_work
from bakeoff.worker.pipeline.programs import build_programs
from bakeoff.worker.reporter import Report, wait_for_idle_threads
from bakeoff.worker.subject import synchronise
from bakeoff.worker.torch_flags import apply_flags, flags

_TURN_NS = 25_000_000
"""Shortest turn of a mix, about as in its run: its first unit finds threads asleep and caches cold there too."""


def anchor(job: AnchorJob, report: Report) -> tuple[tuple[float, ...], ...]:
    """Return for each mix the mean nanoseconds of each call of a unit. Raises BakeoffError if a program is not ok."""
    device = job.subject.device
    with flags("fp32", job.subject.threads, search=device == "cuda"):
        built, failed, _ = build_programs(job, report)
        if failed is not None:
            raise BakeoffError(f"{failed.name} is {failed.status}: {failed.reason}", "check-failed")
        engines = [(one.flags, one.checked.built.engine.bind(one.checked.sets[0])) for one in built]
        work = other_work(device)

        def unit(places: tuple[int, ...]) -> list[int]:
            work()
            marks = [now_ns()]
            for own, call in (engines[place] for place in places):
                apply_flags(own)
                call()
                synchronise(device)
                marks.append(now_ns())
            return [after - before for before, after in pairwise(marks)]

        def turn(number: int) -> list[list[int]]:
            wait_for_idle_threads()
            began_ns, made = now_ns(), list[list[int]]()
            while not made or now_ns() - began_ns < _TURN_NS:
                made.append(unit(job.mixes[number]))
            return made

        report("timing")
        for number in range(len(job.mixes)):
            turn(number)  # warms up
        units, ends_ns = {number: turn(number) for number in range(len(job.mixes))}, now_ns() + round(job.seconds * 1e9)
        while now_ns() < ends_ns:
            for number in random.sample([*units], len(units)):
                units[number] += turn(number)
    return tuple(tuple(fmean(times) for times in zip(*own, strict=True)) for own in units.values())
