"""The live display: what its line says, and that nothing of it reaches the pipeline."""

import io
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from recording import Clock, make_profiler, opened

from bakeoff.profile import Session
from bakeoff.profile import live as module
from bakeoff.profile.live import Live, line_of
from bakeoff.profile.ranks import facts


@pytest.fixture
def stderr() -> io.StringIO:
    return io.StringIO()


def shown_on(stream: object, session: Session, monkeypatch: pytest.MonkeyPatch) -> Live:
    """Not in a fixture: pytest sets sys.stderr anew for each phase of a test."""
    monkeypatch.setattr(sys, "stderr", stream)
    return Live(session)


def wait_for(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_says_units_rates_shares_values_and_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, latest = Clock(), {"gpu.memory": 12_034.4, "gpu.power": 355.2, "cpu.process": 102.0}
    monkeypatch.setattr(Session, "latest", lambda _self: latest)
    with opened(make_profiler(tmp_path, clock), "t2v") as session:
        assert (
            line_of(session) == "t2v 0 s: 0 units; GPU power 355 W, GPU memory 12,034 MiB, CPU of its processes 102 %"
        )
        for _ in range(4):
            with session.unit(frames=3):
                with session.phase("denoise"), session.step(0):
                    clock.ms(150)
                clock.ms(50)
        with session.phase("decode"):
            clock.ms(200)
            session.sample("queue", float("nan"))
            line = line_of(session)
    assert line.split("; ") == [
        "t2v 1 s: 4 units, 12 frames",
        "lately 15.00 frames/s, lately 5.00 units/s",
        "denoise 60.0%, decode 20.0%, unattributed 20.0%",
        "GPU power 355 W, GPU memory 12,034 MiB, CPU of its processes 102 %",
        "misused: sample of 'queue' is None",
        "give a finite number of the host",
    ]


def test_shares_add_up_where_phases_are_many(tmp_path: Path) -> None:
    clock = Clock()
    with opened(make_profiler(tmp_path, clock)) as session:
        for place in range(9):
            with session.phase(f"p{place}"):
                clock.ms(100)
        clock.ms(100)
        line = line_of(session)
    assert line.endswith(
        "; p0 10.0%, p1 10.0%, p2 10.0%, p3 10.0%, p4 10.0%, p5 10.0%, other phases 30.0%, unattributed 10.0%"
    )


def test_names_cannot_move_the_cursor(tmp_path: Path) -> None:
    clock = Clock()
    with opened(make_profiler(tmp_path, clock), "a\x1b[2J\nb") as session, session.phase("\x1b]0;x\x07"):
        clock.ms(10)
        assert line_of(session).isprintable()


def test_there_is_a_line_each_interval_and_one_at_the_end(
    tmp_path: Path, stderr: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(make_profiler(tmp_path, None, display_interval=0.05)) as session:
        shown = shown_on(stderr, session, monkeypatch)
        wait_for(lambda: stderr.getvalue().count("\n") >= 3)
        shown.stop()
        lines = stderr.getvalue().splitlines()
        assert len(lines) >= 4
        assert all(line.startswith("bakeoff: test 0 s: 0 units") for line in lines)
        shown.stop()
        assert stderr.getvalue().splitlines() == lines
    assert sys.stderr is stderr


@pytest.mark.parametrize(("rank", "lines"), [(0, 1), (1, 0)])
def test_only_the_first_rank_shows_itself(
    rank: int, lines: int, tmp_path: Path, stderr: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    place: Mapping[str, str] = {"RANK": str(rank), "WORLD_SIZE": "2"}
    monkeypatch.setattr(facts.os, "environ", {**facts.os.environ, **place})
    monkeypatch.setattr(sys, "stderr", stderr)
    with opened(make_profiler(tmp_path, None, real_time_display=True, display_interval=3600.0)):
        pass
    assert stderr.getvalue().count("bakeoff: test") == lines


def test_without_stderr_nothing_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(make_profiler(tmp_path)) as session:
        shown_on(None, session, monkeypatch).stop()


def test_an_error_ends_the_display_and_is_told_at_the_end(
    tmp_path: Path, stderr: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fail(_session: Session) -> str:
        asked.append(1)
        raise ValueError("no state")

    monkeypatch.setattr(module, "line_of", fail)
    with opened(make_profiler(tmp_path, None, display_interval=0.05)) as session:
        shown = shown_on(stderr, session, monkeypatch)
        wait_for(lambda: asked)
        time.sleep(0.2)
        assert len(asked) == 1, "it is not tried again"
        with pytest.raises(ValueError, match="no state"):
            shown.stop()
    assert stderr.getvalue() == ""


def test_a_stuck_terminal_does_not_keep_the_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.2)
    release, stuck = threading.Event(), threading.Event()

    class Stuck(io.StringIO):
        def write(self, _text: str) -> int:
            stuck.set()
            release.wait(60)
            return 0

    with opened(make_profiler(tmp_path, None, display_interval=0.05)) as session:
        shown = shown_on(Stuck(), session, monkeypatch)
        assert stuck.wait(60)
        began = time.monotonic()
        shown.stop()
        assert time.monotonic() - began < 30
        release.set()


PIPELINE = """
import sys, time
from bakeoff.profile import Profiler, Settings
quiet = {each: False for each in Settings.__dataclass_fields__ if each.startswith("monitor_")}
quiet["generate_final_report"] = False
settings = Settings(enabled=True, real_time_display=True, display_interval=3600.0, output_dir=sys.argv[1], **quiet)
with Profiler(settings).session("t2v") as session:
    for place in range(3):
        with session.unit(frames=4), session.phase("denoise"):
            time.sleep(0.02)
    raise ValueError("gone")
"""


def test_a_real_session_that_fails_shows_its_end(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PIPELINE, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("bakeoff: t2v 0 s: 3 units, 12 frames; lately ")
    assert "ValueError: gone" in done.stderr
    assert [path.suffixes for path in tmp_path.rglob("*.session.json")] == [[".session", ".json"]]
