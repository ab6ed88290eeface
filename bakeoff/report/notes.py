"""Texts below tables: findings, reasons, the selftest, monitors, advice, and what a time limit left out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from statistics import median

from bakeoff.advice.evidence import Advice
from bakeoff.models.grouping import grouped
from bakeoff.models.words import counted
from bakeoff.plan.request import time_limit_text
from bakeoff.record.comparable import same_code, subject_key
from bakeoff.record.finalists import shared_modes
from bakeoff.record.monitor import SERIES, Monitored, Point, SeriesRecord
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.policy import Policy
from bakeoff.record.schema import MEASURED, Calibration, Record
from bakeoff.record.store import Stored
from bakeoff.report.document import Block, Command, Listed, Section, Text, blocks, listed, once_each
from bakeoff.report.format import duration, milliseconds, minute
from bakeoff.report.groups import name_of
from bakeoff.sweeps.time_limit import LeftOut, OutOfTime

_MODES = (
    "calls took {:.2g} to {:.2g} times as long in a part of the window, by about the same ratio in rows of several "
    "backends: this machine has two speeds, and the engines have not; a final compares them all the same"
)
_LEAST_S = 1.0
"""Least time of a phase that is named."""
_SHOWN = 12
"""Largest number of rows that are named; further ones are counted."""


def findings(rows: Sequence[Stored]) -> Iterator[Text]:
    """Return the distinct findings of the rows but those that are the reason of a row's status, each labelled with its
    rows unless all have it; modes that several rows share are one."""
    shared = shared_modes(rows)
    together = _MODES.format(min(shared.values()), max(shared.values())) if shared else ""
    found = []
    for entry in rows:
        for finding in entry.record.measurement.findings:
            is_shared = finding.code == "bimodal" and entry.id in shared
            if is_shared or finding.text != entry.record.measurement.reason:
                text = f"note: {together if is_shared else finding.text} [{finding.code}]"
                found.append((text, name_of(entry.record)))
    return once_each(found, len(rows))


def reason_code(record: Record) -> str:
    """Return the code of the finding that is the reason of a row's status; "" if the reason is no finding."""
    made = record.measurement
    return next((finding.code for finding in made.findings if finding.text == made.reason), "")


def overlapped_text(rows: Sequence[Stored]) -> str | None:
    """Return what `cpu` means in the column of builds; None if no row was built while other builds ran."""
    builds = [entry.record.measurement.build for entry in rows]
    if not any(build is not None and build.shown_as_cpu for build in builds):
        return None
    return "build s with cpu: CPU seconds of the build and all that it started, because others ran at the same time"


def selftest_text(record: Record | PipelineRecord) -> str:
    """Describe the result of the machine's newest selftest at the time when a record was made."""
    stamp = record.selftest
    if stamp is None:
        return "no selftest on this machine before it was measured; run: bakeoff selftest"
    verdict = "passed" if stamp.passed else "FAILED"
    which = "quick selftest" if stamp.quick else "selftest"
    text = f"{which} {verdict} {minute(stamp.created)} UTC"
    return text if stamp.code == record.code else f"{text}, STALE: bakeoff's code has changed since"


def policy_text(policy: Policy) -> str:
    """Return the entries of a policy that are not the usual ones, as in `policy: contention 5 (usual 0.2)`; "" for
    none."""
    usual = asdict(Policy())
    others = [
        f"{name} {value:g} (usual {usual[name]:g})" for name, value in asdict(policy).items() if value != usual[name]
    ]
    return f"policy: {', '.join(others)}" if others else ""


def policies(records: Iterable[Record]) -> Iterator[Text]:
    """Yield each policy of the records that is not the usual one, labelled with its rows unless all have it."""
    found = [(policy_text(record.policy), name_of(record)) for record in records]
    return (text for text in once_each(found, len(found)) if text.text)


def spread_lines(rows: Iterable[Stored], every: Iterable[Stored]) -> Iterator[str]:
    """Yield the range of the medians of each row that its sweep measured in several processes, as in `every`."""
    tries = grouped(
        (_try_key(entry.record), (entry.record, entry.record.latency.median_ms))
        for entry in every
        if entry.record.latency is not None and entry.record.latency.median_ms > 0
    )
    for record in (entry.record for entry in rows):
        known = tries.get(_try_key(record), [])
        medians = [median_ms for each, median_ms in known if same_code(each, record)]
        if len(medians) < 2:
            continue
        what = f"in {counted(len(medians), 'process', 'processes')}"
        what += " on the machines of this table" if record.calibration == Calibration(record.sweep) else ""
        least, most = min(medians), max(medians)
        text = f"{name_of(record)} {what}: medians {milliseconds(least)} to {milliseconds(most, least)} ms"
        yield f"{text}, {(most - least) / median(medians):.1%} apart"


def _try_key(record: Record) -> tuple[object, ...]:
    return subject_key(record), record.sweep, str(record.variant)


_LARGE = 100.0


def sentences(record: Record | PipelineRecord) -> list[str]:
    """Describe means and peaks in the timed window, throttling, sampling's cost, and gaps; empty without a monitor."""
    seen = record.monitored
    if seen is None:
        return []
    shared = isinstance(record, PipelineRecord) and record.how == "interleaved"
    return [*_figures(seen, record.monitored_window_ns, shared), *of_monitor(seen)]


