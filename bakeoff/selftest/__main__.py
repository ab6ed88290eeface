"""Sweep one lane of the selftest: `python -m bakeoff.selftest LANE quick|full DEVICE`.

Prints a JSON line when a row starts, ["start", variant], and when it ends, ["finish", status]. BAKEOFF_CACHE and
BAKEOFF_RUNS name the lane's own folders.
"""

import signal
import sys

from bakeoff.machine import paths
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.process import guard
from bakeoff.process.supervisor import Event
from bakeoff.record.codec import encode_json
from bakeoff.selftest.expected import lane_named
from bakeoff.sweeps.run import run_sweep


class _Lines:
    """A Progress that prints JSON lines, for the parent process to read."""

    def start(self, _position: int, _total: int, what: str) -> None:
        self._print("start", what)

    def event(self, event: Event) -> None:
        pass

    def finish(self, status: str, _text: str) -> None:
        self._print("finish", status)

    def say(self, text: str) -> None:
        pass

    @staticmethod
    def _print(kind: str, text: str) -> None:
        sys.stdout.write(encode_json([kind, text]).decode() + "\n")
        sys.stdout.flush()


def main() -> None:
    guard.prctl(guard.PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    lane = lane_named(sys.argv[1], sys.argv[2] == "quick", sys.argv[3])
    request = Request(
        "toy",
        presets=("tiny",),
        workloads=(lane.workload,),
        backends=tuple(entry.reference for entry in lane.expectations),
        dtypes=("fp32",),
        device=sys.argv[3],
        threads=1,
        policy=lane.policy,
        final_s=0,
        ceilings=False,
    )
    run_sweep(make_plan(request), paths.runs_folder(), "selftest", resume=False, progress=_Lines())


if __name__ == "__main__":
    main()
