"""Whether honest rows and races of small models are left in peace, a third of them beside a load of eight processes.

    python tests/trials/honest_races.py tests/trials/honest_races.jsonl [--sweeps 60]

Each sweep measures one model of the toy's size with eager and compilers, with short clocks, and its final; FILE gets a
line of JSON for each, so that the same command goes on where it stopped. Prints what was accused: a row or a side that
is not ok by anything but the machine. Exits 1 if one is.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from busy import loaded
from false_alarms import SHORT
from lab import Recorder, marked_folder

from bakeoff.machine import paths
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.record.finding import is_of_the_machine
from bakeoff.record.schema import Record
from bakeoff.record.verdict import verdict_of
from bakeoff.sweeps.run import run_sweep

_LEFT = "selftest_backends.left_to_torch:SPEC"
MODELS = (
    *(("toy", "", workload) for workload in ("world", "picture", "sound", "stream")),
    *((_LEFT, "", workload) for workload in ("waves", "memory")),
    ("normed:SPEC", "", "classify"),
    ("wm", "tiny", "step"),
)
BACKENDS = ("eager", "inductor", "aoti", "onnxruntime", "openvino")
LOAD = 8


def accused(record: Record) -> bool:
    """Whether a row or a side failed by anything but the machine or the compiler's own word."""
    status = record.status
    return status in ("parity_failed", "fell_back", "crashed") or (
        status == "unstable" and not is_of_the_machine(record.measurement.findings)
    )


def told(records: Sequence[Record]) -> list[str]:
    return [
        f"{record.variant.backend}: {record.status}: {record.measurement.reason}"
        for record in records
        if accused(record)
    ]


def sweep(number: int) -> dict[str, Any]:
    component, preset, workload = MODELS[number % len(MODELS)]
    load = LOAD if number % 3 == 2 else 0
    request = Request(
        component,
        presets=(preset,) if preset else (),
        workloads=(workload,),
        backends=BACKENDS,
        dtypes=("fp32",),
        device="cpu",
        policy=SHORT,
        final_s=3.0,
        ceilings=False,
    )
    started = time.monotonic()
    with loaded(load):
        done = run_sweep(make_plan(request), paths.runs_folder(), "honest", resume=False, progress=Recorder())
    rows = [entry.record for entry in done.stored]
    races = [entry.record for entry in done.finals]
    return {
        "number": number,
        "model": f"{component.removeprefix('selftest_backends.')}.{workload}",
        "load": load,
        "seconds": round(time.monotonic() - started, 1),
        "rows": [f"{record.variant.backend} {record.status}" for record in rows],
        "races": [[f"{side.variant.backend} {side.status}" for side in race.sides] for race in races],
        "decided": [verdict_of(race) is not None for race in races],
        "accused": told(rows),
        "accused_in_races": [text for race in races for text in told(race.sides)],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--sweeps", type=int, default=60)
    asked = parser.parse_args()
    lines = asked.file.read_text().splitlines() if asked.file.exists() else []
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH", "")]))
    with tempfile.TemporaryDirectory(prefix="honest-races-") as folder, marked_folder(Path(folder)):
        for number in range(len(lines), asked.sweeps):
            found = json.dumps(sweep(number))
            with asked.file.open("a") as file:
                file.write(f"{found}\n")
            print(found, flush=True)
            lines.append(found)
    every = [json.loads(line) for line in lines]
    rows, races = (sum(len(one[what]) for one in every) for what in ("rows", "races"))
    wrong = [text for one in every for text in (*one["accused"], *one["accused_in_races"])]
    print(
        f"{len(every)} sweeps, {rows} rows, {races} races, {sum(one['seconds'] for one in every) / 60:.0f} min: {wrong}"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
