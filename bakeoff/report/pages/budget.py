"""The page of a budget: which mix to ship, and in one table what records promise of each and what its run measured."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any, Final

from bakeoff.models.words import counted
from bakeoff.process.environment import PASSIVE
from bakeoff.record.budget import (
    EXACT_DB,
    check_forecast,
    check_run,
    holds,
    measured,
    shipped,
)
from bakeoff.record.finalists import LimitCheck, worst
from bakeoff.record.forecast import BETWEEN, forecast_error, forecast_of
from bakeoff.record.frames import before_after
from bakeoff.record.pipeline import Budget, Forecast
from bakeoff.record.store import StoredPipeline
from bakeoff.report.document import Cell, Document, Heading, Section, Table, Text, Tone, blocks, listed, table
from bakeoff.report.format import MIB, milliseconds
from bakeoff.report.groups import title
from bakeoff.report.links import Cited
from bakeoff.report.pages.pipelines import deployment_text, promise_text, rate
from bakeoff.report.pages.sweep import tone_of
from bakeoff.report.pipelines import letter, newest_budgets
from bakeoff.report.schedules import latency_ms
from bakeoff.report.wording import fit_text

Row = tuple[str, Forecast, StoredPipeline | None]
"""A mix with its name within the table, what records promise of it, and its run."""
_TONES: Final[Mapping[str, Tone]] = {"met": "good", "not met": "bad"}


def document(
    subject: str,
    unit: str,
    budget: Budget,
    misses: Sequence[Forecast] = (),
    stored: Sequence[StoredPipeline] = (),
    notes: Sequence[str] = (),
) -> Document:
    """Return the page of an answer.

    `subject` is what all mixes compute, `misses` are mixes to show if none meets the limits, `stored` the runs that
    confirm it, `notes` what records do not tell.
    """
    ran = {each.slots: each for each in map(_promised, stored)}
    others = [each for each in budget.candidates or misses if each.slots not in ran]
    rows = _rows([*sorted(ran.values(), key=lambda each: each.ms or inf), *others], stored)
    return Document(f"Budget of {subject}", _blocks(unit, budget, rows, stored, notes))


def sections(runs: Iterable[StoredPipeline], cited: Cited | None = None) -> list[Section]:
    """Return a section for the newest budget of each subject, with the mixes that ran."""
    made = []
    for entries in newest_budgets(runs):
        record = entries[0].record
        if (budget := record.budget) is not None:
            rows = _rows([*map(_promised, entries)], entries)
            parts = _blocks(record.unit, budget, rows, entries, (), cited)
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


def answer(budget: Budget, entries: Sequence[StoredPipeline]) -> str:
    """Return what to ship by the runs of a budget, and how that differs from what was promised."""
    chosen = shipped(entries)
    if chosen is None:
        ran = counted(len(entries), "mix", "mixes")
        return f"by {budget.objective}, ship none of {ran} that ran: none is ok and meets the limits"
    record, promised, error = chosen.record, forecast_of(chosen.record), forecast_error(chosen.record)
    values, checks = measured(record), check_run(record, budget.objective)
    text = f"by {budget.objective}, ship {record.mix.scheduled_variants}"
    if (mean_ms := values["mean"]) is not None:
        text += f": mean {milliseconds(mean_ms)} ms a {record.unit}"
    if (fps := values["fps"]) is not None:
        text += f", {rate(fps)} frames/s"
    if record.mix.schedule and (ready_ms := latency_ms(record)) is not None:
        text += f", ready {milliseconds(ready_ms)} ms after it begins"
    if promised is not None and error is not None:
        text += f"; {promise_text(promised)} ms were promised ({error:+.1%})"
    waits = [f"{name}={value}" for name, value in record.environment.items() if name in PASSIVE]
    text += f"; set {waits[0]} where it runs" if waits else ""
    text = f"{text}; limits {fit_text(checks)}" if checks else text
    facts = deployment_text(record)
    return f"{text}; to deploy it: {facts}" if facts else text


def _promised(entry: StoredPipeline) -> Forecast:
    """Return what was promised of the mix; 0 ms if nothing was, as of one that failed under a schedule."""
    promised = forecast_of(entry.record)
    return promised if promised is not None else Forecast(entry.record.mix.scheduled_variants, 0.0, None, None)


def _rows(shown: Sequence[Forecast], stored: Sequence[StoredPipeline]) -> list[Row]:
    runs = {_promised(entry).slots: entry for entry in stored}
    return [(letter(place), forecast, runs.get(forecast.slots)) for place, forecast in enumerate(shown)]


def _blocks(
    unit: str,
    budget: Budget,
    rows: Sequence[Row],
    stored: Sequence[StoredPipeline],
    notes: Sequence[str],
    cited: Cited | None = None,
) -> tuple[Any, ...]:
    return blocks(
        _verdict(unit, budget, stored),
        _table(budget, rows, cited),
        listed((Text(forecast.slots, name) for name, forecast, _ in rows), "Mixes"),
        listed([text for row in rows for text in _limits(budget, *row)] + _comparisons(rows)),
        listed((*_assumptions(budget, unit), *notes), "Remarks"),
    )


def _verdict(unit: str, budget: Budget, stored: Sequence[StoredPipeline]) -> Text:
    if stored:
        text, chosen = answer(budget, stored), shipped(stored)
        word = "not met" if chosen is None else worst(check_run(chosen.record, budget.objective))
        return Text(f"{text[0].upper()}{text[1:]}.", tone=_TONES.get(word, "open"))
    mixes = counted(budget.mixes, "mix", "mixes")
    if not budget.candidates:
        return Text(f"Ship none: of {mixes} none meets the limits by the records. These are the fastest.", tone="bad")
    best = budget.candidates[0]
    fps = f", {rate(budget.frames * 1000 / best.ms)} frames/s" if budget.frames else ""
    place = f"the fastest of {mixes}{' that meets the limits' * bool(budget.objective.limits)}"
    promise = f"{promise_text(best)} ms a {unit}{fps} are promised; limits {fit_text(check_forecast(best, budget))}"
    close = sum(each.interval is not None and each.interval[0] <= best.ms for each in budget.candidates[1:])
    tied = f" {counted(close, 'other mix', 'other mixes')} may be as fast." if close else ""
    return Text(f"By the records, {best.slots} is {place}: {promise}. It was not run.{tied}", tone="open")


def _checks(budget: Budget, forecast: Forecast, entry: StoredPipeline | None) -> tuple[LimitCheck, ...]:
    return check_forecast(forecast, budget) if entry is None else check_run(entry.record, budget.objective)


def _table(budget: Budget, rows: Sequence[Row], cited: Cited | None) -> Table | None:
    headings = (
        Heading("mix"),
        Heading("promised ms", "calls of each program times their mean, and the time between, with its interval", True),
        Heading("promised MiB", "peak with all slots in place", True, 4),
        Heading("SQNR dB", "the least of any program's output", True, 3),
        Heading("good frame s", "the first one of a cold start, median", True, 2),
        Heading("status"),
        Heading("mean ms", "of the steady units that ran", True),
        Heading("error", "mean without the fastest and the slowest twentieth over the promise, less 1", True, 1),
        Heading("frames/s", "of the same", True, 2),
        Heading("MiB", "peak of the run", True, 5),
        Heading("limits"),
        Heading("record", leaves=6),
    )
    made = []
    for name, forecast, entry in rows:
        exact = forecast.sqnr_db == EXACT_DB
        sqnr = Cell("exact", EXACT_DB) if exact else _number(forecast.sqnr_db, "{:.1f}".format)
        promised = Cell(promise_text(forecast), forecast.ms) if forecast.ms else Cell("")
        first = _number(forecast.first_ms and forecast.first_ms[0], lambda ms: f"{ms / 1000:.2f}")
        peak = _mib(forecast.memory_bytes if forecast.latency_ms is None else None)
        cells = [Cell(name, name), promised, peak, sqnr, first]
        if entry is None:
            cells += [Cell("")] * 5
        else:
            values = measured(entry.record)
            cells += [
                Cell(entry.record.status, entry.record.status, tone=tone_of(entry.record.status)),
                _number(values["mean"], milliseconds),
                _number(forecast_error(entry.record), "{:+.1%}".format),
                _number(values["fps"], rate),
                _mib(values["memory"]),
            ]
        word = worst(_checks(budget, forecast, entry))
        cells.append(Cell(word, tone=_TONES.get(word, "open")) if budget.objective.limits else Cell(""))
        made.append([*cells, _record(entry, cited)])
    shown = len({forecast.slots.partition(" ")[0] for _, forecast, _ in rows})
    return table(headings, made, f"Mixes, {shown} of {budget.mixes:,}")


def _record(entry: StoredPipeline | None, cited: Cited | None) -> Cell:
    if entry is None:
        return Cell("")
    return Cell("", entry.id, cited(entry)) if cited is not None else Cell(entry.id.rpartition("_")[2], entry.id)


def _number(value: float | None, write: Callable[[float], str]) -> Cell:
    return Cell(write(value), value) if value is not None else Cell("")


def _mib(size: float | None) -> Cell:
    return _number(size, lambda size: f"{size / MIB:.0f}")


def _limits(budget: Budget, name: str, forecast: Forecast, entry: StoredPipeline | None) -> list[Text]:
    """Return why a mix that ran cannot be shipped, or which limits another one does not meet by the records."""
    fit = fit_text(_checks(budget, forecast, entry))
    if entry is None:
        return [Text(fit, name)] if not budget.candidates else []
    if holds(entry.record, budget.objective):
        return []
    failed = entry.record.status != "ok" and (entry.record.measurement.reason or entry.record.status)
    return [Text(f"dropped: {failed or fit}", name, "bad")]


def _comparisons(rows: Sequence[Row]) -> list[Text]:
    ran = [(name, entry.record) for name, _, entry in rows if entry is not None]
    texts = []
    for (first, one), (second, other) in pairwise(ran):
        failed = [name for name, record in ((first, one), (second, other)) if record.status != "ok"]
        compared = before_after(one, other)
        if compared is not None and failed:
            texts.append(Text(f"no verdict on {first} against {second}: not ok: {', '.join(failed)}"))
        elif compared is not None:
            ends = f" [{compared.interval[0]:.2f}, {compared.interval[1]:.2f}]" if compared.interval else ""
            ratio = f"{compared.ratio:.2f}x as fast as {first}{ends}, the median of pairs of units"
            texts.append(Text(f"{second} is {ratio}: {compared.word}"))
    return texts


def _assumptions(budget: Budget, unit: str) -> Iterator[str]:
    yield f"{counted(budget.mixes, 'mix', 'mixes')} by {counted(len(budget.records), 'record')}"
    if budget.classes is not None:
        yield f"quantised classes allowed: {', '.join(budget.classes) or 'none'}"
    for parts_ms in (each.parts_ms for each in budget.candidates[:1] if each.parts_ms):
        known = f"{milliseconds(parts_ms[BETWEEN])} ms in the first mix" if BETWEEN in parts_ms else ""
        yield f"between programs a {unit} takes {known or 'an unknown time, promised as 0'}"
