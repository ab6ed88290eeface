"""Why the clocks of a CPU disagree: calls timed under conditions that differ in one thing, in turn, in one process.

    python tests/trials/clock_conditions.py VARIANT [VARIANT ...] [--rounds 6] [--calls 20] [--env NAME=VALUE ...]

Blocks of calls of all conditions alternate in random order, so that a slow stretch of the machine falls on all of them.
Prints for each condition the median, its ratio to plain calls in the same round, and both modes where there are two.
Then, for the condition that reads the machine before each call, "bandwidth" of a sum over 64 MiB, the rank correlation
of the reading with the call, and the median call after small and after large readings. With --env the same again in a
process with these variables. Writes all samples as JSON with --out.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Samples = dict[str, list[list[float]]]
"""For each condition, or reading, its values round by round."""
_PLAIN, _BANDWIDTH_BYTES = "plain", 64 << 20
_BEFORE = ("bandwidth",)
_CONDITIONS = (_PLAIN, "checked", "checked by one thread", "probed", "after 20 ms idle", *_BEFORE, "plain again")


def _measure(variant: str, rounds: int, calls: int, seed: int) -> tuple[Samples, Samples]:
    """Nanoseconds of the calls of each condition, and the readings before them; runs in a worker's environment."""
    import torch

    from bakeoff.plan.plan import make_plan
    from bakeoff.plan.request import request_of
    from bakeoff.record.policy import Policy
    from bakeoff.sweeps.row import measure_job
    from bakeoff.variant import parse_variant
    from bakeoff.worker.build import build_engine
    from bakeoff.worker.clocks.clock import now_ns
    from bakeoff.worker.subject import cast_subject, load_subject
    from bakeoff.worker.torch_flags import flags

    job = measure_job(make_plan(request_of(parse_variant(variant))).rows[0], Policy(), None)
    Path(job.cache_folder).mkdir(parents=True, exist_ok=True)
    loaded = load_subject(job.subject)
    samples: Samples = {name: [] for name in _CONDITIONS}
    readings: Samples = {name: [] for name in _BEFORE}
    order = random.Random(seed)
    with flags(job.dtype, job.subject.threads):
        built = build_engine(job, loaded, cast_subject(loaded, job.dtype, job.subject.device))
        after = _after_a_call(loaded.workload.outputs, built.calls, job.subject.threads)
        before = _before_a_call(torch.ones(_BANDWIDTH_BYTES // 4))
        until = time.monotonic() + 3
        while time.monotonic() < until:
            built.calls[0]()
        for _ in range(rounds):
            for name in order.sample(_CONDITIONS, len(_CONDITIONS)):
                taken, read = [], []
                for number in range(calls):
                    index = number % len(built.calls)
                    if name in before:
                        read.append(before[name]())
                    begin = now_ns()
                    outputs = built.calls[index]()
                    taken.append(float(now_ns() - begin))
                    if name in after:
                        after[name](index, outputs)
                    del outputs
                samples[name].append(taken)
                if name in before:
                    readings[name].append(read)
        built.engine.close()
    return samples, readings


def _after_a_call(
    specs: Sequence[Any], calls: Sequence[Callable[[], Any]], threads: int
) -> Mapping[str, Callable[[int, Any], None]]:
    import torch

    from bakeoff.worker.checks.memory import used_bytes
    from bakeoff.worker.checks.outputs import OutputWatch

    names = [spec.name for spec in specs]
    references = [{name: t.clone() for name, t in zip(names, call(), strict=True)} for call in calls]
    watch = OutputWatch(specs, references, dict.fromkeys(names, 1.0))

    def by_one_thread(index: int, outputs: Any) -> None:
        torch.set_num_threads(1)
        watch.check(index, outputs)
        torch.set_num_threads(threads)

    return {
        "checked": watch.check,
        "checked by one thread": by_one_thread,
        "probed": lambda _index, _outputs: (used_bytes(), sum(range(10_000)))[0],
        "after 20 ms idle": lambda _index, _outputs: time.sleep(0.02),
    }


def _before_a_call(numbers: Any) -> Mapping[str, Callable[[], float]]:
    def bandwidth() -> float:
        started = time.perf_counter()
        numbers.sum()
        return _BANDWIDTH_BYTES / (time.perf_counter() - started) / 1e9

    return {"bandwidth": bandwidth}


def _print(title: str, samples: Samples, readings: Samples) -> None:
    from scipy.stats import spearmanr

    from bakeoff.record.statistics import modes

    print(f"\n{title}")
    for name, rounds in samples.items():
        every = [int(value) for taken in rounds for value in taken]
        ratios = [median(ours) / median(plain) for ours, plain in zip(rounds, samples[_PLAIN], strict=True)]
        found = modes(every)
        two = " | ".join(f"{mode.median_ms:.2f} ms {mode.share:.0%}" for mode in found) if found else "one mode"
        medians = " ".join(f"{median(taken) / 1e6:.1f}" for taken in rounds)
        print(f"  {name:22s} {median(every) / 1e6:8.2f} ms  {median(ratios):.3f}x plain  {two}  by round {medians}")
    for name, rounds in readings.items():
        pairs = [
            (value, taken / 1e6)
            for read, times in zip(rounds, samples[name], strict=True)
            for value, taken in zip(read, times, strict=True)
            if value == value
        ]
        if len(pairs) < 10:
            continue
        middle = (min(value for value, _ in pairs) * max(value for value, _ in pairs)) ** 0.5
        groups = [[pair for pair in pairs if (pair[0] > middle) == large] for large in (False, True)]
        texts = [
            f"{len(group)} calls at {median(value for value, _ in group):.3g}: {median(ms for _, ms in group):.2f} ms"
            for group in groups
            if group
        ]
        print(
            f"  {name:22s} rank correlation {spearmanr(*zip(*pairs, strict=True)).statistic:+.2f}; {'; '.join(texts)}"
        )


def main() -> None:
    """Measure each variant in a fresh process with the worker's environment, then with each changed variable."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--env", action="append", default=[], help="NAME=VALUE[,NAME=VALUE]: a process with these")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        found = _measure(arguments.variants[0], arguments.rounds, arguments.calls, arguments.seed)
        sys.stdout.write("\nRESULT " + json.dumps(found) + "\n")
        return
    from bakeoff.machine.host import usable_cores
    from bakeoff.process.environment import worker_environment

    results = {}
    for variant in arguments.variants:
        for extra in ["", *arguments.env]:
            changed = dict(part.split("=", 1) for part in extra.split(",") if part)
            environment = {k: v for k, v in (worker_environment(usable_cores()) | changed).items() if v != "unset"}
            command = [sys.executable, __file__, "--child", "--rounds", str(arguments.rounds)]
            command += ["--calls", str(arguments.calls), "--seed", str(arguments.seed), variant]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
            if not lines:
                print(f"{variant} {extra}: {done.stderr[-500:]}")
                continue
            samples, readings = results[f"{variant} {extra}".strip()] = json.loads(lines[0].removeprefix("RESULT "))
            _print(f"{variant}  {extra or 'as a worker has it'}", samples, readings)
            sys.stdout.flush()
    if arguments.out:
        arguments.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
