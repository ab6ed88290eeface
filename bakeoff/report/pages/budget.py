"""The page of a budget: which mix to ship, what the records promise of each, and what the runs measured."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from bakeoff.models.words import counted
from bakeoff.record.account import account
from bakeoff.record.budget import (
    EXACT_DB,
    Binding,
    Solution,
    check_forecast,
    check_run,
    forecast_error,
    forecast_of,
    holds,
    program_shares,
    shipped,
)
from bakeoff.record.finalists import LimitCheck
from bakeoff.record.frames import before_after, figures
from bakeoff.record.pipeline import Budget, Forecast, PipelineRecord
from bakeoff.record.store import Records, StoredPipeline
from bakeoff.report import links
from bakeoff.report.document import Cell, Document, Figures, Heading, Section, Table, Text, blocks, listed, table
from bakeoff.report.figures.budget import front_figure
from bakeoff.report.format import MIB, milliseconds
from bakeoff.report.groups import title
from bakeoff.report.pages.pipelines import notes, phases_table, rate
from bakeoff.report.pages.sweep import tone_of
from bakeoff.report.pipelines import MixRow, budgets, letter, newest_budgets
from bakeoff.report.render import html
from bakeoff.report.wording import fit_text, limit_text

_CANDIDATES, _FRONT = 8, 12
"""Largest numbers of rows of the table of mixes: of those that meet the limits, and of others in the front."""


def document(
    subject: str,
    unit: str,
    found: Solution,
    lacking: Sequence[str] = (),
    stored: Sequence[StoredPipeline] = (),
    cited: links.Cited | None = None,
) -> Document:
    """Return the page of an answer.

    `subject` is what all mixes compute, `lacking` what records do not tell; `stored` are the runs that confirm it.
    """
    budget = found.budget
    names = _names(budget, [each.mix for each in found.binding])
    drawn = front_figure(budget, names, unit)
    rows = [MixRow(entry, names.get(entry.record.mix.variants, "?")) for entry in stored]
    return Document(
        f"Budget of {subject}",
        blocks(
            _verdict(unit, found, names, stored),
            listed((*_binding(found.binding, names), *_told(budget, names, rows))),
            _runs_table(rows, unit, cited),
            _programs_table(rows, unit),
            _mixes_table(budget, names, unit),
            listed((Text(slots, name) for slots, name in names.items()), "Mixes"),
            Figures((drawn,)) if drawn is not None else None,
            phases_table(rows),
            listed((*_assumptions(budget, unit, lacking), *_remarks(rows, cited)), "Remarks"),
        ),
    )


def sections(runs: Iterable[StoredPipeline], cited: links.Cited | None = None) -> list[Section]:
    """Return a section for the newest budget of each subject: what to ship, and what was promised and measured."""
    made = []
    for entries in newest_budgets(runs):
        record = entries[0].record
        if record.budget is not None:
            names = {entry.record.mix.variants: letter(place) for place, entry in enumerate(entries)}
            rows = [MixRow(entry, names[entry.record.mix.variants]) for entry in entries]
            texts = Text(answer(entries)), *_told(replace(record.budget, tied=1), names, rows)
            mixes = listed((Text(slots, name) for slots, name in names.items()), "Mixes")
            parts = blocks(listed(texts), _runs_table(rows, record.unit, cited), mixes)
            made.append(Section(f"Budget of {title(record)}", parts))
    return made


def as_rows(runs: Iterable[StoredPipeline]) -> list[dict[str, object]]:
    """Return the runs of the newest budget of each subject for `--json`."""
    return [
        {
            "record": entry.id,
            "mix": str(entry.record.mix),
            "status": entry.record.status,
            "promised_ms": None if (promised := forecast_of(entry.record)) is None else promised.ms,
            "error": forecast_error(entry.record),
            "ship": entry is shipped(entries),
        }
        for entries in newest_budgets(runs)
        for entry in entries
    ]


def answer(entries: Sequence[StoredPipeline]) -> str:
    """Return what to ship by the runs of a budget, with its objective, and how that differs from what was promised."""
    record, chosen = entries[0].record, shipped(entries)
    assert record.budget is not None
    objective = f"by {record.budget.objective}"
    if chosen is None:
        return f"{objective}, none of {counted(len(entries), 'mix', 'mixes')} that ran can be shipped"
    promised, error = forecast_of(chosen.record), forecast_error(chosen.record)
    said = f"{objective}, ship {chosen.record.mix.variants}: {_measured_text(chosen.record, record.unit)}"
    if promised is None or error is None:
        return said
    return f"{said}; {milliseconds(promised.ms)} ms were promised ({error:+.1%})"


def _names(budget: Budget, others: Sequence[Forecast]) -> dict[str, str]:
    """Return a name for each mix that is shown, by its slots: the candidates first, in their order."""
    front = [each for each in budget.front if each not in budget.candidates][:_FRONT]
    tried = budget.candidates[: max(_CANDIDATES, budget.tied)]
    slots = dict.fromkeys(each.slots for each in (*tried, *front, *others))
    return {each: letter(place) for place, each in enumerate(slots)}


def _verdict(unit: str, found: Solution, names: Mapping[str, str], stored: Sequence[StoredPipeline]) -> Text:
    """Return the sentence that says what to ship."""
    budget, objective = found.budget, found.budget.objective
    entry = shipped(stored)
    if entry is not None:
        record = entry.record
        checks = check_run(record, objective)
        open_ones = [check for check in checks if check.word != "met"]
        said = f"not measured: {fit_text(open_ones)}" if open_ones else "limits met" if checks else "no limits"
        text = f"Ship {_named(names, record.mix.variants)}: {_measured_text(record, unit)}; {said}."
        return Text(text, tone="open" if open_ones else "good")
    if stored:
        return Text(
            f"Ship none yet: of {counted(len(stored), 'mix', 'mixes')} that ran, none is ok and meets the limits.",
            tone="bad",
        )
    if budget.candidates:
        best = budget.candidates[0]
        place = f"one of the best {budget.tied}" if budget.tied > 1 else "the best"
        text = f"By the records, {_named(names, best.slots)} is {place} of {counted(budget.mixes, 'mix', 'mixes')}"
        fit = fit_text(check_forecast(best, budget))
        unmet = f"; {fit}" if fit != "met" else ""
        return Text(f"{text}: {_promise_text(best, budget, unit)}{unmet}. It was not run.", tone="open")
    if found.binding:
        return Text(f"No mix of {budget.mixes:,} meets the limits by the records.", tone="bad")
    seen = ", as one of a sweep with --monitor on a GPU does" if objective.goal == "energy" else ""
    return Text(f"No mix can be ranked: no record states the {objective.goal}{seen}.", tone="bad")


def _named(names: Mapping[str, str], slots: str) -> str:
    name = names.get(slots)
    return f"{name}, {slots}" if name else slots


def _promise_text(each: Forecast, budget: Budget, unit: str) -> str:
    fps = f", {rate(budget.frames * 1000 / each.ms)} frames/s" if budget.frames else ""
    return f"{milliseconds(each.ms)} ms a {unit} {_interval(each)}{fps}"


def _interval(each: Forecast) -> str:
    return f"[{milliseconds(each.low_ms, each.ms)}, {milliseconds(each.high_ms, each.ms)}]"


def _measured_text(record: PipelineRecord, unit: str) -> str:
    measured, frames = account(record), figures(record)
    if measured is None:
        return record.status
    fps = f", {rate(frames.frames_per_s)} frames/s" if frames is not None else ""
    return f"{milliseconds(measured.unit_ms)} ms a {unit}{fps}"


def _binding(binding: Sequence[Binding], names: Mapping[str, str]) -> Iterator[Text]:
    """Yield what prevents an answer: each limit, and the nearest value that can be had."""
    for each in binding:
        check = LimitCheck(each.limit, "not met", each.value)
        kept = "with the other limits kept" if each.others_kept else "whatever the other limits are"
        yield Text(
            f"the nearest that can be had {kept} is {limit_text(check)}, by {names[each.mix.slots]}", str(each.limit)
        )


def _told(budget: Budget, names: Mapping[str, str], rows: Sequence[MixRow]) -> Iterator[Text]:
    """Yield which mixes are tied by their records, and what became of each that ran."""
    tied = budget.candidates[: budget.tied]
    if len(tied) > 1:
        text = f"no difference is predicted between {', '.join(names[each.slots] for each in tied)}"
        builds = {None if each.build_s is None else round(each.build_s) for each in tied}
        why = f"builds in the fewest seconds, {tied[0].build_s:.1f}" if len(builds) > 1 else "has the least median"
        yield Text(f"{text}; {names[tied[0].slots]} {why}")
    for row in rows:
        record, promised = row.record, forecast_of(row.record)
        error, measured = forecast_error(record), account(record)
        if promised is not None and error is not None and measured is not None:
            text = f"a unit takes {milliseconds(measured.unit_ms)} ms, {milliseconds(promised.ms)} were promised"
            yield Text(f"{text} ({error:+.1%})", row.name)
        if not holds(record, budget.objective):
            why = record.measurement.reason or record.status if record.status != "ok" else ""
            yield Text(f"dropped: {why or fit_text(check_run(record, budget.objective))}", row.name, "bad")
    for first, second in pairwise(rows):
        found = before_after(first.record, second.record)
        failed = [row.name for row in (first, second) if row.record.status != "ok"]
        if found is not None and failed:
            yield Text(f"no verdict on {first.name} against {second.name}: not ok: {', '.join(failed)}")
        elif found is not None:
            ends = f" [{found.interval[0]:.2f}, {found.interval[1]:.2f}]" if found.interval is not None else ""
            word = "" if found.word in ("faster", "slower") else f": {found.word}"
            yield Text(f"{second.name} is {found.ratio:.2f}x as fast as {first.name}{ends}{word}")


def _mixes_table(budget: Budget, names: Mapping[str, str], unit: str) -> Table | None:
    headings = (
        Heading("mix"),
        Heading("promised ms", "calls of each program times the median of its record, and the time between", True),
        Heading("interval", "the ends of the medians' 95 % intervals, added up", True, 4),
        Heading("frames/s", "", True, 2),
        Heading("p99 ms", f"of drawn {unit}s", True, 5),
        Heading("MiB", "peak with all slots in place", True, 1),
        Heading("SQNR dB", "the least of any program's output", True, 3),
        Heading("build s", "of all programs; CPU seconds where builds ran side by side", True, 6),
        Heading("J", "of the GPU in the programs' calls", True, 8),
        Heading("limits"),
        Heading("front", "no other mix is better in time, memory and SQNR together", leaves=7),
    )
    front = {each.slots for each in budget.front}
    shown = {each.slots: each for each in (*budget.candidates, *budget.front) if each.slots in names}
    made = []
    for slots, each in shown.items():
        fps = budget.frames * 1000 / each.ms if budget.frames else None
        made.append(
            [
                Cell(names[slots], names[slots]),
                Cell(milliseconds(each.ms), each.ms),
                Cell(_interval(each), each.low_ms),
                Cell(rate(fps), fps) if fps is not None else Cell(""),
                Cell(milliseconds(each.p99_ms, each.ms), each.p99_ms),
                _number(each.memory_bytes and each.memory_bytes / MIB, "{:.0f}"),
                Cell("exact", EXACT_DB) if each.sqnr_db == EXACT_DB else _number(each.sqnr_db, "{:.1f}"),
                _number(each.build_s, "{:.1f}"),
                _number(each.joules, "{:.2f}"),
                _limits(check_forecast(each, budget)),
                Cell("yes" if slots in front else ""),
            ]
        )
    worse = "miss a limit or rank lower" if budget.objective.limits else "rank lower"
    left_out = f"; the others {worse}" if budget.mixes > len(made) else ""
    return table(headings, made, f"Mixes by their records, {len(made)} of {budget.mixes:,}{left_out}")


def _limits(checks: Sequence[LimitCheck]) -> Cell:
    """Return whether a mix meets the limits, or which it misses, or which figures are unknown."""
    for word, said in (("not met", "misses"), ("unknown", "unknown"), ("unclear", "unclear")):
        found = [check.limit.figure for check in checks if check.word == word]
        if found:
            return Cell(f"{said} {', '.join(found)}", tone="bad" if word == "not met" else "open")
    return Cell("met" if checks else "", tone="good")


def _number(value: float | None, form: str) -> Cell:
    return Cell(form.format(value), value) if value is not None else Cell("")


def _runs_table(rows: Sequence[MixRow], unit: str, cited: links.Cited | None = None) -> Table | None:
    headings = (
        Heading("mix"),
        Heading("status"),
        Heading(f"ms a {unit}", "mean of the steady units", True),
        Heading("promised ms", "", True, 1),
        Heading("error", "measured over promised time, less 1", True),
        Heading("frames/s", "", True, 2),
        Heading("MiB", "", True, 3),
        Heading("limits"),
        *([Heading("record", leaves=4)] if cited is not None else []),
    )
    made: list[list[Cell | str]] = []
    for row in rows:
        record, promised, measured = row.record, forecast_of(row.record), account(row.record)
        frames, memory, error = figures(record), record.measurement.memory, forecast_error(record)
        checks = check_run(record, record.budget.objective) if record.budget is not None else ()
        made.append(
            [
                row.name,
                Cell(record.status, record.status, tone=tone_of(record.status)),
                Cell(milliseconds(measured.unit_ms), measured.unit_ms) if measured is not None else Cell(""),
                Cell(milliseconds(promised.ms), promised.ms) if promised is not None else Cell(""),
                _number(error, "{:+.1%}"),
                Cell(rate(frames.frames_per_s), frames.frames_per_s) if frames is not None else Cell(""),
                _number(memory.peak_bytes / MIB if memory is not None and memory.peak_bytes else None, "{:.0f}"),
                _limits(checks) if measured is not None else Cell(""),
                *([Cell("", row.entry.id, cited(row.entry))] if cited is not None else []),
            ]
        )
    return table(headings, made, "Measured side by side")


def _programs_table(rows: Sequence[MixRow], unit: str) -> Table | None:
    """Return a table of each program's promised and measured time in a steady unit, for each mix that ran."""
    found = {row.name: {each.name: each for each in program_shares(row.record)} for row in rows}
    headings = [Heading("program")]
    for place, name in enumerate(found):
        headings += [
            Heading(f"{name} promised", numeric=True, leaves=place),
            Heading(f"{name} ms", numeric=True, leaves=place),
        ]
    made = []
    for program in dict.fromkeys(name for own in found.values() for name in own):
        cells = [Cell(program, program)]
        for own in found.values():
            each = own.get(program)
            cells += [
                _number(each.promised_ms if each else None, "{:.3f}"),
                _number(each.measured_ms if each else None, "{:.3f}"),
            ]
        made.append(cells)
    return table(headings, made, f"Programs of a steady {unit}, mean ms")


