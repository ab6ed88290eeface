"""The optimization history: of each subject the story from its baseline to the best that can be deployed now.

A milestone is a change of that best. The new best was faster than the one before in a final, by the rows of one sweep,
or in turns of mixes. If its sweep lacks the one before, or has it with other code or libraries, it is further ahead of
eager of its own sweep than that one was. A sweep of fewer variants than the one before it has no milestone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, NamedTuple
from urllib.parse import quote

from bakeoff.advice.evidence import evidence_of
from bakeoff.advice.rules import advise
from bakeoff.machine.floors import Ceiling
from bakeoff.machine.identity import Machine
from bakeoff.models.types import BASELINE_DTYPES
from bakeoff.models.words import counted
from bakeoff.record.comparable import differences, subject_key
from bakeoff.record.finalists import call_ms
from bakeoff.record.floor import best_ceilings, floor, share
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import NEVER_RUN
from bakeoff.record.store import Records, Stored, StoredComparison, StoredPipeline, is_run
from bakeoff.record.verdict import decide
from bakeoff.report import links
from bakeoff.report.columns import COLUMNS, TableRow
from bakeoff.report.document import (
    Block,
    Cell,
    Document,
    Heading,
    Link,
    Listed,
    Section,
    Text,
    blocks,
    listed,
    section,
    table,
)
from bakeoff.report.format import milliseconds, minute, shorten
from bakeoff.report.groups import by_sweep, groups, name_of, newest, speedup, title
from bakeoff.report.notes import advice_list
from bakeoff.report.pages import deadline, pipelines, results, rollout
from bakeoff.report.pipelines import MixRow, by_run, gain, named, newest_rollouts, sustained_tables
from bakeoff.report.recommendation import Answer, decision, deployment
from bakeoff.report.selection import order
from bakeoff.report.wording import sentence, sure_text

NAME = "OPTIMIZATION_HISTORY.md"
WIDTH: Final = 120
"""Largest number of characters of a line, apart from commands and the addresses of records."""
_INTRODUCTION: Final = (
    "Generated from the records by `make history` (published ones by `make publish`); do not edit. Each subject begins "
    "with eager as it was; each change of the best that could be deployed follows, by the time at which its sweep or "
    "run began. `Nx [low, high] eager fp32 (A to B ms)`: N times as fast, its interval, and both times, by the rows of "
    "that sweep, its final, or a run in turns, where N is the median of the ratios of pairs and need not be A over B; "
    "a dash: not measured there. Medians are of synchronised calls, avg FPS are calls a second by the mean; what was "
    "tried has its newest figures. `bakeoff show HASH` prints a record with "
    "its commit, versions and settings; that commit's constraints.txt installs the libraries."
)
_OVERVIEW: Final = (
    "Generated from the records by `make history` (published ones by `make publish`); do not edit. In ms a call, of a "
    "whole loop a frame: eager in fp32 or in another dtype, and the best that can be deployed now; how many times "
    "faster that is (in finals and runs the median of pairs), and since when. Both times are of one sweep, its final, "
    "or a run in turns; a dash: there is none, as of unstable times. What each word means: docs/method.md."
)
_SUBJECT, _BEST, _REASON, _ADVICE = 22, 25, 200, 3
"""Largest numbers of characters of two columns and of a reason, and of pieces of advice."""
_FACTS: Final = (
    "latency", "ms_a_frame", "mean_ms", "min_ms", "max_ms", "std_ms", "p99_ms", "mean_calls_per_s", "items_per_s",
    "frames_per_s", "peak_mib", "error",
)  # fmt: skip
_BRIEF: Final = ("latency", "ms_a_frame", "frames_per_s", "peak_mib", "error")
_TRIED: Final = (
    "Tried, without a difference from the best, or not together with it",
    "Tried, and slower than the best",
    "Tried, and slower than the baseline",
    "Tried, without a result that counts",
)
_OF_MIXES: Final = {column.key: column for column in pipelines.MIX_COLUMNS} | {"error": COLUMNS["error"]}
_SHOWN: Final = ("faster", "slower")
_Entry = Stored | StoredPipeline


class _Ratio(NamedTuple):
    """How many times as fast as another an entry was, with the milliseconds of both that it is of."""

    ratio: float
    low: float
    high: float
    is_shown: bool
    others_ms: str
    ms: str
    how: str = ""
    """That a final measured it, and how sure it is."""


class _Sweep(NamedTuple):
    """A sweep of one subject, or a run with its mixes."""

    began: str
    entries: Mapping[str, _Entry]
    """By variant or mix one that could run; if none could, all."""
    best: _Entry | None
    """The winner of the final, else the best that is ok; None if nothing can be deployed."""
    base: _Entry | None
    """Eager, whether it is ok or not; None if it has no times."""
    eager: str
    """Its eager with the dtype; "" if it has none."""
    answer: Callable[[], Answer]
    """Returns what to deploy, or how to decide it."""
    rival: _Entry | None = None
    """The row that the answer holds against the best."""
    final: StoredComparison | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    """An entry as one sweep measured it."""

    entry: _Entry
    sweep: _Sweep
    last: "_Step | None" = None
    """The step before a milestone; the last one, of what did not help."""

    @property
    def gain(self) -> _Ratio | None:
        """The ratio to eager of its own sweep; None for eager itself, and if its sweep has none."""
        return _ratio(self.sweep, self.entry, self.sweep.base)

    @property
    def before(self) -> _Entry | None:
        """The best before it as its own sweep measured it."""
        return self.sweep.entries.get(_name(self.last.entry)) if self.last is not None else None

    @property
    def changed(self) -> str:
        """How code and libraries differ from those of the best before it."""
        found = differences(self.last.entry.record, self.entry.record) if self.last is not None else ""
        return found.removeprefix("measured ")

    @property
    def outcome(self) -> str:
        """The one of `_TRIED` that holds."""
        raced = self.sweep.final.record.sides if self.sweep.final is not None else ()
        if self.entry.record.status != "ok" and _name(self.entry) not in map(name_of, raced):
            return _TRIED[3]
        found = _ratio(self.sweep, self.entry, self.before), self.gain
        to_best, to_eager = (each is not None and each.is_shown and each.ratio < 1 for each in found)
        return _TRIED[2 if to_eager else int(to_best)]


class _Story(NamedTuple):
    steps: Sequence[_Step]
    """The baseline, if it has times, and the milestones; empty if nothing was ever ok."""
    now: _Step | None
    """The last step, as it was last measured together with eager if it was."""
    tried: Mapping[str, _Step]
    """The newest entry of each variant or mix that could run."""
    answer: Callable[[], Answer]

    @property
    def subject(self) -> str:
        record = next(iter(self.tried.values())).entry.record
        name = self.title.partition(" ")[0].rstrip(",")
        if isinstance(record, PipelineRecord):
            return name
        goal = record.objective.goal
        return name + (f", batch {record.batch}" if record.batch != 1 else "") + (f", {goal}" * (goal != "latency"))

    @property
    def title(self) -> str:
        return title(next(iter(self.tried.values())).entry.record, machine=False)


def of_all(records: Records) -> Document:
    """Return the page of all machines: their names with links to their pages, and one table of their subjects."""
    machines, rows, mixes, link = [], list[dict[str, Cell | str]](), list[Text](), links.links_from("")
    for machine in records.machines():
        own, folder = records.of_machines([machine.key]), quote(links.folders_of(records)[machine.key])
        pages = Link(machine.tag, f"{folder}/{NAME}"), Link(f"results of {machine.tag}", f"{folder}/{results.NAME}")
        machines.append(Text(counted(len(own.current) + len(own.ran), "record"), machine.name, links=pages))
        told = [(story, story.now) for story in _stories(own) if story.now is not None]
        head: dict[str, Cell | str] = {"subject": Cell("", link=pages[0])}
        rows += [head] * bool(told) + [_overview(*each, link) for each in told]
        best = ((_name(now.entry), f"{story.subject} of {machine.tag}") for story, now in told)
        mixes += [Text(name, subject) for name, subject in best if len(name) > _BEST]
    eager = sorted({name for row in rows for name in row if name.startswith("eager ")}, reverse=True)
    numeric = *eager, "ms", "faster"
    names = "subject", *eager, "best now", "ms", "faster", "since, newest record"
    return Document(
        "Optimization history",
        blocks(
            Text(_OVERVIEW if machines else "No records yet."),
            listed(machines, "Machines"),
            table(
                (Heading(name.removeprefix("eager "), numeric=name in numeric) for name in names),
                ([row.get(name) or "-" * (len(row) > 1) for name in names] for row in rows),
            ),
            listed(mixes, "Mixes"),
        ),
    )


def of_machine(records: Records, machine: Machine) -> Document:
    """Return the page of one machine, for its folder: a story for each subject, then what belongs to none."""
    own, link = records.of_machines([machine.key]), links.links_from(links.folders_of(records)[machine.key])
    threads = {entry.record.threads for entry in own.current}
    ceilings = {count: best_ceilings(own.current, own.ceilings, machine, count) for count in threads}

    def line(entry: StoredComparison | StoredPipeline, name: object, said: str) -> Text:
        return Text(said, f"{minute(entry.record.created)} {name}", links=(_cited(entry, link),))

    races = (entry for entry in own.comparisons if not entry.record.sweep)
    sustained = (entry for entries in sustained_tables(own.sustained) for entry in entries)
    apart = [
        *(line(each, title(each.record.a, machine=False), sentence(each.record)) for each in races),
        *(line(each, each.record.mix, rollout.verdict(each.record)) for each in newest_rollouts(own.rollouts)),
        *(line(each, each.record.mix, deadline.verdict(each)) for each in sustained),
    ]
    return Document(
        f"Optimization history of {machine.name} ({machine.tag})",
        blocks(
            Text(_INTRODUCTION),
            *(_section(story, own, link, ceilings) for story in _stories(own)),
            section("Races, rollouts and sustained runs", [listed(apart)]),
            section("Superseded", [listed(Text(reason, entry.id) for entry, reason in own.superseded)]),
        ),
    )


def _stories(own: Records) -> Iterator[_Story]:
    """Yield the stories of a machine: of components in the order in which they are listed, then of pipelines."""
    finals: dict[object, list[StoredComparison]] = {}
    for entry in own.comparisons:
        finals.setdefault((entry.record.sweep, subject_key(entry.record.a)), []).append(entry)
    sweeps: dict[object, list[_Sweep]] = {}
    for group in groups(sorted(own.current, key=order)):
        key = subject_key(group[0].record)
        for rows in by_sweep(group):
            made = _of_sweep(rows, finals.get((rows[0].record.sweep, key), ()))
            sweeps.setdefault((key, rows[0].record.objective.goal), []).append(made)
    for entries in by_run(own.pipelines):
        sweeps.setdefault(subject_key(entries[0].record), []).append(_of_run(entries))
    yield from map(_story, sweeps.values())


def _of_sweep(rows: Sequence[Stored], finals: Sequence[StoredComparison]) -> _Sweep:
    kept = newest(rows)
    decided = decision(kept, finals)
    eager = [entry for entry in kept if entry.record.baseline and entry.record.latency is not None]
    base = min(eager, key=lambda entry: entry.record.variant.dtype not in BASELINE_DTYPES, default=None)
    best = decided.winner or next(iter(decided.best), None)
    return _Sweep(
        rows[0].record.created,
        _able(kept),
        best,
        base,
        name_of(base.record) if base is not None else "",
        lambda: deployment(kept, finals),
        next((entry for entry in decided.best if entry is not best), None),
        next((entry for entry in finals if entry.record is decided.final), None),
    )


def _of_run(entries: Sequence[StoredPipeline]) -> _Sweep:
    rows = [row for row in named(entries) if row.figures is not None]
    best = next((row.entry for row in rows if row.record.status == "ok"), None)
    base = next((row.entry for row in rows if row.record.role == "eager"), None)
    against, dtypes = ("eager", base.record.mix.slots) if base is not None else (_name(entries[0]), ())
    told = [replace(row, name="eager" if row.entry is base else str(row.record.mix), against=against) for row in rows]
    eager = " ".join(dict.fromkeys(["eager" * bool(dtypes), *(slot.dtype for slot in dtypes)]))
    return _Sweep(entries[0].record.created, _able(entries), best, base, eager, lambda: (pipelines.verdicts(told)[0],))


def _able(entries: Iterable[_Entry]) -> dict[str, _Entry]:
    every = {_name(entry): entry for entry in entries}
    return {variant: entry for variant, entry in every.items() if entry.record.status not in NEVER_RUN} or every


def _story(sweeps: Sequence[_Sweep]) -> _Story:
    """Return the story of the sweeps of one subject, the oldest first.

    What to deploy is told by the sweep in which a rival, by its newest times, came nearest to the best.
    """
    steps: list[_Step] = []
    now, tried, names = None, dict[str, _Step](), set[str]()
    for each in sweeps:
        tried |= {variant: _Step(entry, each) for variant, entry in each.entries.items()}
        is_less = each.entries.keys() < names
        has_best = bool(steps) and _name(steps[-1].entry) in each.entries
        if (has_best or not is_less) and each.best is not None:
            steps = steps or [_Step(each.base or each.best, each)]
            step = _Step(each.best, each, steps[-1])
            steps, now = ([*steps, step], step) if _is_milestone(step, steps[-1]) else (steps, now or steps[-1])
        names = names if is_less else {*each.entries}
        again = tried[_name(steps[-1].entry)] if steps else None
        is_alike = again is not None and again.sweep.eager == steps[-1].sweep.eager
        if again is not None and is_alike and again.entry.record.status == "ok" and again.gain:
            now = again
    last = now.sweep if now is not None else sweeps[-1]
    rivals = {
        _name(each.rival): each
        for each in sweeps
        if now and each.best and each.rival and _name(each.best) == _name(now.entry)
    }
    nearest = max(rivals.values(), key=lambda each: (_ratio(each, each.rival, each.best) or (0.0,))[0], default=last)
    return _Story(steps, now, tried, nearest.answer)


def _is_milestone(step: _Step, last: _Step) -> bool:
    before, found, known = step.before, step.gain, last.gain
    if before is step.entry and not step.changed:
        return False
    least = 1.0 if last.entry is last.sweep.base else known.high if known is not None else inf
    if before is not None and before is not step.entry and before.record.status != "unstable":
        if before.record.status != "ok":
            return True
        found, least = _ratio(step.sweep, step.entry, before), 1.0
    elif found is None or step.sweep.eager != last.sweep.eager:
        return before is not None and before is step.sweep.base and last.sweep is step.sweep
    return found is not None and found.is_shown and found.low > least


def _ratio(own: _Sweep, entry: _Entry | None, other: _Entry | None) -> _Ratio | None:
    """Return how many times as fast as another an entry of a sweep is: by the final if both ran in it, else by the
    rows; in a run by the units in turns. None if it was not measured, or for an entry and itself."""
    if entry is None or other is None or other is entry:
        return None
    if is_run(entry) and is_run(other):
        turns = gain(other.record, entry.record)
        if turns is None:
            return None
        return _Ratio(turns.ratio, *turns.interval or (0.0, inf), turns.word in _SHOWN, _ms(other), _ms(entry))
    if is_run(entry) or is_run(other):
        return None
    sides = own.final.record.sides if own.final is not None else ()
    places = {name_of(side): place for place, side in enumerate(sides) if side.status == "ok"}
    if own.final is not None and places.keys() >= {_name(entry), _name(other)}:
        raced = decide(own.final.record, places[_name(entry)], places[_name(other)])
        times = milliseconds(raced.b_ms), milliseconds(raced.a_ms)
        return _Ratio(raced.ratio, raced.low, raced.high, raced.word in _SHOWN, *times, f", final{sure_text(raced)}")
    goal = entry.record.objective.goal
    found = speedup(entry.record, other.record, goal) if entry.record.status == other.record.status == "ok" else None
    times = milliseconds(call_ms(other.record, goal)), milliseconds(call_ms(entry.record, goal))
    return _Ratio(found.ratio, found.low, found.high, found.shown, *times) if found is not None else None


def _name(entry: _Entry) -> str:
    return entry.record.mix.scheduled_variants if is_run(entry) else name_of(entry.record)


def _cited(entry: _Entry | StoredComparison, link: links.Link) -> Link:
    return Link(links.anchor(entry), link(entry))


def _facts(entry: _Entry, keys: Sequence[str]) -> dict[str, str]:
    """Return an entry's figures by the headings of their columns."""
    row = MixRow(entry, "") if is_run(entry) else TableRow(entry, objective=entry.record.objective)
    held = _OF_MIXES if is_run(entry) else COLUMNS
    texts = {held[key].heading: held[key].text(row) for key in keys if key in held}
    return {heading: text for heading, text in texts.items() if text}


