"""What others wrote reaches a terminal as text: no control character, no second line in a table."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from comparisons import final
from records import HOST, bakeoff, record

from bakeoff.machine.terminal import one_line, printable
from bakeoff.record.finding import Finding
from bakeoff.record.store import load_all, save

HOSTILE = "x\x1b]0;owned\x07\x1b[2J\x1b[31m\r\nsecond\u202eline\x9b2J"
FORBIDDEN = re.compile(r"[^\n -~\u00a1-\ufffd]|\u202e")


def test_functions() -> None:
    assert printable("a\x1b[2Jb\nc\td\u202e") == "a [2Jb\nc d "
    assert one_line("a \x00\n b\u2028c") == "a b c"
    assert printable("schön ≥ 3 ★") == "schön ≥ 3 ★"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two records and a comparison with escape sequences wherever a text may be."""
    made = [
        replace(
            record(backend, [ms] * 20, findings=(Finding("busy-host", HOSTILE),)),
            note=HOSTILE, label=HOSTILE, checkpoint=HOSTILE, host=replace(HOST, cpu=HOSTILE), commit=HOSTILE,
            versions={HOSTILE: HOSTILE}, sweep=HOSTILE, config={HOSTILE: HOSTILE},
        )
        for backend, ms in (("eager", 2.0), ("aoti", 1.0))
    ]  # fmt: skip
    made = [replace(entry, variant=replace(entry.variant, preset=HOSTILE)) for entry in made]
    failed = replace(made[1].measurement, status="crashed", reason=HOSTILE, traceback=HOSTILE, latency=None)
    for entry in (*made, replace(made[1], measurement=failed, created="2026-01-03T00:00:00.000000Z")):
        save(tmp_path / "runs", entry)
    save(tmp_path / "runs", final(*made))
    return tmp_path / "runs"


def test_commands_print_no_control_characters(runs: Path) -> None:
    records = load_all(runs)
    first, second, crashed = (entry.id for entry in records.current)
    (compared,) = (entry.id for entry in records.comparisons)
    for arguments in (["table"], ["show", first], ["show", crashed], ["show", compared], ["explain", first, second]):
        ran = bakeoff(*arguments, cwd=runs)
        assert ran.code == 0, ran.err
        assert "owned" in ran.out or arguments[2:], "what two records have in common is not said"
        assert FORBIDDEN.findall(ran.out) == [], arguments
