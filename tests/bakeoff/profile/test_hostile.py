"""Whatever a pipeline gives: it is refused with one sentence or kept, files are whole, JSON is valid, nothing runs."""

import json
import math
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import pytest
from disk import files as files_of
from disk import largest_file

from bakeoff.profile import Profiler, Session, Settings
from bakeoff.profile.files import reports_of
from bakeoff.profile.reporting import write_reports
from bakeoff.record.session import SessionRecord

"""Text that is a name or a value; lone surrogates are what Python makes of file names that are no UTF-8."""


class Hostile:
    """An object that answers every question with an exception."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __index__(self) -> int:
        raise RuntimeError("no whole number")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __iter__(self) -> NoReturn:
        raise RuntimeError("no items")

    def parameters(self) -> NoReturn:
        raise RuntimeError("no parameters")

    __hash__ = None  # type: ignore[assignment]


def _circle() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


VALUES: dict[str, Any] = {
    "NaN": math.nan,
    "infinity": math.inf,
    "more than 64 bits": 2**70,
    "more than a float": 10**400,
    "list": [1, 2],
    "circle": _circle(),
    "nested": {"a": {"b": {}}},
    "bytes": b"\xff\x00",
    "object": object(),
    "hostile object": Hostile(),
    "function": len,
    "nothing": None,
    "complex": 1j,
    "array": np.zeros(3),
    "array of text": np.array(["steady", "opening"]),
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """No monitor, and no process that makes reports: `check_files` makes them."""
    return Settings(
        enabled=True,
        generate_final_report=False,
        output_dir=str(tmp_path / "out"),
        monitor_gpu_memory=False,
        monitor_gpu_utilization=False,
        monitor_gpu_temperature=False,
        monitor_gpu_power=False,
        monitor_cpu_usage=False,
        monitor_system_memory=False,
    )


def valid_json(data: bytes) -> Any:
    """JSON of RFC 8259: Python's own reader also takes NaN."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(data, parse_constant=refuse)


def check_files(folder: Path, record: SessionRecord) -> dict[str, str]:
    """All files are where they belong, whole and inert; the text of each by its suffix."""
    for path in folder.rglob("*.session.json"):
        write_reports(path, reports_of(path, record, Settings()))
    found = {path.name: path for path in folder.rglob("*") if path.is_file()}
    texts = {}
    for name, path in found.items():
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}", name), name
        data = path.read_bytes()
        if name.endswith(".json"):
            valid_json(data)
        else:
            assert name.endswith(".html"), name
            bare = re.sub(rb"<script>.*?</script>|<style>.*?</style>", b"", data, flags=re.DOTALL)
            assert b"<script>alert" not in data
            assert b"<img src=x" not in bare
            assert b"\x1b" not in data
            assert b">62773913<" not in bare
        texts[name.partition(".")[2]] = data.decode()
    assert set(texts) == {"session.json", "html", "report.json"}, sorted(found)
    stored = msgspec.json.decode(texts["session.json"])
    assert stored["ns"] == record.ns
    assert sum(each.own_ns for each in record.ranges) == record.ns
    return texts


class TestValues:
    @pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
    def test_within_a_session_nothing_raises(self, value: Any, settings: Settings, tmp_path: Path) -> None:
        """A value that cannot be kept is said in the record; it neither stops the pipeline nor spoils the JSON."""
        with Profiler(settings).session("values") as session:
            with session.unit(frames=value, latents=value, kind=value):
                with session.step(index=value, timestep=value):
                    pass
                with session.phase(value), session.stage(value):
                    pass
            session.event("event", value=value)
            session.event(value)
            session.sample("sample", value)
            session.sample("unit", 1.0, unit=value)
            session.sample(value, 1.0)
            session.parameters("parameters", value)
            session.parameters(value, 1, kind=value)
        assert session.record.status == "ok"
        check_files(tmp_path / "out", session.record)


