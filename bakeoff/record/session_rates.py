"""Frames and units a second of a session, computed from its record and never stored."""

from dataclasses import dataclass
from typing import Literal

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
