"""What recording costs: stand-ins whose cost is known are found, and the real thing is cheap."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest
from session_overhead import (
    MONITORED,
    OFF,
    RANGES,
    RECORDING,
    WARM_UNITS,
    Overhead,
    ToyUnit,
    WayCost,
    measure_overhead,
    time_blocks,
    way_costs,
)

from bakeoff.profile.settings import Settings
from bakeoff.record.schema import SCHEMA, Comparison, Round, Samples


class Costly:
    """A session whose ranges each take some seconds of this thread; one of 0 records nothing."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.ranges = seconds, 0

    @contextmanager
    def _range(self) -> Iterator[None]:
        self.ranges += 1
        until = time.perf_counter() + self.seconds
        while time.perf_counter() < until:
            pass
        yield

    def unit(self, frames: int = 0, latents: int = 0) -> AbstractContextManager[object]:  # noqa: ARG002
        return self._range()

    def phase(self, name: str) -> AbstractContextManager[object]:  # noqa: ARG002
        return self._range()

    def step(self, index: int, timestep: float) -> AbstractContextManager[object]:  # noqa: ARG002
        return self._range()


def too_dear(*ways: WayCost) -> list[str]:
    return Overhead(20.0, ways, 0.01, None, None, ()).too_dear()


def test_a_costly_range_is_found() -> None:
    ways = {OFF: Costly(), RECORDING: Costly(0.001)}
    opened = {way: lambda session=session: nullcontext(session) for way, session in ways.items()}
    comparison = time_blocks(opened, ToyUnit(5.0), rounds=12, units=5, seed=7)
    assert {entry.order for entry in comparison.rounds} == {(0, 1), (1, 0)}, "in random order"
    assert {session.ranges for session in ways.values()} == {RANGES * 12 * (5 + WARM_UNITS)}
    (canary,) = way_costs(list(ways), comparison)
    assert canary.typical.share > 0.3, "8 ms in units of 5, or of more where other tests run at the same time"
    assert canary.typical.low <= canary.typical.share <= canary.typical.high
    assert too_dear(canary) == [RECORDING]


def measured(*sides: list[float]) -> tuple[WayCost, ...]:
    """Costs by twelve rounds with these units in milliseconds, a list for each way, the first without recording."""
    entry = Round(tuple(range(len(sides))), tuple(Samples(round(ms * 1e6) for ms in side) for side in sides))
    comparison = Comparison(SCHEMA, "", "", "interleaved", 7, (), (entry,) * 12)
    return way_costs([OFF, RECORDING, MONITORED][: len(sides)], comparison)


def test_what_happens_once_in_many_units_counts_in_whole_blocks() -> None:
    (rare,) = measured([20.0] * 9, [*([20.0] * 8), 38.0])
    assert rare.typical.share == pytest.approx(0)
    assert rare.whole.share == pytest.approx(0.1)
    assert too_dear(rare) == [RECORDING]


@pytest.mark.alone
@pytest.mark.timeout(240)
def test_recording_with_monitors_is_not_shown_to_cost_a_percent() -> None:
    """Units of 20 ms. Whether the whole interval is below 1 % depends on how quiet a machine is, so that is no test:
    tests/trials/session_overhead.py says it of a machine. A costly recording is costly each time; other machines of
    this host, which may take its CPUs at any time, are not."""
    for seed in range(4):
        found = measure_overhead(Settings(), 20.0, rounds=12, units=6, seed=seed)
        assert [cost.way for cost in found.ways] == [RECORDING, MONITORED]
        assert found.range_ns is not None
        assert 0 < found.range_ns < 1e6
        assert found.monitor is not None
        assert found.monitor.samples > 0
        cheap = all(cost.typical.low < 0.01 and cost.typical.share < 0.03 for cost in found.ways)
        if cheap and not found.too_dear():
            return
    raise AssertionError(found)
