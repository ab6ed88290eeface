"""Memory that runs out after the timing: the row keeps its numbers, shows them, and is in no rank."""

from pathlib import Path

import lab
from lab import check_sweep, sweep
from records import measurement, record

from bakeoff.cli.progress import standings
from bakeoff.plan.request import Request
from bakeoff.record.finalists import finalists
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored

NAME = "canaries:OOM_WHEN_CHECKED"
REASON = "timed, but not all checked: out of memory in calls with fresh inputs: RuntimeError: can't allocate memory"
SLOW, FAST, FASTEST = ([first + 0.01 * index for index in range(20)] for first in (30.0, 20.0, 10.0))


def test_a_check_after_the_timing_that_runs_out_of_memory_leaves_the_numbers(tmp_path: Path) -> None:
    swept = sweep(Request("toy", backends=(NAME,), dtypes=("fp32",), device="cpu", policy=lab.FAST), tmp_path)
    made = swept.records()[NAME].measurement
    assert made.status == "oom"
    assert made.reason.startswith("timed, but not all checked: out of memory in calls with fresh inputs: ")
    assert "can't allocate memory" in made.reason
    assert "can't allocate memory" in made.traceback
    kept = (made.latency, made.throughput, made.overhead, made.build, made.proof, made.window_checks)
    assert None not in kept
    assert made.parity is not None
    assert made.parity.passed
    assert made.memory is None
    check_sweep(swept)


def late(name: str, samples: list[float]) -> Record:
    return record(name, samples, "oom", REASON, made=measurement(samples, "oom", REASON, memory=None))


def stored(*made: Record) -> tuple[Stored, ...]:
    return tuple(Stored(f"id-{place}", entry) for place, entry in enumerate(made))


ROWS = stored(record("eager", SLOW), late("aoti", FASTEST), record("inductor", FAST))


def test_it_is_in_no_rank() -> None:
    assert [str(entry.record.variant.backend) for entry in finalists(ROWS)] == ["inductor", "eager"]
    ((shown, _),) = standings(entry.record for entry in ROWS)
    assert [row.status for row in shown] == ["ok", "ok", "oom"]
