"""docs/trials/promises.md from tests/trials/promises.jsonl."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
RECORD, PAGE = ROOT / "tests" / "trials" / "promises.jsonl", ROOT / "docs" / "trials" / "promises.md"
Line = Mapping[str, Any]


def read() -> list[Line]:
    """Return the lines that were recorded so far."""
    text = RECORD.read_text(encoding="utf-8") if RECORD.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _sum(calls_ms: float | None, between_ms: float | None) -> float | None:
    return None if calls_ms is None else calls_ms + (between_ms or 0.0)


def _less_between(name: str) -> Callable[[Line], float | None]:
    return lambda one: None if one[name] is None else one[name] - (one["between_ms"] or 0.0)


PROMISES: Mapping[str, Callable[[Line], float | None]] = {
    "before: medians alone": lambda one: one["medians_ms"],
    "means alone": lambda one: one["means_ms"],
    "medians and the time between": lambda one: _sum(one["medians_ms"], one["between_ms"]),
    "means and the time between": lambda one: _sum(one["means_ms"], one["between_ms"]),
    "in the loop, without the time between": _less_between("records_ms"),
    "by records: in the loop and the time between": lambda one: one["records_ms"],
    "calls after a pause and the time between": lambda one: _sum(one["after_pause_ms"], one["between_ms"]),
    "timed first": lambda one: one["anchored_ms"],
}
"""What is promised with and without each part."""


def page(found: Sequence[Line]) -> str:
    """The page of the recorded lines."""
    usual = [one for one in found if not one["setting"] and one["measured_ms"] is not None]
    parts = [
        "# Promises of a unit's time\n",
        "Written by `tests/trials/promises.py` from what it recorded in tests/trials/promises.jsonl; do not edit. "
        "Mixes run in pairs as a budget runs its two best: units of both are timed in turns, with threads that sleep "
        "too where an engine has its own; a unit is promised, then each mix is measured in a fresh process. For lines "
        "of before 29 November 2026, 9:00, both were timed in one process; in those of before 18:00, units that follow "
        "a pause count, by which means are 5 % longer in the median.\n",
    ]
    if usual:
        parts += [_parts(usual), _mixes(usual)]
    others = [
        one for one in found if one["setting"] or any(each["setting"] and each["pair"] == one["pair"] for each in found)
    ]
    if others:
        parts.append(_settings(others))
    return "\n".join(parts)


def _error(one: Line, promised: float | None) -> float | None:
    return None if promised is None else one["measured_ms"] / promised - 1


def _parts(found: Sequence[Line]) -> str:
    rows = []
    for name, promise in PROMISES.items():
        errors = [error for one in found if (error := _error(one, promise(one))) is not None]
        near = sum(abs(error) <= 0.05 for error in errors)
        worst = max(errors, key=abs, default=0.0)
        mean = sum(map(abs, errors)) / max(1, len(errors))
        rows.append([name, f"{near} of {len(errors)}", f"{mean:.1%}", f"{worst:+.1%}"])
    known = [one for one in found if one["interval_ms"] is not None]
    inside = sum(one["interval_ms"][0] <= one["measured_ms"] <= one["interval_ms"][1] for one in known)
    table = tabulate(rows, headers=["promise", "within 5 %", "mean error", "largest"], tablefmt="github")
    held = f"Of {len(known)} promises by records, {inside} hold within their interval."
    return f"## What each part brings\n\n{table}\n\n{held}\n"


def _mixes(found: Sequence[Line]) -> str:
    rows = [
        [
            one["loop"],
            one["run"],
            f"`{one['mix']}`",
            one["status"],
            f"{one['measured_ms']:.3f}",
            _written(one, one["medians_ms"]),
            _written(one, one["records_ms"]),
            _written(one, one["anchored_ms"]),
            "yes" if one.get("passive") else "",
        ]
        for one in found
    ]
    headings = ["loop", "run", "mix", "status", "unit ms", "before", "by records", "timed first", "sleep"]
    said = "Errors are of the measured mean against the promise; *sleep*: with `OMP_WAIT_POLICY=passive`."
    return f"## Each mix\n\n{said}\n\n{tabulate(rows, headings, 'github')}\n"


def _written(one: Line, promised: float | None) -> str:
    error = _error(one, promised)
    return "none" if error is None or promised is None else f"{promised:.3f} {error:+.1%}"


def _settings(found: Sequence[Line]) -> str:
    names = list(dict.fromkeys(one["setting"] for one in found))
    times: dict[tuple[str, str], dict[str, float]] = {}
    for one in found:
        if one["measured_ms"] is not None:
            times.setdefault((one["loop"], one["mix"]), {}).setdefault(one["setting"], one["measured_ms"])
    rows = [
        [loop, f"`{mix}`", *(f"{own[name]:.3f}" if name in own else "" for name in names)]
        for (loop, mix), own in times.items()
    ]
    headings = ["loop", "mix", *(name or "as usual" for name in names)]
    return f"## Waiting and threads\n\nMilliseconds of a unit.\n\n{tabulate(rows, headings, 'github')}\n"
