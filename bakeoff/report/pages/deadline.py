"""Pages of sustained runs: whether each mix held a frame rate, and in one table by how much."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from bakeoff.models.words import counted, some_of
from bakeoff.record.deadline import (
    PERCENTILES,
    Figures,
    Percentile,
    figures,
    first_frames,
    percentile,
    starts_of,
    viewer_of,
)
from bakeoff.record.pipeline import Caches, Sustained
from bakeoff.record.store import StoredPipeline
from bakeoff.report import document, links
from bakeoff.report.document import Document, Heading, Section, Table, Text, blocks, listed
from bakeoff.report.figures.pipeline import units_figure
from bakeoff.report.format import duration, milliseconds
from bakeoff.report.groups import title
from bakeoff.report.notes import selftest_text, sentences
from bakeoff.report.pages.pipelines import FOUND, problems, seconds_text
from bakeoff.report.pipelines import MixRow, by_run, named, sustained_tables

_LAID: Final = {
    True: "time axis: units lie where they ran; one begins once the unit {buffer} before it is shown",
    False: "time axis: units lie end to end, each session's opening before its first one; checks of outputs and the "
    "drawing of inputs between them are the lab's time and left out",
}  # fmt: skip
"""How units lie on the time axis of a run, by whether it was paced."""
_DROOP: Final = (
    "droop: the median of the last minute over that of the second; it takes three minutes and six units in each"
)


def of_runs(runs: Iterable[StoredPipeline]) -> Document:
    """Return the page of all mixes of each run, as `bakeoff deadline` prints it at its end."""
    return Document("", tuple(_section(entries) for entries in by_run(runs)))


def document_of(stored: StoredPipeline) -> Document:
    """Return the page of `bakeoff show` for one sustained run."""
    return Document(str(stored.record.mix), (_section([stored]),))


def sections(runs: Iterable[StoredPipeline], cited: links.Cited | None = None, full: bool = False) -> list[Section]:
    """Return a section for each subject, rate and pace, with the newest run of each mix and, with `full`, its units
    drawn."""
    return [_section(entries, cited, full) for entries in sustained_tables(runs)]


def verdict(entry: StoredPipeline) -> str:
    """Say whether the mix held the rate of its run."""
    return _verdict(MixRow(entry, "")).text


def as_rows(runs: Iterable[StoredPipeline]) -> list[dict[str, Any]]:
    """Return the figures of these records for `--json`."""
    return [
        {
            "record": entry.id,
            "mix": str(entry.record.mix),
            "role": entry.record.role,
            "run": entry.record.run,
            "status": entry.record.status,
            "reason": entry.record.measurement.reason,
            "findings": entry.record.measurement.findings,
            "paced": _how(entry).paced,
            "buffer": _how(entry).buffer,
            "figures": {**asdict(found), "keeps_up": found.keeps_up} if (found := figures(entry.record)) else None,
            "starts": [
                {**asdict(start), "figures": first_frames(start, _how(entry).fps)} for start in entry.record.starts
            ],
            "shipped": entry.record.shipped,
        }
        for entry in runs
    ]


def _how(entry: StoredPipeline) -> Sustained:
    assert entry.record.sustained is not None
    return entry.record.sustained


def _section(entries: Sequence[StoredPipeline], cited: links.Cited | None = None, full: bool = True) -> Section:
    rows, first, how = named(entries), entries[0].record, _how(entries[0])
    if first.how == "cold":
        return _cold(rows, cited)
    viewer = f"{how.fps:g} frames a second, {'paced' if how.paced else 'saturating'}"
    return Section(
        f"{title(first)}, sustained for {viewer}, {counted(how.buffer, first.unit)} of buffer",
        blocks(
            *map(_verdict, rows),
            _table(rows, first.unit),
            document.Figures((drawn,)) if full and (drawn := units_figure(rows)) is not None else None,
            listed((Text(str(row.record.mix), row.name) for row in rows), "Mixes"),
            listed([_LAID[how.paced].format(buffer=how.buffer), _DROOP]),
            *(listed(_remarks(row, cited), f"Remarks on {row.name}") for row in rows),
        ),
    )


def _verdict(row: MixRow) -> Text:
    """Say whether the mix held the rate of its run."""
    record, found = row.record, figures(row.record)
    ended = f"{record.status}: {record.measurement.reason or 'no reason is stored'}"
    if record.how == "cold":
        text, good = _first(row), record.status == "ok"
        text = text if good else f"no verdict, {ended}; {text}"
        return Text(text, row.name, "good" if good and "never" not in text else "bad")
    if found is None:
        viewer = viewer_of(record)
        few = f"too few units with frames: {len(viewer.units) if viewer is not None else 0}"
        return Text(few if record.status == "ok" else ended, row.name, "bad")
    late = f"{found.misses:,} of {counted(found.units, 'unit', form=',')} late"
    least = f"least buffer {duration(found.least_buffer_ns / 1e6)}"
    if not found.keeps_up:
        made = f"{found.made_fps:.2f} frames a second, {found.last_third_fps:.2f} in its last third"
        least = f"no buffer is enough, since it makes {made}"
    if record.status != "ok":
        return Text(f"no verdict, {ended}; {late} at {found.fps:g} fps, {least}", row.name, "bad")
    minutes = duration(found.ns / 1e6)
    if found.last_third_fps < found.fps <= found.made_fps:
        return Text(f"can no longer hold {found.fps:g} fps after {minutes}: {least}; {late}", row.name, "bad")
    word = "misses" if found.misses else "holds"
    share = f" ({found.misses / found.units:.2%})" if found.misses else ""
    text = f"{word} {found.fps:g} fps for {minutes}: {late}{share}; {least}"
    return Text(text, row.name, "bad" if found.misses else "good")


def _table(rows: Sequence[MixRow], unit: str) -> Table | None:
    """Return a table with a column for each mix that has figures."""
    held = {row.name: found for row in rows if (found := figures(row.record)) is not None}
    lines = {name: _lines(found, unit) for name, found in held.items()}
    headings = [Heading(f"a {unit}"), *(Heading(name, numeric=True) for name in held)]
    made = [[line, *(own[line] for own in lines.values())] for line in next(iter(lines.values()), {})]
    return document.table(headings, made)


def _lines(found: Figures, unit: str) -> dict[str, str]:
    """Return the figures of a run as text, by the first cell of their row."""
    times = {f"{name} ms [95 %]": _time(name, each) for name, each in found.percentiles.items()}
    droop = "n/a"
    if found.droop is not None:
        ratio, low, high = found.droop
        droop = f"{ratio:.3f}x [{low:.3f}, {high:.3f}]"
    return {
        f"{unit}s": f"{found.units:,}",
        "warm-up, left out": f"{found.left_out:,}",
        "frames/s": f"{found.made_fps:.2f}",
        "frames/s, last third": f"{found.last_third_fps:.2f}",
        f"late at {found.fps:g} fps": f"{found.misses:,} ({found.misses / found.units:.2%})",
        "least buffer": duration(found.least_buffer_ns / 1e6) if found.keeps_up else "endless",
        **times,
        "slowest ms": milliseconds(found.slowest_ns / 1e6),
        "droop": droop,
    }


def _time(name: str, found: Percentile | None) -> str:
    if found is None:
        return f"n/a, needs {PERCENTILES[name][1]:,}"
    ms, low, high = (milliseconds(ns / 1e6) if ns is not None else "?" for ns in found)
    return f"{ms} [{low}, {high}]"


def _remarks(row: MixRow, cited: links.Cited | None) -> Iterator[Text]:
    yield from (Text(start.problem, FOUND[start.caches]) for start in row.record.starts if start.problem)
    yield from problems(row.record)
    yield from map(Text, [*sentences(row.record), selftest_text(row.record)])
    yield Text("", "record", links=(cited(row.entry),)) if cited is not None else Text(row.entry.id, "record")


_MOST_UNITS = 6
_COUNTED: Final = (
    "frame 1: from the start of a process until its first frame is there; the disk's own cache is warm",
    "good frame: the first that is right, as all later ones are, and after which no unit took longer than the frames "
    "before it are shown; never: too few units follow the last late one",
    "parts: of the process with the median time to the good frame, else to frame 1. compile: each program is built and "
    "called once; first calls: the units until frame 1; filling: those until the good frame; rest: inputs and reports",
)


def _cold(rows: Sequence[MixRow], cited: links.Cited | None) -> Section:
    first = rows[0].record
    return Section(
        f"{title(first)}, first frames of fresh processes, shown at {_how(rows[0].entry).fps:g} frames a second",
        blocks(
            *map(_verdict, rows),
            *map(_starts_table, rows),
            listed((Text(str(row.record.mix), row.name) for row in rows), "Mixes"),
            listed(_COUNTED),
            *(listed(_remarks(row, cited), f"Remarks on {row.name}") for row in rows),
        ),
    )


def _first(row: MixRow) -> str:
    """Say when the first good frame came, and how many a second followed."""
    times = [
        f"{_seconds(made.good_ns for _, made in own)} s {text}"
        for caches, text in FOUND.items()
        if (own := starts_of(row.record, caches))
    ]
    text = f"first good frame after {', '.join(times)}" if times else "no frame"
    return text if row.figures is None else f"{text}; then {row.figures.frames_per_s:.2f} frames a second"


def _seconds(times_ns: Iterable[int]) -> str:
    return seconds_text(percentile([*times_ns], "median"))


def _starts_table(row: MixRow) -> Table | None:
    """Return a table with a column for each kind of caches."""
    columns: dict[Caches, dict[str, str]] = {}
    for caches in FOUND:
        if not (own := starts_of(row.record, caches)):
            continue
        start, median = own[(len(own) - 1) // 2]
        columns[caches] = {
            "processes": str(len(own)),
            "frame 1 [95 %]": _seconds(made.first_ns for _, made in own),
            "good [95 %]": _seconds(made.good_ns for _, made in own),
            **{part: f"{ns / 1e9:.3f} s" if round(ns / 1e6) else "" for part, ns in median.parts_ns.items()},
            "of unit": "none" if median.good is None else str(median.good),
            "late units": some_of([*map(str, median.late)], _MOST_UNITS),
            "wrong units": some_of([*map(str, start.wrong)], _MOST_UNITS),
            "compiled in": some_of([*start.moved], _MOST_UNITS),
        }
    names = dict.fromkeys(name for own in columns.values() for name in own)
    made = [[name, *texts] for name in names if any(texts := [own.get(name, "") for own in columns.values()])]
    return document.table([row.name, *(Heading(FOUND[caches], numeric=True) for caches in columns)], made)
