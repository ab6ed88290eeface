"""Variants measured against each other: live workers, blocks of calls in random order, the others idle meanwhile.

Then fresh workers, and so on, until these sets of processes agree or plainly do not.
"""

import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest
from bakeoff.machine.locks import device_lock
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.plan.memory import total
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request, request_of
from bakeoff.plan.rows import Row, short_of_memory
from bakeoff.process.supervisor import Event
from bakeoff.record.schema import MEASURED, SCHEMA, Comparison, Finding, Record, Round, Samples, new_finding
from bakeoff.record.source import backend_source, backends_of, basis_of, component_hash, instrument_hash
from bakeoff.record.store import StoredComparison, now, save
from bakeoff.record.verdict import AGREEING_PAIRS, LEAST_ROUNDS, MOST_PAIRS, is_decided
from bakeoff.sweeps.compare_worker import CompareWorker, SideFailedError, wait_until_built, wait_until_ready
from bakeoff.sweeps.progress import Progress, Running
from bakeoff.sweeps.row import References, launch_of, make_reference
from bakeoff.sweeps.session import Session, WeightsMemory, open_session, with_ceilings, with_works
from bakeoff.variant import parse_variant

_LEAST = LEAST_ROUNDS + 1
_MOST = 60
_IN_TURN = LEAST_ROUNDS + 1
_LARGEST_OFFSET = 2**20
"""Bytes: each process's heap begins at another offset, else memory layout may slow one variant each time (Mytkowicz et
al., ASPLOS 2009)."""
_IDLE = 0.05
"""Of a core: a side that takes more while another is measured is not idle."""
_NAMES = ("a", "b", "baseline")
"""Of the sides, in the names of their logs."""


@dataclass(frozen=True, slots=True)
class _Race:
    """Rows that are measured against each other, and the random order in which everything is done."""

    session: Session
    running: Running
    rows: tuple[Row, ...]
    references: References
    seed: int
    order: random.Random
    without_baseline: str = ""
    """Why there is no baseline among the rows of a final; "" where there is one, or none is wanted."""

    def side(self, index: int, beside: int) -> CompareWorker:
        """A fresh process for one of the rows, with a heap offset of its own, and so many others built at its side."""
        offset = self.order.randrange(0, _LARGEST_OFFSET, 16)
        row, name = self.rows[index], _NAMES[index]
        return CompareWorker(self.session, row, self.references, name, offset, self.running, beside)

    @property
    def beside(self) -> int:
        """How many other sides are built at the same time."""
        return len(self.rows) - 1 if all(row.overlaps for row in self.rows) else 0

    def shuffled(self) -> list[int]:
        """The sides' indices in random order."""
        return self.order.sample(range(len(self.rows)), len(self.rows))


def race(
    session: Session,
    running: Running,
    a: Row,
    b: Row,
    baseline: Row | None = None,
    seed: int | None = None,
    without: str = "",
) -> Comparison:
    """Measure two rows of one subject against each other; the caller holds the device's lock.

    With a `baseline` its blocks alternate with theirs, so that a speed-up over it can be stated. It is left out where
    it cannot be built and checked, or where three processes do not fit in memory; a finding says why, as does one with
    the reason `without` where there is none from the beginning. Raises BakeoffError when another one cannot be built
    and checked.
    """
    rows = (a, b, *([baseline] if baseline is not None else []))
    seed = secrets.randbits(32) if seed is None else seed
    try:
        return _race(session, running, rows, seed, without)
    except SideFailedError as error:
        if baseline is None or error.row.key != baseline.key:
            raise
        return _race(session, running, (a, b), seed, f"it cannot be measured, {error.why}")


def _race(
    session: Session, running: Running, rows: tuple[Row, ...], seed: int, without: str, again: bool = True
) -> Comparison:
    """Raises SideFailedError when one of the rows cannot be built and checked; where references changed meanwhile, only
    after it was run `again` with references that were made anew."""
    for row in rows:
        obstacle = row.obstacle()
        if obstacle is not None:
            raise SideFailedError(row, str(obstacle))
        outcome, references = make_reference(session, row, launch_of(session, row, running))
        if outcome.kind != "result":
            raise SideFailedError(row, f"{outcome.kind}: {outcome.reason}")
    with ExitStack() as stack:
        for folder in sorted({row.cache_folder for row in rows}):
            stack.enter_context(session.entry_lock(folder))
        try:
            return _measure(_Race(session, running, rows, references, seed, random.Random(seed), without))
        except SideFailedError:
            changed = references.changed() if again else ()
            if not changed:
                raise
    session.progress.say(f"{', '.join(changed)} of the references changed while rows were compared; this is run again.")
    return _race(session, running, rows, seed, without, again=False)


