"""Sweep one lane of the selftest: `python -m bakeoff.selftest MORE LANE DEVICE`, MORE as in `expected.lanes`.

Prints a JSON line when a row ends, [workload, backend, status]. BAKEOFF_CACHE and BAKEOFF_RUNS name the lane's own
folders.
"""

import signal
import sys
from math import inf

from bakeoff.machine import paths
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.process import guard
from bakeoff.record.codec import encode_json
from bakeoff.record.schema import Record
from bakeoff.selftest.expected import lanes
from bakeoff.sweeps.progress import Running, Unheard
from bakeoff.sweeps.run import run_sweep


class _Lines:
    """Progress that prints a JSON line for each row, for the parent process to read."""

    def start(self, _position: int, _total: int, _what: str) -> Running:
        return Unheard()

    def say(self, text: str) -> None:
        pass

    def ranked(self, to_come: str) -> None:
        pass

    def expect(self, seconds: float | None, _limit_s: float = inf, /) -> None:
        pass

    def result(self, record: Record) -> None:
        sys.stdout.write(encode_json([record.variant.workload, record.variant.backend, record.status]).decode() + "\n")
        sys.stdout.flush()


def main() -> None:
    guard.prctl(guard.PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    more, name, device = sys.argv[1:]
    lane = next(lane for lane in lanes(more, device) if lane.name == name)
    for component, workload in lane.subjects:
        request = Request(
            component,
            presets=("tiny",),
            workloads=(workload or lane.workload,),
            backends=tuple(entry.backend for entry in lane.expectations if entry.workload == workload),
            dtypes=("fp32",),
            device=device,
            threads=1,
            policy=lane.policy,
            final_s=0,
            ceilings=False,
        )
        done = run_sweep(make_plan(request), paths.runs_folder(), "selftest", resume=False, progress=_Lines())
        if done.interrupted:
            sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
