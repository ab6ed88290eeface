"""How often a gate is wrong beside other work: candidates that are 20 % slower, and candidates that are their baseline.

    python tests/trials/gate_rates.py FILE [--runs 20] [--slower 20%] [--find 10%] [--load 1] [--threads 1]

Each run is `bakeoff gate --find 10%` of one small model against a copy of its folder, in fresh processes, beside a load
of as many busy processes. A slower candidate runs a share of its 400 layers again. FILE gets a line of JSON for each
run, so that the same command goes on where it stopped. Exits 1 if a slower one passes as unchanged, or if an unchanged
one is called slower.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from contextlib import chdir
from math import ceil
from pathlib import Path

import msgspec
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from busy import loaded
from lab import Recorder, marked_folder

from bakeoff.bring.bring import bring
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.record.gate import GatedRow
from bakeoff.record.policy import Policy
from bakeoff.sweeps.gate import gate_live

LAYERS = 400
MODEL = f"""\
from pathlib import Path

import torch


class Layers(torch.nn.Module):
    def __init__(self, again):
        super().__init__()
        self.layer, self.again = torch.nn.Linear(32, 32, bias=False), again
        torch.nn.init.orthogonal_(self.layer.weight)

    def forward(self, x):
        for _ in range(self.again):
            self.layer(x)
        for _ in range({LAYERS}):
            x = self.layer(x)
        return x


def model():
    again = Path(__file__).with_name("again")
    return Layers(int(again.read_text()) if again.exists() else 0).eval(), torch.randn(8, 32)
"""


def plan_of(folder: Path, threads: int) -> Plan:
    with chdir(folder):
        component = bring("mine.py:model", 0, threads, Recorder())
        policy = Policy(warmup_s=0.3, warmup_cap_s=3.0)
        request = Request(component, (), (), ("eager",), ("fp32",), "cpu", threads=threads, policy=policy, final_s=4.0)
        return make_plan(request)


def gate_once(folder: Path, threads: int, slower: float, find: float) -> GatedRow:
    """Return the row of one gate whose candidate computes this share of its layers again."""
    (folder / "candidate" / "again").write_text(str(ceil(LAYERS * slower)))
    plans = tuple(plan_of(folder / side, threads) for side in ("candidate", "baseline"))
    (row,) = gate_live([plans], folder / "runs", "", Recorder(), lambda *_: None, find)  # type: ignore[list-item]
    return row


def share(text: str) -> float:
    return float(text.removesuffix("%")) / 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--runs", type=int, default=20, help="of each kind")
    parser.add_argument("--slower", type=share, default=0.2)
    parser.add_argument("--find", type=share, default=0.1)
    parser.add_argument("--load", type=int, default=1, help="busy processes beside")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    asked = parser.parse_args()
    found = [json.loads(line) for line in asked.file.read_text().splitlines()] if asked.file.exists() else []
    with tempfile.TemporaryDirectory(prefix="bakeoff-rates-") as temporary, marked_folder(Path(temporary)):
        for side in ("candidate", "baseline"):
            (Path(temporary) / side).mkdir()
            (Path(temporary) / side / "mine.py").write_text(MODEL)
        for number in range(asked.runs):
            for name, slower in (("slower", asked.slower), ("unchanged", 0.0)):
                if sum(run["candidate"] == name for run in found) > number:
                    continue
                began = time.monotonic()
                with loaded(asked.load):
                    row = gate_once(Path(temporary), asked.threads, slower, asked.find)
                facts = {"candidate": name, "outcome": row.outcome, "seconds": round(time.monotonic() - began, 1)}
                found.append({**facts, "load": asked.load, "row": msgspec.to_builtins(row)})
                with asked.file.open("a") as file:
                    file.write(f"{json.dumps(found[-1])}\n")
                print(facts, row.change, row.reason, flush=True)
    outcomes = Counter((run["candidate"], run["outcome"]) for run in found)
    print(tabulate([(*names, count) for names, count in sorted(outcomes.items())], ["candidate", "outcome", "runs"]))
    return int(bool(outcomes["slower", "unchanged"] or outcomes["unchanged", "regression"]))


if __name__ == "__main__":
    sys.exit(main())
