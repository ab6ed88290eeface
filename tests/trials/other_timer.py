"""Whether the lab and torch.utils.benchmark agree on what a module takes, each in fresh processes, alternating.

    python tests/trials/other_timer.py [--rounds 7] [--model FILE.py:FUNCTION]

A round is one process of each, in random order, with one environment: torch's own timer calls the module in eager fp32
without gradients, for as long as the lab does (`Timer.blocked_autorange`), and the lab measures the same model's row
`eager fp32`. Prints both medians of each round, and exits 1 if the medians of the medians differ by more than 3 %.
Run it alone on the machine.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from lab import Recorder, marked_folder

from bakeoff.bring.bring import bring
from bakeoff.machine import host, paths
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.process.environment import user_code_path, worker_environment
from bakeoff.record.policy import Policy
from bakeoff.sweeps.run import run_sweep

MOST_APART = 0.03
LAB = Policy(min_s=4.0, cap_s=6.0, throughput_s=1.0, trace=False)
SECONDS = 4.0
TIMER = """
import json, sys, torch
from torch.utils.benchmark import Timer
from bakeoff.models.component import Component
from bakeoff.models import resolve_component
from bakeoff.process.jobs import Subject
from bakeoff.worker.subject import load_subject
folder, preset, threads, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
loaded = load_subject(Subject(folder, preset, "call", 1, 0, 0, "", "cpu", threads))
module, inputs = loaded.module.module, loaded.sets[0]
with torch.no_grad():
    timer = Timer("module(**inputs)", globals={"module": module, "inputs": inputs}, num_threads=threads)
    print(json.dumps(timer.blocked_autorange(min_run_time=seconds).median * 1e3))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--model", default=str(Path(__file__).with_name("other_timer_model.py")) + ":model")
    asked = parser.parse_args()
    threads, order = host.usable_cores(), random.Random(0)
    theirs: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory() as place, marked_folder(Path(place)):
        folder = bring(asked.model, 0, threads, Recorder())
        request = Request(
            folder, backends=("eager",), dtypes=("fp32",), device="cpu", policy=LAB, final_s=0, ceilings=False
        )
        plan = make_plan(request)
        preset = plan.rows[0].subject.preset
        environment = worker_environment(threads, user_code_path())

        def timed() -> None:
            command = [sys.executable, "-c", TIMER, folder, preset, str(threads), str(SECONDS)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            theirs.append(json.loads(done.stdout))

        def measured() -> None:
            (stored,) = run_sweep(plan, paths.runs_folder(), "", resume=False, progress=Recorder()).stored
            figures = stored.record.latency
            assert figures is not None, stored.record.measurement.reason
            ours.append(figures.median_ms)

        for number in range(asked.rounds):
            for run in order.sample((timed, measured), 2):
                run()
            print(
                f"round {number + 1}: torch.utils.benchmark {theirs[-1]:.4f} ms, bakeoff {ours[-1]:.4f} ms", flush=True
            )
    ratio = statistics.median(ours) / statistics.median(theirs)
    text = f"torch.utils.benchmark {statistics.median(theirs):.4f} ms, bakeoff {statistics.median(ours):.4f} ms"
    print(f"medians of {asked.rounds} rounds: {text}, {ratio:.4f}x")
    return int(abs(ratio - 1) > MOST_APART)


if __name__ == "__main__":
    sys.exit(main())
