"""Whether a user gets one answer, and the right one, on a host of two speeds, on one that drifts and on a quiet one.

    python tests/trials/two_speeds.py FILE [--sweeps 20] [--hosts alternating drifting quiet]

Beside each sweep runs a load: `alternating` keeps one core busy every other three seconds, `drifting` ever longer parts
of each second. Sweeps the small model of this folder and wm at preset tiny as a user does; FILE gets a line of JSON for
each, so that the same command goes on where it stopped. Prints how often each answer was given. Run it alone.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from answers import as_text

from bakeoff.record.finalists import call_ms
from bakeoff.record.store import load_all
from bakeoff.report.groups import newest, tables
from bakeoff.report.recommendation import decision, deployment

HERE = Path(__file__).resolve().parent
SUBJECTS = {
    "small": [f"{HERE / 'small_model.py'}:small", "--backends", "eager,inductor", "--dtype", "fp32"],
    "wm": ["wm", "--preset", "tiny", "--backends", "eager,inductor", "--dtype", "fp32"],
}
LOADS = {
    "quiet": "",
    "alternating": "import time\nwhile True:\n    end = time.monotonic() + 3\n    while time.monotonic() < end: pass\n"
    "    time.sleep(3)",
    "drifting": "import time\nbegan = time.monotonic()\nwhile True:\n    now = time.monotonic()\n"
    "    share = min(0.9, (now - began) / 60)\n    while time.monotonic() < now + share: pass\n"
    "    time.sleep(1 - share)",
}


@contextmanager
def host(kind: str) -> Iterator[None]:
    load = subprocess.Popen([sys.executable, "-c", LOADS[kind]]) if LOADS[kind] else None
    try:
        yield
    finally:
        if load is not None:
            load.kill()
            load.wait()


def sweep(kind: str, subject: str, folder: Path) -> dict[str, Any]:
    runs = folder / f"{kind}-{subject}-{time.time_ns()}"
    environment = {**os.environ, "BAKEOFF_CACHE": str(folder / "cache"), "BAKEOFF_RUNS": str(runs)}
    command = [sys.executable, "-m", "bakeoff", "sweep", *SUBJECTS[subject], "--device", "cpu"]
    started = time.monotonic()
    with host(kind):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    records = load_all(runs)
    (table,) = tables(newest(records.current))
    made, rows = decision(table.rows, records.comparisons), [entry.record for entry in table.rows]
    return {
        "host": kind,
        "subject": subject,
        "seconds": round(time.monotonic() - started, 1),
        "code": done.returncode,
        "rows": [f"{row.variant.backend} {row.status} {call_ms(row, 'latency'):.4g}" for row in rows],
        "final": made.final is not None,
        "winner": str(made.winner.record.variant.backend) if made.winner is not None else "",
        "said": as_text(deployment(table.rows, records.comparisons)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--hosts", nargs="*", default=list(LOADS), choices=list(LOADS))
    asked = parser.parse_args()
    found = [json.loads(line) for line in asked.file.read_text().splitlines()] if asked.file.exists() else []
    had = Counter((one["host"], one["subject"]) for one in found)
    with tempfile.TemporaryDirectory(prefix="two-speeds-") as folder:
        for number in range(asked.sweeps):
            for kind in asked.hosts:
                for subject in SUBJECTS:
                    if had[kind, subject] <= number:
                        found.append(sweep(kind, subject, Path(folder)))
                        with asked.file.open("a") as file:
                            file.write(f"{json.dumps(found[-1])}\n")
                        print(json.dumps(found[-1]), flush=True)
    for kind in asked.hosts:
        for subject in SUBJECTS:
            held = [one for one in found if (one["host"], one["subject"]) == (kind, subject)]
            print(kind, subject, dict(Counter(one["winner"] or one["said"] for one in held)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
