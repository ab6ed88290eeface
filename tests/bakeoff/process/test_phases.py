"""The table of phases is complete, and worker code announces only phases of the table."""

import ast
import os
from dataclasses import replace
from pathlib import Path
from typing import get_args

import msgspec

from bakeoff.process.phases import PHASES, Block, DeadlineClass
from bakeoff.process.supervisor import Event
from bakeoff.worker.reporter import Reporter

WORKER = Path(__file__).resolve().parents[3] / "bakeoff" / "worker"


def announced() -> set[str]:
    """Literal first arguments of every call of a function or attribute named `report`."""
    found = set()
    for file in WORKER.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name == "report":
                    found.add(str(node.args[0].value))
    return found


def test_every_phase_has_a_text_and_a_deadline() -> None:
    assert all(info.text and info.deadline in get_args(DeadlineClass) for info in PHASES.values())


def test_workers_announce_phases_of_the_table() -> None:
    assert {"weights", "build", "memory", "reference"} <= announced() <= set(PHASES)


def test_builds_get_the_build_deadline() -> None:
    longest = {phase for phase, info in PHASES.items() if info.deadline == "build"}
    assert longest == {"bind", "build", "headers", "sizes", "traced build", "trace", "profile"}
    assert {phase for phase, info in PHASES.items() if info.deadline == "startup"} == {"start", "import"}


def test_references_get_a_deadline_that_a_short_one_for_builds_does_not_shorten() -> None:
    found = {phase for phase, info in PHASES.items() if info.deadline == "reference"}
    assert found == {"weights", "reference", "loop reference"}


def test_events_arrive_as_they_were_sent() -> None:
    read, write = os.pipe()
    report = Reporter(write)
    report("latency", "12 samples")
    report.ready(1_500_000)
    report.block(Block((1, 2, 3), 0.25))
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        events = [msgspec.json.decode(line, type=Event) for line in stream]
    times = [event.t_ns for event in events]
    assert times == sorted(times)
    assert times[0] > 0
    assert [replace(event, t_ns=0) for event in events] == [
        Event("latency", "12 samples"),
        Event("ready", call_ns=1_500_000),
        Event("block", block=Block((1, 2, 3), 0.25)),
    ]
