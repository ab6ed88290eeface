"""How a sweep on a cluster scales: many rows that nobody measures, and the time of all components on many GPUs.

    python tests/trials/cluster_scale.py rows [--count 1000] [--nodes 8]
    python tests/trials/cluster_scale.py makespan [--gpus 64]

`rows` runs `bakeoff sweep --on ray --spread` on a cluster of simulated nodes on this machine, whose processes measure
nothing and answer with a record of --kib KiB for each row. It prints the driver's memory and CPU time as the rows come
in, and exits 1 unless each row has one record.

`makespan` deals the rows of all components' default suites on a CPU to GPUs as a sweep does, without running them. The
time of a row is what the planner expects: that of published records on CPUs, or a guess without such a record.
"""

import argparse
import heapq
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import psutil
from tabulate import tabulate

SUPPORT = Path(__file__).parents[1] / "support"
sys.path.insert(0, str(SUPPORT))

import many_node  # noqa: E402
from records import record  # noqa: E402

from bakeoff.cluster.order import PLAN, Order, PlannedRow  # noqa: E402
from bakeoff.cluster.reports import Assignment  # noqa: E402
from bakeoff.cluster.spread import carry_out_spread  # noqa: E402
from bakeoff.models import component_names  # noqa: E402
from bakeoff.plan.costs import GUESS, Costs  # noqa: E402
from bakeoff.plan.history import History, history_of  # noqa: E402
from bakeoff.plan.plan import make_plan  # noqa: E402
from bakeoff.plan.request import Request  # noqa: E402
from bakeoff.record.codec import encode  # noqa: E402
from bakeoff.record.store import load_all, save  # noqa: E402
from bakeoff.sweeps.run import SweepResult  # noqa: E402

_SAMPLE_BYTES = 9
"""Characters of a sample of the null records in a file."""


