"""The live display: what it says, on a terminal and without one, and that nothing of it reaches the pipeline."""

import errno
import io
import os
import pty
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bakeoff.profile import live as module
from bakeoff.profile.live import Live, lines_of_snapshot
from bakeoff.profile.recording import Snapshot
from bakeoff.profile.settings import Settings
from bakeoff.record.finding import Finding
from bakeoff.record.session import RankFacts

STATE = Snapshot(
    name="t2v",
    ns=10_000_000_000,
    units=17,
    frames=192,
    frames_per_s=16.234,
    units_per_s=1.354,
    phases={"decode": 2_000_000_000, "denoise": 6_000_000_000},
    unattributed_ns=2_000_000_000,
    findings=(Finding("misused", "two ranges had not ended"),),
    latest={"gpu.memory": 12_034.4, "gpu.power": 355.2, "cpu.process": 102.0},
)
RANK = RankFacts("group", 1, 2, 1, "host", "", 7, "model")


@dataclass
class StandIn:
    """A session that is shown."""

    state: Snapshot = STATE
    settings: Settings = field(default_factory=lambda: Settings(enabled=True, display_interval=0.05))
    rank: RankFacts | None = None
    asked: int = 0
    act: Callable[[], None] = lambda: None

    def snapshot(self) -> Snapshot:
        self.asked += 1
        self.act()
        return self.state


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def plain_stderr(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Not in a fixture: pytest sets sys.stderr anew for each phase of a test."""
    made = io.StringIO()
    monkeypatch.setattr(sys, "stderr", made)
    return made


def own_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(module, "MOST_SHARE", 1.0)  # other tests run at the same time
    return made


def wait_for(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_says_the_unit_rates_shares_values_and_findings() -> None:
    assert lines_of_snapshot(STATE) == [
        "t2v 10 s: 17 units, 192 frames; lately 16.23 frames/s, 1.35 units/s",
        "denoise 60.0%, decode 20.0%, unattributed 20.0%",
        "GPU 12,034 MiB, 355 W, process 102 % of a core",
        "misused: two ranges had not ended",
    ]


def test_shares_add_up_where_phases_are_many() -> None:
    many = replace(STATE, phases={f"p{place}": 10**9 for place in range(9)}, unattributed_ns=10**9)
    line = lines_of_snapshot(many)[1]
    assert line == "p0 10.0%, p1 10.0%, p2 10.0%, p3 10.0%, p4 10.0%, p5 10.0%, other phases 30.0%, unattributed 10.0%"


def test_what_is_unknown_is_left_out() -> None:
    early = Snapshot("t2v", 0, 0, 0, None, None, {}, 0, (), {})
    assert lines_of_snapshot(early) == ["t2v 0 s: 0 units"]


def test_names_cannot_move_the_cursor() -> None:
    odd = replace(STATE, name="a\x1b[2J\nb", phases={"\x1b]0;x\x07": 10})
    assert all(line.isprintable() for line in lines_of_snapshot(odd))


def test_without_a_terminal_there_is_a_line_each_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = plain_stderr(monkeypatch)
    session = StandIn()
    shown = Live(session)
    shown.start()
    wait_for(lambda: session.asked >= 3)
    shown.stop()
    lines = stderr.getvalue().splitlines()
    assert len(lines) == session.asked
    assert set(lines) == {f"bakeoff: {'; '.join(lines_of_snapshot(STATE))}"}


def test_a_short_session_shows_its_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = plain_stderr(monkeypatch)
    shown = Live(StandIn(settings=Settings(enabled=True, display_interval=3600.0)))
    shown.start()
    shown.stop()
    shown.stop()
    assert len(stderr.getvalue().splitlines()) == 1


def test_only_the_first_rank_shows_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = plain_stderr(monkeypatch)
    for rank, lines in ((RANK, 0), (replace(RANK, rank=0), 1)):
        shown = Live(StandIn(rank=rank))
        shown.start()
        shown.stop()
        assert stderr.getvalue().count("\n") == lines


def test_one_session_of_a_process_is_shown_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = plain_stderr(monkeypatch)
    first, second = Live(StandIn(settings=Settings(display_interval=3600.0))), Live(StandIn())
    first.start()
    second.start()
    second.stop()
    assert stderr.getvalue() == ""
    first.stop()
    assert stderr.getvalue().count("\n") == 1


def test_without_stderr_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    session = StandIn()
    shown = Live(session)
    shown.start()
    shown.stop()
    assert session.asked == 0


def test_an_error_ends_the_display_and_is_told_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = plain_stderr(monkeypatch)

    def fail() -> None:
        raise ValueError("no state")

    session = StandIn(act=fail)
    shown = Live(session)
    shown.start()
    wait_for(lambda: session.asked)
    time.sleep(0.2)
    assert session.asked == 1, "it is not tried again"
    with pytest.raises(ValueError, match="no state"):
        shown.stop()
    assert stderr.getvalue() == ""
    assert not module._running


def test_a_terminal_that_is_gone_leaves_the_streams_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = own_terminal(monkeypatch)

    def gone(_text: str) -> int:
        raise OSError(errno.EIO, "Input/output error")

    session = StandIn()
    shown = Live(session)
    shown.start()
    monkeypatch.setattr(terminal, "write", gone)
    wait_for(lambda: session.asked)
    wait_for(lambda: sys.stderr is terminal)
    with pytest.raises(OSError, match="Input/output"):
        shown.stop()
    assert sys.stderr is terminal


def test_it_is_drawn_over_itself_and_what_is_printed_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = own_terminal(monkeypatch)
    before = sys.stdout
    session = StandIn()
    shown = Live(session)
    shown.start()
    wait_for(lambda: session.asked >= 2)
    print("loaded the checkpoint", file=sys.stderr)
    wait_for(lambda: session.asked >= 4)
    shown.stop()
    assert (sys.stdout, sys.stderr) == (before, terminal)
    screen = drawn(terminal.getvalue())
    assert screen[0] == "loaded the checkpoint"
    assert screen[1:5] == lines_of_snapshot(STATE)
    assert "".join(screen[5:]).strip() == ""
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")


def test_the_cursor_is_never_hidden_while_the_pipeline_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = own_terminal(monkeypatch)
    shown = Live(StandIn(settings=Settings(display_interval=3600.0)))
    shown.start()
    assert terminal.getvalue().endswith("\x1b[?25h"), "a process that is killed leaves nothing to repair"
    shown.stop()


def test_a_stream_that_somebody_else_replaced_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = own_terminal(monkeypatch)
    shown = Live(StandIn())
    shown.start()
    assert sys.stderr is not terminal
    other = io.StringIO()
    sys.stderr = other
    shown.stop()
    assert sys.stderr is other


def test_a_stuck_terminal_does_not_keep_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = own_terminal(monkeypatch)
    monkeypatch.setattr(module, "_PATIENCE_S", 0.2)
    release, stuck = threading.Event(), threading.Event()

    def write(_text: str) -> int:
        if threading.current_thread() is not threading.main_thread():
            stuck.set()
            release.wait(60)
        return 0

    shown = Live(StandIn())
    shown.start()
    monkeypatch.setattr(terminal, "write", write)
    assert stuck.wait(60)
    began = time.monotonic()
    shown.stop()
    assert time.monotonic() - began < 30
    assert sys.stderr is terminal
    release.set()


def test_a_forked_child_prints_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = own_terminal(monkeypatch)
    shown = Live(StandIn(settings=Settings(display_interval=3600.0)))
    shown.start()
    assert sys.stderr is not terminal
    child = os.fork()
    if not child:
        os._exit(0 if sys.stderr is terminal else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sys.stderr is not terminal
    shown.stop()


def test_where_a_refresh_costs_too_much_there_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = plain_stderr(monkeypatch)

    def spin() -> None:
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass

    shown = Live(StandIn(act=spin))
    shown.start()
    wait_for(lambda: shown.interval_s > 0.05)
    shown.stop()
    assert "shown every 0.1 s: more often would cost over 0.5% of a core" in stderr.getvalue()


PIPELINE = """
import signal, sys, time
from bakeoff.profile import Profiler, Settings
signal.signal(signal.SIGINT, signal.default_int_handler)
quiet = {each: False for each in Settings.__dataclass_fields__ if each.startswith("monitor_")}
quiet["generate_final_report"] = False
settings = Settings(enabled=True, real_time_display=True, display_interval=0.1, output_dir=sys.argv[1], **quiet)
profiler = Profiler(settings)
with profiler.session("t2v") as session:
    for place in range(600):
        with session.unit(frames=4), session.phase("denoise"):
            time.sleep(0.02)
        if place == 20:
            print("half of it", flush=True)
            {end}
"""
ENDS = {
    "ok": ("break", 0),
    "failed": ("raise ValueError('gone')", 1),
    "interrupted": ("signal.raise_signal(signal.SIGINT)", -2),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_real_session_on_a_real_terminal(end: str, tmp_path: Path) -> None:
    statement, code = ENDS[end]
    screen, ended = on_terminal(PIPELINE.replace("{end}", statement), tmp_path)
    assert ended == code
    assert "half of it" in screen
    (first,) = [line for line in screen if line.startswith("t2v ")]
    assert "21 units, 84 frames; lately" in first
    (shares,) = [line for line in screen if line.startswith("denoise ")]
    assert "unattributed" in shares
    assert ("ValueError: gone" in screen) == (end == "failed")
    assert [path.suffixes for path in tmp_path.rglob("*.session.json")] == [[".session", ".json"]]


def on_terminal(script: str, folder: Path) -> tuple[list[str], int]:
    """Run a script on a pseudo-terminal; the lines that are on the screen at its end, and its exit code."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "50"}
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    data = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([ours], [], [], 1.0)[0]:
            continue
        try:
            found = os.read(ours, 1 << 16)
        except OSError:
            break
        if not found:
            break
        data += found
    os.close(ours)
    return drawn(data.decode()), process.wait(120)


def drawn(text: str) -> list[str]:
    """The lines on a screen that is wide and high enough: line feeds, carriage returns, cursor up, erasing a line."""
    lines, row, place = [""], 0, 0
    while place < len(text):
        letter = text[place]
        place += 1
        if letter == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif letter == "\x1b":
            end = place + 1
            while not text[end].isalpha():
                end += 1
            count, command = text[place + 1 : end], text[end]
            place = end + 1
            if command == "A":
                row -= int(count or 1)
            elif command == "K":
                lines[row] = ""
        elif letter != "\r":
            lines[row] += letter
    return [line.rstrip() for line in lines]
