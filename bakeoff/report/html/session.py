"""One offline HTML page of a session, without scripts: its figures are drawn here, as SVG."""

from dataclasses import dataclass

from bakeoff.report.format import duration
from bakeoff.report.html.counters import HEIGHT, chart, marks
from bakeoff.report.html.drawing import time_ticks
from bakeoff.report.html.embed import policy, read
from bakeoff.report.html.template import template
from bakeoff.report.html.timeline import ROW, WIDTH, colours_of, panels
from bakeoff.report.sessions import ReportLine, SessionReport
from bakeoff.report.text.session import cost_lines, data_text, energy_lines, rank_text, rate_text, units_text

LETTERS = 300
"""Of a text; longer ones lose their middle. The record and the JSON have all of them."""
_NARROW = 420.0
_MOST_CHARTS = 40
_MOST_ROWS = {"ranges": 300, "steps": 200, "events": 150, "findings": 60, "parameters": 60, "environment": 80}
"""Of tables and lists; what is left out is counted."""


@dataclass(frozen=True, slots=True)
class PhaseBar:
    """A line of the account, in percent of the unit."""

    left: float
    width: float
    colour: str
    line: ReportLine


def render(report: SessionReport) -> str:
    """The page; equal reports give equal text. Raises BakeoffError where jinja2 is missing."""
    colours = colours_of(report)
    units = next((series for series in report.series if series.name == "unit" and series.source != "user"), None)
    others = [series for series in report.series if series is not units]
    return template("session.html.j2", "the page of a session", LETTERS).render(
        policy=policy(),
        style=read("page.css") + read("profile.css") + read("session.css"),
        report=report,
        rate=rate_text(report),
        rank=rank_text(report),
        accounted=units_text(report.account) if report.account is not None else "",
        bars=_phase_bars(report, colours),
        panels=panels(report, colours),
        legend=[(name, colours[name]) for name in _legend(report)],
        overview=chart(units, report.ms, WIDTH, report.events) if units is not None else None,
        overview_times=time_ticks(0.0, report.ms, WIDTH) if report.ms > 0 else (),
        overview_marks=marks(report.events, 0.0, report.ms, WIDTH),
        charts=[chart(series, report.ms, _NARROW, report.events) for series in others[:_MOST_CHARTS]],
        left_charts=max(0, len(others) - _MOST_CHARTS),
        lasted=duration(report.ms),
        before=duration(report.before_ms),
        event_rows=[(duration(each.t_ms), each, data_text(each)) for each in report.events[: _MOST_ROWS["events"]]],
        energy=list(energy_lines(report)),
        costs=list(cost_lines(report)),
        most=_MOST_ROWS,
        wide=WIDTH,
        row=ROW,
        high=HEIGHT,
    )


def _phase_bars(report: SessionReport, colours: dict[str, str]) -> list[PhaseBar]:
    if report.account is None:
        return []
    found, left, unit_ms = [], 0.0, report.account.unit_ms or 1.0
    for line in report.account.lines:
        width = min(100.0 - left, max(0.0, 100 * line.ms / unit_ms))
        found.append(PhaseBar(left, width, colours[line.name.rpartition(" / ")[2]], line))
        left += width
    return found


def _legend(report: SessionReport) -> list[str]:
    """Names of the ranges that the timeline draws."""
    return list(dict.fromkeys(span.name for unit in report.kept for span in unit.spans))[:40]
