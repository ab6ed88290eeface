"""Where the calls of a user's modules are recorded."""

from pathlib import Path
from typing import Any

import pytest
from lab import Recorder, marked_folder

from bakeoff.bring import inspect
from bakeoff.process.supervisor import Outcome


def test_two_files_of_one_name_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Any] = []

    def run_job(job: Any, *_: object) -> Outcome:
        jobs.append(job)
        return Outcome("result", value=job)

    monkeypatch.setattr(inspect, "run_job", run_job)
    files = [tmp_path / folder / "mine.py" for folder in ("one", "two")]
    with marked_folder(tmp_path):
        for file in (*files, files[0]):
            inspect.inspect_file(file, "pipe", 2, 1, Recorder(), ("unet",))
    one, two, again = (job.folder for job in jobs)
    assert one == again
    assert one != two
