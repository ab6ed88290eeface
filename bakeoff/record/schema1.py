"""Records of schema 1 as schema 2 has them. Files are never rewritten; they are converted each time they are read."""

from collections.abc import Iterator
from typing import Any

_FINDINGS = {"unseen": "memoised"}
"""Former codes of findings."""


def converted(raw: dict[str, Any]) -> dict[str, Any]:
    """The plain JSON of an entry of schema 1 with the fields of schema 2, changed in place.

    Entries had no tag: a comparison is told by its rounds, a supersede entry by what it supersedes. Sides of a
    comparison were fields `a` and `b`, with `a_first` instead of an order.
    """
    if "supersedes" in raw:
        raw["kind"] = "supersede"
    elif "rounds" in raw:
        raw["kind"] = "comparison"
        raw["sides"] = [raw.pop("a"), raw.pop("b")]
        raw["rounds"] = [_round(entry) for entry in raw["rounds"]]
        for side in raw["sides"]:
            _convert_record(side)
    else:
        raw["kind"] = "record"
        _convert_record(raw)
    for finding in _findings(raw):
        finding["code"] = _FINDINGS.get(finding["code"], finding["code"])
    return raw


def _convert_record(raw: dict[str, Any]) -> None:
    parity = raw["measurement"].get("parity")
    if parity:
        parity["reference"] = parity.pop("judge")
        parity["reference_dtype"] = parity.pop("judge_dtype")


def _round(raw: dict[str, Any]) -> dict[str, Any]:
    order = [0, 1] if raw["a_first"] else [1, 0]
    return {"order": order, "samples_ns": [raw["a_ns"], raw["b_ns"]], "pair": raw.get("pair", 0)}


def _findings(raw: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from raw.get("findings", [])
    for record in [raw, *raw.get("sides", [])]:
        yield from record.get("measurement", {}).get("findings", [])
