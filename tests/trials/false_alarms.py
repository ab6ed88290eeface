"""Whether honest rows are left in peace: toys by the dozen, and the components at their default presets.

    python tests/trials/false_alarms.py [--toys 50] [--full]

Each toy row is a fresh process with the clocks of every sweep, a fifth of them plain eager and the others a compiler's;
with `--full` the components follow. Run it alone on the machine. Prints every row that is not ok or has an alarm among
its findings, and exits 1 if one is.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from lab import marked_folder

from bakeoff.cli.progress import TerminalProgress
from bakeoff.machine import paths
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.record.policy import Policy
from bakeoff.record.schema import Record
from bakeoff.record.store import load_all, save
from bakeoff.sweeps.run import run_sweep

SHORT = Policy(warmup_s=0.3, warmup_cap_s=3.0, min_s=1.5, full_s=1.5, cap_s=3.0, throughput_s=0.5, trace=False)
COMPILERS = ("inductor", "aoti", "onnxruntime", "openvino")
ALARMS = {"recompiles", "drift", "leak", "threads", "settings", "memoised", "below_floor", "leftovers"}
WORKLOADS = ("world", "picture", "sound", "stream")


def rows(requests: Iterable[Request], runs: Path) -> list[Record]:
    found = []
    for request in requests:
        plan = make_plan(request)
        with TerminalProgress(plan.rows) as progress:
            done = run_sweep(plan, runs, "honest", resume=False, progress=progress)
        found += [entry.record for entry in done.stored]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toys", type=int, default=50, help="toy rows")
    parser.add_argument("--full", action="store_true", help="the components too, at their default presets")
    asked = parser.parse_args()
    ceilings = load_all(paths.runs_folder()).ceilings
    processes = -(-asked.toys // (len(WORKLOADS) * (1 + len(COMPILERS))))
    toys = Request(
        "toy",
        workloads=WORKLOADS,
        backends=("eager", *COMPILERS),
        dtypes=("fp32",),
        processes=max(1, processes),
        policy=SHORT,
        final_s=0,
    )
    components = [Request(name, final_s=0) for name in ("wm", "image", "audio", "matrix-vae")] if asked.full else []
    with tempfile.TemporaryDirectory(prefix="bakeoff-honest-") as folder, marked_folder(Path(folder)):
        for known in ceilings:  # they are the machine's, not this folder's
            save(Path(folder) / "runs", known.ceilings)
        records = rows([toys, *components], Path(folder) / "runs")
    accused = [
        (record, codes)
        for record in records
        if (codes := sorted({finding.code for finding in record.measurement.findings} & ALARMS))
        or record.status != "ok"
    ]
    for record, codes in accused:
        print(f"{record.variant}: {record.status} {' '.join(codes)}: {record.measurement.reason}")
    print(f"{len(records)} honest rows, {len(accused)} accused")
    return int(bool(accused))


if __name__ == "__main__":
    sys.exit(main())