def _measure(race: _Race) -> Comparison:
    """Measure the rows side by side, without the baseline or in turn where memory is short."""

    def fits() -> bool:
        need = total([row.memory for row in race.rows])
        return short_of_memory(need, race.rows[0].subject.device) is None

    while len(race.rows) > 2 and not fits():
        race = replace(race, rows=race.rows[:-1], without_baseline="it does not fit in memory beside the two")
    if fits():
        return _interleaved(race)
    race.session.progress.say("Both variants do not fit in memory at once; measuring fresh processes in turn.")
    return _in_turn(race)


def _interleaved(race: _Race) -> Comparison:
    """Set after set of fresh processes, until more would not change the verdict."""
    records: dict[int, Record] = {}
    rounds: list[Round] = []
    findings: list[Finding] = []
    for number in range(MOST_PAIRS):
        made = _run_set(race, number)
        for index, record in enumerate(made.records):
            _keep(records, index, record)
        rounds += made.rounds
        findings += made.findings
        so_far = _comparison(race, "interleaved", records, rounds, findings)
        if is_decided(so_far):
            break
    return so_far


@dataclass(frozen=True, slots=True)
class _Set:
    """What processes that lived side by side gave."""

    rounds: list[Round]
    records: list[Record]
    findings: list[Finding]


def _run_set(race: _Race, number: int) -> _Set:
    """A fresh process for each side, started in random order; blocks of calls in random order.

    The sides build beside each other where all may overlap (`Row.overlaps`), else one after the other.
    """
    spent = race.session.spent
    with ExitStack() as stack:
        made: dict[int, CompareWorker] = {}
        with spent.on("builds of the final"):
            for index in race.shuffled():
                made[index] = stack.enter_context(race.side(index, race.beside))
                if not race.beside:
                    wait_until_built([made[index]])
            sides = [made[index] for index in range(len(race.rows))]
            wait_until_ready([made[index] for index in race.shuffled()])
        stack.enter_context(spent.on("timing of the final"))
        counts = [side.calls_a_block() for side in sides]
        round_s = sum((count + 1) * side.call_ns / 1e9 for count, side in zip(counts, sides, strict=True))
        wanted = max(_LEAST, min(_MOST, int(race.session.plan.request.final_s / AGREEING_PAIRS / round_s)))
        rounds: list[Round] = []
        idle_s, taken_s = 0.0, 0.0
        for done in range(wanted):
            detail = f"{done + 1} of {wanted}, pair {number + 1} of up to {MOST_PAIRS}"
            race.running.event(Event("rounds", detail))
            order = race.shuffled()
            found = {index: sides[index].run(counts[index]) for index in order}
            samples = tuple(Samples(found[index].samples_ns) for index in range(len(sides)))
            rounds.append(Round(tuple(order), samples, number))
            idle_s += sum(block.idle_cpu_s for block in found.values())
            taken_s += sum(sum(block.samples_ns) for block in found.values()) / 1e9
        findings = []
        if idle_s > _IDLE * taken_s:
            text = f"pair {number + 1}: sides that were to be idle took {idle_s / taken_s:.0%} of a core meanwhile"
            findings.append(new_finding("not-idle", text))
        return _Set(rounds, [side.end() for side in sides], findings)


def _in_turn(race: _Race) -> Comparison:
    """One fresh process after the other, where they do not fit in memory together."""
    rounds: list[Round] = []
    records: dict[int, Record] = {}
    for number in range(_IN_TURN):
        race.running.event(Event("rounds", f"{number + 1} of {_IN_TURN}, a fresh process each"))
        order = race.shuffled()
        found: dict[int, Samples] = {}
        for index in order:
            with race.side(index, 0) as side:
                with race.session.spent.on("builds of the final"):
                    wait_until_ready([side])
                with race.session.spent.on("timing of the final"):
                    found[index] = Samples(side.run(max(3, side.calls_a_block())).samples_ns)
                    _keep(records, index, side.end())
        rounds.append(Round(tuple(order), tuple(found[index] for index in sorted(found)), number))
    return _comparison(race, "in turn", records, rounds, [])