class TestAmounts:
    """Names, events and series without end: memory and record stay bounded, and what was left out is counted."""

    def test_names_events_and_series_without_end(self, settings: Settings, tmp_path: Path) -> None:
        count = 20_000
        with Profiler(settings).session("many") as session:
            for place in range(count):
                with session.stage(f"stage {place}"):
                    session.event(f"event {place}", text="x" * 1000)
                session.sample(f"series {place % 2000}", place)
                if place % 20 == 0:
                    session.parameters(f"model {place}", place)
        record = session.record
        assert len(record.events) + record.events_dropped == count
        assert record.events_dropped > 0
        assert sum(each.calls for each in record.ranges if each.path) == count
        check_files(tmp_path / "out", record)
        (path,) = (tmp_path / "out").glob("*.session.json")
        assert path.stat().st_size < 4 * 2**20


def record_a_session(settings: Settings) -> Any:
    """A session with a unit; returns it after its end."""
    with Profiler(settings).session("kept") as session, session.unit(frames=12), session.phase("decode"):
        pass
    return session


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/self/bakeoff", "x" * 300])
def test_a_folder_that_cannot_be_written(
    place: str, settings: Settings, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is said at the start and at the end, with the record kept in memory; the pipeline is not stopped."""
    (tmp_path / "file").write_text("mine")
    session = record_a_session(replace(settings, output_dir=str(tmp_path / place)))
    assert session.record.units[0].frames == 12
    assert session.files == ()
    start, end = capfd.readouterr().err.splitlines()
    assert start.startswith("bakeoff: session 'kept' will have no files: ")
    assert end.startswith("bakeoff: session 'kept' could not be written: ")
    assert "cannot be written" in start
    assert (tmp_path / "file").read_text() == "mine"


def test_a_disk_that_takes_nothing(settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a full disk: no part of a file stays, one sentence is said, and the record is in memory."""
    with largest_file(100):
        session = record_a_session(settings)
    assert session.record.units[0].frames == 12
    assert session.files == ()
    assert files_of(tmp_path / "out") == []
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be written" in line
    assert "File too large" in line


@pytest.mark.parametrize("part", ["_stop_live", "_stop_monitor", "_write"])
def test_impatience_loses_no_record(
    part: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Ctrl-C while the session ends: the record is written all the same, and the interrupt goes on."""
    real, calls = getattr(Session, part), []

    def interrupted(self: Session, *arguments: Any) -> Any:
        calls.append(part)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return real(self, *arguments)

    monkeypatch.setattr(Session, part, interrupted)
    with pytest.raises(KeyboardInterrupt):
        record_a_session(settings)
    (name,) = [name for name in files_of(tmp_path / "out") if name.endswith(".session.json")]
    assert valid_json((tmp_path / "out" / name).read_bytes())["units"][0]["frames"] == 12


PIPELINE = """
import sys, time
from bakeoff.profile import Profiler, Settings
settings = Settings(enabled=True, output_dir=sys.argv[1], cpu_monitor_interval=0.05, generate_final_report=False)
with Profiler(settings).session("stopped") as session:
    while True:
        with session.unit(frames=12), session.phase("denoise"):
            time.sleep(0.01)
        print("unit", flush=True)
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "")])
def test_a_pipeline_that_is_stopped(number: signal.Signals, status: str, tmp_path: Path) -> None:
    """Ctrl-C keeps what was recorded. SIGTERM ends Python at once: what is on the disk then is whole or not there."""
    running = subprocess.Popen(
        [sys.executable, "-c", PIPELINE, str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with running:
        assert running.stdout is not None
        for _ in range(10):
            assert running.stdout.readline() == "unit\n"
        running.send_signal(number)
        _, said = running.communicate(timeout=60)
    kept = files_of(tmp_path / "out") if (tmp_path / "out").exists() else []
    assert not [name for name in kept if name.endswith(".tmp")]
    stored = [valid_json((tmp_path / "out" / name).read_bytes()) for name in kept if name.endswith(".session.json")]
    assert [each["status"] for each in stored] == ([status] if status else [])
    if status:
        assert stored[0]["units"][0]["count"] >= 9
        assert said.splitlines()[-1].startswith("KeyboardInterrupt")
