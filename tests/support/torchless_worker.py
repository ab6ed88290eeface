"""A worker that measures nothing: it reports its phases, sleeps and writes a result, in a tenth of a second.

A build that finds nothing in its cache folder draws how slow its code is, and leaves that there, as compilers differ
from build to build. BAKEOFF_TEST_SURE=1 keeps workers from dying by chance. Those of variants that contain
BAKEOFF_TEST_DIES die for sure, those of BAKEOFF_TEST_DIES_BESIDE where they build beside others, those of
BAKEOFF_TEST_DIES_TRACING where a trace is asked for, and those of BAKEOFF_TEST_HANGS never end their build.
With BAKEOFF_TEST_HOLDS=N a worker whose turn comes after N records is never done, and none dies by chance.

Standard library only. What it is asked is counted in the file that BAKEOFF_TEST_WINDOWS names, a line for each job:
who asked (BAKEOFF_TEST_WHO), the kind, and from when to when on the monotonic clock.
"""

import hashlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

SAMPLES = 40
"""So few that they fit into the phases."""
_LONGEST_PHASE_S = 0.01


def say(phase: str, **values: Any) -> None:
    os.write(int(sys.argv[1]), json.dumps({"phase": phase, **values}).encode() + b"\n")


def work(*phases: str) -> None:
    for phase in phases:
        say(phase)
        time.sleep(random.random() * _LONGEST_PHASE_S)


def wait_for_turn() -> None:
    say("turn")
    while os.read(int(sys.argv[2]), 1) != b"\n":
        pass


def count(job: dict[str, Any]) -> dict[str, Any]:
    work("import", "weights")
    counted = {"flops": 1_000_000, "weight_elements": 1_000, "io_elements": 1_000, "convolution_flops": 0}
    return {"works": [counted] * len(job["calls"]), "problems": []}


