"""How often `compare` is wrong: pairs of the same, and pairs that truly differ by 5 %, each in fresh processes.

    python tests/trials/compare_rates.py [--pairs 100] [--power 10] [--seconds 4] [--threads 1]

A pair of the same is one toy under two names: whatever verdict is called, is called wrongly. In a pair that differs one
side runs the module 20 times a call and the other 21. The toys' calls take a tenth of a millisecond to two, so that a
second thread costs more than it brings. Run it alone on the machine; it takes some twenty minutes. Exits 1 when more
than 2 % of the first are called different or fewer than 9 of 10 of the second are found.
"""

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import Progress as Bar
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from lab import Recorder, marked_folder

from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.record.policy import Policy
from bakeoff.record.verdict import FEWEST_PAIRS, Verdict, decide
from bakeoff.sweeps.compare import compare

PLAIN_EAGER = "bakeoff.selftest.faulty:PLAIN_EAGER"
REPEATS = "canaries:REPEATS"
WORKLOADS = ("world", "picture", "sound", "stream")


def plan_of(a: str, b: str, workload: str, seconds: float, threads: int) -> Plan:
    request = Request(
        "toy",
        presets=("small",),
        workloads=(workload,),
        backends=(a, b),
        dtypes=("fp32",),
        device="cpu",
        threads=threads,
        policy=Policy(warmup_s=0.3, warmup_cap_s=3.0),
        final_s=seconds,
        ceilings=False,
    )
    return make_plan(request)


def rates(
    name: str, pairs: list[tuple[str, str]], seconds: float, threads: int, runs: Path, console: Console
) -> list[Verdict]:
    found = []
    with Bar(console=console) as bar:
        task = bar.add_task(name, total=len(pairs))
        for number, (a, b) in enumerate(pairs):
            plan = plan_of(a, b, WORKLOADS[number % len(WORKLOADS)], seconds, threads)
            found.append(decide(compare(plan, runs, name, Recorder(), seed=number).record))
            bar.advance(task)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100, help="pairs of the same")
    parser.add_argument("--power", type=int, default=10, help="pairs that differ by 5 %%")
    parser.add_argument("--seconds", type=float, default=4.0, help="of calls in a comparison")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads; 0 for all cores")
    asked = parser.parse_args()
    console = Console(stderr=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH", "")]))
    with tempfile.TemporaryDirectory(prefix="bakeoff-rates-") as folder, marked_folder(Path(folder)):
        runs = Path(folder) / "runs"
        same = rates("the same", [("eager", PLAIN_EAGER)] * asked.pairs, asked.seconds, asked.threads, runs, console)
        slower = (f"{REPEATS}[times=20]", f"{REPEATS}[times=21]")
        differing = rates("5 % apart", [slower] * asked.power, asked.seconds, asked.threads, runs, console)
    rows = []
    for name, verdicts in (("the same", same), ("5 % apart", differing)):
        words = Counter(verdict.word for verdict in verdicts)
        # Those of fewer pairs have intervals of rounds, which say nothing of differences between processes.
        of_pairs = [verdict for verdict in verdicts if verdict.pairs >= FEWEST_PAIRS]
        covered = sum(verdict.low <= (1.0 if name == "the same" else 1.05) <= verdict.high for verdict in of_pairs)
        widths = sorted(verdict.high - verdict.low for verdict in of_pairs)
        rows.append(
            [name, len(verdicts), words["faster"], words["slower"], words["no difference shown"],
             len(of_pairs), covered, sum(verdict.confidence for verdict in of_pairs),
             f"{widths[len(widths) // 2]:.3f}" if widths else ""]
        )  # fmt: skip
    headers = (
        "pairs",
        "count",
        "faster",
        "slower",
        "no difference",
        "of three pairs or more",
        "interval holds the truth",
        "should",
        "median width",
    )
    print(tabulate(rows, headers=headers))
    wrong = sum(verdict.word != "no difference shown" for verdict in same)
    missed = sum(verdict.word != "faster" for verdict in differing)
    return int(wrong > 0.02 * len(same) or missed > 0.1 * len(differing))


if __name__ == "__main__":
    sys.exit(main())
