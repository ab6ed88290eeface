"""`bakeoff session show`: text, JSON and the page of a record's file."""

import json
from pathlib import Path

import pytest
from records import bakeoff
from sessions import session_record

from bakeoff.profile.files import page_path, write_session
from bakeoff.profile.reporting import start_reports
from bakeoff.profile.settings import Settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    asked = Settings(enabled=True, output_dir=str(tmp_path), generate_final_report=False)
    (path,) = write_session(session_record(), asked)
    return path


def test_the_page_is_that_of_the_end_of_a_session(file: Path, tmp_path: Path) -> None:
    done = bakeoff("session", "show", file.name, "--html", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == f"wrote {page_path(file).name}"
    made = page_path(file).read_bytes()
    again = start_reports(file, [tmp_path / "again.html"]).result()
    assert [path.read_bytes() for path in again] == [made]
    done = bakeoff("session", "show", file.name, "--html", "--json", cwd=tmp_path)
    assert json.loads(done.out)["record"]["name"] == "t2v"


@pytest.mark.parametrize(
    ("name", "code"), [("missing.session.json", "not-readable"), ("bad.json", "bad-record"), ("", "bad-option")]
)
def test_errors_are_one_line(name: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    done = bakeoff("session", "show", name, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    (line,) = done.said
    assert line.endswith(f"[{code}]")
