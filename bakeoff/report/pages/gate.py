"""The page of a gate, and its JUnit XML."""

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree

from bakeoff.models.words import counted
from bakeoff.record.gate import FAILING, FALSE_ALARMS, LARGEST_SIZE, POWER, GatedRow, Outcome, exit_code
from bakeoff.record.policy import Policy
from bakeoff.report.document import Cell, Document, Heading, Text, Tone, blocks, listed, table
from bakeoff.report.notes import policy_text

_ROWS: Final = (
    Heading("row"),
    Heading("outcome"),
    Heading("status", "of the baseline, then of the candidate if it differs", leaves=2),
    Heading("change [interval]", "of the time; the interval holds for all rows together", numeric=True),
    Heading("found from", f"the least change that is found with a probability of {POWER:.0%}", numeric=True, leaves=1),
    Heading("pairs", "of fresh processes, or processes if the baseline is of records", numeric=True, leaves=3),
)
_TONES: Final[dict[Outcome, Tone]] = {
    "unchanged": "good",
    "faster": "good",
    "now ok": "good",
    "regression": "bad",
    "status changed": "bad",
}


def document(rows: Sequence[GatedRow], baseline: str, live: bool, policy: Policy) -> Document:
    """Return the page of a gate against `baseline` by this policy; `live` if both were measured in one race."""
    failing = [row for row in rows if row.outcome in FAILING or _is_slower(row)]
    compared = sum(row.change is not None for row in rows)
    undecided = sum(row.outcome == "undecided" for row in rows)
    remark = f", {undecided} of them undecided" if undecided else ""
    how = "in one race with it" if live else "with its records of this machine, made at another time"
    made = blocks(
        Text(
            f"{counted(compared, 'row')} compared {how}{remark}",
            f"{len(failing)} of {counted(len(rows), 'row')} failed" if failing else _answer(rows),
            "bad" if failing else "open" if undecided or not compared else "good",
        ),
        table(_ROWS, map(_cells, rows)),
        listed(Text(_why(row), row.name) for row in rows if _why(row)),
        Text(policy_text(policy)) if policy_text(policy) else None,
        Text(f"at most {FALSE_ALARMS:.0%} false alarms over all rows", tone="faint"),
    )
    return Document(f"Gate against {baseline}", made)


def _answer(rows: Sequence[GatedRow]) -> str:
    """Return what a gate without a failing row shows, with the largest change that it may have missed."""
    if exit_code(rows):
        return "nothing was decided"
    sizes = [row.change.size for row in rows if row.change is not None and row.outcome == "unchanged"]
    return f"no regression of {size_text(max(sizes))} or more" if sizes else "no regression"


def size_text(ratio: float) -> str:
    """Return a ratio as a change in percent, with its sign."""
    return f"{ratio - 1:+.1%}"


def junit(rows: Sequence[GatedRow]) -> bytes:
    """Return the rows as test cases in JUnit's XML: failed, skipped if nothing was decided, or passed."""
    suite = ElementTree.Element("testsuite", name="bakeoff gate", tests=str(len(rows)))
    counts = {"failures": 0, "skipped": 0}
    for row in rows:
        case = ElementTree.SubElement(suite, "testcase", classname="bakeoff.gate", name=row.name)
        size = f"found from {_size(row)}" if row.change and row.outcome != "undecided" else ""
        text = ": ".join(filter(None, [row.outcome, _changed(row), size, _why(row)]))
        if row.outcome in FAILING or _is_slower(row):
            counts["failures"] += 1
            ElementTree.SubElement(case, "failure", message=text, type=row.outcome)
        elif row.outcome in ("not measured", "undecided", "expected failure"):
            counts["skipped"] += 1
            ElementTree.SubElement(case, "skipped", message=text)
        else:
            ElementTree.SubElement(case, "system-out").text = text
    suite.attrib |= {name: str(count) for name, count in counts.items()}
    found: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return found


def _cells(row: GatedRow) -> tuple[Cell | str, ...]:
    statuses = dict.fromkeys([row.baseline or "none", row.candidate])
    return (
        row.name,
        Cell(row.outcome, row.outcome, tone=_TONES.get(row.outcome, "open")),
        ", then ".join(statuses),
        _changed(row),
        _size(row),
        str(row.change.pairs) if row.change else "",
    )


def _size(row: GatedRow) -> str:
    return size_text(row.change.size) if row.change else ""


def _changed(row: GatedRow) -> str:
    change = row.change
    if change is None:
        return ""
    return f"{size_text(change.ratio)} [{size_text(change.low)}, {size_text(change.high)}]"


def _is_slower(row: GatedRow) -> bool:
    return row.change is not None and row.change.word == "slower"


def _why(row: GatedRow) -> str:
    """Return why a row's outcome is what it is; "" if its figures say that."""
    if row.outcome == "unexpected pass":
        return f"it was expected to fail ({row.expected}) and is ok: remove it from the file of expected statuses"
    if row.outcome == "undecided":
        if row.change is not None and row.change.size > LARGEST_SIZE:
            return f"only a change of {_size(row)} or more would be found: this host is too noisy to tell"
        return f"its pairs differ more than the baseline's own, so that a change of {_size(row)} is not excluded"
    return "; ".join(filter(None, [row.expected and f"expected: {row.expected}", row.reason]))
