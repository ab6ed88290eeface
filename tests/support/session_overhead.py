"""What recording costs a pipeline, measured: blocks of units without it, with it, and with monitors too, in turns.

All run in one process. Each block is within a session of its own, so that a monitor runs beside no other blocks. The
unit is a fixed amount of hashing by one thread that never waits, as a pipeline that is bound by its host. Ratios and
their intervals are those of a comparison (bakeoff.record.verdict).
"""

import hashlib
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

from bakeoff.process.phases import Block
from bakeoff.profile.profiler import Profiler
from bakeoff.profile.settings import Settings
from bakeoff.race import take_turns
from bakeoff.record.monitor import MonitorCost
from bakeoff.record.schema import SCHEMA, Comparison, Round, Samples
from bakeoff.record.session import SessionRecord
from bakeoff.record.store import now
from bakeoff.record.verdict import Verdict, decide

STEPS, RANGES = 4, 8
"""Of a unit: 4 steps and 3 phases within 1 unit."""
OFF, RECORDING, MONITORED = "off", "recording", "recording and monitors"
_BLOCK = bytes(1024)
"""Smaller than what hashlib releases the interpreter's lock for, so that other threads of the process do cost time."""
_CALIBRATION = 2_000
WARM_UNITS = 3
"""At the start of each block and in no figure: they make the tree of ranges, and wake a core that idled."""


class Ranges(Protocol):
    """The part of a session that a unit uses."""

    def unit(self, frames: int = ..., latents: int = ...) -> AbstractContextManager[object]: ...
    def phase(self, name: str) -> AbstractContextManager[object]: ...
    def step(self, index: int, timestep: float) -> AbstractContextManager[object]: ...


Open = Callable[[], AbstractContextManager[Ranges]]
"""Opens the session of one block."""


@dataclass(frozen=True, slots=True)
class Share:
    """What something costs as a share of a unit without it, with the interval of the rounds."""

    share: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.share:.2f} % [{100 * self.low:.2f}, {100 * self.high:.2f}]"


