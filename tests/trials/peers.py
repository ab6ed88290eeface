"""The same lies, told to this lab and to NVIDIA AITune: what each says of them, and how long that takes.

    python tests/trials/peers.py [--finals 40] [--minutes 15] [--threads 1] [--only LIE ...]

Writes tests/trials/peers.json and, from it, docs/trials/peers.md at each step, and prints the table; with `--only` it
writes nothing. Where AITune cannot be imported each of its cells says so. Run it alone on the machine. Most of the time
goes to the lab's comparisons of eager with eager, of which none begins after `--minutes`. AITune without a GPU, in a
checkout's environment:

    .venv/bin/pip install --no-deps aitune==0.6.0 autowrapt dill nvtx pandas polygraphy python-dateutil pytz six triton
    .venv/bin/pip install --no-deps wrapt==2.5.2
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from lab import Recorder, marked_folder
from peers_page import PAGE, RECORD, page, table

from bakeoff.machine import host, paths
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import FINAL_S as USUAL_FINAL_S
from bakeoff.plan.request import Request
from bakeoff.record.policy import Policy
from bakeoff.record.verdict import decide
from bakeoff.sweeps.compare import compare
from bakeoff.sweeps.run import run_sweep

SUPPORT = Path(__file__).resolve().parents[1] / "support"
SHORT = Policy(warmup_s=0.3, warmup_cap_s=3.0, min_s=1.5, full_s=1.5, cap_s=3.0, throughput_s=0.5, trace=False)
"""For rows whose speed decides nothing."""
FINAL_S = 2.0
"""Of calls in one comparison of eager with eager."""
DEADLINE_S = 600


@dataclass(frozen=True)
class Lie:
    """How one lie is told to both."""

    name: str
    backend: str
    """For the lab's sweep, beside eager."""
    told: tuple[str, ...] = ()
    """To AITune, as aitune_lies.py names it: with and without the lie where there are two; empty: nothing like it."""
    device: str = "cpu"
    batches: tuple[int, ...] = (1,)
    usual: bool = False
    """Sweep with the usual clocks and final, so that the time to an answer is what a user waits."""


LIES = (
    Lie("zeros", "lies:ZEROS", ("zeros",)),
    Lie("bf16", "lies:BF16", ("bf16",)),
    Lie("tf32", "lies:TF32", ("tf32",), device="cuda"),
    Lie("disabled", "lies:DISABLED", ("disabled",)),
    Lie("disabled_in_parts", "lies:DISABLED_IN_PARTS", ("disabled_in_parts",)),
    Lie("cuda_provider", "onnxruntime[provider=cuda]", ("cuda_provider",)),
    Lie("tensorrt_provider", "onnxruntime[provider=tensorrt]", ("tensorrt_provider",)),
    Lie("lost_provider", "selftest_backends.compiler_faults:LOST_PROVIDER"),
    Lie("slow_first", "lies:SLOW_FIRST", ("slow_first_batches", "plain_batches"), batches=(1, 16)),
    Lie("aborts", "lies:ABORTS", ("aborts",)),
    Lie("inductor", "inductor[]", ("inductor",), usual=True),
)


def request_of(backend: str, device: str, batch: int, threads: int) -> Request:
    """Eager and one candidate on the toy that aitune_lies.py builds, with short clocks."""
    return Request(
        "toy",
        presets=("small",),
        workloads=("picture",),
        backends=("eager", backend),
        dtypes=("fp32",),
        device=device,
        batches=(batch,),
        threads=threads,
        policy=SHORT,
        final_s=FINAL_S,
        ceilings=False,
    )


def needs_gpu(lie: Lie) -> bool:
    return lie.device == "cuda" and not host.read_host().gpus


def ask_lab(lie: Lie, threads: int) -> dict[str, Any]:
    """Sweep eager and the lie, once for each batch; what the table says of the lie."""
    if needs_gpu(lie):
        return {"needs": "a GPU"}
    began = time.perf_counter()
    rows = []
    for batch in lie.batches:
        asked = request_of(lie.backend, lie.device, batch, threads)
        if lie.usual:
            asked = replace(asked, policy=Policy(), final_s=USUAL_FINAL_S)
        with tempfile.TemporaryDirectory(prefix="bakeoff-peers-") as folder, marked_folder(Path(folder)):
            done = run_sweep(make_plan(asked), paths.runs_folder(), "peers", resume=False, progress=Recorder())
        record = done.stored[1].record
        rows.append(
            {
                "batch": batch,
                "status": record.status,
                "reason": record.measurement.reason,
                "findings": sorted({finding.code for finding in record.measurement.findings}),
                "final": verdict_of(done.finals[0].record) if done.finals else None,
            }
        )
    return {"rows": rows, "seconds": time.perf_counter() - began}


