"""What the guards cost that let a profiler name inductor's and AOTInductor's kernels (`cpp.enable_kernel_profile`).

    python tests/trials/profiling_guards.py [--components wm image] [--pairs 21] [--block-s 1]

For each component's default preset and workload on a CPU and each of inductor, inductor[freezing] and aoti, one process
builds the module with guards, without, and with guards once more (of aoti the same package is loaded again). Blocks of
calls of the three take turns in random order. Prints, of each row, the ratio of the times without guards over those
with them (above 1 where guards are faster), with the 95 % interval of the median over pairs, and the same of the two
builds with guards, whose ratio is 1 but for what two builds of one thing differ by. Exits 1 if an interval shows that
guards cost more than 2 %. Run it alone on the machine.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from lab import marked_folder

from bakeoff.machine import host
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request, request_of
from bakeoff.process.environment import worker_environment
from bakeoff.record.policy import Policy
from bakeoff.record.verdict import LEAST_DIFFERENCE, PairRatio, pair_ratio
from bakeoff.sweeps.row import measure_job
from bakeoff.variant import parse_variant

COMPONENTS = ("wm", "image", "audio", "matrix-vae")
BACKENDS = ("inductor", "inductor[freezing]", "aoti")
GUARDS = "cpp.enable_kernel_profile"
LEAST_CALLS = 2
Call = Callable[[], object]


@contextmanager
def settings(guards: bool) -> Any:
    """Within it, inductor and AOTInductor build with or without guards."""
    from bakeoff.backends import aoti, inductor

    def changed(usual: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
        return {name: value for name, value in usual(*given).items() if guards or name != GUARDS}

    usual = {module: module._settings for module in (aoti, inductor)}
    for module, settings_of in usual.items():
        module._settings = partial(changed, settings_of)
    try:
        yield
    finally:
        for module, settings_of in usual.items():
            module._settings = settings_of


def built(job: Any, guards: bool) -> Call:
    from bakeoff.worker.build import build_engine
    from bakeoff.worker.subject import cast_subject, load_subject

    with settings(guards):
        loaded = load_subject(job.subject)
        sets = cast_subject(loaded, job.dtype, job.subject.device)[:1]
        call: Call = build_engine(job, loaded, sets).calls[0]
    return call


def block(call: Call, calls: int) -> int:
    started = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return time.perf_counter_ns() - started


def measured(variant: str, pairs: int, block_s: float) -> dict[str, list[int]]:
    """Nanoseconds of each block, by build; runs in a process of its own."""
    from bakeoff.worker.torch_flags import flags

    (row,) = make_plan(replace(request_of(parse_variant(variant)), ceilings=False)).rows
    job = replace(measure_job(row, Policy(), None), cache_folder=os.getcwd())
    order = random.Random(0)
    with flags(job.dtype, job.subject.threads):
        calls = {"guards": built(job, True), "none": built(job, False), "again": built(job, True)}
        for call in calls.values():
            block(call, LEAST_CALLS)
        times: dict[str, list[int]] = {name: [] for name in calls}
        one_ns = min(block(call, 1) for call in calls.values())
        count = max(LEAST_CALLS, round(block_s * 1e9 / one_ns))
        for _ in range(pairs):
            for name in order.sample(sorted(calls), len(calls)):
                times[name].append(block(calls[name], count))
    return times


def shown(ratio: PairRatio) -> str:
    interval = "" if ratio.interval is None else " [{:.4f}, {:.4f}]".format(*ratio.interval)
    return f"{ratio.ratio:.4f}{interval}"


def variants(components: Sequence[str], backends: Sequence[str]) -> list[str]:
    requests = [Request(name, backends=tuple(backends), device="cpu", final_s=0, ceilings=False) for name in components]
    return [str(row.variant) for request in requests for row in make_plan(request).rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--components", nargs="+", default=COMPONENTS)
    parser.add_argument("--backends", nargs="+", default=BACKENDS)
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--block-s", type=float, default=1.0, help="seconds of calls in a block")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(measured(asked.child, asked.pairs, asked.block_s)))
        return 0
    costly = False
    with tempfile.TemporaryDirectory() as place, marked_folder(Path(place)):
        for variant in variants(asked.components, asked.backends):
            work = Path(tempfile.mkdtemp(dir=place))
            environment = worker_environment(host.usable_cores(), {"TORCHINDUCTOR_CACHE_DIR": str(work)})
            command = [sys.executable, "-P", str(Path(__file__).resolve()), "--pairs", str(asked.pairs)]
            command += ["--block-s", str(asked.block_s), "--child", variant]
            done = subprocess.run(command, cwd=work, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            times = json.loads(done.stdout.splitlines()[-1])
            ratio, same = (pair_ratio(times[other], times["guards"]) for other in ("none", "again"))
            costly |= ratio.interval is not None and ratio.interval[1] < 1 / (1 + LEAST_DIFFERENCE)
            print(f"{variant}: {shown(ratio)}; two alike {shown(same)}; {ratio.pairs} pairs", flush=True)
    return int(costly)


if __name__ == "__main__":
    sys.exit(main())
