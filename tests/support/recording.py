"""Sessions that tests record: a clock that only tests move, and settings without monitors, pages and displays."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bakeoff.profile import Profiler, Session, Settings
from bakeoff.record.session import RangeTotal, SessionRecord

MS = 1_000_000


class Clock:
    """Nanoseconds that pass only by `ns +=`."""

    def __init__(self) -> None:
        self.ns = 10**15

    def __call__(self) -> int:
        return self.ns

    def ms(self, amount: float) -> None:
        self.ns += round(amount * MS)


def quiet(folder: Path) -> Settings:
    """Everything is recorded, and nothing else done: no monitor, page or display."""
    return Settings(
        enabled=True,
        monitor_gpu_memory=False,
        monitor_gpu_utilization=False,
        monitor_gpu_temperature=False,
        monitor_gpu_power=False,
        monitor_cpu_usage=False,
        monitor_system_memory=False,
        generate_final_report=False,
        output_dir=str(folder),
    )


def make_profiler(folder: Path, clock: Callable[[], int] | None = None, **changes: object) -> Profiler:
    """One with quiet settings, but for the changes, and this clock."""
    made = Profiler(replace(quiet(folder), **changes))  # type: ignore[arg-type]  # names of settings
    if clock is not None:
        made.clock = clock
        made.take_before()
    return made


def opened(profiler: Profiler, name: str = "test") -> Session:
    """A session of a profiler that is on, not yet entered."""
    made = profiler.session(name)
    assert isinstance(made, Session)
    return made


def record_of(session: object) -> SessionRecord:
    """The record of a session that has ended."""
    assert isinstance(session, Session)
    assert session.record is not None
    return session.record


def own_times(record: SessionRecord) -> dict[tuple[str, ...], int]:
    """Own nanoseconds by path; those of different kinds at one path are added."""
    found: dict[tuple[str, ...], int] = {}
    for each in record.ranges:
        found[each.path] = found.get(each.path, 0) + each.own_ns
    return found


def range_at(record: SessionRecord, *path: str) -> RangeTotal:
    """The only range at this path."""
    (found,) = [each for each in record.ranges if each.path == path]
    return found


def codes(record: SessionRecord) -> list[str]:
    """Codes of its findings, each once."""
    return list(dict.fromkeys(finding.code for finding in record.findings))