def _ms(entry: _Entry | None) -> str:
    texts = _facts(entry, ("latency", "ms_a_frame")) if entry is not None else {}
    return next(iter(texts.values()), "").partition(" ")[0]


def _overview(story: _Story, now: _Step, link: links.Link) -> dict[str, Cell | str]:
    """Return the cells of a subject: eager's time, the best now, its time and ratio, since when, and its record."""
    found, name = now.gain, _name(now.entry)
    others_ms, ms = (found.others_ms, found.ms) if found is not None else (_ms(now.sweep.base), _ms(now.entry))
    return {
        "subject": shorten(story.subject, _SUBJECT),
        now.sweep.eager: others_ms,
        "best now": name if len(name) <= _BEST else "a mix, named below",
        "ms": ms,
        "faster": f"{found.ratio:.2f}x" if found is not None else "",
        "since, newest record": Cell(story.steps[-1].sweep.began[:10], link=_cited(now.entry, link)),
    }


def _section(story: _Story, own: Records, link: links.Link, ceilings: Mapping[int, tuple[Ceiling, ...]]) -> Section:
    """Return a story: what to deploy, the steps to it, what did not help, and what could come next."""
    now, helped = story.now, {_name(step.entry) for step in story.steps}
    last = story.steps[-1] if story.steps else None
    tried = [replace(step, last=last) for variant, step in story.tried.items() if variant not in helped]
    tried.sort(key=lambda step: (float(_ms(step.entry) or inf), _name(step.entry)))
    parts: list[Block | None] = [Text(story.title.removeprefix(story.subject).strip(" ,")), *story.answer()]
    if now is not None:
        steps = tuple(_item(step, _FACTS, link) for step in story.steps)
        again = [_item(now, _BRIEF, link)] if now.entry is not story.steps[-1].entry else []
        parts += Listed(steps, "How it got there", ordered=True), listed(again, "Measured last")
    for outcome in _TRIED:
        items = (_item(step, _BRIEF, link) for step in tried if step.outcome == outcome)
        parts.append(listed(items, outcome))
    return Section(story.subject, blocks(*parts, _next(now.entry, own, ceilings) if now is not None else None))


