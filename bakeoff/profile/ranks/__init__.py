"""Ranks, the processes of one run: which rank each is, and a report on all their records."""

from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from bakeoff.machine.files import write_atomically


def aggregate_reports(reports_dir: str | Path, output_path: str | Path) -> Any:
    """Aggregate the records of ranks in a folder, write the report as JSON, and return it.

    `reports_dir` is the folder of one run, or an `output_dir` that contains one run alone. Raises BakeoffError for a
    folder without records of ranks, and for a file that cannot be written.
    """
    aggregate: Any = import_module("bakeoff.profile.ranks.aggregate")
    folder = Path(reports_dir)
    if folder.is_dir() and not any(folder.glob("rank-*.session.json")):
        runs = {path.parent for path in folder.glob("*/rank-*.session.json")}
        folder = runs.pop() if len(runs) == 1 else folder
    report = aggregate.aggregate(folder)
    write_atomically(Path(output_path), msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    return report
