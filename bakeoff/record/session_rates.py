"""Frames and units a second of a session and its energy, computed from its record and never stored."""

from dataclasses import dataclass
from typing import Literal

from bakeoff.record.monitor import DeviceEnergy
from bakeoff.record.session import SessionRecord


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates over the wall time of units; what lies between units does not count."""

    fps: float | None
    """Frames of these units over their wall time; None without units, and where none tells its frames."""
    bps: float | None
    """Units (blocks) over the same time; None without units."""
    of: Literal["steady", "all"]
    """`all` where no unit was steady: opening, filling and compiling units are then among them."""


def rates(record: SessionRecord) -> Rates:
    """Rates of the steady units, or of all units where none is steady."""
    steady = [totals for totals in record.units if totals.kind == "steady" and totals.count]
    chosen = steady or list(record.units)
    wall_ns = sum(totals.wall_ns for totals in chosen)
    frames = sum(totals.frames for totals in chosen)
    count = sum(totals.count for totals in chosen)
    return Rates(
        fps=frames * 1e9 / wall_ns if wall_ns and frames else None,
        bps=count * 1e9 / wall_ns if wall_ns and count else None,
        of="steady" if steady else "all",
    )


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of one device over the session. Devices are not added up: a domain may hold another one."""

    device: str
    joules: float | None
    """By the device's own counter, else the integral of its power; None is unknown."""
    watt_hours: float | None
    joules_a_frame: float | None
    """Over the frames of all units, and all time of the session."""
    source: Literal["counter", "integral", ""]


def energies(record: SessionRecord) -> tuple[Energy, ...]:
    """Of each device that the monitor watched."""
    frames = sum(totals.frames for totals in record.units)
    return tuple(_energy(each, frames) for each in (record.monitored.energy if record.monitored is not None else ()))


def _energy(energy: DeviceEnergy, frames: int) -> Energy:
    if energy.mj is None:
        return Energy(energy.device, None, None, None, "")
    joules = energy.mj / 1000
    source: Literal["counter", "integral"] = "counter" if energy.counter_mj is not None else "integral"
    return Energy(energy.device, joules, joules / 3600, joules / frames if frames else None, source)
