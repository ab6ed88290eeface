"""How long a sweep takes: each component with nothing cached, with warm caches, and with a budget, and its phases.

    python tests/trials/sweep_times.py [--label TITLE] [--python .venv/bin/python] [--only wm image] [--budget 3m]
                                       [--kinds cold warm budget] [--caches FOLDER] [--keep runs] [--aitune PYTHON]

Runs `bakeoff sweep NAME` at the default suite from the command line, one after the other, with a cache folder of their
own, prints what it saw of each, and at the end, or when it is interrupted, adds that under the label to
tests/trials/sweep_times.json and from that writes docs/trials/sweep-times.md: written in between, they would make the
records of the next sweep those of a changed checkout. `--python` of another checkout's environment measures that
checkout, so that two versions can be told apart. A sweep with a budget begins with a cache folder that is empty again;
only the selftest's result is in each, for records to cite. `--caches` keeps the cold sweeps' cache folders, for warm
ones in a later run. `--keep` copies the cold sweeps' records to a folder of records, so that what is published is what
was timed. `--only small` sweeps the model of six linear layers in small_model.py, by eager and inductor; `--aitune` is
an environment's Python that imports NVIDIA AITune, which then answers for that model before each of those sweeps, with
caches of its own in the same state. Run it alone on the machine.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from sweep_times_page import PAGE, RECORD, page

from bakeoff.machine import host, paths
from bakeoff.machine.files import write_atomically
from bakeoff.record.schema import Record
from bakeoff.record.store import load_all
from bakeoff.record.verdict import decide

HERE = Path(__file__).resolve().parent
COMPONENTS = ("wm", "image", "audio", "matrix-vae", "matrix-wm")
ARGUMENTS = {"small": [f"{HERE / 'small_model.py'}:linear", "--backends", "eager,inductor", "--dtype", "fp32"]}
"""What is swept under another name than a component's."""
KINDS = ("cold", "warm", "budget")
_SAMPLES_S = 8.0
"""Seconds of samples of a row: 5 of latency, 2.5 of throughput, and the start of both."""


def sweep(python: str, component: str, folder: Path, keep: Path | None, *more: str) -> dict[str, Any]:
    """One sweep: its wall seconds, phases, rows and final, from a runs folder of its own, which is copied to `keep`."""
    runs = Path(tempfile.mkdtemp(dir=folder)) / "runs"
    environment = {**os.environ, "BAKEOFF_CACHE": str(folder / "cache")}
    begun, started = datetime.now(UTC), time.monotonic()
    subject = ARGUMENTS.get(component, [component])
    done = subprocess.run(
        [python, "-m", "bakeoff", "--runs", str(runs), "sweep", *subject, "--json", *more],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    if keep is not None:
        shutil.copytree(runs, keep, dirs_exist_ok=True)
    kept = load_all(runs)
    records = [stored.record for stored in kept.current]
    phases = Counter[str]()
    for record in records:
        phases.update({phase: seconds for phase, seconds in record.phase_s.items() if phase != "turn"})
    rows = {
        f"{record.variant.backend} {record.variant.dtype}": {
            "status": record.status,
            "median_ms": None if record.latency is None else record.latency.median_ms,
            "cache": "" if record.measurement.build is None else record.measurement.build.cache,
        }
        for record in records
    }
    ranked = max((datetime.fromisoformat(record.created) - begun).total_seconds() for record in records)
    commits = {f"{record.commit[:7]}{', changed' * record.dirty}" for record in records}
    return {
        "seconds": seconds,
        "ranked_s": ranked,
        "commit": " and ".join(sorted(commits)),
        "exit_code": done.returncode,
        "errors": "" if done.returncode == 0 else done.stderr[-2000:],
        "spent_s": dict(phases.most_common()),
        "limit_s": limit_s(records),
        "rows": rows,
        "finals": [final(stored.record) for stored in kept.comparisons],
    }


def ask_aitune(python: str, folder: Path) -> dict[str, Any]:
    """Seconds from the start of AITune's process to its answer for the small model, and the answer."""
    started = time.monotonic()
    command = [python, str(HERE.parent / "support" / "aitune_small.py"), str(folder / "aitune")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {"seconds": time.monotonic() - started, **json.loads(done.stdout.splitlines()[-1])}


def limit_s(records: Sequence[Record]) -> float:
    """The least time of a cold sweep: builds that keep all cores busy, and 8 s of samples a row."""
    measured = [record.measurement for record in records if record.latency is not None]
    builds = [made.build for made in measured if made.build is not None]
    built_s = sum(build.cpu_s or build.build_s or 0.0 for build in builds) / host.usable_cores()
    return built_s + _SAMPLES_S * len(measured)


def begin(folder: Path) -> None:
    """An empty folder, but for the result of this machine's newest selftest in its caches."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "cache").mkdir(parents=True)
    stamp = paths.cache_folder() / "selftest.json"
    if stamp.exists():
        shutil.copy(stamp, folder / "cache")


def final(comparison: Any) -> dict[str, Any]:
    verdict = decide(comparison)
    names = [f"{side.variant.backend} {side.variant.dtype}" for side in comparison.sides]
    return {
        "sides": names,
        "word": verdict.word,
        "ratio": verdict.ratio,
        "low": verdict.low,
        "high": verdict.high,
        "sets": verdict.pairs,
    }


def measure(component: str, asked: argparse.Namespace, mine: dict[str, Any], parser: argparse.ArgumentParser) -> None:
    """Add the sweeps of a component, of each kind that is asked for."""
    with tempfile.TemporaryDirectory() as scratch:
        warmed = Path(scratch, "warmed") if asked.caches is None else asked.caches.resolve() / component
        for kind in asked.kinds:
            folder = Path(scratch, "empty") if kind == "budget" else warmed
            if kind == "warm" and not (warmed / "cache").exists():
                parser.error(f"no cache folder of a cold sweep of {component}: add cold to --kinds, or --caches")
            if kind != "warm":
                begin(folder)
            before = os.getloadavg()[0]
            peer = ask_aitune(asked.aitune, folder) if component == "small" and asked.aitune else None
            more = ("--time-limit", asked.budget) if kind == "budget" else ()
            made = sweep(asked.python, component, folder, asked.keep if kind == "cold" else None, *more)
            made |= {"load_before": before} | ({"aitune": peer} if peer else {})
            mine.setdefault(component, {})[kind] = made
            print(asked.label, component, kind, json.dumps(made), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--label", default="Now: rows in waves")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--budget", default="3m")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--caches", type=Path, help="a folder where the cold sweeps' cache folders stay")
    parser.add_argument("--keep", type=Path, help="a folder of records for those of the cold sweeps")
    parser.add_argument("--aitune", help="a Python that imports NVIDIA AITune")
    asked = parser.parse_args()
    found: dict[str, Any] = json.loads(RECORD.read_bytes()) if RECORD.exists() else {}
    mine = found.setdefault(asked.label, {"host": {"cpu": host.read_host().cpu, "cores": host.usable_cores()}})
    mine["recorded"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ")
    try:
        for component in asked.only or COMPONENTS:
            measure(component, asked, mine, parser)
    finally:
        write_atomically(RECORD, json.dumps(found, indent=1).encode() + b"\n")
        write_atomically(PAGE, page(found).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
