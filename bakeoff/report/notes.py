"""Remarks below a table: findings, reasons, and the result of the selftest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bakeoff.record.floor import KnownCeilings
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored
from bakeoff.report.format import minute
from bakeoff.report.groups import name_of

_RATES: Mapping[str, str] = {
    "copy": "memory copies",
    "read": "memory reads",
    "product": "matrix products",
    "convolution": "convolutions",
}


@dataclass(frozen=True, slots=True)
class Note:
    """A finding and the names of the rows that have it; no names where all rows have it."""

    code: str
    text: str
    names: tuple[str, ...]


def findings(rows: Sequence[Stored], reasons: bool = True) -> list[Note]:
    """The rows' findings, each once, in the order they come.

    Without `reasons` those are left out that are the reason of their row's status, for pages that show it beside them.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for entry in rows:
        made = entry.record.measurement
        for finding in made.findings:
            if reasons or finding.text != made.reason:
                found.setdefault((finding.code, finding.text), []).append(name_of(entry.record))
    return [Note(code, text, () if len(names) == len(rows) else tuple(names)) for (code, text), names in found.items()]


def reason_code(record: Record) -> str:
    """The code of the finding that is the reason of a row's status; "" where the reason is no finding."""
    made = record.measurement
    return next((finding.code for finding in made.findings if finding.text == made.reason), "")


def overlapped_text(rows: Sequence[Stored]) -> str | None:
    """What `cpu` means in the builds' column; None where no row was built while others were."""
    builds = [entry.record.measurement.build for entry in rows]
    if not any(build is not None and build.shown_as_cpu for build in builds):
        return None
    return "build s with cpu: CPU seconds of the build and all that it started, because others ran at the same time"


def selftest_text(record: Record | PipelineRecord) -> str:
    """The result of the selftest that was the newest on the machine when a record was made."""
    stamp = record.selftest
    if stamp is None:
        return "no selftest on this machine before it was measured; run: bakeoff selftest"
    verdict = "passed" if stamp.passed else "FAILED"
    which = "quick selftest" if stamp.quick else "selftest"
    text = f"{which} {verdict} {minute(stamp.created)} UTC"
    return text if stamp.code == record.code else f"{text}, STALE: bakeoff's code has changed since"


def ceilings_text(known: KnownCeilings) -> str | None:
    """How far the sets of ceilings that floors were computed from differ; None where there are not two."""
    if known.sets < 2:
        return None
    differ = ", ".join(f"{_RATES.get(kind, kind)} by {ratio:.2f}x" for kind, ratio in known.apart.items())
    between = f"between {minute(known.first)} and {minute(known.last)} UTC"
    return f"floors are from the highest rates of {known.sets} sets of ceilings {between}, which differ: {differ}"
