"""Files of sessions: their names, what is written in which order, and what is refused when they are read."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sessions import RANK, session_record

from bakeoff.models.errors import BakeoffError, ErrorCode
from bakeoff.profile.files import MOST_BYTES, page_path, raw_file, read_session, reports_of, write_session
from bakeoff.profile.reporting import make_reports, start_reports, write_reports
from bakeoff.profile.settings import MOST_TAG_LETTERS, Settings
from bakeoff.record.session import SessionEvent, SessionRecord

RECORD = session_record()
SILENT = {
    f"monitor_{each}": False
    for each in ("gpu_memory", "gpu_utilization", "gpu_temperature", "gpu_power", "cpu_usage", "system_memory")
}
HOSTILE = [
    "../x",
    "/etc/passwd",
    "<script>",
    "x" * 300,
    "",
    ".",
    "..",
    "a\0b",
    "名前",
    "\u202egnp",
    "con",
    "-rf",
    "a\nb",
]


def settings(folder: Path, **changes: Any) -> Settings:
    return Settings(enabled=True, output_dir=str(folder / "out"), **changes)


def written(record: SessionRecord, asked: Settings) -> tuple[Path, ...]:
    """The record and its reports, made in this process."""
    paths = write_session(record, asked)
    reports = reports_of(paths[0], record, asked)
    write_reports(paths[0], reports)
    return *paths, *reports


def names(folder: Path) -> list[str]:
    """All files below it but those of the cache, whose folder lies beside."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if path.parts[0] != "cache")


class TestNames:
    def test_name_start_and_content(self, tmp_path: Path) -> None:
        paths = written(RECORD, settings(tmp_path))
        assert re.fullmatch(r"t2v-20260102T030405Z-[0-9a-f]{12}\.session\.json", paths[0].name)
        stem = paths[0].name.removesuffix(".session.json")
        assert names(tmp_path) == [f"out/{stem}{end}" for end in (".html", ".report.json", ".session.json")]
        assert page_path(paths[0]) == paths[0].with_name(f"{stem}.html")

    @pytest.mark.parametrize("name", HOSTILE, ids=ascii)
    def test_no_name_leads_elsewhere(self, name: str, tmp_path: Path) -> None:
        paths = written(replace(RECORD, name=name), settings(tmp_path, save_raw_data=True))
        raw = raw_file(name, RECORD.started_wall_ns, settings(tmp_path, save_raw_data=True))
        assert raw is not None
        for path in (*paths, raw):
            assert path.parent == tmp_path / "out"
            assert re.fullmatch(r"[a-z0-9][a-zA-Z0-9.-]{1,180}", path.name)
        assert len(names(tmp_path)) == 3
        assert read_session(paths[0]).name == name

    def test_sessions_of_one_second_do_not_overwrite_each_other(self, tmp_path: Path) -> None:
        for name in ("a b", "a-b", "A/B"):
            write_session(replace(RECORD, name=name), settings(tmp_path, generate_final_report=False))
        assert len(names(tmp_path)) == 3

    def test_ranks_lie_in_the_folder_of_their_group_without_pages(self, tmp_path: Path) -> None:
        for rank in (0, 7):
            record = replace(RECORD, rank=replace(RANK, rank=rank))
            (path,) = written(record, settings(tmp_path))
            assert read_session(path) == record
        assert names(tmp_path) == [f"out/t2v-run-1/rank-0000{rank}.session.json" for rank in (0, 7)]

    def test_a_group_cannot_lead_elsewhere(self, tmp_path: Path) -> None:
        folders = set()
        for group in ("../../x", "x", "X", ""):
            (path,) = write_session(replace(RECORD, rank=replace(RANK, group=group)), settings(tmp_path))
            assert path.parent.parent == tmp_path / "out"
            folders.add(path.parent)
        assert len(folders) == 4

    def test_a_second_session_of_a_rank_does_not_overwrite_the_first(self, tmp_path: Path) -> None:
        for status in ("ok", "interrupted"):
            write_session(replace(RECORD, rank=RANK, status=status), settings(tmp_path))
        first, second = names(tmp_path)
        assert re.search(r"rank-00007-[0-9a-f]{12}\.session\.json$", first)
        assert read_session(tmp_path / second).status == "ok"