def _keep(records: dict[int, Record], index: int, newest: Record) -> None:
    """Keep the newest record of a side, or the first that was not ok: its rounds were measured all the same."""
    if index not in records or records[index].status == "ok":
        records[index] = newest


def _comparison(
    race: _Race,
    how: Literal["interleaved", "in turn"],
    records: Mapping[int, Record],
    rounds: Sequence[Round],
    findings: Sequence[Finding],
) -> Comparison:
    """`records` are of the sides by their indices."""
    sides = tuple(records[index] for index in range(len(race.rows)))
    for row, record in zip(race.rows, sides, strict=True):
        if record.status not in MEASURED:
            raise SideFailedError(row, f"{record.status} during the comparison: {record.measurement.reason}")
    without = race.without_baseline
    lacking = [new_finding("no-baseline", f"eager fp32 was not measured beside the two: {without}")] if without else []
    return Comparison(
        schema=SCHEMA,
        created=now(),
        sweep=race.session.sweep,
        how=how,
        seed=race.seed,
        sides=sides,
        rounds=tuple(rounds),
        findings=(*findings, *lacking),
    )


def plan_of_two(a: str, b: str, shape: Callable[[Request], Request] = lambda request: request) -> Plan:
    """A plan with exactly two rows, from two variants' strings; `shape` sets what a string does not say.

    Raises BakeoffError when they do not compute the same thing on the same device.
    """
    first, second = (parse_variant(text) for text in (a, b))
    if (first.subject, first.device) != (second.subject, second.device):
        text = f"{first} and {second} do not compute the same on the same device; give variants of one subject"
        raise BakeoffError(text, "not-comparable")
    if str(first) == str(second):
        text = f"{first} is given twice; for its spread between processes run: bakeoff sweep ... --processes 5"
        raise BakeoffError(text, "not-comparable")
    rows: list[Row] = []
    for variant in (first, second):
        plan = make_plan(shape(request_of(variant)))
        rows += plan.rows
    return replace(plan, rows=tuple(rows))


def of_this_code(plan: Plan, records: Sequence[Record]) -> bool:
    """Whether records of the plan's rows were made by the code and libraries that would measure them now."""
    versions = {name: version for name, version in host.read_versions().items() if name != "bakeoff"}
    for row, record in zip(plan.rows, records, strict=True):
        source = record.source
        if source.instrument != instrument_hash():
            return False
        if source.component != component_hash(row.subject.component):
            return False
        if backends_of(record) != {
            each.name: each.hash for each in (backend_source(step.backend) for step in row.steps)
        }:
            return False
        if dict(basis_of(record).versions) != versions:
            return False
    return True


def compare(plan: Plan, runs: Path, note: str, progress: Progress, seed: int | None = None) -> StoredComparison:
    """Measure the two rows of a plan against each other and store the comparison.

    Raises BakeoffError when one cannot be built and checked, or the comparison cannot be written.
    """
    a, b = plan.rows
    paths.ensure_writable(runs, "records")
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    for row in plan.rows:
        if row.never_runs is not None:
            raise SideFailedError(row, str(row.never_runs))
    with closing(WeightsMemory()) as weights, device_lock(a.subject.device, progress.say, cache) as held:
        load = host.present_load(held.idle_s)
        sweep = f"compare-{digest([plan.key, now()])[:8]}"
        session = with_works(open_session(plan, sweep, note, runs, cache, load, progress))
        session = replace(with_ceilings(session, runs), weights=weights)
        running = progress.start(0, 0, f"{a.variant} against {b.variant}")
        comparison = replace(race(session, running, a, b, seed=seed), sweep="")
        kept = StoredComparison(save(runs, comparison), comparison)
        running.finish("ok", f"{counted(len(comparison.rounds), 'round')}, {comparison.how}")
    return kept
