"""Which unstable rows a race may still decide between: those whose findings are the machine's, and not the engine's."""

import re
from pathlib import Path

import pytest
from records import clock, measurement, record

from bakeoff.record.finalists import candidates, is_comparable, shared_modes, speeds_ms
from bakeoff.record.finding import UNRANKED, Finding
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored

METHOD = Path(__file__).resolve().parents[3] / "docs/method.md"
TWO_SPEEDS = [0.49 + 0.001 * (place % 5) for place in range(46)] + [0.82 + 0.001 * (place % 5) for place in range(14)]
"""As of a small model on a quiet virtual machine: 0.490 | 0.827 ms, 23 % in the second mode."""


def test_the_codes_that_unrank_a_row_are_those_of_the_documentation() -> None:
    table = METHOD.read_text().partition("## Findings")[2]
    documented = {row[1] for row in re.finditer(r"^\| `([\w.-]+)` \|[^|]*\bnot ranked\b", table, re.MULTILINE)}
    assert documented == UNRANKED


@pytest.mark.parametrize(
    ("codes", "comparable"),
    [
        (("bimodal",), True),
        (("drift", "contention"), True),
        (("bimodal", "busy-host"), True),
        (("bimodal", "memoised"), False),
        (("leak",), False),
        (("settings",), False),
        (("throttled",), False),
        ((), False),
        (("busy-host",), False),
    ],
)
def test_a_fault_of_the_machine_leaves_a_row_comparable(codes: tuple[str, ...], comparable: bool) -> None:
    findings = tuple(Finding(code, "x") for code in codes)
    made = measurement([1.0] * 20, "unstable", "x", findings=findings)
    assert is_comparable(record(made=made)) == comparable
    assert not is_comparable(record(made=measurement([1.0] * 20, "parity_failed", "x", findings=findings)))


@pytest.mark.parametrize(("machine", "comparable"), [("contention", True), ("drift", False), ("bimodal", False)])
def test_clocks_apart_are_the_machine_s_beside_other_processes(machine: str, comparable: bool) -> None:
    """A load that kept a core busy starved the second thread of calls in blocks: 0.73 ms, and 134 ms in blocks. Both
    compiled rows were left out, and the sweep ended with "nothing to compare with"."""
    findings = (Finding(machine, "x"), Finding("clocks-disagree", "x"))
    made = measurement([0.73] * 20, "unstable", "x", findings=findings, throughput=clock([134.0] * 7))
    assert is_comparable(record(made=made)) == comparable


def test_a_row_of_two_speeds_is_placed_by_its_faster_one() -> None:
    """Its median may be either mode's: 0.49 ms here, and 0.82 had the machine been slow a little longer."""
    bimodal = measurement(TWO_SPEEDS[::-1][:24], "unstable", "x", findings=(Finding("bimodal", "x"),))
    rows = [record("inductor[freezing]", [0.711] * 20), record("inductor", made=bimodal), record("eager", [0.834] * 20)]
    found = candidates([Stored(str(place), row) for place, row in enumerate(rows)])
    assert [entry.id for entry in found] == ["1", "0", "2"]
    fast, slow = speeds_ms(rows[1], "latency")
    assert (round(fast, 2), round(slow, 2)) == (0.49, 0.82)
    assert speeds_ms(rows[0], "latency") == (0.711, 0.711)


def two_speeds(backend: str, apart: float, text: str = "x") -> Record:
    samples = [1.0 + 0.001 * (place % 5) for place in range(46)]
    samples += [apart * sample for sample in samples[:14]]
    return record(backend, made=measurement(samples, "unstable", text, findings=(Finding("bimodal", text),)))


@pytest.mark.parametrize(
    ("rows", "shared"),
    [
        ((("eager", 1.74), ("inductor", 1.69), ("aoti", 1.49)), [0, 1, 2]),
        ((("eager", 1.74), ("inductor", 1.69), ("aoti", 4.0)), [0, 1]),
        ((("eager", 1.2), ("inductor", 1.9)), []),
        ((("eager", 1.7), ("eager", 1.7)), []),
        ((("eager", 1.7),), []),
        ((), []),
    ],
)
def test_modes_that_rows_of_several_backends_share_are_the_machines(
    rows: tuple[tuple[str, float], ...], shared: list[int]
) -> None:
    found = shared_modes([Stored(str(place), two_speeds(*row)) for place, row in enumerate(rows)])
    assert list(map(int, found)) == shared
    assert all(ratio == pytest.approx(rows[int(id)][1], rel=0.02) for id, ratio in found.items())