class TestWriting:
    @pytest.mark.parametrize(
        ("changes", "endings"),
        [
            ({}, [".session.json", ".report.json", ".html"]),
            ({"report_format": "html"}, [".session.json", ".html"]),
            ({"report_format": "json"}, [".session.json", ".report.json"]),
            ({"generate_final_report": False}, [".session.json"]),
        ],
    )
    def test_what_the_settings_ask_for(self, changes: dict[str, Any], endings: list[str], tmp_path: Path) -> None:
        paths = written(RECORD, settings(tmp_path, **changes))
        assert [path.name[path.name.index(".") :] for path in paths] == endings
        assert len(names(tmp_path)) == len(endings)

    def test_what_json_cannot_hold_becomes_text(self, tmp_path: Path) -> None:
        event = SessionEvent(1, "odd", {"path": "a\udc80b", "large": 2**80, "object": Path("x")})  # type: ignore[dict-item]
        (path,) = write_session(replace(RECORD, events=(event,)), settings(tmp_path, generate_final_report=False))
        assert read_session(path).events[0].data == {"path": "a?b", "large": str(2**80), "object": "x"}

    def test_samples_of_a_monitor_lie_beside_the_record(self, tmp_path: Path) -> None:
        asked = settings(tmp_path, save_raw_data=True, generate_final_report=False)
        for rank in (None, RANK):
            raw = raw_file(RECORD.name, RECORD.started_wall_ns, asked, rank)
            assert raw is not None
            raw.parent.mkdir(parents=True, exist_ok=True)
            raw.write_text("{}\n")
            paths = write_session(replace(RECORD, rank=rank), asked, raw)
            assert [path.name.partition(".")[2] for path in paths] == ["session.json", "samples.jsonl"]
            assert paths[0].name.partition(".")[0] == paths[1].name.partition(".")[0]
            assert paths[1].read_text() == "{}\n"
            assert not raw.exists()


