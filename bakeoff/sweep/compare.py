"""Two variants against each other, now: two live workers, blocks of calls in random order, one idle while one works.

Then two fresh ones, and so on, until the pairs of processes agree or plainly do not.
"""

import json
import random
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import Entry, Plan, Request, make_plan, reference_folder, request_of
from bakeoff.process.jobs import CompareJob
from bakeoff.process.supervisor import Event, LiveWorker
from bakeoff.record.schema import MEASURED, SCHEMA, Comparison, Finding, Measurement, Record, Round, Samples
from bakeoff.record.store import StoredComparison, now, save
from bakeoff.record.verdict import AGREEING_PAIRS, LEAST_ROUNDS, MOST_PAIRS, settled
from bakeoff.sweep.progress import Progress
from bakeoff.sweep.row import (
    Session,
    begin,
    deadlines,
    device_lock,
    entry_environment,
    judge,
    make_record,
    measure_job,
)
from bakeoff.variant import parse_variant

BLOCK_S = 0.06
_LONGEST_BLOCK = 200
_LEAST = LEAST_ROUNDS + 1
_MOST = 60
_IN_TURN = LEAST_ROUNDS + 1
_LARGEST_SHIFT = 2**20
"""Bytes: where a process's memory lies is drawn anew, else one variant may be unlucky each time (Mytkowicz et al.)."""
_IDLE = 0.05
"""Of a core: a side that takes more while the other is measured is not idle."""


@dataclass(frozen=True, slots=True)
class _Block:
    samples: Samples
    idle_s: float
    """Processor time that the side took since its last block."""


class _Side:
    """One of the two: a live worker that runs blocks of calls."""

    def __init__(self, session: Session, entry: Entry, name: str, shift: int) -> None:
        self.session, self.entry = session, entry
        job = CompareJob(measure_job(session, entry), shift)
        log = session.log_of(entry).with_suffix(f".{name}.log")
        limits = deadlines(session.plan, entry)
        self.worker = LiveWorker(job, entry_environment(entry), limits, log, self._heard)
        self.call_ns = 0.0
        self.idle_s = 0.0

    def _heard(self, event: Event) -> None:
        if event.phase != "block":
            self.session.progress.event(Event(event.phase, f"{self.entry.variant.backend} {self.entry.variant.dtype}"))

    def wait_until_ready(self) -> None:
        """Raises BakeoffError when the variant does not come so far."""
        ready = self.worker.wait("ready")
        if ready is None:
            raise self.failure()
        self.call_ns = float(json.loads(ready.detail))

    def run(self, calls: int) -> _Block:
        self.worker.tell(str(calls))
        told = self.worker.wait("block")
        if told is None:
            raise self.failure()
        found = json.loads(told.detail)
        return _Block(Samples(found["ns"]), found["idle_s"])

    def failure(self) -> BakeoffError:
        record = make_record(self.session, self.entry, self.worker.finish(Measurement))
        return BakeoffError(f"{self.entry.variant} cannot be compared: {record.status}: {record.measurement.reason}")

    def end(self) -> Record:
        """Stop, and say what was measured on, as a record without clocks."""
        self.worker.tell("stop")
        self.worker.wait()
        return make_record(self.session, self.entry, self.worker.finish(Measurement))

    def calls_a_block(self) -> int:
        return max(1, min(_LONGEST_BLOCK, round(BLOCK_S * 1e9 / max(self.call_ns, 1.0))))


def race(session: Session, a: Entry, b: Entry, seed: int | None = None) -> Comparison:
    """Measure two entries of one subject against each other; the caller holds the device's lock.

    Raises BakeoffError when one of them does not get as far as being measured.
    """
    seed = secrets.randbits(32) if seed is None else seed
    for entry in (a, b):
        if entry.settled is not None:
            raise BakeoffError(f"{entry.variant} cannot be compared: {entry.settled[0]}: {entry.settled[1]}")
        outcome = judge(session, entry, reference_folder(entry, session.plan.component))
        if outcome.kind != "result":
            raise BakeoffError(f"{entry.variant} cannot be compared: {outcome.kind}: {outcome.reason}")
    together = a.memory_bytes + b.memory_bytes <= host.available_bytes(a.subject.device)
    order = random.Random(seed)
    if together:
        return _interleaved(session, a, b, seed, order)
    session.progress.say("Both do not fit in memory at once: fresh processes in turn.")
    return _in_turn(session, a, b, seed, order)


def _interleaved(session: Session, a: Entry, b: Entry, seed: int, order: random.Random) -> Comparison:
    """Pair after pair of fresh processes, until more would not change the verdict."""
    rounds: list[Round] = []
    findings: list[Finding] = []
    for number in range(MOST_PAIRS):
        met = _meet(session, a, b, number, order)
        rounds += met.rounds
        findings += met.findings
        so_far = _comparison(session, "interleaved", seed, met.records, rounds, findings)
        if settled(so_far):
            break
    return so_far


@dataclass(frozen=True, slots=True)
class _Meeting:
    """What two processes that lived side by side gave."""

    rounds: list[Round]
    records: list[Record]
    findings: list[Finding]


