"""Kill the fast sequence of gpu-evidence at random moments, and look whether the archive has every finished row.

    python tests/trials/killed_evidence.py [TIMES] [SEED]

Each time in a fresh folder the sequence runs on toy and wm at preset tiny on the CPU with a budget of 60 s, and SIGKILL
ends it after a random time. Every row whose line was printed must be in the archive, which must be whole. A second call
must go on: no row that was printed is measured again.
"""

import random
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from os import environ
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUBJECTS = "toy:tiny.world,wm:tiny.step"
BUDGET_S = 60
_ROW = re.compile(r"^ +[\d.]+ ms +\w+ +\d+ s of \d+ +(\S+ \S+ \S+)", re.MULTILINE)
_RECORD = re.compile(r"records/\d{8}T\d{6}Z_(toy|wm)_(.+)_cpu_[0-9a-f]{12}\.json")


def start(folder: Path) -> "subprocess.Popen[str]":
    places = {name: str(folder / name.lower()) for name in ("RUNS", "CACHE", "LOCKS")}
    words = ["--fast", "--device", "cpu", "--budget", str(BUDGET_S), "--subjects", SUBJECTS]
    return subprocess.Popen(
        [str(ROOT / "tools/gpu-evidence"), *words, "--folder", str(folder / "evidence"), "--to", str(folder / "to")],
        env={**environ, **{f"BAKEOFF_{name}": place for name, place in places.items()}},
        stdout=subprocess.PIPE,
        text=True,
    )


def archived(folder: Path) -> list[str]:
    """The rows in the archive, as `toy tiny.world_eager_fp32`. Raises tarfile.TarError if it is not whole."""
    path = folder / "to/evidence.tar.gz"
    if not path.exists():
        return []
    with tarfile.open(path) as archive:
        names = archive.getnames()
    return [" ".join(found.groups()) for found in map(_RECORD.search, names) if found]


def as_archived(printed: str) -> str:
    subject, backend, dtype = printed.split()
    component, _, inside = subject.partition(":")
    return f"{component} {inside}_{backend}_{dtype}"


def kill_once(after_s: float, folder: Path) -> Mapping[str, object]:
    process = start(folder)
    time.sleep(after_s)
    process.kill()
    printed = [as_archived(row) for row in _ROW.findall(process.communicate()[0])]
    kept = archived(folder)
    again = start(folder)
    said = again.communicate()[0]
    more = [as_archived(row) for row in _ROW.findall(said)]
    lost = (set(printed) - set(kept)) | (set(printed + more) - set(archived(folder)))
    return {
        "after_s": round(after_s, 1),
        "printed": len(printed),
        "lost": sorted(lost),
        "then": len(more),
        "twice": sorted(set(printed) & set(more)),
        "code": again.returncode,
        "archived": len(archived(folder)),
    }


def main() -> int:
    times, seed = (
        (int(word) for word in [*sys.argv[1:], "10", "0"][:2]) if len(sys.argv) != 2 else (int(sys.argv[1]), 0)
    )
    moments, failed = random.Random(seed), False
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN, "run it in the foreground"
    for _ in range(times):
        with tempfile.TemporaryDirectory(prefix="killed-") as folder:
            found = kill_once(moments.uniform(1.0, BUDGET_S), Path(folder))
        wrong = bool(found["lost"] or found["twice"] or found["code"] not in (0, 75))
        failed |= wrong
        print("WRONG" if wrong else "ok", found, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
