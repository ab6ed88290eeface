"""Whether an engine that is opened as an earlier build kept it is as fast as one that is built: each against itself.

    python tests/trials/stored_engines.py [--variants wm:200m.step/aoti/bf16@cpu ...] [--seconds 4]

Each variant races against itself in pairs of fresh processes, as `bakeoff compare` does it: one side opens what was
kept, the other builds. Prints each verdict, the CPU seconds of both sides' builds, and whether both have the same error
against the reference. Exits 1 where a difference is shown, errors differ, or nothing was opened. Run it alone on the
machine.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from lab import Recorder, marked_folder
from tabulate import tabulate

from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import request_of
from bakeoff.record.verdict import decide
from bakeoff.sweeps import compare as comparing
from bakeoff.sweeps.compare import compare
from bakeoff.variant import parse_variant

VARIANTS = (
    *(f"{subject}/{backend}@cpu"
      for subject in ("wm:200m.step", "image:cpu.decode", "audio:cpu.decode")
      for backend in ("aoti/bf16", "openvino/bf16", "onnxruntime/fp32")),
)  # fmt: skip


def raced(text: str, seconds: float, runs: Path) -> Any:
    """The comparison of the variant's opened engine (its first side) with its built one."""
    plan = make_plan(replace(request_of(parse_variant(text)), final_s=seconds, ceilings=False))
    (row,) = plan.rows
    built = row.cache_folder.with_name(f"{row.cache_folder.name}-built")
    usual = comparing.measure_job

    def job_of(of: Any, *given: Any) -> Any:
        job = usual(of, *given)
        return replace(job, engine="") if of.cache_folder == built else job

    comparing.measure_job = job_of
    try:
        both = replace(plan, rows=(row, replace(row, cache_folder=built)))
        compare(both, runs, "fills the caches", Recorder())
        return compare(both, runs, "opened against built", Recorder()).record
    finally:
        comparing.measure_job = usual


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", default=VARIANTS)
    parser.add_argument("--seconds", type=float, default=4.0, help="of calls in a comparison")
    asked = parser.parse_args()
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory(prefix="bakeoff-kept-") as folder, marked_folder(Path(folder)):
        for text in asked.variants:
            record = raced(text, asked.seconds, Path(folder) / "runs")
            verdict, (opened, built) = decide(record), (side.measurement for side in record.sides)
            same = opened.parity == built.parity
            wrong += verdict.word != "no difference shown" or not same or opened.build.cache != "stored"
            costs = [f"{side.build.cpu_s:.1f} s {side.build.cache}" for side in (opened, built)]
            interval = f"{verdict.ratio:.3f} [{verdict.low:.3f}, {verdict.high:.3f}]"
            rows.append([text, verdict.word, interval, *costs, "same" if same else "differ"])
            print(tabulate([rows[-1]], tablefmt="plain"), file=sys.stderr)
    print(tabulate(rows, headers=("variant", "verdict", "opened over built", "opened", "built", "errors")))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
