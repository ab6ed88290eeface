"""docs/trials/faults.md from tests/trials/faults.json."""

from typing import Any

from source_faults import ROOT
from tabulate import tabulate

RECORD, PAGE = ROOT / "tests" / "trials" / "faults.json", ROOT / "docs" / "trials" / "faults.md"
LIMIT_S = 60
"""Seconds within which a fault must be caught."""
_HEADERS = ("subject", "with the fault", "in", "tests", "seconds", "first failing test", "caught")


def table(found: dict[str, Any]) -> str:
    """A line for each fault of a record."""
    rows = [
        [
            one["subject"],
            one["fault"],
            f"`{one['file']}`",
            ", ".join(f"`{test}`" for test in one["tests"]),
            f"{one['seconds']:.1f}",
            f"`{one['failing'].partition('::')[2]}`" if one["failing"] else "",
            "yes" if one["caught"] else "**no**",
        ]
        for one in found["faults"]
    ]
    return tabulate(rows, headers=_HEADERS, tablefmt="github", disable_numparse=True)


def page(found: dict[str, Any]) -> str:
    """The page of a record."""
    machine = f"{found['host']['cpu']}, {found['host']['cores']} cores, no GPU"
    load = " and ".join(f"{value:.1f} at the {when}" for when, value in found["load"].items())
    caught = sum(one["caught"] for one in found["faults"])
    return (
        "# Faults that the tests catch\n\n"
        "Written by `make faults` from what it recorded in tests/trials/faults.json; do not edit. Each "
        "fault is one change of one source file, such as a slip while refactoring could leave "
        "([tests/support/source_faults.txt](../../tests/support/source_faults.txt)). It is put into a copy of the "
        "repository, in which the tests of the changed file's subject pass without it. Caught means that with it an "
        f"assertion fails within {LIMIT_S} s, and again when that test is run once more; seconds are from the start of "
        "pytest until the first failure. Each fault that was missed at first has an assertion of its own since.\n\n"
        f"Recorded {found['recorded']} on {machine}. Load average {load}. "
        f"Caught: {caught} of {len(found['faults'])}.\n\n"
        f"{table(found)}\n"
    )