def verdict_of(comparison: Any) -> dict[str, Any]:
    """The final's verdict on the candidate, as its speed over eager."""
    candidate = int("/eager/" in str(comparison.a.variant))
    verdict = decide(comparison, candidate, 1 - candidate)
    return {"word": verdict.word, "ratio": verdict.ratio, "low": verdict.low, "high": verdict.high}


def ask_aitune(lie: str, threads: int, device: str, runs: int = 1) -> dict[str, Any]:
    """What AITune said in a process of its own; `died` names the signal or exit code that ended it."""
    began = time.perf_counter()
    command = [sys.executable, str(SUPPORT / "aitune_lies.py"), lie, str(threads), device, str(runs)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    seconds = time.perf_counter() - began
    if ended.returncode:
        code = -ended.returncode
        died = signal.Signals(code).name if code > 0 else last_line(ended.stderr)
        return {"died": died, "seconds": seconds}
    return {"runs": json.loads(last_line(ended.stdout))["runs"], "seconds": seconds}


def last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def find_aitune() -> dict[str, Any]:
    """AITune's version and what is stubbed, or why it cannot be imported."""
    ended = subprocess.run(
        [sys.executable, str(SUPPORT / "aitune_lies.py")], capture_output=True, text=True, check=False
    )
    if ended.returncode:
        return {"missing": f"AITune cannot be imported here: {last_line(ended.stderr)}"}
    return json.loads(last_line(ended.stdout))  # type: ignore[no-any-return]


def eager_against_eager(count: int, threads: int, until: float) -> dict[str, Any]:
    """Compare eager with itself under another name, each time in fresh processes; fewer where the time is over."""
    began = time.perf_counter()
    found = []
    with tempfile.TemporaryDirectory(prefix="bakeoff-peers-") as folder, marked_folder(Path(folder)):
        for number in range(count):
            if found and time.perf_counter() > until:
                break
            asked = request_of("lies:PLAIN", "cpu", 1, threads)
            done = compare(make_plan(asked), paths.runs_folder(), "peers", Recorder(), seed=number)
            found.append(verdict_of(done.record))
            print(f"eager against eager {number + 1} of {count}: {found[-1]['word']}", file=sys.stderr)
    return {"finals": found, "seconds": time.perf_counter() - began}


def measure(lies: tuple[Lie, ...], finals: int, threads: int, minutes: float) -> Iterator[dict[str, Any]]:
    """The record of the trial as it grows, once for each lie and each comparison of eager with eager, by each."""
    here = host.read_host()
    began, load = time.perf_counter(), os.getloadavg()[0]
    aitune = find_aitune()
    rows: dict[str, Any] = {}
    same: dict[str, Any] = {}

    def record(finished: bool = False) -> dict[str, Any]:
        return {
            "schema": 1,
            "finished": finished,
            "made": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()),
            "host": {"cpu": here.cpu, "cores": host.usable_cores(), "gpus": [str(gpu["name"]) for gpu in here.gpus]},
            "threads": threads,
            "versions": {name: metadata.version(name) for name in ("torch", "onnxruntime")}
            | {"python": platform.python_version()},
            "aitune": aitune,
            "load": {"start": load, "end": os.getloadavg()[0]},
            "seconds": time.perf_counter() - began,
            "rows": rows,
            "same": same,
        }

    for lie in lies:
        print(lie.name, file=sys.stderr)
        said: dict[str, Any] = {"lab": ask_lab(lie, threads)}
        if "missing" in aitune:
            said["aitune"] = [aitune]
        elif needs_gpu(lie):
            said["aitune"] = [{"needs": "a GPU"}]
        else:
            said["aitune"] = [ask_aitune(told, threads, lie.device) for told in lie.told]
        rows[lie.name] = said
        yield record()
    if finals:
        theirs = aitune if "missing" in aitune else ask_aitune("plain", threads, "cpu", finals)
        same |= {"aitune": theirs, "lab": eager_against_eager(finals, threads, began + 60 * minutes)}
    yield record(finished=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--finals", type=int, default=40, help="comparisons of eager with eager, by each")
    parser.add_argument("--minutes", type=float, default=15.0, help="after which the lab compares eager no more")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--only", nargs="+", choices=[lie.name for lie in LIES], help="these lies; nothing is written")
    asked = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SUPPORT), os.environ.get("PYTHONPATH", "")]))
    chosen = tuple(lie for lie in LIES if not asked.only or lie.name in asked.only)
    for record in measure(chosen, 0 if asked.only else asked.finals, asked.threads, asked.minutes):
        if not asked.only:
            RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            PAGE.write_text(page(record), encoding="utf-8")
    print(table(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
