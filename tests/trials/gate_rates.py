"""How often a gate is wrong: slowdowns of the size that it states, and candidates that are their own baseline.

    python tests/trials/gate_rates.py [--slower 10] [--unchanged 20] [--replays 80] [--threads 1] [--out FILE]

Each live run is `bakeoff gate` of one small model against a copy of its folder, in fresh processes. In a slower run the
candidate runs as many of its 400 layers again as the gate has just said that it will find. Replays decide as the gate
does, on pairs of the unchanged runs in the order in which they were measured, beginning anywhere. Run it alone on the
machine: a run takes about half a minute on two cores. FILE receives all pairs. Exits 1 if fewer than 9 of 10 slowdowns
are found, or if more than 2 % of the unchanged are called slower.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import chdir
from math import ceil, log
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import Progress as Bar
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from lab import Recorder, marked_folder

from bakeoff.bring.bring import bring
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.record.gate import LOOKS, SAME_PAIRS, GatedRow, change_of_pairs, size_of
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


def gate_once(folder: Path, threads: int, slower: bool) -> GatedRow:
    """Return the row of one gate whose candidate is unchanged, or slower by the size that the gate states."""
    again = folder / "candidate" / "again"
    again.unlink(missing_ok=True)
    plans = tuple(plan_of(folder / side, threads) for side in ("candidate", "baseline"))

    def stated(_row: str, size: float) -> None:
        if slower:
            again.write_text(str(ceil(LAYERS * (size - 1))))

    (row,) = gate_live([plans], folder / "runs", "", Recorder(), stated)  # type: ignore[list-item]
    return row


def replay(pool: list[float], draw: random.Random) -> tuple[str, float]:
    """Return the word and the size of a gate of consecutive pairs of the pool."""
    start = draw.randrange(len(pool))
    turned = [*pool[start:], *pool[:start]]
    same, pairs = turned[:SAME_PAIRS], turned[SAME_PAIRS : SAME_PAIRS + LOOKS[-1]]
    size = size_of(same, 1)
    made = (change_of_pairs(same, pairs[:count], 1, size) for count in range(1, len(pairs) + 1))
    return next((change.word for change in made if change is not None), "undecided"), size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slower", type=int, default=10, help="live runs whose candidate is slower by the stated size")
    parser.add_argument("--unchanged", type=int, default=20, help="live runs whose candidate is its baseline")
    parser.add_argument("--replays", type=int, default=80, help="gates of recorded pairs of the unchanged runs")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--out", type=Path, help="file for all pairs")
    asked = parser.parse_args()
    found: dict[str, list[GatedRow]] = {"slower": [], "unchanged": []}
    took: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="bakeoff-rates-") as temporary,
        marked_folder(Path(temporary)),
        Bar(console=Console(stderr=True)) as bar,
    ):
        for side in ("candidate", "baseline"):
            (Path(temporary) / side).mkdir()
            (Path(temporary) / side / "mine.py").write_text(MODEL)
        for name, count in (("slower", asked.slower), ("unchanged", asked.unchanged)):
            for _ in bar.track(range(count), description=name):
                began = time.monotonic()
                found[name].append(gate_once(Path(temporary), asked.threads, name == "slower"))
                took.append(time.monotonic() - began)
    pool = [log(ratio) for row in found["unchanged"] for ratio in (*row.same, *row.pairs)]
    draw = random.Random(1)
    replays = [replay(pool, draw) for _ in range(asked.replays if len(pool) >= SAME_PAIRS + LOOKS[-1] else 0)]
    words = {
        name: Counter(row.change.word if row.change is not None else row.outcome for row in rows)
        for name, rows in found.items()
    }
    words["replayed"] = Counter(word for word, _ in replays)
    sizes = {name: [row.change.size for row in rows if row.change is not None] for name, rows in found.items()}
    rows = [(name, sum(each.values()), dict(each)) for name, each in words.items()]
    print(tabulate(rows, ["runs", "of", "said"]))
    for name, each in sizes.items():
        if each:
            print(f"{name}: sizes of {min(each) - 1:.1%} to {max(each) - 1:.1%}")
    print(f"a live run took {sum(took) / max(1, len(took)):.0f} s")
    if asked.out is not None:
        kept = {**msgspec.to_builtins(found), "words": words, "live_s": took}
        asked.out.write_text(json.dumps(kept, indent=1) + "\n")
    alarms = words["unchanged"]["slower"] + words["replayed"]["slower"]
    missed = asked.slower - words["slower"]["slower"]
    print(f"{alarms} false alarms in {asked.unchanged + len(replays)} unchanged runs; {missed} slowdowns missed")
    return int(alarms > 0.02 * (asked.unchanged + len(replays)) or missed > 0.1 * asked.slower)


if __name__ == "__main__":
    sys.exit(main())
