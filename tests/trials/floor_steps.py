"""What each step towards the measured floors of a CPU gains: rows with and without it, measured against each other.

    python tests/trials/floor_steps.py [--only "huge pages" ...] [--components wm ...] [--seconds 20]

For each row of each step one comparison as `bakeoff compare` makes it, sets of fresh processes and blocks of calls in
random order. What it saw takes the place of the row's earlier comparison in tests/trials/floor_steps.json, from which
it writes docs/trials/floor-steps.md. Run it alone on the machine; a row takes two to six minutes.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from floor_steps_page import PAGE, RECORD, page
from lab import Recorder, marked_folder

from bakeoff.machine import host
from bakeoff.machine.files import write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import request_of
from bakeoff.record.policy import Policy
from bakeoff.record.verdict import decide
from bakeoff.sweeps.compare import compare
from bakeoff.sweeps.run import run_sweep
from bakeoff.variant import parse_variant

_TUNABLES = "GLIBC_TUNABLES"


@dataclass(frozen=True, slots=True)
class Row:
    """A variant with the step, and what it is measured against."""

    variant: str
    against: str = ""
    """Another variant; "" for the same one with `environment_against`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    environment_against: Mapping[str, str] = field(default_factory=dict)


def huge_pages(variant: str) -> Row:
    return Row(variant, "", {_TUNABLES: "glibc.malloc.hugetlb=1"}, {_TUNABLES: "glibc.malloc.hugetlb=0"})


STEPS = {
    "huge pages": (
        huge_pages("wm:200m.step/inductor[freezing]/bf16@cpu"),
        huge_pages("image:cpu.decode/openvino[hint=dtype]/bf16@cpu"),
        huge_pages("audio:cpu.decode30/aoti[freezing]/bf16@cpu"),
        huge_pages("matrix-vae:cpu.steady1/inductor[freezing]/bf16@cpu"),
    ),
    "static int8": (
        Row(
            "matrix-vae:cpu.steady1/int8-static+inductor[freezing]/fp32@cpu",
            "matrix-vae:cpu.steady1/inductor[freezing]/bf16@cpu",
        ),
        Row(
            "audio:cpu.decode30/int8-static+inductor[freezing]/fp32@cpu",
            "audio:cpu.decode30/inductor[freezing]/bf16@cpu",
        ),
    ),
    "explicit attention": (
        Row(
            "wm:200m.step/attention[kind=math]+inductor[freezing]/bf16@cpu",
            "wm:200m.step/inductor[freezing]/bf16@cpu",
        ),
    ),
}


def plan_of(row: Row, seconds: float) -> Plan:
    rows, plan = [], None
    for text, own in ((row.variant, row.environment), (row.against or row.variant, row.environment_against)):
        request = replace(request_of(parse_variant(text)), final_s=seconds, ceilings=False, policy=Policy(trace=False))
        plan = make_plan(request)
        (planned,) = plan.rows
        rows.append(replace(planned, environment={**planned.environment, **own}))
    assert plan is not None
    return replace(plan, rows=tuple(rows))


def measured(row: Row, seconds: float, folder: Path) -> dict[str, Any]:
    """The verdict, or why there is none."""
    plan = plan_of(row, seconds)
    load = host.load_average()
    about: dict[str, Any] = {"variant": row.variant, "against": row.against, "environment": dict(row.environment)}
    about["environment_against"] = dict(row.environment_against)
    about |= {"recorded": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"), **about_host()}
    try:
        first = replace(plan, rows=plan.rows[: 2 if row.against else 1])
        run_sweep(first, folder / "runs", "", resume=False, progress=Recorder())  # the sets find warm caches
        kept = compare(plan, folder / "runs", "floor steps", Recorder())
    except BakeoffError as error:
        return {**about, "failed": str(error)}
    return {**about, **asdict(decide(kept.record)), "load_before": load}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--components", nargs="*", default=[], help="rows of these only")
    parser.add_argument("--seconds", type=float, default=20.0, help="of calls in a comparison")
    asked = parser.parse_args()
    found = json.loads(RECORD.read_bytes()) if RECORD.exists() else {}
    with tempfile.TemporaryDirectory(prefix="bakeoff-steps-") as place, marked_folder(Path(place)):
        for name in asked.only:
            for row in STEPS[name]:
                if asked.components and row.variant.partition(":")[0] not in asked.components:
                    continue
                seen = measured(row, asked.seconds, Path(place))
                print(name, json.dumps(seen), flush=True)
                own = (row.variant, row.against)
                found[name] = [*(one for one in found.get(name, []) if (one["variant"], one["against"]) != own), seen]
                write_atomically(RECORD, (json.dumps(found, indent=1) + "\n").encode())
                write_atomically(PAGE, page(found).encode())
    return 0


def about_host() -> dict[str, Any]:
    versions = host.read_versions()
    return {"cpu": host.read_host().cpu, "cores": host.usable_cores(), "torch": versions.get("torch", "")}


if __name__ == "__main__":
    sys.exit(main())