def reference(job: dict[str, Any]) -> None:
    """Write the files by which a sweep recognises an existing reference."""
    folder = Path(job["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    work("import", "weights", "reference")
    for name in ("reference.json", *(f"eager-{dtype}.json" for dtype in job["dtypes"])):
        (folder / name).write_text("{}")
        time.sleep(0.01)
    if job["own_folder"]:
        own = Path(job["own_folder"])
        own.mkdir(parents=True, exist_ok=True)
        (own / "reference.json").write_text("{}")


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Usually ok; sometimes it dies, or leaves a process that its guard must find."""
    work("import", "weights", "build")
    chance = 1.0 if os.environ.get("BAKEOFF_TEST_SURE") else random.random()
    if chance < 0.3:
        subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
    if chance < 0.05 and not os.environ.get("BAKEOFF_TEST_HOLDS"):  # a row that died has a record, and holds nothing
        os.kill(os.getpid(), signal.SIGSEGV)
    if os.environ.get("BAKEOFF_TEST_HANGS", "nobody") in job["variant"]:
        time.sleep(3600)
    for name, dies in (("BAKEOFF_TEST_DIES", True), ("BAKEOFF_TEST_DIES_BESIDE", job["overlapped"])):
        if dies and os.environ.get(name, "nobody") in job["variant"]:
            os.kill(os.getpid(), signal.SIGKILL)
    cache = "none" if "eager" in job["variant"] else "warm" if speed_file(job).exists() else "cold"
    slowness = built(job)
    work("prove", "check")
    wait_for_turn()
    hold()
    work("warm-up", "latency", "throughput", "memory")
    clock = {"samples_ns": drawn(SAMPLES, slowness), "warmup_ns": drawn(10), "stopped": "narrow"}
    measurement = {
        "status": "ok",
        "build": build_cost(cache, job["overlapped"]),
        "latency": clock,
        "throughput": {"samples_ns": drawn(10)},
        "weights": "f00d",
    }
    if os.environ.get("BAKEOFF_TEST_DIES_TRACING", "nobody") in job["variant"]:
        measurement["proof"] = {"graphs": 1}
        if job["policy"]["trace"]:
            work("traced build")
            os.kill(os.getpid(), signal.SIGKILL)
    return {"measurement": measurement}


def hold() -> None:
    """Wait for ever where BAKEOFF_TEST_HOLDS says so."""
    if os.environ.get("BAKEOFF_TEST_HOLDS"):
        records = Path(os.environ["BAKEOFF_RUNS"]).glob("*/records/*.json")
        if sum("_ceilings_" not in path.name for path in records) >= int(os.environ["BAKEOFF_TEST_HOLDS"]):
            time.sleep(3600)


def build_cost(cache: str, overlapped: bool) -> dict[str, Any]:
    return {"cache": cache, "build_s": None if overlapped else 0.1, "cpu_s": 0.2, "overlapped": overlapped}


def speed_file(job: dict[str, Any]) -> Path:
    return Path(job["cache_folder"]) / "slowness"


def built(job: dict[str, Any]) -> float:
    """Time of a call of this build, read from its cache if it was built before; eager is the slowest."""
    if "eager" in job["variant"]:
        return 3.0
    path, slowness = speed_file(job), random.uniform(1.0, 2.0)
    with suppress(OSError):  # a full disk
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(str(slowness))
        slowness = float(path.read_text() or slowness)
        (path.parent / "finished").touch()
    return slowness


def compare(job: dict[str, Any]) -> dict[str, Any]:
    """Answer requests for blocks of calls, until `stop` or the end of the input."""
    work("import", "weights", "build", "prove", "check")
    wait_for_turn()
    work("warm-up")
    slowness = built(job["measure"])
    say("ready", call_ns=1_000_000)
    with os.fdopen(int(sys.argv[2]), "rb", buffering=0) as commands:
        while (line := commands.readline().strip()) not in (b"", b"stop"):
            time.sleep(0.005)
            say("block", block={"samples_ns": drawn(int(line), slowness), "idle_cpu_s": 0.0})
    return {"status": "ok", "build": build_cost("warm", job["measure"]["overlapped"]), "weights": "f00d"}


def describe_loop(job: dict[str, Any]) -> dict[str, Any]:
    work("import", "reference")
    return small_loop(job)


def small_loop(job: dict[str, Any]) -> dict[str, Any]:
    """The loop of `loops:Small`, without calls for another preset than its own."""
    steps = int(job["options"].get("steps", 2))
    slots = [{"name": name, "component": "toy", "preset": "tiny"} for name in ("wm", "image")]
    denoise = {"phase": "denoise", "slot": "wm", "program": "world"}
    decode = {"phase": "decode", "slot": "image", "program": "picture"}
    calls = [*[denoise] * steps, decode] if job["preset"] in ("", "tiny") else []
    return {
        "name": "small",
        "preset": job["preset"] or "tiny",
        "label": "toy",
        "options": {"steps": steps},
        "changed": {"steps": steps} if steps != 2 else {},
        "unit": "frame",
        "slots": slots,
        "opened": {"calls": [], "phases": []},
        "opening": [],
        "steady": {"calls": calls, "phases": ["denoise", "decode"], "frames": 1},
        "filling": 2,
        "max_units": None,
        "state": {"x": ["wm"]},
        "outputs": {"frame": ["image"]},
        "signals": {"frame": "picture"},
        "flows": {
            **{f"call {step}": ["state x"] for step in range(steps)},
            f"call {steps}": [],
            "state x": ["state x", *(f"call {step}" for step in range(steps))],
            "output frame": [f"call {steps}"],
        },
        "rate": 24.0,
        "sizes": {"steps": steps},
        "unit_elements": 1 << 20,
    }


def loop_reference(job: dict[str, Any]) -> None:
    folder = Path(job["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    work("import", "weights", "loop reference")
    if not (folder / "reference.json").exists():
        (folder / "reference.json").write_text(json.dumps(job["units"]))
    for dtypes in job["dtypes"]:
        slots = ",".join(f"{slot}={dtype}" for slot, dtype in sorted(dtypes.items()))
        (folder / f"floor-{slots}.json").touch()


def pipeline(job: dict[str, Any]) -> dict[str, Any]:
    """Run units on command: 2 filling, then steady, of 5 ms, four fifths of it in a phase.

    With threads that sleep a unit of a mix with ONNX Runtime takes 2 ms, of another 6. `decode-behind` takes 3 ms a
    unit, and 1 ms of the next one until it is ready; a schedule has a promise of its own.
    BAKEOFF_TEST_FAULTS holds `FAULT@TEXT` of mixes whose string contains TEXT, separated by spaces.
    """
    asked = [fault.partition("@") for fault in os.environ.get("BAKEOFF_TEST_FAULTS", "").split()]
    mix = ",".join(f"{slot}={measure['variant'].partition('/')[2]}" for slot, measure in job["programs"])
    faults = {fault for fault, _, text in asked if text in mix}
    programs = [
        {
            "slot": slot,
            "variant": variant({"measure": measure}),
            "batch": measure["subject"]["batch"],
            "status": "ok",
        }
        for slot, measure in job["programs"]
    ]
    for _, measure in job["programs"]:
        path = Path(measure["cache_folder"]) / "built"
        path.write_text(path.read_text() + "again" if path.exists() else "once")
    work("import", "weights", "build", "check", "loop check")
    if "build" in faults or ("artifacts" in faults and job["artifacts"]):
        return {"status": "build_failed", "reason": "wm.world: no such operator", "programs": programs}
    if job["horizon_db"] is not None:
        return rolled_out(programs, json.loads((Path(job["reference_folder"]) / "reference.json").read_text()))
    say("ready", call_ns=5_000_000)
    walls: list[int] = []
    kinds: list[str] = []
    unit_ns = 9_000_000 if "slow" in faults else 5_000_000
    if os.environ.get("OMP_WAIT_POLICY") == "passive":
        unit_ns = 2_000_000 if "onnxruntime" in mix else 6_000_000
    behind = job["schedule"].startswith("decode-behind")
    if behind:
        unit_ns = 3_000_000
    with os.fdopen(int(sys.argv[2]), "rb", buffering=0) as commands:
        if job["sustained"]:
            walls, kinds = sustained(commands, faults)
        while (line := commands.readline().strip()) not in (b"", b"stop"):
            command, *counts = line.split()
            assert command == b"unit", line
            asked_units, resuming = map(int, counts)
            if "crash" in faults and len(walls) == 3:
                os.kill(os.getpid(), signal.SIGSEGV)
            if "hang" in faults and len(walls) == 3:
                time.sleep(600)
            kind = "steady" if len(walls) > 1 and "unsettled" not in faults else "filling"
            turn, resumed = (asked_units, resuming) if kind == "steady" else (1, 0)
            time.sleep(0.006 * (2 * resumed + turn))
            made = [unit_ns * (2 if place < resumed else 1) + len(walls) + place for place in range(resumed + turn)]
            walls += made
            kinds += ["resuming"] * resumed + [kind] * turn
            idle_s = 1.0 if "busy" in faults else 0.0
            say("unit", block={"samples_ns": made, "idle_cpu_s": idle_s, "kind": kind, "resumed": resumed})
    say("loop check")
    if "judges" in faults:
        time.sleep(0.8)
    if "claims" in faults:
        walls[-1] -= 1_000_000
    lost = 7 if "sum" in faults else 0
    error = {"name": "frame", "rel_l2": 1.0, "limit": 0.1, "passed": True}
    return {
        "status": "ok",
        "programs": programs,
        "opened_ns": [1000],
        "promised": _promised(unit_ns) if job["schedule"] else None,
        "units": {
            **_units(walls, kinds, unit_ns * 4 // 5, lost),
            "done_ns": [1_000_000] * len(walls) if behind else [],
        },
        "parity": {"reference": "r", "reference_dtype": "fp64", "units": [{"unit": 1, "outputs": [error]}]},
        "device_state": {"other_cpu_share": 0.0},
    }


def _promised(unit_ns: int) -> dict[str, Any]:
    return {"slots": "", "ms": unit_ns / 1e6, "memory_bytes": 1 << 20, "sqnr_db": None, "latency_ms": unit_ns / 1e6}


def _units(walls: list[int], kinds: list[str], denoise_ns: int, lost: int = 0) -> dict[str, Any]:
    count = len(walls)
    return {
        "wall_ns": walls,
        "started_ns": [0] * count,
        "frames": [1] * count,
        "kinds": kinds,
        "sessions": [0] * count,
        "lines": [
            {"name": "denoise", "kind": "phase", "slot": "wm", "ns": [denoise_ns] * count},
            {
                "name": "unattributed",
                "kind": "unattributed",
                "slot": "",
                "ns": [wall - denoise_ns - lost for wall in walls],
            },
        ],
        "programs": [],
        "copied_bytes": [0] * count,
    }


def rolled_out(programs: list[dict[str, Any]], units: int) -> dict[str, Any]:
    error = {"name": "frame", "rel_l2": 0.01, "limit": 0.1, "passed": True}
    curve = {"output": "frame", "errors": [0.01] * units, "decibels": [40.0] * units}
    return {
        "status": "ok",
        "programs": programs,
        "parity": {
            "reference": "r",
            "reference_dtype": "fp64",
            "units": [{"unit": unit, "outputs": [error]} for unit in range(-1, units)],
        },
        "rollout": {"horizon_db": 30.0, "curves": [{**curve, "run": run} for run in ("mix", "eager")]},
    }


def sustained(commands: Any, faults: set[str]) -> tuple[list[int], list[str]]:
    """Run units from the first command to the next one; return their times and kinds."""
    walls: list[int] = []
    kinds: list[str] = []
    assert commands.readline() == b"unit\n"
    while not select.select([commands], [], [], 0)[0]:
        if "crash" in faults and len(walls) == 10:
            os.kill(os.getpid(), signal.SIGSEGV)
        if "hang" in faults and len(walls) == 10:
            time.sleep(600)
        time.sleep(0.006)
        walls.append(5_000_000 + len(walls))
        kinds.append("steady" if len(walls) > 2 else "filling")
        began = {"session": 0, "opened_ns": 0 if walls[1:] else 1000}
        timed = {"started_ns": 10**9 + 6_000_000 * len(walls), "wall_ns": walls[-1], "frames": 1}
        say("unit", stamp={**timed, "kind": kinds[-1], **began})
    return walls, kinds


def variant(program: dict[str, Any]) -> dict[str, Any]:
    """The variant of a program's string, without its options."""
    subject, _, rest = program["measure"]["variant"].partition("/")
    component, _, workload = subject.partition(".")
    backend, _, ending = rest.rpartition("/")
    dtype, _, device = ending.partition("@")
    uses = [{"name": part.partition("[")[0], "options": []} for part in backend.split("+")]
    name, _, preset = component.partition(":")
    return {
        "component": name,
        "preset": preset,
        "workload": workload,
        "backends": uses,
        "dtype": dtype,
        "device": device,
    }


def ceilings(job: dict[str, Any]) -> dict[str, Any]:
    work("import", "ceilings")
    rates = {"size": 1 << 20, "best": 1e10, "median": 1e10}
    products = [{"kind": "product", "dtype": dtype, **rates} for dtype in job["dtypes"]]
    return {"ceilings": [{"kind": "copy", "dtype": "fp32", **rates}, *products], "others": 0.0}


def drawn(count: int, slowness: float = 1.0) -> list[int]:
    """Samples in nanoseconds, spread over a tenth of a millisecond."""
    return [round(slowness * 1e6) + random.randrange(100_000) for _ in range(count)]


def main() -> None:
    started = time.monotonic()
    asked = json.loads(Path("job.json").read_bytes())
    answers = {
        "CountJob": count,
        "ReferenceJob": reference,
        "MeasureJob": measure,
        "CompareJob": compare,
        "DescribeLoopJob": describe_loop,
        "LoopReferenceJob": loop_reference,
        "PipelineJob": pipeline,
        "CeilingsJob": ceilings,
    }
    if asked["kind"] not in answers:
        sys.exit(f"this worker knows no {asked['kind']}")
    value = answers[asked["kind"]](asked["job"])
    result = json.dumps({"value": value}).encode()
    Path("result.json.part").write_bytes(result)
    Path("result.json.part").rename("result.json")
    say("", seal=hashlib.sha256(result).hexdigest())
    if os.environ.get("BAKEOFF_TEST_WINDOWS"):
        line = f"{os.environ['BAKEOFF_TEST_WHO']} {asked['kind']} {started} {time.monotonic()}\n"
        with open(os.environ["BAKEOFF_TEST_WINDOWS"], "a", encoding="ascii") as file:
            file.write(line)


if __name__ == "__main__":
    main()
