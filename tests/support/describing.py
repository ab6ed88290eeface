"""Users' files, described and loaded in this process as workers do it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bakeoff.models.brought.about import About, Source, read_about
from bakeoff.process.jobs import DescribeJob, Subject
from bakeoff.record.source import file_hash
from bakeoff.worker.brought.describe import describe_model
from bakeoff.worker.subject import LoadedSubject, load_subject

MODELS, GIVEN = (Path(__file__).parent / name for name in ("brought_models.py", "given_models.py"))


def source_of(file: Path, name: str = "model") -> Source:
    return Source("function", str(file), name, file_hash(file), str(file.parent))


def described(source: Source, folder: Path, report: Callable[..., None] = lambda *_: None, **asked: Any) -> About:
    """The description, which is written to `folder`; `asked` are further fields of the job."""
    describe_model(DescribeJob(source, source.function.replace("_", "-"), "mine", 0, 1, str(folder), **asked), report)
    return read_about(folder)


def subject(folder: Path, workload: str = "call") -> Subject:
    return Subject(str(folder), "mine", workload, 1, 0, 0, "", "cpu", 1)


def loaded(source: Source, folder: Path, workload: str = "call") -> LoadedSubject:
    described(source, folder)
    return load_subject(subject(folder, workload))
