"""Counts in sentences: one helper makes them all."""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

from bakeoff.models.words import counted

ROOT = Path(__file__).parent.parent.parent
COUNT = re.compile(r"len\(.*\)|.*\.(count|calls|units|frames|threads|rounds|pairs|sets|samples|expected|programs)")
PLURAL = re.compile(
    r" ([a-z]+ )?(rows|calls|programs|variants|records|units|samples|pairs|rounds|files|outputs|inputs|ranks|frames|"
    r"threads|sets|passes|entries|tables|models|ranges|parameters|checks|ceilings|processes)\b"
)
MORE_THAN_ONE = {
    *("len(calls)", "facts.frames", "known.sets", "len(wall_ns)", "len(titles)", "len(known)", "len(sets)"),
    "len(lacking)",
}
"""What the lines before have looked at."""


@pytest.mark.parametrize(
    ("count", "form", "said"),
    [(0, "", "0 rows"), (1, "", "1 row"), (2, "", "2 rows"), (1000, ",", "1,000 rows"), (1.2, ".0f", "1 row")],
)
def test_one_has_no_s(count: float, form: str, said: str) -> None:
    assert counted(count, "row", form=form) == said


def test_a_plural_may_be_given() -> None:
    assert [counted(count, "entry is", "entries are") for count in (1, 3)] == ["1 entry is", "3 entries are"]


def test_no_text_counts_without_it() -> None:
    """An f-string with a count and a plural after it says `1 rows`."""
    found = []
    for path in sorted(one for top in ("bakeoff", "backends", "export") for one in (ROOT / top).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for value, after in pairwise(node.values) if isinstance(node, ast.JoinedStr) else ():
                if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                    count = ast.unparse(value.value)
                    if COUNT.fullmatch(count) and count not in MORE_THAN_ONE and PLURAL.match(str(after.value)):
                        found.append(f"{path.relative_to(ROOT)}:{value.lineno}: {count}{after.value}")
    assert found == []