def rows(count: int, nodes: int, kib: int) -> bool:
    """Sweep `count` rows on `nodes` nodes, and print how the driver did; return whether each row has one record."""
    with tempfile.TemporaryDirectory() as folder:
        template, runs = Path(folder) / "record.json", Path(folder) / "runs"
        samples_ms = [10 + 0.001 * index for index in range(kib * 1024 // _SAMPLE_BYTES)]
        template.write_bytes(encode(record(samples_ms=samples_ms)))
        own = {f"BAKEOFF_{name}": f"{folder}/{name.lower()}" for name in ("CACHE", "RUNS", "LOCKS")}
        own |= {many_node.RECORD: str(template), "RAY_USAGE_STATS_ENABLED": "0"}
        os.environ |= own
        names = [f"node{number}" for number in range(nodes)]
        cluster = subprocess.Popen(
            [sys.executable, str(SUPPORT / "ray_nodes.py"), folder, *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert cluster.stdout is not None
        address = cluster.stdout.readline().decode().strip()
        node = " ".join(["-I", "-S", str(SUPPORT / "many_node.py")])
        command = [sys.executable, str(SUPPORT / "ray_bakeoff.py"), "sweep", "toy:tiny", "--device", "cpu"]
        command += ["--on", "ray", "--spread", "--no-final", "--json", "--note", str(count)]
        driver = psutil.Popen(
            command,
            env=os.environ | {"RAY_ADDRESS": address, "BAKEOFF_TEST_NODE": node},
            stdout=subprocess.DEVNULL,
            stderr=(Path(folder) / "said").open("w"),
        )
        try:
            seen = watch(driver, runs, count)
        finally:
            with suppress(psutil.NoSuchProcess):
                driver.kill()
            cluster.communicate(timeout=120)
        print("\n".join((Path(folder) / "said").read_text().splitlines()[-2:]))
        print(tabulate(seen, headers=("rows", "MiB of the driver", "its CPU s", "s so far"), floatfmt=".1f"))
        held = load_all(runs)
        stored, places = [str(entry.record.variant) for entry in held.current], {e.record.node for e in held.current}
        print(f"{len(stored)} records of {len(set(stored))} rows, on {len(places)} nodes")
        return len(stored) == len(set(stored)) == count and not held.problems


def watch(driver: psutil.Popen, runs: Path, count: int) -> list[tuple[int, float, float, float]]:
    """Return the driver's memory, CPU time and age at every tenth of its rows, and the last ones before it ended."""
    seen: list[tuple[int, float, float, float]] = []
    began, last = time.monotonic(), (0, 0.0, 0.0, 0.0)
    while driver.poll() is None:
        stored = len([*runs.glob("*/records/*.json")])
        try:
            times = driver.cpu_times()
            last = (stored, driver.memory_info().rss / 2**20, times.user + times.system, time.monotonic() - began)
        except psutil.Error:
            break
        if stored >= (len(seen) * count) // 10 and stored:
            seen.append(last)
        time.sleep(0.5)
    return [*seen, last]


@dataclass
class Gpus:
    """GPUs in name only: they deal orders as a sweep does, and each takes the time of its order's rows."""

    count: int
    runs: Path
    costs: dict[str, Costs]
    now_s: float = 0.0
    busy_s: float = 0.0
    stages: list[tuple[str, int, float]] = field(default_factory=list)
    """Kind of the orders of each stage, their number, and when the last one ended."""

    def carry_out(self, orders: Sequence[Assignment]) -> None:
        """Give the orders, in turn, to whichever GPU is free first; all start when the stage before has ended."""
        free = [self.now_s] * self.count
        for assignment in orders:
            seconds = self._seconds(assignment)
            self.busy_s += seconds
            heapq.heapreplace(free, free[0] + seconds)
            assignment.done = SweepResult(assignment.order.sweep, (), ())
        self.now_s = max(free)
        kind = orders[0].order.part.partition("-")[0]
        self.stages.append(("variants" if kind.isdigit() else kind or "sweeps", len(orders), self.now_s))

    def _seconds(self, assignment: Assignment) -> float:
        """Return the expected time of an order, and store records of its rows."""
        asked, costs = assignment.order, self.costs[assignment.order.request.component]
        planned = costs.plan.rows
        if asked.part == PLAN:
            assignment.planned = tuple(
                PlannedRow(row.key, row.variant.subject, row.never_runs is None, row.is_eager_fp32) for row in planned
            )
            return 0.0
        some = [row for row in planned if not asked.part or row.key in asked.only]
        seconds = 0.0
        if asked.request.final_s:
            seconds += sum(map(costs.final_s, costs.finals(some)))
        if not asked.part.startswith("final"):
            seconds += sum(costs.of(row).seconds for row in some)
            seconds += sum({row.subject: costs.references_s(row) for row in some}.values())
            for row in some if asked.part else ():
                status = "ok" if row.never_runs is None else "unsupported"
                samples_ms = [10.0, 10.1, 10.2] * (status == "ok")
                made = record(samples_ms=samples_ms, status=status, variant=row.variant, batch=row.subject.batch)
                save(self.runs, replace(made, sweep=asked.sweep))
        return seconds


def makespan(gpus: int) -> None:
    """Print how long all components' default suites take, by the times of records and by guesses alone."""
    found = load_all(Path(__file__).parents[2] / "runs" / "published")
    recorded = history_of([entry for entry in found.current if entry.record.variant.device == "cpu"])
    for text, history in (("recorded times on CPUs", recorded), ("the planner's guesses", history_of([]))):
        print(f"\nBy {text}:")
        print_makespans(gpus, history)


def print_makespans(gpus: int, history: History) -> None:
    """Print how long all components' default suites take on one GPU each, and spread over all."""
    names = [name for name in component_names() if name != "toy"]
    costs = {name: Costs(make_plan(Request(name, device="cpu")), history) for name in names}
    rows = [(each, row) for each in costs.values() for row in each.plan.rows if row.never_runs is None]
    guessed = sum(each.of(row).source == GUESS for each, row in rows)
    print(f"{len(rows)} rows can run; the times of {len(rows) - guessed} are of records, of {guessed} guesses")
    for manner in ("one component a GPU", "--spread"):
        with tempfile.TemporaryDirectory() as folder:
            pool = Gpus(gpus, Path(folder), costs)
            orders = [Assignment(Order(Request(name, device="cpu"), name, 0, {})) for name in names]
            places = [f"gpu{number}" for number in range(gpus)]
            if manner.startswith("--"):
                carry_out_spread(orders, places, pool.runs, pool.carry_out)
            else:
                pool.carry_out(orders)
            told = "; ".join(f"{number} {kind} until {end_s / 60:.1f} min" for kind, number, end_s in pool.stages)
            print(f"{manner}: {pool.now_s / 60:.1f} min; {told}")
            print(f"  sum {pool.busy_s / 60:.1f} min, over {gpus} GPUs {pool.busy_s / gpus / 60:.1f} min")
    chain_s = max(each.of(row).seconds + each.references_s(row) for each, row in rows)
    finals_s = max(each.final_s(sides) for each in costs.values() for sides in each.finals(each.plan.rows))
    print(f"the longest row with its references {chain_s / 60:.1f} min, the longest final {finals_s / 60:.1f} min")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("rows", "makespan"))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--kib", type=int, default=17)
    parser.add_argument("--gpus", type=int, default=64)
    asked = parser.parse_args()
    does = {"rows": partial(rows, asked.count, asked.nodes, asked.kib), "makespan": partial(makespan, asked.gpus)}
    sys.exit(0 if does[asked.what]() in (None, True) else 1)