@dataclass(frozen=True, slots=True)
class WayCost:
    """What one way of recording costs."""

    way: str
    unit_ms: float
    """Median of the rounds' medians."""
    typical: Share
    """By the median unit of each block."""
    whole: Share
    """By whole blocks, in which what happens once in many units counts too, and noise as well."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """The result of one measurement."""

    off_ms: float
    """A unit without recording."""
    ways: tuple[WayCost, ...]
    limit: float
    range_ns: float | None
    """One range by the account that sessions keep themselves."""
    monitor: MonitorCost | None
    """Of the last block with monitors."""
    missing: tuple[str, ...]
    """What those monitors did not see."""

    def too_dear(self) -> list[str]:
        """The ways of which the whole interval of a cost is above the limit."""
        return [cost.way for cost in self.ways if max(cost.typical.low, cost.whole.low) > self.limit]


class ToyUnit:
    """A unit of 3 phases and 4 steps that hashes a fixed amount."""

    def __init__(self, unit_ms: float) -> None:
        """Calibrated on this host to `unit_ms` milliseconds without recording."""
        rates = []
        for _ in range(9):
            started = time.thread_time_ns()
            _hash(_CALIBRATION)
            rates.append(_CALIBRATION / (time.thread_time_ns() - started))
        whole = median(rates) * unit_ms * 1e6
        self._step, self._context, self._decode = (max(1, round(whole * part)) for part in (0.15, 0.15, 0.25))

    def run(self, session: Ranges) -> None:
        with session.unit(frames=4, latents=1):
            with session.phase("denoise"):
                for index in range(STEPS):
                    with session.step(index=index, timestep=1000.0 - 250.0 * index):
                        _hash(self._step)
            with session.phase("context"):
                _hash(self._context)
            with session.phase("decode"):
                _hash(self._decode)


def _hash(count: int) -> None:
    update = hashlib.sha256().update
    for _ in range(count):
        update(_BLOCK)


@dataclass(frozen=True, slots=True)
class _Way:
    """A side of the race: blocks of units, each within a session of its own."""

    open_session: Open
    unit: ToyUnit
    units: int
    live: bool = True

    def block(self) -> Block:
        """Nanoseconds of each unit, without the first ones."""
        samples = []
        with self.open_session() as session:
            for _ in range(WARM_UNITS):
                self.unit.run(session)
            for _ in range(self.units):
                started = time.perf_counter_ns()
                self.unit.run(session)
                samples.append(time.perf_counter_ns() - started)
        return Block(tuple(samples), 0.0)


def time_blocks(ways: Mapping[str, Open], unit: ToyUnit, rounds: int, units: int, seed: int) -> Comparison:
    """In each round a block of `units` of each way, in random order; the sides of the comparison are the ways."""
    sides = {place: _Way(open_session, unit, units) for place, open_session in enumerate(ways.values())}
    made = take_turns(sides, random.Random(seed), lambda done: done < rounds)
    found = (Round(each.order, tuple(Samples(each.blocks[place].samples_ns) for place in sides)) for each in made)
    return Comparison(SCHEMA, now(), "", "interleaved", seed, (), tuple(found))


def way_costs(ways: Sequence[str], comparison: Comparison) -> tuple[WayCost, ...]:
    """What each way after the first costs over the first one."""

    def share(verdict: Verdict) -> Share:
        return Share(verdict.ratio - 1, verdict.low - 1, verdict.high - 1)

    blocks = replace(comparison, rounds=tuple(_as_blocks(entry) for entry in comparison.rounds))
    found = []
    for place, way in enumerate(ways[1:], 1):
        typical = decide(comparison, 0, place)
        found.append(WayCost(way, typical.b_ms, share(typical), share(decide(blocks, 0, place))))
    return tuple(found)


def _as_blocks(entry: Round) -> Round:
    return replace(entry, samples_ns=tuple(Samples([sum(side) // len(side)]) for side in entry.samples_ns))


def measure_overhead(settings: Settings, unit_ms: float, rounds: int, units: int, seed: int) -> Overhead:
    """Measure what recording with these settings costs, and with their monitors where they ask for any.

    The live display, reports and raw samples are left out, and no level is dropped.
    """
    records: dict[str, SessionRecord] = {}
    with tempfile.TemporaryDirectory(prefix="bakeoff-overhead-") as folder:
        ways = _ways(settings, folder, records)
        comparison = time_blocks(ways, ToyUnit(unit_ms), rounds, units, seed)
    costs = way_costs(list(ways), comparison)
    recorded, monitored = records.get(RECORDING), records.get(MONITORED)
    seen = monitored.monitored if monitored is not None else None
    return Overhead(
        off_ms=median([median(entry.samples_ns[0]) for entry in comparison.rounds]) / 1e6,
        ways=costs,
        limit=settings.overhead_limit,
        range_ns=recorded.cost.range_ns if recorded is not None and recorded.cost is not None else None,
        monitor=seen.cost if seen is not None else None,
        missing=seen.missing if seen is not None else (),
    )


def _ways(settings: Settings, folder: str, records: dict[str, SessionRecord]) -> dict[str, Open]:
    """How the session of a block is opened, by way; the last record of each way goes to `records`."""
    watching = replace(
        settings,
        enabled=True,
        real_time_display=False,
        generate_final_report=False,
        save_raw_data=False,
        output_dir=folder,
        overhead_limit=1.0,
    )
    alone = replace(
        watching,
        monitor_gpu_memory=False,
        monitor_gpu_utilization=False,
        monitor_gpu_temperature=False,
        monitor_gpu_power=False,
        monitor_cpu_usage=False,
        monitor_system_memory=False,
    )
    chosen = {OFF: Settings(), RECORDING: alone} | ({MONITORED: watching} if watching != alone else {})

    def opener(way: str, profiler: Profiler) -> Open:
        @contextmanager
        def opened() -> Iterator[Ranges]:
            with profiler.session("overhead") as session:
                yield session
            if session.record is not None:
                records[way] = session.record

        return opened

    return {way: opener(way, Profiler(each)) for way, each in chosen.items()}
