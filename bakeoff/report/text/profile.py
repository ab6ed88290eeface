"""Profiles on the terminal: lines with busy and idle time, kernels, operators, parts, advice."""

from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from bakeoff.machine.terminal import lines_of, one_line
from bakeoff.models.words import counted
from bakeoff.record.store import StoredPipeline
from bakeoff.report.format import shorten
from bakeoff.report.profiles import ProfileReport, ReportLine, ReportPart
from bakeoff.report.text.advice import advice_text
from bakeoff.trace.table import RankedRow

_PARTS, _LETTERS = 20, 72
OWN_KERNELS = "kernels of programs that show nothing of themselves in the loop, by a traced build of each"


def render(reports: Sequence[ProfileReport], others: Sequence[StoredPipeline] = (), copies: Path | None = None) -> str:
    """One section a mix; of `others`, which have no profile, why. `copies` is the folder with copies of the traces."""
    missing = [f"{entry.record.mix}: no profile: {_why(entry)}" for entry in others]
    return "\n\n".join([*(_section(report, copies) for report in reports), *([lines_of(missing)] if missing else [])])


def _why(entry: StoredPipeline) -> str:
    made = entry.record.measurement
    if made.profile is not None:
        return f"{made.status}: {made.reason or 'no steady unit'}; without steady units there is nothing to hold it to"
    return f"{made.status}: {made.reason}" if made.reason else "the traced units were left to another profiler"


def _section(report: ProfileReport, copies: Path | None) -> str:
    head = [
        one_line(report.mix),
        one_line(report.title),
        f"{counted(report.steady_units, 'steady unit')}, {counted(report.traced_units, 'traced one')} after them, "
        f"level {report.level}" + (f"; {report.status}: {one_line(report.reason)}" if report.status != "ok" else ""),
    ]
    parts = [lines_of(head), _account(report)]
    for heading, rows in (
        ("kernels", report.kernels),
        (OWN_KERNELS, report.own_kernels),
        ("operators, own time", report.operators),
    ):
        if rows:
            parts.append(f"{heading}\n{_ranked(rows, report.unit)}")
    if report.parts:
        parts.append(f"parts of networks, while traced\n{_inside(report.parts, report.unit)}")
    findings = [one_line(f"note: {finding.text} [{finding.code}]") for finding in report.findings]
    last = [*report.hidden, *_remarks(report, copies), *findings]
    if last:
        parts.append(lines_of(last))
    parts.append(advice_text(report.advice, report.unit))
    return "\n\n".join(parts)


def _account(report: ProfileReport) -> str:
    split = any(line.host_wait_ms is not None for line in report.lines)
    lines = [_line(line, split) for line in report.lines]
    blank = [""] * (3 if split else 0)
    total = ["sum", "", f"{report.unit_ms:.3f}", "100.0 %", f"{report.busy_ms:.3f}", f"{report.idle_ms:.3f}", *blank]
    headers = ["phase", "calls", f"mean ms a {report.unit}", "share", "busy ms", "idle ms"]
    headers += ["host wait", "queue gap", "other"] if split else []
    return tabulate(
        [*lines, [*total, ""]],
        headers=[*headers, "told by"],
        disable_numparse=True,
        colalign=["left", *["right"] * (len(headers) - 1), "left"],
    )


def _line(line: ReportLine, split: bool) -> list[str]:
    cells = [
        one_line(line.name),
        "" if line.calls is None else str(line.calls),
        f"{line.ms:.3f}",
        f"{line.share / 10:.1f} %",
        "not visible" if line.busy_ms is None else f"{line.busy_ms:.3f}",
        "inconsistent" if line.inconsistent else _ms(line.idle_ms),
    ]
    if split:
        cells += [_ms(line.host_wait_ms), _ms(line.gap_ms), _ms(line.other_ms)]
    return [*cells, one_line(line.told_by)]


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _ranked(rows: Sequence[RankedRow], unit: str) -> str:
    return tabulate(
        [
            [
                shorten(row.name, _LETTERS),
                one_line(row.line),
                f"{row.calls:g}" if row.calls else "",
                f"{row.ms:.3f}",
                f"{row.thousandths / 10:.1f} %",
            ]
            for row in rows
        ],
        headers=["name", "in", f"calls a {unit}", "ms", "share"],
        disable_numparse=True,
        colalign=["left", "left", "right", "right", "right"],
    )


def _inside(parts: Sequence[ReportPart], unit: str) -> str:
    longest = sorted(parts, key=lambda part: -part.ms)[:_PARTS]
    return tabulate(
        [[part.slot, part.tag, part.path, f"{part.calls:g}", f"{part.ms:.3f}"] for part in longest],
        headers=["slot", "tag", "module", f"calls a {unit}", "ms"],
        disable_numparse=True,
        colalign=["left", "left", "left", "right", "right"],
    )


def _remarks(report: ProfileReport, copies: Path | None) -> list[str]:
    found = [f"{report.cores:.2f} cores busy in the traced units"]
    if report.stamps_ms is not None:
        found.append(f"the time stamps of the phases {stamps_text(report)}")
    if report.overlap_ms is not None:
        found.append(f"with a synchronisation at each border a {report.unit} takes {report.overlap_ms:+.3f} ms")
    if report.compiled:
        found.append(f"compiled within the traced units: {', '.join(report.compiled[:5])}")
    places = {name: f"{path} in the cache folder" for name, path in report.files.items()}
    if copies is not None and "trace" in places:
        places["trace"] = str(copies / Path(report.files["trace"]).name)
    return [*found, *(f"{name}: {place}" for name, place in places.items())]


def stamps_text(report: ProfileReport) -> str:
    """What taking the time stamps costs, as in `take 0.012 ms a frame, 0.01 % of it [0.01, 0.01]`."""
    if report.stamps_ms is None or not report.unit_ms:
        return ""
    ms, low, high = report.stamps_ms
    share, least, most = (100 * each / report.unit_ms for each in (ms, low, high))
    return f"take {ms:.4f} ms a {report.unit}, {share:.3f} % of it [{least:.3f}, {most:.3f}]"
