"""The page that says why the times of two records differ."""

from collections.abc import Iterator, Mapping

from bakeoff.record.causes import Cause, Explanation
from bakeoff.report.document import Block, Document, Heading, Text, blocks, listed, number, table
from bakeoff.report.format import kernel_name, milliseconds, minute
from bakeoff.report.groups import name_of
from bakeoff.report.notes import policy_text

_CAUSES, _PLACES = 12, 10
"""Most causes and places that are listed."""


def document(found: Explanation) -> Document:
    """Return the page of two records."""
    a, b = found.a, found.b
    return Document(f"{name_of(a)} and {name_of(b)}: why they differ", blocks(*_body(found)))


def as_json(found: Explanation) -> Mapping[str, object]:
    """Return what --json prints of a pair."""
    return {
        "variants": [str(record.variant) for record in (found.a, found.b)],
        "a_ms": found.a_ms,
        "b_ms": found.b_ms,
        "causes": found.causes,
        "places": found.places,
    }


def _body(found: Explanation) -> Iterator[Block | None]:
    a, b = found.a, found.b
    for side, record, ms in (("A", a, found.a_ms), ("B", b, found.b_ms)):
        yield Text(f"{name_of(record)}: {milliseconds(ms, found.a_ms)} ms, {minute(record.created)}", side)
        if policy := policy_text(record.policy):
            yield Text(policy, side)
        if record.status != "ok":
            text = f"{name_of(record)} is {record.status} and is not ranked: {record.measurement.reason}"
            yield Text(text, tone="bad")
    yield Text(
        f"B takes {found.difference_ms:+.4g} ms. They were not measured together: what the host did meanwhile is part "
        "of it.",
        tone="open",
    )
    if not found.causes:
        yield Text("Nothing that is recorded differs but what was measured: measure both again, together.")
    causes = found.causes[:_CAUSES]
    rows = [(cause.what, cause.a or "none", cause.b or "none", *_told(cause, found)) for cause in causes]
    yield table(("cause", "A", "B", "explains", "how it is known"), rows, wraps=True)
    yield listed((Text("; ".join(cause.brought), cause.what) for cause in causes if cause.brought), "Changed with it")
    if (more := len(found.causes) - len(causes)) > 0:
        yield Text(f"{more} more differ; all with --json", tone="faint")
    if found.both_disturbed:
        yield Text(
            "No cause has a size: both were disturbed while they were timed, so that the difference is not of what "
            "changed alone.",
            tone="open",
        )
    elif (several := len(found.unsized)) > 1:
        yield Text(f"The records do not tell how {several} of these share {found.left_ms:+.4g} ms.")
    yield table(
        (
            Heading("where", "not listed: no longer than any kernel that the record lists, and 0 in the change"),
            *map(number, ("A", "B", "change")),
        ),
        (
            (kernel_name(one.name), _place(one.a_ms), _place(one.b_ms), f"{one.grew_ms:+.4f}")
            for one in found.places[:_PLACES]
        ),
        "Where the traced calls differ most, in ms",
        wraps=True,
    )


def _place(ms: float | None) -> str:
    return "not listed" if ms is None else f"{ms:.4f}"


def _told(cause: Cause, found: Explanation) -> tuple[str, str]:
    total = found.difference_ms
    if cause.ms is not None:
        return f"{cause.ms:+.4g} ms{f', {cause.ms / total:.0%}' if total else ''}", cause.how
    if cause.kind == "disturbance":
        return "", cause.how or "a finding of one side alone"
    if len(found.unsized) == 1 and not found.both_disturbed:
        return f"{found.left_ms:+.4g} ms", "the only one left to explain it"
    return "", ""