class TestReports:
    """What a process of its own makes."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return write_session(RECORD, settings(tmp_path))[0]

    def test_they_are_those_that_this_process_would_make_and_what_fails_is_one_sentence(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        asked = reports_of(file, RECORD, Settings())
        write_reports(file, asked)
        here = [path.read_bytes() for path in asked]
        for path in asked:
            path.unlink()
        (file.parent / "none").write_text("a file")
        made = start_reports(file, [*asked, file.parent / "none" / "file" / "page.html"])
        assert made.result() == asked
        assert [path.read_bytes() for path in asked] == here
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("bakeoff: a session has no report: ")
        assert line.endswith(f"; to make it: bakeoff session show {file} --html")

    def test_the_pipelines_process_imports_nothing_for_them(self, tmp_path: Path) -> None:
        """And waits for them before it exits, or names them."""
        script = (
            "import sys; from bakeoff.profile import Profiler, Settings; "
            f"settings = Settings(enabled=True, output_dir=sys.argv[1], **{SILENT})\n"
            "with Profiler(settings).session('short') as session: session.event('x')\n"
            "assert len(session.files) == 3 and all(path.stat().st_size for path in session.files)\n"
            "large = {'scipy', 'jinja2', 'numpy', 'vl_convert'} & set(sys.modules); assert not large, large"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert {name.partition(".")[2] for name in names(tmp_path)} == {"session.json", "report.json", "html"}

    def test_a_session_that_nobody_ends_has_them_too(self, tmp_path: Path) -> None:
        script = (
            "import sys; from bakeoff.profile import Profiler, Settings; "
            f"settings = Settings(enabled=True, output_dir=sys.argv[1], **{SILENT}); "
            "session = Profiler(settings).session('forgotten').__enter__()"
        )
        subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=120)
        assert {name.partition(".")[2] for name in names(tmp_path)} == {"session.json", "report.json", "html"}
        (path,) = tmp_path.glob("*.session.json")
        assert read_session(path).status == "interrupted"

    def test_a_process_that_does_not_start_or_is_killed(
        self, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (file.parent / "python").write_text("#!/bin/sh\nkill -9 $$\n")
        (file.parent / "python").chmod(0o700)
        for executable in (str(file.parent / "python"), "/nonexistent/python"):
            monkeypatch.setattr(sys, "executable", executable)
            assert make_reports(file, [page_path(file)]) == ()
        killed, missing = capsys.readouterr().err.splitlines()
        assert "its process ended with code -9" in killed
        assert "its process did not start" in missing


def refused(path: Path, code: ErrorCode = "bad-record") -> str:
    with pytest.raises(BakeoffError) as found:
        read_session(path)
    assert found.value.code == code
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 600
    return str(found.value)


class TestReading:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        (path,) = write_session(RECORD, settings(tmp_path, generate_final_report=False))
        return path

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"no json",
            b"\xff\xfe",
            b"[1]",
            b"null",
            b"{}",
            b'{"schema": 1}',
            b'{"schema": 1, "name": 5}',
            b"[" * 100_000,
            b'{"schema":' * 100_000,
            bytes(range(256)) * 10,
            b'{"schema": 1, "tags": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",
        ],
        ids=lambda data: ascii(data[:20]),
    )
    def test_what_is_no_record_is_refused(self, data: bytes, tmp_path: Path) -> None:
        (tmp_path / "bad.session.json").write_bytes(data)
        refused(tmp_path / "bad.session.json")

    def test_another_schema_is_refused_by_its_number(self, file: Path) -> None:
        for schema in ("2", '"<b>"', "1e300", "null", "[]", "true"):
            file.write_bytes(file.read_bytes().replace(b'{"schema":1', f'{{"schema":{schema}'.encode(), 1))
            assert "schema" in refused(file)
            file.write_bytes(msgspec.json.encode(RECORD))

    @pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "9" * 30, "-" + "9" * 400, "1.5", '"5"'])
    def test_numbers_that_no_clock_gives_are_refused(self, number: str, file: Path) -> None:
        text = file.read_text()
        for name in ("ns", "started_wall_ns", "total_ns", "count"):
            file.write_text(re.sub(rf'"{name}":-?\d+', f'"{name}":{number}', text, count=1))
            refused(file)

    def test_a_record_that_contradicts_itself_is_refused(self, file: Path) -> None:
        raw = json.loads(file.read_text())
        raw["ranges"][0]["own_ns"] += 1
        file.write_text(json.dumps(raw))
        assert "add up to" in refused(file)

    def test_a_record_with_another_content_than_its_name_says_is_refused(self, file: Path, tmp_path: Path) -> None:
        data = file.read_bytes()
        file.write_bytes(data.replace(b'"seed":7', b'"seed":8'))
        assert "was edited or renamed: its content has the hash " in refused(file)
        moved = file.with_name(f"{file.name[:-25]}{'0' * 12}.session.json")
        moved.write_bytes(data)
        refused(moved)
        moved.rename(tmp_path / "mine.session.json")
        assert read_session(tmp_path / "mine.session.json") == RECORD, "a name without a hash says nothing"

    def test_ten_gigabytes_are_not_read(self, tmp_path: Path) -> None:
        path = tmp_path / "large.session.json"
        with path.open("wb") as file:
            file.truncate(10 << 30)
        assert "10,737,418,240 bytes" in refused(path, "not-readable")
        assert MOST_BYTES < 1 << 30

    def test_what_is_no_file_is_refused(self, tmp_path: Path) -> None:
        refused(tmp_path, "not-readable")
        refused(tmp_path / "missing.session.json", "not-readable")
        refused(Path("a\0b"), "not-readable")
        refused(Path("/dev/zero"), "not-readable")
        os.mkfifo(tmp_path / "pipe")
        refused(tmp_path / "pipe", "not-readable")


def test_a_tag_of_a_mebibyte_is_refused_by_the_settings() -> None:
    with pytest.raises(BakeoffError) as found:
        Settings(session_tags={"a": "x" * (1 << 20)})
    assert found.value.code == "bad-option"
    assert len(str(found.value)) < 200
    assert Settings(session_tags={"a": "x" * MOST_TAG_LETTERS}).session_tags
