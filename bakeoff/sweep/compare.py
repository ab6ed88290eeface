"""Two variants measured against each other: two live workers, blocks of calls in random order, one idle meanwhile.

Then two fresh workers, and so on, until the pairs of processes agree or plainly do not.
"""

import random
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest
from bakeoff.machine.locks import device_lock
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request, request_of
from bakeoff.plan.rows import Row
from bakeoff.process.supervisor import Event
from bakeoff.record.schema import MEASURED, SCHEMA, Comparison, Finding, Record, Round, Samples, new_finding
from bakeoff.record.store import StoredComparison, now, save
from bakeoff.record.verdict import AGREEING_PAIRS, LEAST_ROUNDS, MOST_PAIRS, is_decided
from bakeoff.sweep.compare_worker import CompareWorker
from bakeoff.sweep.progress import Progress
from bakeoff.sweep.row import make_reference
from bakeoff.sweep.session import Session, open_session
from bakeoff.variant import parse_variant

_LEAST = LEAST_ROUNDS + 1
_MOST = 60
_IN_TURN = LEAST_ROUNDS + 1
_LARGEST_OFFSET = 2**20
"""Bytes: each process's heap begins at another offset, else memory layout may slow one variant each time (Mytkowicz et
al., ASPLOS 2009)."""
_IDLE = 0.05
"""Of a core: a side that takes more while the other is measured is not idle."""
Name = Literal["a", "b"]
_NAMES: tuple[Name, Name] = ("a", "b")


@dataclass(frozen=True, slots=True)
class _Race:
    """Two rows that are measured against each other, and the random order in which everything is done."""

    session: Session
    a: Row
    b: Row
    reference: Path
    seed: int
    order: random.Random

    def side(self, name: Name) -> CompareWorker:
        """A fresh process for one of the two, with a heap offset of its own."""
        row = self.a if name == "a" else self.b
        return CompareWorker(self.session, row, self.reference, name, self.order.randrange(0, _LARGEST_OFFSET, 16))


def race(session: Session, a: Row, b: Row, seed: int | None = None) -> Comparison:
    """Measure two rows of one subject against each other; the caller holds the device's lock.

    Raises BakeoffError when one of them cannot be built and checked.
    """
    for row in (a, b):
        if row.precheck is not None:
            raise BakeoffError(f"{row.variant} cannot be compared: {row.precheck}", "not-comparable")
    outcome, reference = make_reference(session, a)
    if outcome.kind != "result":
        text = f"{a.variant} cannot be compared: {outcome.kind}: {outcome.reason}"
        raise BakeoffError(text, "not-comparable")
    seed = secrets.randbits(32) if seed is None else seed
    both = _Race(session, a, b, reference, seed, random.Random(seed))
    if a.memory_bytes + b.memory_bytes <= host.available_bytes(a.subject.device):
        return _interleaved(both)
    session.progress.say("Both variants do not fit in memory at once; measuring fresh processes in turn.")
    return _in_turn(both)


def _interleaved(both: _Race) -> Comparison:
    """Pair after pair of fresh processes, until more would not change the verdict."""
    rounds: list[Round] = []
    findings: list[Finding] = []
    for number in range(MOST_PAIRS):
        pair = _run_pair(both, number)
        rounds += pair.rounds
        findings += pair.findings
        so_far = _comparison(both, "interleaved", pair.records, rounds, findings)
        if is_decided(so_far):
            break
    return so_far


@dataclass(frozen=True, slots=True)
class _Pair:
    """What two processes that lived side by side gave."""

    rounds: list[Round]
    records: list[Record]
    findings: list[Finding]


def _run_pair(both: _Race, number: int) -> _Pair:
    """A fresh process each, started in random order; blocks of calls in random order."""
    with ExitStack() as stack:
        made: dict[Name, CompareWorker] = {}
        for name in both.order.sample(_NAMES, 2):
            made[name] = stack.enter_context(both.side(name))
        for side in made.values():
            side.wait_until_ready()
        sides = first, second = made["a"], made["b"]
        counts = (first.calls_a_block(), second.calls_a_block())
        round_s = sum((count + 1) * side.call_ns / 1e9 for count, side in zip(counts, sides, strict=True))
        wanted = max(_LEAST, min(_MOST, int(both.session.plan.request.final_s / AGREEING_PAIRS / round_s)))
        rounds: list[Round] = []
        idle_s, taken_s = 0.0, 0.0
        for index in range(wanted):
            detail = f"{index + 1} of {wanted}, pair {number + 1} of up to {MOST_PAIRS}"
            both.session.progress.event(Event("rounds", detail))
            a_first = both.order.random() < 0.5
            pairs = list(zip(sides, counts, strict=True))
            found = {side: side.run(count) for side, count in (pairs if a_first else reversed(pairs))}
            rounds.append(Round(a_first, Samples(found[first].samples_ns), Samples(found[second].samples_ns), number))
            idle_s += found[first].idle_cpu_s + found[second].idle_cpu_s
            taken_s += sum(sum(block.samples_ns) for block in found.values()) / 1e9
        findings = []
        if idle_s > _IDLE * taken_s:
            text = f"pair {number + 1}: the idle side took {idle_s / taken_s:.0%} of a core meanwhile"
            findings.append(new_finding("not-idle", text))
        return _Pair(rounds, [side.end() for side in sides], findings)


def _in_turn(both: _Race) -> Comparison:
    """One fresh process after the other, where both do not fit in memory at once."""
    rounds: list[Round] = []
    records: dict[Name, Record] = {}
    for number in range(_IN_TURN):
        both.session.progress.event(Event("rounds", f"{number + 1} of {_IN_TURN}, a fresh process each"))
        a_first = both.order.random() < 0.5
        found: dict[Name, Samples] = {}
        for name in _NAMES if a_first else reversed(_NAMES):
            with both.side(name) as side:
                side.wait_until_ready()
                found[name] = Samples(side.run(max(3, side.calls_a_block())).samples_ns)
                records[name] = side.end()
        rounds.append(Round(a_first, found["a"], found["b"], number))
    return _comparison(both, "in turn", [records["a"], records["b"]], rounds, [])


def _comparison(
    both: _Race,
    how: Literal["interleaved", "in turn"],
    records: list[Record],
    rounds: list[Round],
    findings: list[Finding],
) -> Comparison:
    for record in records:
        if record.status not in MEASURED:
            reason = record.measurement.reason
            text = f"{record.variant} failed during the comparison: {record.status}: {reason}"
            raise BakeoffError(text, "not-comparable")
    return Comparison(
        schema=SCHEMA,
        created=now(),
        sweep=both.session.sweep,
        how=how,
        seed=both.seed,
        a=records[0],
        b=records[1],
        rounds=tuple(rounds),
        findings=tuple(findings),
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


def compare(plan: Plan, runs: Path, note: str, progress: Progress, seed: int | None = None) -> StoredComparison:
    """Measure the two rows of a plan against each other and store the comparison.

    Raises BakeoffError when one cannot be built and checked, or the comparison cannot be written.
    """
    a, b = plan.rows
    paths.ensure_writable(runs / "records", "records")
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    load = host.load_average()
    with device_lock(cache, a.subject.device, progress.say):
        session = open_session(plan, f"compare-{digest([plan.key, now()])[:8]}", note, cache, load, progress)
        progress.start(0, 0, f"{a.variant} against {b.variant}")
        comparison = replace(race(session, a, b, seed), sweep="")
        kept = StoredComparison(save(runs, comparison), comparison)
        progress.finish("ok", f"{len(comparison.rounds)} rounds, {comparison.how}")
    return kept
