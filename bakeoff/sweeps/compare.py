"""Compares variants in rounds of alternating blocks, with pairs of fresh workers until the verdict is settled."""

import random
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from bakeoff.machine import host, paths
from bakeoff.machine.build_cache import open_folder
from bakeoff.machine.files import digest
from bakeoff.machine.locks import device_lock
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.plan.memory import total
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request, request_of
from bakeoff.plan.rows import Row, short_of_memory
from bakeoff.process.jobs import CompareJob
from bakeoff.process.phases import Block
from bakeoff.process.supervisor import Event, LiveWorker, wait_for
from bakeoff.race import LARGEST_OFFSET, Turns, idle_shares, not_idle, open_sides, take_turns
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.schema import (
    MEASURED,
    SCHEMA,
    Comparison,
    Measurement,
    Record,
    Round,
    Samples,
    Status,
    libraries,
)
from bakeoff.record.sides import side_findings
from bakeoff.record.store import StoredComparison, now, save
from bakeoff.record.verdict import (
    AGREEING_PAIRS,
    LEAST_ROUNDS,
    MOST_PAIRS,
    SET_ROUNDS,
    failed_side,
    is_baseline_known,
    is_decided,
    off_rows,
    verdict_of,
)
from bakeoff.sweeps.assemble import STATUS, clocks_apart, make_record, source_of, unstable
from bakeoff.sweeps.context import SweepContext, WeightsMemory, make_context, with_ceilings, with_works
from bakeoff.sweeps.progress import Progress, Running
from bakeoff.sweeps.row import References, launch_of, make_reference, measure_job
from bakeoff.variant import parse_variant

_MOST_ROUNDS = 60
"""Largest number of rounds for one pair of processes."""
_IN_TURN, _IN_TURN_CALLS = LEAST_ROUNDS + 1, 3
"""Number of processes of each row, and the least number of calls per block, when the rows do not fit in memory
together."""


@dataclass(slots=True)
class CompareWorker:
    """The parent's handle of one worker in a comparison.

    A context manager: entering it starts the worker, leaving it kills the worker.
    """

    context: SweepContext
    row: Row
    references: References
    """References of the row's subject, against which the worker's outputs are checked."""
    heap_offset: int
    running: Running
    beside: int
    """Number of other workers that build at the same time, as in `launch_of`."""
    least_calls: int
    """Smallest number of calls of a block."""
    calls: int = 0
    """Number of calls in a block; set by `warm_up`."""
    call_ns: int = 0
    """Approximate duration of one call in ns; set by `warm_up`."""
    _worker: LiveWorker = field(init=False)

    def __enter__(self) -> "CompareWorker":
        open_folder(self.row.cache_folder)
        request = self.context.plan.request
        job = measure_job(self.row, request.policy, self.references)
        job = replace(job, opens=True, overlapped=self.beside > 0)
        launch = launch_of(self.context, self.row, self.running, self.beside)
        self._worker = LiveWorker(
            CompareJob(job, self.heap_offset, request.objective.goal == "throughput"),
            replace(launch, log=launch.log.with_suffix(".final.log"), on_event=self._on_event),
        )
        self._worker.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._worker.__exit__(None, None, None)

    @property
    def label(self) -> str:
        return f"{self.row.variant.backend} {self.row.variant.dtype}"

    @property
    def live(self) -> bool:
        """Always True: a worker that ends early raises BakeoffError and so ends the comparison."""
        return True

    def _on_event(self, event: Event) -> None:
        if event.phase != "block":
            self.running.event(Event(event.phase, self.label))

    def warm_up(self) -> None:
        """Let the worker warm up, and set `call_ns` and `calls`. Raises BakeoffError if the worker ends instead."""
        self._worker.tell("go")
        self.call_ns = max(1, self._expect("ready").call_ns or 0)
        self.calls = max(self.least_calls, min(_LONGEST_BLOCK, round(_BLOCK_S * 1e9 / self.call_ns)))

    def block(self) -> Block | None:
        """Let the worker time one block of `calls` calls. Raises BakeoffError if the worker ends instead."""
        self._worker.tell(str(self.calls))
        return self._expect("block").block

    def end(self) -> Record:
        """Stop the worker, and return a record of its build and checks, which has no timings of its own."""
        self._worker.tell("stop")
        self._worker.wait()
        return self._record()

    def _expect(self, phase: str) -> Event:
        event = self._worker.wait(phase)
        if event is None or (event.call_ns is None and event.block is None):
            raise self._failure()
        return event

    def _failure(self) -> BakeoffError:
        record = self._record()
        return SideFailedError(self.row, record.status, f"{record.status}: {record.measurement.reason}")

    def _record(self) -> Record:
        """Return the record of how the worker ended.

        Raises BakeoffError if the request itself was wrong (for example, weights that differ from those described).
        """
        outcome = self._worker.finish(Measurement)
        outcome.raise_refusal()
        record = make_record(self.context, self.row, replace(outcome, timeline=()))  # it had no turn of its own
        apart = clocks_apart(*(of.get("block", 0.0) for of in (outcome.phase_s, outcome.worker_phase_s)))
        return record if apart is None else unstable(record, new_finding("clock-span", apart))


