"""Builds engines of TensorRT for RTX of the five components, for GPUs that are not here, and writes a page of them.

    python tests/trials/rtx_engines.py [--only wm:200m ...] [--dtype fp16 ...]

Adds to tests/trials/rtx_engines.json what it does not hold yet, from which it writes docs/trials/rtx-engines.md. Needs
the extras `rtx` and `modelopt`. Run it alone on the machine: a full preset of a world model takes up to 10 minutes.
"""

import argparse
import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from lab import Recorder, marked_folder
from rtx_engines_page import PAGE, RECORD, page

from bakeoff.machine import host, paths
from bakeoff.machine.files import write_atomically
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.record.schema import Record
from bakeoff.sweeps.run import run_sweep

TARGETS = ("sm89", "sm120")
HALVES, ALL = ("fp16", "bf16"), ("fp16", "bf16", "fp32", "fp8")
"""fp8: layers that modelopt quantised, the rest in bf16."""
PROGRAMS = {
    "image:cpu.decode": ALL,
    "audio:cpu.decode": ALL,
    "matrix-vae:cpu.steady1": ALL,
    "matrix-wm:cpu.denoise": ALL,
    "wm:200m.step": ALL,
    "image:128x.decode": ALL,
    "audio:cod.decode": ALL,
    "matrix-vae:full.steady3": HALVES,
    "wm:1b.step": HALVES,
    "matrix-wm:universal.denoise": HALVES,
}
_FULL = ("128x", "cod", "full", "1b", "universal")


def entry(program: str, record: Record, target: str) -> dict[str, Any]:
    made = record.measurement
    versions = host.read_versions()
    names = ("torch", "onnxruntime", "onnxruntime-ep-nv-tensorrt-rtx-cu13")
    told: dict[str, Any] = {
        "program": program,
        "order": list(PROGRAMS).index(program),
        "reduced": not any(f":{preset}." in program for preset in _FULL),
        "dtype": record.variant.dtype,
        "target": target,
        "status": record.status,
        "reason": made.reason,
        "host": record.machine.name,
        "versions": ", ".join(f"{name} {versions[name]}" for name in names if name in versions),
        "recorded": datetime.now(UTC).isoformat(timespec="minutes"),
    }
    if made.proof is None or made.build is None:
        return told
    facts = made.proof.facts
    own = {name: facts[name] for name in ("engines", "engine_s", "engine_peak_bytes", "precisions", "tensorrt_rtx")}
    outside, inside = made.proof.operators_outside, made.proof.operators_inside
    built = {"build_s": made.build.build_s, "engine_bytes": made.build.artifact_bytes}
    return told | own | built | {"outside": dict(outside), "inside": dict(inside)}


def build(program: str, dtype: str, targets: tuple[str, ...]) -> list[dict[str, Any]]:
    subject, _, workload = program.partition(".")
    component, _, preset = subject.partition(":")
    request = Request(
        component,
        presets=(preset,),
        workloads=(workload,),
        backends=("modelopt[least=4096]+tensorrt-rtx" if dtype == "fp8" else "tensorrt-rtx",),
        dtypes=("bf16" if dtype == "fp8" else dtype,),
        build_for=targets,
    )
    done = run_sweep(make_plan(request), paths.runs_folder(), "rtx", resume=False, progress=Recorder())
    records = {dict(one.record.variant.backends[-1].options)["target"]: one.record for one in done.stored}
    return [entry(program, records[target], target) | {"dtype": dtype} for target in targets]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--dtype", nargs="*", default=list(ALL))
    asked = parser.parse_args()
    found: list[dict[str, Any]] = json.loads(RECORD.read_text()) if RECORD.exists() else []
    for program, dtypes in PROGRAMS.items():
        for dtype in dtypes:
            had = {one["target"] for one in found if (one["program"], one["dtype"]) == (program, dtype)}
            missing = tuple(target for target in TARGETS if target not in had)
            named = not asked.only or any(program.startswith(name) for name in asked.only)
            if not (missing and named and dtype in asked.dtype):
                continue
            with tempfile.TemporaryDirectory(prefix="rtx-engines-") as folder, marked_folder(Path(folder)):
                found += build(program, dtype, missing)
            for one in found[-len(missing) :]:
                print({name: one[name] for name in one if name not in ("inside", "host", "versions")}, flush=True)
            write_atomically(RECORD, json.dumps(found, indent=1).encode() + b"\n")
            write_atomically(PAGE, page(found).encode())


if __name__ == "__main__":
    main()