def _meet(session: Session, a: Entry, b: Entry, number: int, order: random.Random) -> _Meeting:
    """A fresh process each, started in random order; blocks of calls in random order."""
    with ExitStack() as stack:
        made: dict[str, _Side] = {}
        for name in order.sample(("a", "b"), 2):
            made[name] = _Side(session, a if name == "a" else b, name, order.randrange(0, _LARGEST_SHIFT, 16))
            stack.enter_context(made[name].worker)
        for side in made.values():
            side.wait_until_ready()
        sides = first, second = made["a"], made["b"]
        counts = (first.calls_a_block(), second.calls_a_block())
        round_s = sum((count + 1) * side.call_ns / 1e9 for count, side in zip(counts, sides, strict=True))
        wanted = max(_LEAST, min(_MOST, int(session.plan.request.final_s / AGREEING_PAIRS / round_s)))
        rounds: list[Round] = []
        idle_s, taken_s = 0.0, 0.0
        for index in range(wanted):
            told = f"{index + 1} of {wanted}, pair {number + 1} of up to {MOST_PAIRS}"
            session.progress.event(Event("rounds", told))
            a_first = order.random() < 0.5
            pairs = list(zip(sides, counts, strict=True))
            found = {side: side.run(count) for side, count in (pairs if a_first else reversed(pairs))}
            rounds.append(Round(a_first, found[first].samples, found[second].samples, number))
            idle_s += found[first].idle_s + found[second].idle_s
            taken_s += sum(sum(block.samples) for block in found.values()) / 1e9
        findings = []
        if idle_s > _IDLE * taken_s:
            text = f"pair {number + 1}: the idle side took {idle_s / taken_s:.0%} of a core meanwhile"
            findings.append(Finding("not-idle", text))
        return _Meeting(rounds, [side.end() for side in sides], findings)


def _in_turn(session: Session, a: Entry, b: Entry, seed: int, order: random.Random) -> Comparison:
    rounds: list[Round] = []
    records: dict[str, Record] = {}
    for number in range(_IN_TURN):
        session.progress.event(Event("rounds", f"{number + 1} of {_IN_TURN}, a fresh process each"))
        a_first = order.random() < 0.5
        found: dict[str, Samples] = {}
        for entry, name in ((a, "a"), (b, "b")) if a_first else ((b, "b"), (a, "a")):
            side = _Side(session, entry, name, order.randrange(0, _LARGEST_SHIFT, 16))
            with side.worker:
                side.wait_until_ready()
                found[name] = side.run(max(3, side.calls_a_block())).samples
                records[name] = side.end()
        rounds.append(Round(a_first, found["a"], found["b"], number))
    return _comparison(session, "in turn", seed, [records["a"], records["b"]], rounds, [])


def _comparison(
    session: Session, how: str, seed: int, records: list[Record], rounds: list[Round], findings: list[Finding]
) -> Comparison:
    for record in records:
        if record.status not in MEASURED:
            reason = record.measurement.reason
            raise BakeoffError(f"{record.variant} did not last through the comparison: {record.status}: {reason}")
    return Comparison(
        schema=SCHEMA,
        created=now(),
        sweep=session.sweep,
        how="interleaved" if how == "interleaved" else "in turn",
        seed=seed,
        a=records[0],
        b=records[1],
        rounds=tuple(rounds),
        findings=tuple(findings),
    )


def plan_of_two(a: str, b: str, shape: Callable[[Request], Request] = lambda request: request) -> Plan:
    """A plan with exactly two entries, from two variants' strings; `shape` sets what a string does not say.

    Raises BakeoffError when they do not compute the same thing on the same device.
    """
    first, second = (parse_variant(text) for text in (a, b))
    if (first.subject, first.device) != (second.subject, second.device):
        raise BakeoffError(f"{first} and {second} do not compute the same on the same device: nothing to compare")
    if str(first) == str(second):
        raise BakeoffError(f"{first} is given twice; its spread between processes: bakeoff sweep ... --processes 5")
    entries: list[Entry] = []
    for variant in (first, second):
        plan = make_plan(shape(request_of(variant)))
        entries += plan.entries
    return replace(plan, entries=tuple(entries))


def compare(plan: Plan, runs: Path, note: str, progress: Progress, seed: int | None = None) -> StoredComparison:
    """Measure the two entries of a plan against each other and keep what came out.

    Raises BakeoffError when one does not get as far as being measured, or nothing can be kept.
    """
    a, b = plan.entries
    paths.ensure_writable(runs / "records", "records")
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    load = host.load_average()
    with device_lock(cache, a.subject.device, progress):
        session = begin(plan, "", note, cache, load, progress)
        session = replace(session, sweep=f"compare-{digest([plan.key, now()])[:8]}")
        progress.start(0, 0, f"{a.variant} against {b.variant}")
        comparison = replace(race(session, a, b, seed), sweep="")
        kept = StoredComparison(save(runs, comparison), comparison)
        progress.finish("ok", f"{len(comparison.rounds)} rounds, {comparison.how}")
    return kept