@dataclass(frozen=True, slots=True)
class Entrant:
    """A row that is compared, with the context that its records and time belong to."""

    context: SweepContext
    row: Row
    references: References | None = None
    """References of the row's subject; None until they are made."""


@dataclass(frozen=True, slots=True)
class _Race:
    """Rows that are compared with each other, and the random generator that orders their builds and blocks."""

    running: Running
    entrants: tuple[Entrant, ...]
    seed: int
    order: random.Random
    without_baseline: str = ""
    """Reason why a final has no baseline; "" if it has one, or if none is wanted."""
    rows_ns: tuple[int, ...] = ()
    """As in `Comparison`."""

    @property
    def context(self) -> SweepContext:
        """The context of the first row, which decides how long is measured."""
        return self.entrants[0].context

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(entrant.row for entrant in self.entrants)

    @property
    def fits(self) -> bool:
        """Whether one process of each row fits into memory at the same time."""
        return short_of_memory(total([row.memory for row in self.rows]), self.rows[0].subject.device) is None

    def sides(self, numbers: Sequence[int]) -> dict[int, CompareWorker]:
        """Return a new worker for each of these rows, by row number, each with a random heap offset of its own.

        The workers build at the same time if all of their rows may overlap (`Row.overlaps`).
        """
        entrants = {number: self.entrants[number] for number in numbers}
        beside = len(entrants) - 1 if all(each.row.overlaps for each in entrants.values()) else 0
        calls = 1 if len(entrants) > 1 else _IN_TURN_CALLS

        def side(each: Entrant) -> CompareWorker:
            offset = self.order.randrange(0, LARGEST_OFFSET, 16)
            assert each.references is not None
            return CompareWorker(each.context, each.row, each.references, offset, self.running, beside, calls)

        return {number: side(each) for number, each in entrants.items()}

    def rounds(self, sides: Collection[CompareWorker]) -> int:
        """Return how many rounds these sides run; 1 for a single side, which is measured without the others."""
        round_s = sum((side.calls + 1) * side.call_ns / 1e9 for side in sides)
        wanted = int(self.context.plan.request.final_s / AGREEING_PAIRS / round_s)
        return max(SET_ROUNDS, min(_MOST_ROUNDS, wanted)) if len(sides) > 1 else 1


_BLOCK_S = 0.06
_LONGEST_BLOCK = 200
"""Largest number of calls in a block, since the samples of a block are sent as one line."""


class SideFailedError(BakeoffError):
    """One side of a comparison could not be built, checked or run."""

    def __init__(self, row: Row, status: Status, why: str) -> None:
        super().__init__(f"{row.variant} cannot be compared: {why}", "not-comparable")
        self.row, self.status, self.why = row, status, why


def race(
    context: SweepContext,
    running: Running,
    a: Row,
    b: Row,
    baseline: Row | None = None,
    seed: int | None = None,
    without: str = "",
    rows_ns: tuple[int, ...] = (),
) -> Comparison:
    """Compare two rows of one subject and return the comparison. The caller holds the device's lock.

    With a `baseline`, its blocks alternate with those of the two rows, so that a speed-up over it can be stated. The
    baseline is left out if it cannot be built and checked, or if three processes do not fit into memory; a finding then
    says why. `without` is the reason why there is no baseline from the start, and becomes such a finding too. Raises
    BakeoffError if `a` or `b` cannot be built and checked.
    """
    rows = (a, b, *([baseline] if baseline is not None else []))
    entrants = tuple(Entrant(context, row) for row in rows)
    seed = secrets.randbits(32) if seed is None else seed
    try:
        return race_of(entrants, running, seed, is_decided, without, rows_ns)
    except SideFailedError as error:
        if baseline is None or error.row.key != baseline.key:
            raise
        return race_of(entrants[:2], running, seed, is_decided, f"it cannot be measured, {error.why}", rows_ns[:2])


