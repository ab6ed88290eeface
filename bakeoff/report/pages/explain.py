"""The page that says why the times of two records, or of two sets of records, differ."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from bakeoff.models.words import some_of
from bakeoff.record.causes import Cause, Explanation
from bakeoff.record.objective import LATENCY
from bakeoff.record.schema import Record
from bakeoff.report.document import Block, Command, Document, Heading, Text, blocks, table
from bakeoff.report.format import kernel_name, milliseconds, minute, shorten
from bakeoff.report.groups import group_key, name_of, title
from bakeoff.report.notes import policy_text
from bakeoff.report.recommendation import command, takes_compare

_CAUSES, _OF_A_KIND, _PLACES, _ROWS, _LETTERS = 40, 3, 6, 20, 60
"""Most causes, causes of a kind, places and rows that are listed, and most letters of a kernel's name."""


def document(found: Explanation) -> Document:
    """Return the page of two records."""
    a, b = found.a, found.b
    names = [name_of(record) for record in (a, b)]
    sides = names if names[0] != names[1] else ["A", "B"]
    return Document(f"{names[0]} and {names[1]}: why they differ", blocks(*_body(found, sides)))


def together(pairs: Sequence[Explanation], alone: Sequence[str]) -> Document:
    """Return the page of two sweeps or commits: every variant of both, and the largest change in full; `alone` are
    variants that only one of them has."""
    ordered = sorted(pairs, key=lambda found: -abs(found.difference_ms / found.a_ms))
    headings: tuple[Heading | str, ...] = (
        "variant",
        *(Heading(text, numeric=True) for text in ("A ms", "B ms", "change ms")),
        "most likely",
    )
    rows = [
        (
            name_of(found.a),
            milliseconds(found.a_ms),
            milliseconds(found.b_ms, found.a_ms),
            f"{found.difference_ms:+.4g}",
            found.causes[0].what if found.causes else "nothing that was recorded",
        )
        for found in ordered[:_ROWS]
    ]
    left = [f"only in one of them: {some_of(alone, 3)}"] if alone else []
    left += [f"{len(ordered) - _ROWS} more changed less"] if len(ordered) > _ROWS else []
    largest = [Text(f"The largest change is {name_of(ordered[0].a)}'s:"), *_body(ordered[0], ["A", "B"])]
    return Document(title(ordered[0].a), blocks(table(headings, rows), *map(Text, left), *largest))


def as_json(found: Explanation) -> Mapping[str, object]:
    """Return what --json prints of a pair."""
    return {
        "variants": [str(record.variant) for record in (found.a, found.b)],
        "a_ms": found.a_ms,
        "b_ms": found.b_ms,
        "causes": found.causes,
        "places": [{"name": one.name, "a_ms": one.a_ms, "b_ms": one.b_ms} for one in found.places],
        "experiment": experiment(found),
    }


def _body(found: Explanation, sides: Sequence[str]) -> Iterator[Block | None]:
    a, b = found.a, found.b
    texts = [f"{milliseconds(ms, found.a_ms)} ms" for ms in (found.a_ms, found.b_ms)]
    yield Text(
        f"{sides[0]}: {texts[0]}, {minute(a.created)}; {sides[1]}: {texts[1]}, {minute(b.created)}: "
        f"{found.difference_ms:+.4g} ms. They were not measured together: what the host did "
        "meanwhile is part of it.",
        tone="open",
    )
    for side, record in zip(sides, (a, b), strict=True):
        if policy := policy_text(record.policy):
            yield Text(policy, side)
        if record.status != "ok":
            text = f"{name_of(record)} is {record.status} and is not ranked: {record.measurement.reason}"
            yield Text(text, tone="bad")
    if not found.causes:
        yield Text("Nothing that is recorded differs but what was measured: measure both again, together.")
    explains = Heading("explains", "of the difference; up to: the records do not tell the changes apart")
    causes = list(_told_first(found.causes))
    rows = [(cause.what, cause.a or "none", cause.b or "none", *_told(cause, found)) for cause in causes]
    yield table(("cause", *sides, explains, Heading("how it is known", leaves=1)), rows)
    if len(found.causes) > len(causes):
        yield Text(f"{len(found.causes) - len(causes)} more differ; all with --json", tone="faint")
    kernels: tuple[Heading | str, ...] = ("where", *(Heading(text, numeric=True) for text in (*sides, "change ms")))
    yield table(
        kernels,
        (
            (
                shorten(kernel_name(place.name), _LETTERS),
                f"{place.a_ms:.4f}",
                f"{place.b_ms:.4f}",
                f"{place.grew_ms:+.4f}",
            )
            for place in found.places[:_PLACES]
        ),
        "Where the traced calls differ most",
    )
    yield Text("To split the blame:")
    yield Command(experiment(found))


def _told_first(causes: Sequence[Cause]) -> Iterator[Cause]:
    """Yield the first causes, few of each kind."""
    kinds: Counter[str] = Counter()
    for cause in causes:
        kinds[cause.kind] += 1
        if kinds[cause.kind] <= _OF_A_KIND and kinds.total() <= _CAUSES:
            yield cause


def _told(cause: Cause, found: Explanation) -> tuple[str, str]:
    total = found.difference_ms
    if cause.ms is not None:
        return f"{cause.ms:+.4g} ms{f', {cause.ms / total:.0%}' if total else ''}", cause.how
    named = [one for one in found.causes if one.ms is None and one.kind != "disturbance"]
    left = total - sum(one.ms for one in found.causes if one.ms is not None)
    if cause.kind == "disturbance":
        return "unknown", cause.how or "a finding of one side alone"
    if len(named) == 1:
        return f"{left:+.4g} ms", "the only other change"
    return f"up to {left:+.4g} ms", f"one of {len(named)} changes"


def experiment(found: Explanation) -> str:
    """Return the command that measures B again with A's value of the first cause, or both sides together."""
    a, b = found.a, found.b
    cause = found.causes[0] if found.causes else None
    if cause is not None and cause.kind == "environment variables":
        name = cause.what.removeprefix("environment ")
        return f"env {f'{name}={shlex.quote(cause.a)}' if cause.a else f'-u {name}'} {_again(b, a.threads)}"
    if cause is not None and cause.kind in ("versions", "sources", "commit"):
        return f"git worktree add ../before {a.commit[:12] or 'COMMIT'} && {_again(b, b.threads)}"
    if str(a.variant) != str(b.variant) and group_key(a) == group_key(b):
        return command(a, b, LATENCY if takes_compare(a, b, LATENCY) else a.objective)
    return _again(b, a.threads)


def _again(record: Record, threads: int) -> str:
    """Return the command that sweeps the record's variant by itself."""
    asked = command(record, record, record.objective)
    if asked.startswith("bakeoff compare"):
        variant = record.variant
        asked = (
            f"bakeoff sweep {variant.component} --preset {variant.preset} --workload {variant.workload} "
            f"--backends '{variant.backend}' --dtype {variant.dtype} --device {variant.device}"
        )
    asked = asked.partition(" --threads")[0]
    return f"{asked} --threads {threads} --no-final" if record.variant.device == "cpu" else f"{asked} --no-final"