def _figures(seen: Monitored, window_ns: tuple[int, int] | None, shared: bool) -> Iterator[str]:
    """Yield a sentence with each series' mean and maximum, in the timed window if it has points, else over all time."""
    timed = window_ns is not None and any(_within(series, window_ns) for series in seen.series)
    names, order = [series.name for series in seen.series], list(SERIES)
    parts = []
    for series in sorted(seen.series, key=lambda each: order.index(each.name) if each.name in order else len(order)):
        points = _within(series, window_ns) if timed else series.points
        if points:
            parts.append(_figure(series, points, names.count(series.name) > 1))
    if not parts:
        return
    start, end = window_ns or (0, 0)
    span = f"in the timed window of {(end - start) / 1e9:.1f} s" if timed else "from its start to its end"
    gpu = shared and any(name.startswith("gpu.") for name in names)
    also = "; the GPU's figures are of all mixes that took turns" if gpu else ""
    yield f"monitored {span}, mean and most: {', '.join(parts)}{also}"


def _within(series: SeriesRecord, window_ns: tuple[int, int] | None) -> Sequence[Point]:
    """Return the points that begin in the window."""
    if window_ns is None:
        return ()
    return [point for point in series.points if window_ns[0] <= point.t_ns < window_ns[1]]


def _figure(series: SeriesRecord, points: Sequence[Point], several: bool) -> str:
    """Return a series' mean and maximum as text, with its source if `several` series have its name."""
    mean = sum(point.mean * point.count for point in points) / sum(point.count for point in points)
    most = max(point.greatest for point in points)
    source = f" of {series.source}" if several else ""
    unit = f" {series.unit}" if series.unit else ""
    return f"{SERIES.get(series.name, (series.name,))[0]}{source} {_number(mean)} and {_number(most)}{unit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= _LARGE else f"{value:.3g}"


def of_monitor(seen: Monitored) -> Iterator[str]:
    """Yield throttling, the share of one core that sampling took, by the median cost of a sample, and gaps."""
    for each in seen.throttled:
        yield f"throttled by {each.reason} in {each.share:.1%} of the samples ({each.device})"
    if seen.cost is not None:
        every = ", ".join(f"{group} every {seconds:g} s" for group, seconds in seen.cost.ran_s.items())
        note = f"; {seen.cost.note}" if seen.cost.note else ""
        yield f"the monitor took {seen.cost.sampling_share:.2%} of one core while sampling ({every}){note}"
    yield from (f"not monitored: {text}" for text in seen.missing)


def out_of_time(what: OutOfTime, stored: Sequence[Stored], resume: str) -> tuple[Block | Section, ...]:
    """Describe what a sweep left out for lack of time, followed by `resume`, the command that continues it."""
    tried = [
        entry.record.status in MEASURED for entry in stored if entry.record.wall_s and entry.record.status != "built"
    ]
    notes = [Text(_progress(what, sum(tried), len(tried)), tone="open"), *_phases(stored)]
    if what.left_out:
        notes.append(Text(f"Left out: {_named(what.left_out)}."))
    if len(what.undecided) == 1:
        notes.append(Text(f"No final was run, so which of {what.undecided[0]} is faster is not decided."))
    several = what.undecided if len(what.undecided) > 1 else ()
    return blocks(
        Listed(tuple(notes)),
        listed(several, "No final was run, so which of these is faster is not decided"),
        Text("To go on:"),
        Command(resume),
    )


def nothing_measured(what: OutOfTime) -> str:
    """Return a sentence for a time limit within which no row could be measured: what took the time, and how to go
    on."""
    said = f"nothing was measured within {time_limit_text(what.time_limit_s)}"
    able = [row for row in what.left_out if row.expected_s]
    if any(row.begun for row in what.left_out):
        why = "references and builds took the time; those that were finished are kept for --resume"
    elif able:
        least = min(able, key=lambda row: row.expected_s)
        why = f"{least.label} alone takes {_about(least.expected_s)}"
    else:
        return said
    return f"{said}: {why}; give a larger --time-limit"


def _progress(what: OutOfTime, measured: int, tried: int) -> str:
    counts = f"{measured} of {counted(tried + len(what.left_out), 'variant')} measured"
    limit = time_limit_text(what.time_limit_s)
    if what.used_s >= what.time_limit_s:
        return f"{limit} are up: {counts}."
    return f"{counts} in {what.used_s:.0f} s; nothing else is expected to fit into {limit}."


def _phases(stored: Sequence[Stored]) -> Iterator[Text]:
    """Yield the share of each phase in the time of all rows; waiting for a turn counts as none."""
    spent_s = Counter[str]()
    for entry in stored:
        spent_s.update({phase: seconds for phase, seconds in entry.record.phase_s.items() if phase != "turn"})
    total_s = spent_s.total()
    shares = [f"{phase} {took_s / total_s:.0%}" for phase, took_s in spent_s.most_common() if took_s >= _LEAST_S]
    if shares:
        yield Text(f"Their time: {', '.join(shares)}.")


def _named(left: Sequence[LeftOut]) -> str:
    named = [
        f"{row.label} ({'stopped while it ran' if row.begun else _about(row.expected_s)})" for row in left[:_SHOWN]
    ]
    return ", ".join([*named, *([f"{len(left) - _SHOWN} more"] if len(left) > _SHOWN else [])])


def _about(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds < 120 else f"about {duration(seconds * 1000)}"


def advice_list(found: Sequence[Advice], unit: str) -> Listed | Text:
    """Return a list with an item for each piece of advice, or a sentence if there is none."""
    if not found:
        return Text(f"Nothing could gain 5 % of a {unit}.")
    return Listed(
        tuple(Text(_evidence(one), f"{one.code} {one.where}".rstrip() + _gain(one, unit)) for one in found),
        "The most that each could gain: an upper bound, no promise",
        ordered=True,
    )


def _gain(one: Advice, unit: str) -> str:
    return f" ({one.strength})" if one.gain_ms is None else f" ({one.strength}, at most {one.gain_ms:.2f} ms a {unit})"


def _evidence(one: Advice) -> str:
    return f"{one.says}; {one.evidence}{f' ({one.source})' if one.source else ''}"