def race_of(
    entrants: tuple[Entrant, ...],
    running: Running,
    seed: int,
    decided: Callable[[Comparison], bool],
    without: str = "",
    rows_ns: tuple[int, ...] = (),
    again: bool = True,
) -> Comparison:
    """Check the rows, make their references, and compare the rows until `decided`, asked after each pair of processes.

    Raises SideFailedError if a row cannot be built and checked. If references changed during the comparison, it is
    first repeated once (`again`) with new references.
    """
    ready: list[Entrant] = []
    for each in entrants:
        context, row = each.context, each.row
        obstacle = row.obstacle()
        if obstacle is not None:
            raise SideFailedError(row, obstacle.status, str(obstacle))
        outcome, references = make_reference(context, row, launch_of(context, row, running))
        if outcome.kind != "result":
            raise SideFailedError(row, STATUS.get(outcome.kind, "crashed"), f"{outcome.kind}: {outcome.reason}")
        ready.append(replace(each, references=references))
    with ExitStack() as stack:
        for folder in sorted({each.row.cache_folder for each in ready}):
            stack.enter_context(context.entry_lock(folder))
        try:
            return _measure(_Race(running, tuple(ready), seed, random.Random(seed), without, rows_ns), decided)
        except SideFailedError:
            found = [name for each in ready if each.references is not None for name in each.references.changed()]
            changed = list(dict.fromkeys(found)) if again else []
            if not changed:
                raise
    context.progress.say(f"{', '.join(changed)} of the references changed while rows were compared; this is run again.")
    return race_of(entrants, running, seed, decided, without, rows_ns, again=False)


def _measure(race: _Race, decided: Callable[[Comparison], bool] = is_decided) -> Comparison:
    """Measure the rows with alternating blocks, without the baseline or one row after the other if memory is short.

    Fresh processes are started until the comparison is `decided`; those of the baseline only until its speed-up is
    known.
    """
    while len(race.rows) > 2 and not race.fits:
        race = replace(race, entrants=race.entrants[:-1], without_baseline="it does not fit in memory beside the two")
    together, count = race.fits, len(race.rows)
    if not together:
        race.context.progress.say("Both variants do not fit in memory at once; measuring fresh processes in turn.")
    measured = _Results()
    for pair in range(MOST_PAIRS if together else _IN_TURN):
        _run_pair(race, measured, pair, count, together)
        so_far = _comparison(race, "interleaved" if together else "in turn", measured)
        if together and decided(so_far):
            break
        count = 2 if is_baseline_known(so_far) else count
    return so_far


@dataclass(slots=True)
class _Results:
    """Results of all processes of a comparison so far."""

    rounds: list[Round] = field(default_factory=list)
    records: dict[int, Record] = field(default_factory=dict)
    """Each row's newest record, or its first that was not ok, by row number."""
    findings: list[Finding] = field(default_factory=list)
    idle: list[Mapping[int, float]] = field(default_factory=list)
    """For each pair, the share of a core that each side took while others were timed."""

    def keep(self, number: int, record: Record) -> None:
        if number not in self.records or self.records[number].status == "ok":
            self.records[number] = record


def _run_pair(race: _Race, measured: _Results, pair: int, count: int, together: bool) -> None:
    """Measure fresh processes of the first `count` rows: all at once if `together`, else one row after the other."""
    numbers = race.order.sample(range(count), count)
    groups = [numbers] if together else [[number] for number in numbers]
    for parts in zip(*(_run_sides(race, measured, pair, group) for group in groups), strict=True):
        order = tuple(number for turns in parts for number in turns.order)
        blocks = {number: block for turns in parts for number, block in turns.blocks.items()}
        samples = tuple(Samples(blocks[number].samples_ns) for number in sorted(blocks))
        measured.rounds.append(Round(order, samples, pair))


