"""A worker that measures nothing: it says its phases, sleeps a little and leaves a result, in a tenth of a second.

Standard library only. What it is asked is counted in the file that BAKEOFF_TEST_WINDOWS names, a line for each job:
who asked (BAKEOFF_TEST_WHO), the kind, and from when to when on the monotonic clock.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SAMPLES = 200
_LONGEST_PHASE_S = 0.04


def say(phase: str, detail: str = "") -> None:
    os.write(int(sys.argv[1]), json.dumps({"phase": phase, "detail": detail}).encode() + b"\n")


def work(*phases: str) -> None:
    for phase in phases:
        say(phase)
        time.sleep(random.random() * _LONGEST_PHASE_S)


def judge(job: dict[str, Any]) -> dict[str, Any]:
    """Leaves the files by which a sweep knows that a judge is there."""
    folder = Path(job["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    work("import", "weights", "judge")
    for name in ("judge.json", *(f"eager-{dtype}.json" for dtype in job["dtypes"])):
        (folder / name).write_text("{}")
        time.sleep(0.01)
    return {"judge": folder.name, "dtype": "fp64", "seconds": 0.1, "reused": False}


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Mostly ok; now and then it dies, or leaves somebody behind that its guard has to find."""
    work("import", "weights", "build")
    chance = random.random()
    if chance < 0.3:
        subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
    if chance < 0.05:
        os.kill(os.getpid(), signal.SIGSEGV)
    build = {"cache": "cold" if "eager" not in job["variant"] else "none", "build_s": 0.1}
    work("prove", "check", "warm-up", "latency", "throughput", "memory")
    clock = {"samples_ns": drawn(SAMPLES), "warmup_ns": drawn(10), "stopped": "narrow"}
    return {
        "status": "ok",
        "build": build,
        "latency": clock,
        "throughput": {"samples_ns": drawn(10)},
        "weights": "f00d",
    }


def twin(job: dict[str, Any]) -> dict[str, Any]:
    work("import", "weights", "build", "trace")
    trace = {"kernels": [], "kernel_count": 1, "total_ns": 100, "named_ns": 100, "own_ns": 0}
    return {"warm_s": 0.05 if job["rebuild"] else None, "trace": trace, "outside": {}, "inside": {}}


def compare(_job: dict[str, Any]) -> dict[str, Any]:
    """Blocks of calls as they are asked for, until `stop` or nobody asks any more."""
    work("import", "weights", "build", "prove", "check", "warm-up")
    say("ready", "1000000")
    with os.fdopen(int(sys.argv[2]), "rb", buffering=0) as commands:
        while (line := commands.readline().strip()) not in (b"", b"stop"):
            time.sleep(0.005)
            say("block", json.dumps({"ns": drawn(int(line)), "idle_s": 0.0}))
    return {"status": "ok", "build": {"cache": "warm", "build_s": 0.1}, "weights": "f00d"}


def ceilings(_job: dict[str, Any]) -> dict[str, Any]:
    work("import", "ceilings")
    return {"ceilings": [{"kind": "copy", "dtype": "fp32", "size": 1 << 20, "best": 1e10, "median": 1e10}]}


def drawn(count: int) -> list[int]:
    return [random.randrange(1_000_000, 1_100_000) for _ in range(count)]


def main() -> None:
    started = time.monotonic()
    asked = json.loads(Path("job.json").read_bytes())
    answers = {
        "JudgeJob": judge,
        "MeasureJob": measure,
        "TwinJob": twin,
        "CompareJob": compare,
        "CeilingsJob": ceilings,
    }
    if asked["kind"] not in answers:
        sys.exit(f"this worker knows no {asked['kind']}")
    value = answers[asked["kind"]](asked["job"])
    Path("result.json.part").write_text(json.dumps({"value": value}))
    Path("result.json.part").rename("result.json")
    if os.environ.get("BAKEOFF_TEST_WINDOWS"):
        line = f"{os.environ['BAKEOFF_TEST_WHO']} {asked['kind']} {started} {time.monotonic()}\n"
        with open(os.environ["BAKEOFF_TEST_WINDOWS"], "a", encoding="ascii") as file:
            file.write(line)


if __name__ == "__main__":
    main()
