"""The page of a gate, and its JUnit XML."""

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree

from bakeoff.models.words import counted
from bakeoff.record.gate import FAILING, FALSE_ALARMS, LOOKS, MOST_PAIRS, OPEN, GatedRow, Outcome, exit_code
from bakeoff.record.policy import Policy
from bakeoff.report.document import Cell, Document, Heading, Text, Tone, blocks, listed, number, table
from bakeoff.report.notes import policy_text

_ROWS: Final = (
    Heading("row"),
    Heading("outcome"),
    Heading("status", "of the baseline, then of the candidate if it differs", leaves=2),
    number("change [interval]", "of the time; the interval holds for all rows together"),
    number("pairs", "of fresh processes, or processes if the baseline is of records", leaves=1),
)
_TONES: Final[dict[Outcome, Tone]] = {
    "unchanged": "good",
    "faster": "good",
    "now ok": "good",
    "regression": "bad",
    "status changed": "bad",
    "gone": "bad",
}


def document(rows: Sequence[GatedRow], baseline: str, find: float, policy: Policy) -> Document:
    """Return the page of a gate against `baseline` by this policy; `find` is the slowdown that matters."""
    failing = [row for row in rows if row.outcome in FAILING]
    compared = [row for row in rows if row.change is not None]
    still_open = sum(row.outcome in OPEN for row in rows)
    by_records = counted(sum(not row.live for row in compared), "row")
    hows = (
        [f"{by_records} with records of this machine, made at another time"]
        if not all(r.live for r in compared)
        else []
    )
    made = blocks(
        Text(
            "; ".join([f"{counted(len(compared), 'row')} compared", *hows]),
            _answer(rows, len(failing), still_open, find),
            "bad" if failing else "open" if exit_code(rows) else "good",
        ),
        table(_ROWS, map(_cells, rows)),
        listed(Text(_why(row, find), row.name) for row in rows if _why(row, find)),
        Text(policy_text(policy)) if policy_text(policy) else None,
        Text(f"at most {FALSE_ALARMS:.0%} false alarms over all rows", tone="faint"),
    )
    return Document(f"Gate against {baseline}", made)


def _answer(rows: Sequence[GatedRow], failing: int, still_open: int, find: float) -> str:
    if failing:
        return f"{failing} of {counted(len(rows), 'row')} failed"
    if still_open:
        return f"{still_open} of {counted(len(rows), 'row')} not decided"
    return "nothing was decided" if exit_code(rows) else f"no regression of {size_text(1 + find)} or more"


def forecast(size: float, pairs: int, find: float) -> str:
    """Return what the pairs of a baseline with itself promise: the size that is found, and the pairs for `find`."""
    found = f"a change of {size_text(size)} or more will be found"
    if pairs <= LOOKS[-1]:
        return f"{found}."
    return f"{found}; to exclude {size_text(1 + find)} takes {_pairs(pairs)}, and at most {LOOKS[-1]} are run."


def _pairs(count: int) -> str:
    return f"more than {MOST_PAIRS} pairs" if count >= MOST_PAIRS else f"about {counted(count, 'pair')}"


def size_text(ratio: float) -> str:
    """Return a ratio as a change in percent, with its sign."""
    return f"{ratio - 1:+.1%}"


def junit(rows: Sequence[GatedRow], find: float) -> bytes:
    """Return the rows as test cases in JUnit's XML: failed, skipped if nothing was decided, or passed."""
    suite = ElementTree.Element("testsuite", name="bakeoff gate", tests=str(len(rows)))
    counts = {"failures": 0, "skipped": 0}
    for row in rows:
        case = ElementTree.SubElement(suite, "testcase", classname="bakeoff.gate", name=row.name)
        text = ": ".join(filter(None, [row.outcome, _changed(row), _why(row, find)]))
        if row.outcome in FAILING:
            counts["failures"] += 1
            ElementTree.SubElement(case, "failure", message=text, type=row.outcome)
        elif row.outcome in (*OPEN, "not measured"):
            counts["skipped"] += 1
            ElementTree.SubElement(case, "skipped", message=text)
        else:
            ElementTree.SubElement(case, "system-out").text = text
    suite.attrib |= {name: str(count) for name, count in counts.items()}
    found: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return found


def _cells(row: GatedRow) -> tuple[Cell | str, ...]:
    statuses = dict.fromkeys([row.baseline or "none", row.candidate or "none"])
    return (
        row.name,
        Cell(row.outcome, row.outcome, tone=_TONES.get(row.outcome, "open")),
        ", then ".join(statuses),
        _changed(row),
        str(row.change.pairs) if row.change else "",
    )


def _changed(row: GatedRow) -> str:
    change = row.change
    if change is None:
        return ""
    return f"{size_text(change.ratio)} [{size_text(change.low)}, {size_text(change.high)}]"


def _why(row: GatedRow, find: float) -> str:
    """Return why a row's outcome is what it is; "" if its figures say that."""
    if row.outcome == "suspected":
        return "slower than records of another time; a race with the former source decides: --baseline-source FOLDER"
    if row.outcome == "undecided" and row.change is not None:
        return f"a slowdown of {size_text(1 + find)} is not excluded; {_pairs(row.change.more)} more would decide"
    return row.reason
