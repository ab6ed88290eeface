"""Measures the time that the loader's checks (names, dtypes, shapes, devices) add to a call of the opened engine.

    python benchmarks/loader_overhead.py ARTIFACT [ARTIFACT ...] [--calls 200]

Engine and loader are called in pairs, in random order; the overhead is the median difference of the pairs. The engine's
time varies by more than this overhead, so the checks are also timed alone, around an engine that does nothing.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from tabulate import tabulate

from bakeoff.export import Program, load

_LIMIT_NS, _LIMIT_SHARE = 20_000, 0.01


def timed(call: Callable[[], object], device: str) -> int:
    started = time.perf_counter_ns()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter_ns() - started


def overhead(program: Program, inputs: dict[str, torch.Tensor], calls: int) -> tuple[float, float, float]:
    """Medians in ns: the engine's call, the loader's overhead, and the loader around an engine that does nothing."""
    run, tensors, device = program.run, list(inputs.values()), program.device
    outputs = run(tensors)
    idle = replace(program, run=lambda _tensors: outputs)
    engine, added = [], []
    for _ in range(calls):
        pair = {}
        for name in random.sample(("engine", "loader"), 2):
            call = (lambda: run(tensors)) if name == "engine" else (lambda: program(**inputs))
            pair[name] = timed(call, device)
        engine.append(pair["engine"])
        added.append(pair["loader"] - pair["engine"])
    alone = [timed(lambda: idle(**inputs), device) for _ in range(max(200, calls))]
    return statistics.median(engine), statistics.median(added), statistics.median(alone)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifacts", nargs="+", type=Path)
    parser.add_argument("--calls", type=int, default=200)
    arguments = parser.parse_args()
    rows = []
    for folder in arguments.artifacts:
        artifact = load(folder)
        inputs = artifact.sample()
        with torch.no_grad():
            engine, added, alone = overhead(artifact.program(artifact.manifest.main), inputs, arguments.calls)
        within = alone <= max(_LIMIT_NS, _LIMIT_SHARE * engine)
        rows.append(
            (
                folder.name,
                len(inputs),
                f"{engine / 1e6:.3f}",
                f"{added / 1e3:.1f}",
                f"{alone / 1e3:.1f}",
                f"{alone / engine:.3%}",
                "yes" if within else "NO",
            )
        )
    headers = ("artifact", "inputs", "engine ms", "paired us", "checks us", "checks / engine", "under 20 us or 1 %")
    print(tabulate(rows, headers=headers, disable_numparse=True))


if __name__ == "__main__":
    main()
