"""docs/trials/zoo.md from tests/trials/zoo.json."""

import ast
from pathlib import Path
from typing import Any

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
RECORD, PAGE = ROOT / "tests" / "trials" / "zoo.json", ROOT / "docs" / "trials" / "zoo.md"
MODELS = ROOT / "examples" / "bring" / "zoo.py"


def page(found: dict[str, Any]) -> str:
    """The page of a record."""
    tree = ast.parse(MODELS.read_text(encoding="utf-8"))
    kinds = {one.name: ast.get_docstring(one) or "" for one in tree.body if isinstance(one, ast.FunctionDef)}
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    machine = f"{found['host']['cpu']}, {found['host']['cores']} cores, no GPU"
    load = " and ".join(f"{value:.1f} at the {when}" for when, value in found["load"].items())
    rows = [[f"`{name}`", kinds[name], f"{one['seconds']:.0f} s", _said(one)] for name, one in found["models"].items()]
    missing = ", ".join(found["missing"])
    unfinished = f"The trial was ended before it had swept all. Not swept: {missing}.\n\n" if missing else ""
    table = tabulate(rows, headers=["function", "kind", "to the table", "what the table said"], tablefmt="github")
    return (
        "# Ten public models, brought\n\n"
        "Written by `tests/trials/zoo.py` from what it recorded in tests/trials/zoo.json; do not edit. Each model has "
        "random weights and is a function of [examples/bring/zoo.py](../../examples/bring/zoo.py), swept with "
        f"`bakeoff sweep zoo.py:FUNCTION --backends {found['backends']} --dtype fp32 --no-final`: from the command to "
        "the table, with nothing cached, the description of the model included.\n\n"
        f"Recorded {found['recorded']} on {machine}; {versions}. Load average {load}.\n\n"
        f"{unfinished}{table}\n"
    )


def _said(one: dict[str, Any]) -> str:
    if one["refused"]:
        return f"refused: {one['refused']}".replace("|", "\\|")
    return "; ".join(_row(name, row) for name, row in one["rows"].items()).replace("|", "\\|")


def _row(name: str, row: dict[str, Any]) -> str:
    figures = ""
    if row["median_ms"] is not None:
        figures = f" {row['median_ms']:.2f} ms [{row['low_ms']:.2f}, {row['high_ms']:.2f}]"
    reason = f" ({row['reason']})" if row["reason"] else ""
    return f"{name} **{row['status']}**{figures}{reason}"
