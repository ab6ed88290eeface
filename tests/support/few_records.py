"""Records of a few rows, and what tests read from the pages of records."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from records import record

from bakeoff.record.finding import Finding
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, Stored, load_all
from bakeoff.report.columns import COLUMNS, cells, table_rows
from bakeoff.report.pages import history, readme, results
from bakeoff.report.render import markdown
from bakeoff.report.selection import chosen

PAGES = Path(__file__).parents[1] / "golden" / "pages"
TEN = [10 + 0.1 * index for index in range(20)]  # median 10.95, interval [10.5, 11.4]


def ms(first: float) -> list[float]:
    """Twenty samples 0.1 ms apart: the median is 0.95 above the first, its interval reaches from 0.5 to 1.4 above."""
    return [first + 0.1 * index for index in range(20)]


def at(second: int, *arguments: Any, **changes: Any) -> Record:
    return record(*arguments, created=f"2026-01-02T03:04:{second:02}.000000Z", **changes)


THREE = (
    at(1, "eager", ms(10.0), note="first run"),
    at(2, "inductor", ms(5.0), findings=(Finding("busy-host", "load average 3.0 before the worker started"),)),
    at(3, "inductor[freezing]", ms(2.0), "parity_failed", "y differs by 5.00e-01 relative L2, over 2.00e-06"),
)


def stored(*records: Record) -> tuple[Stored, ...]:
    return tuple(Stored(f"id-{index}", entry) for index, entry in enumerate(records))


def records_of(*records: Record) -> Records:
    return Records(stored(*records), (), ())


def texts(rows: Sequence[Stored]) -> Iterator[list[str]]:
    """All columns of each row."""
    return (cells(tuple(COLUMNS), row) for row in table_rows(rows))


def width(line: str) -> int:
    """Cells of a markdown row as GitHub counts them: a backslash takes the next character with it."""
    return len(re.findall(r"(?<!\\)\|", re.sub(r"\\\\", "", line.strip()))) - 1


def block(records: Records) -> str:
    """README's results of all these records."""
    return readme.render(chosen(records))


def whole_tables(records: Records) -> str:
    """The page of the whole tables behind README's results."""
    return markdown.render(results.of_published(chosen(records)))


def publish(runs: Path) -> list[Path]:
    """Publish all records of `runs` beside the README above it."""
    return readme.publish(runs / "published", load_all(runs, runs / "published"), runs)


def history_text(records: Records) -> str:
    """The history of the machine that measured last, or without any that of all."""
    machines = records.machines()
    return markdown.render(history.of_machine(records, machines[0]) if machines else history.of_all(records))


def definitions(text: str) -> dict[str, str]:
    """The addresses of README's records by their short names."""
    return dict(re.findall(r"^\[([^\]]+)\]: (\S+\.json)$", text, re.MULTILINE))


def folder_in(runs: Path) -> Path:
    """The only folder of records."""
    (folder,) = runs.glob("*/records")
    return folder


def tables(page: str) -> list[list[str]]:
    """The page's tables, each as its rows."""
    found: list[list[str]] = []
    before = ""
    for line in page.splitlines():
        if line.startswith("|"):
            if not before.startswith("|"):
                found.append([])
            found[-1].append(line)
        before = line
    return found