def _assumptions(budget: Budget, unit: str, lacking: Sequence[str]) -> Iterator[Text]:
    yield Text(
        f"objective {budget.objective}; {counted(budget.mixes, 'mix', 'mixes')} by "
        f"{counted(len(budget.records), 'record')}"
    )
    if budget.classes is not None:
        yield Text(f"quantised classes allowed: {', '.join(budget.classes) or 'none'}")
    if budget.between_from:
        source = f"{milliseconds(budget.between_ms)} ms, from run {budget.between_from.rpartition('_')[2]}"
    else:
        source = "0 ms, because no earlier run of this pipeline on this machine is ok; one of any mix would tell"
    yield Text(f"between programs a {unit} takes {source}")
    yield Text(
        "p99 draws each call by itself from its record's samples: slow calls that come together are not foreseen"
    )
    yield from map(Text, lacking)


def _remarks(rows: Sequence[MixRow], cited: links.Cited | None) -> Iterator[Text]:
    for row in rows:
        yield from (replace(text, label=row.name) for text in notes(row, cited))


def pages(records: Records) -> Iterator[tuple[str, str]]:
    """Yield the path, relative to the folder of all runs, and the text of the page of each budget that was run."""
    for entries in budgets(records.pipelines):
        folder, record = f"{links.home_of(entries[0])}/{links.BUDGETS}", entries[0].record
        if record.budget is not None:
            cited = links.cited_by(links.links_from(folder))
            found = Solution(replace(record.budget, round=0))
            made = document(title(record), record.unit, found, stored=entries, cited=cited)
            yield f"{folder}/{entries[0].id}.html", html.render(made)


def paths_of(runs: Path, pipelines: Sequence[StoredPipeline]) -> list[Path]:
    """Return the path of each of these pages."""
    found = (entries[0] for entries in budgets(pipelines))
    return [runs / links.home_of(entry) / links.BUDGETS / f"{entry.id}.html" for entry in found]
