"""Sweeps one subject with every backend and short clocks, and prints one line for each row; exit code 1 if one failed.

Its times mean nothing, so its records go to the folder that is given and not to those of sweeps.
"""

import sys
from pathlib import Path

from bakeoff.plan.plan import make_plan
from bakeoff.record.schema import Record
from bakeoff.sweeps.run import run_sweep
from gpu_evidence.beside import Silent
from gpu_evidence.plans import request_of
from gpu_evidence.steps import Step

_FINE = ("ok", "unstable", "built", "unavailable", "unsupported")
"""Statuses of a backend that works, or that says why it cannot here; any other one is a failure."""


class Lines(Silent):
    """A Progress that prints each finished row."""

    def result(self, record: Record) -> None:
        status = record.status
        word = {"unstable": "ok"}.get(status, status if status in _FINE else f"failed: {status}:")
        text = record.measurement.reason if word != "ok" else ""
        print(f"{record.variant!s:60} {record.wall_s:4.0f} s  {word} {text}".rstrip(), flush=True)


def main() -> int:
    subject, device, folder = sys.argv[1:]
    plan = make_plan(request_of(Step("smoke", "smoke", subject), device, device))
    done = run_sweep(plan, Path(folder), "smoke test", False, Lines())
    statuses = [stored.record.status for stored in done.stored]
    failed = sum(status not in _FINE for status in statuses)
    ran = sum(status in ("ok", "unstable") for status in statuses)
    print(f"{ran} of {len(plan.rows)} ran, {failed} failed, the others cannot run here")
    return 130 if done.interrupted else int(failed > 0 or ran == 0)


if __name__ == "__main__":
    sys.exit(main())
