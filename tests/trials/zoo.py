"""Ten public models through the path of five lines: how long to the first table, and what became of each row.

    python tests/trials/zoo.py [--backends eager,inductor] [--only resnet50 gpt2]

Sweeps each function of examples/bring/zoo.py in fp32 with `bakeoff sweep FILE.py:FUNCTION`, one after the other, with
caches of its own, and writes tests/trials/zoo.json and from it docs/trials/zoo.md after each (with `--only`, nothing).
Needs the extra `zoo`. Run it alone on the machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from zoo_page import MODELS, PAGE, RECORD, page

from bakeoff.machine import host
from bakeoff.machine.files import write_atomically
from bakeoff.record.store import load_all

NAMES = ("resnet50", "vit", "gpt2", "unet", "dit", "wav2vec", "deeplab", "regnet", "autoencoder", "longformer")
LIBRARIES = ("torch", "torchvision", "timm", "transformers", "diffusers")


def sweep(name: str, backends: str, folder: Path) -> dict[str, Any]:
    """One sweep from the command line: what a user types, how long it takes, and the rows of its table."""
    runs = folder / "runs"
    command = [sys.executable, "-m", "bakeoff", "--runs", str(runs), "sweep", f"{MODELS}:{name}"]
    command += ["--backends", backends, "--dtype", "fp32", "--no-final"]
    environment = {**os.environ, "BAKEOFF_CACHE": str(folder / "cache")}
    started = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - started
    rows = {}
    for record in (stored.record for stored in load_all(runs).current if stored.record.variant.component == name):
        rows[f"{record.variant.backend} {record.variant.dtype}"] = {
            "status": record.status,
            "reason": record.measurement.reason,
            "median_ms": None if record.latency is None else record.latency.median_ms,
            "low_ms": None if record.latency is None else record.latency.low_ms,
            "high_ms": None if record.latency is None else record.latency.high_ms,
        }
    said = done.stderr.strip().splitlines()[-1].removeprefix("bakeoff: ") if done.returncode == 2 else ""
    return {"seconds": seconds, "exit_code": done.returncode, "refused": said, "rows": dict(sorted(rows.items()))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="eager,inductor")
    parser.add_argument("--only", nargs="*", default=[])
    asked = parser.parse_args()
    found: dict[str, Any] = {
        "recorded": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "host": {"cpu": host.read_host().cpu, "cores": host.usable_cores()},
        "versions": {name: version(name) for name in LIBRARIES},
        "backends": asked.backends,
        "load": {"start": os.getloadavg()[0], "end": os.getloadavg()[0]},
        "models": {},
        "missing": list(NAMES),
    }
    with tempfile.TemporaryDirectory() as place:
        for name in asked.only or NAMES:
            found["models"][name] = sweep(name, asked.backends, Path(place))
            print(name, json.dumps(found["models"][name]), flush=True)
            found["missing"].remove(name)
            found["load"]["end"] = os.getloadavg()[0]
            if not asked.only:
                write_atomically(RECORD, json.dumps(found, indent=1).encode() + b"\n")
                write_atomically(PAGE, page(found).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