def _run_sides(race: _Race, measured: _Results, pair: int, numbers: Sequence[int]) -> list[Turns]:
    """Measure fresh processes of these rows, all alive at the same time, and return their rounds."""
    sides = race.sides(numbers)
    with ExitStack() as stack:
        open_sides(stack, sides.values(), race.order, wait_until_built)
        wanted = race.rounds(sides.values())

        def goes_on(done: int) -> bool:
            detail = f"{min(done + 1, wanted)} of {wanted}, pair {pair + 1} of up to {MOST_PAIRS}"
            race.running.event(Event("rounds", detail))
            return done < wanted

        turns = take_turns(sides, race.order, goes_on)
        for number, side in sides.items():
            measured.keep(number, side.end())
    measured.findings += not_idle(sides, turns, f"pair {pair + 1}: ")
    measured.idle.append(idle_shares(sides, turns))
    return turns


def _comparison(race: _Race, how: Literal["interleaved", "in turn"], measured: _Results) -> Comparison:
    for number, finding in side_findings(measured.records, measured.rounds, measured.idle):
        measured.records[number] = unstable(measured.records[number], finding)
    sides = tuple(measured.records[number] for number in range(len(race.rows)))
    for row, record in zip(race.rows, sides, strict=True):
        if record.status not in MEASURED:
            raise SideFailedError(
                row, record.status, f"{record.status} during the comparison: {record.measurement.reason}"
            )
    without = race.without_baseline
    lacking = [new_finding("no-baseline", f"eager fp32 was not measured beside the two: {without}")] if without else []
    made = Comparison(
        schema=SCHEMA,
        created=now(),
        sweep=race.context.sweep,
        how=how,
        seed=race.seed,
        sides=sides,
        rounds=tuple(measured.rounds),
        findings=(*measured.findings, *lacking),
        rows_ns=race.rows_ns,
    )
    verdict = verdict_of(made)
    by_rows = off_rows(made, verdict) if verdict is not None else None
    if verdict is None or by_rows is None:
        return made
    sizes = [size if verdict.ratio >= 1 else 1 / size for size in (by_rows, verdict.ratio)]  # of the faster side
    text = "the rows of the sweep say {:.2f}x, this race {:.2f}x".format(*sizes)
    return replace(made, findings=(*made.findings, new_finding("off-rows", text)))


def plan_of_two(a: str, b: str, shape: Callable[[Request], Request] = lambda request: request) -> Plan:
    """Return a plan with exactly two rows, one for each variant string.

    `shape` changes a variant's request, to set what the string does not say. Raises BakeoffError if the variants do not
    compute the same thing on the same device.
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
    """Return whether `records`, one for each row of the plan, were made with the present code and library versions."""
    here = libraries(host.read_versions())
    pairs = zip(plan.rows, records, strict=True)
    return all(source_of(row) == record.source and record.libraries == here for row, record in pairs)


def compare(plan: Plan, runs: Path, note: str, progress: Progress, seed: int | None = None) -> StoredComparison:
    """Compare the two rows of a plan and store the comparison.

    Raises BakeoffError if a row cannot be built and checked, or if the comparison cannot be written.
    """
    a, b = plan.rows
    paths.ensure_writable(runs, "records")
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    for row in plan.rows:
        if row.never_runs is not None:
            raise SideFailedError(row, row.never_runs.status, str(row.never_runs))
    with closing(WeightsMemory()) as weights, device_lock(a.subject.device, progress.say, cache) as idle_s:
        load = host.present_load(idle_s)
        sweep = f"compare-{digest([plan.key, now()])[:8]}"
        context = with_works(make_context(plan, sweep, note, runs, cache, load, progress))
        context = replace(with_ceilings(context, runs), weights=weights)
        running = progress.start(0, 0, f"{a.variant} against {b.variant}")
        comparison = replace(race(context, running, a, b, seed=seed), sweep="")
        kept = StoredComparison(save(runs, comparison), comparison)
        say_end(running, comparison)
    return kept


def say_end(running: Running, comparison: Comparison) -> None:
    """End the progress line of a race with its rounds, or with why it has no verdict."""
    failed = failed_side(comparison)
    if failed is None:
        running.finish("ok", f"{counted(len(comparison.rounds), 'round')}, {comparison.how}")
    else:
        name = f"{failed.variant.backend} {failed.variant.dtype}"
        running.finish("no verdict", f"{name} was {failed.status}: {failed.measurement.reason}")


def wait_until_built(sides: Sequence[CompareWorker]) -> None:
    """Wait until each side is built. Raises BakeoffError if the build of one fails."""
    found = wait_for({side._worker: "turn" for side in sides})
    for side in sides:
        if found[side._worker] is None:
            raise side._failure()