def _next(entry: _Entry, own: Records, ceilings: Mapping[int, tuple[Ceiling, ...]]) -> Block | None:
    """Return what could come next: the advice of a profile, or how far a row is from its floor."""
    if is_run(entry):
        facts = evidence_of(entry, own)
        return advice_list(advise(facts)[:_ADVICE], facts.unit) if facts is not None else None
    bound = floor(entry.record, ceilings[entry.record.threads])
    reached = share(entry.record, ceilings[entry.record.threads])
    if bound is None or reached is None:
        return None
    left = f"at most {1 / reached:.1f}x is left in this dtype" if reached <= 1 else "the ceilings are too low"
    return Text(
        f"Its floor, {bound.ms:.3g} ms by {bound.bound}, is {reached:.0%} of its median: {left}.",
        "What could come next",
    )


def _item(step: _Step, keys: Sequence[str], link: links.Link) -> Text:
    """Return an entry's ratios and figures, why it failed, and of a milestone what else changed, as an item."""
    record, base, final = step.entry.record, step.sweep.base, step.sweep.final
    is_milestone = keys is _FACTS and step.last is not None
    said = (
        [] if record.status == "ok" else [shorten(f"{record.status}: {record.measurement.reason}", _REASON).strip(": ")]
    )
    others = {step.sweep.eager: base} | ({"the best then": step.before} if step.before is not base else {})
    for name, other in others.items():
        found = _ratio(step.sweep, step.entry, other)
        if found is not None:
            times = f"({found.others_ms} to {found.ms} ms{found.how})"
            said.append(f"{found.ratio:.2f}x [{found.low:.2f}, {found.high:.2f}] {name} {times}")
        elif is_milestone and name:
            said.append(f"- {name}")
    facts = ", ".join(f"{heading} {text}" for heading, text in _facts(step.entry, keys).items())
    said.append(pipelines.in_words_of(step.entry.record, facts) if is_run(step.entry) else facts)
    said += [f"changed: {step.changed}"] if is_milestone and step.changed else []
    said.append(f"note: {record.note}" if record.note else "")
    raced = [final] if final is not None and step.entry is step.sweep.best else []
    cited = tuple(_cited(each, link) for each in (step.entry, *raced))
    return Text("; ".join(filter(None, said)), f"{minute(step.sweep.began)} {_name(step.entry)}", links=cited)
