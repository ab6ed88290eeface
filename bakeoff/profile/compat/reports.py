"""`aggregate_reports`: the records of a run's ranks as one report."""

from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from bakeoff.machine.files import write_atomically


def aggregate_reports(reports_dir: str | Path, output_path: str | Path) -> Any:
    """Aggregate the records of ranks in a folder, write the report as JSON, and return it.

    Takes the folder of one run, or `output_dir` where it holds one run alone. Raises BakeoffError for a folder without
    records of ranks, and for a file that cannot be written.
    """
    aggregate: Any = import_module("bakeoff.profile.ranks.aggregate")
    report = aggregate.aggregate(_folder_of_run(Path(reports_dir)))
    write_atomically(Path(output_path), msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    return report


def _folder_of_run(given: Path) -> Path:
    """The folder that holds records of ranks: the one given, or the only one within it that does."""
    if not given.is_dir() or any(given.glob("rank-*.session.json")):
        return given
    within = sorted({path.parent for path in given.glob("*/rank-*.session.json")})
    return within[0] if len(within) == 1 else given
