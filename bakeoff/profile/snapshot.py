"""What a session shows of itself while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass

from bakeoff.profile.recording import Recording
from bakeoff.profile.stages import Stage
from bakeoff.record.finding import Finding


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a session now."""

    name: str
    ns: int
    """Since its start."""
    units: int
    frames: int
    frames_per_s: float | None
    """Of the last 20 units, as `units_per_s`; None without units, and where none tells its frames."""
    units_per_s: float | None
    phases: Mapping[str, int]
    """Nanoseconds by phase so far, without the phases within them and with their steps; ranges outside units too."""
    unattributed_ns: int
    """The rest: `phases` and it add up to `ns`."""
    findings: tuple[Finding, ...]
    latest: Mapping[str, float]
    """Last value of each series of the monitor; empty without one."""


def take_snapshot(name: str, recording: Recording, latest: Mapping[str, float]) -> Snapshot:
    with recording.lock:
        now = recording.now()
        phases: dict[str, int] = {}
        _add(recording.tree.root, now, "", phases)
        ns = recording.tree.root.total_ns(now)
    frames_per_s, units_per_s = recording.units.recent()
    return Snapshot(
        name=name,
        ns=ns,
        units=recording.units.count,
        frames=recording.units.frames,
        frames_per_s=frames_per_s,
        units_per_s=units_per_s,
        unattributed_ns=phases.pop("", 0),
        phases=phases,
        findings=recording.notes.findings(),
        latest=latest,
    )


def _add(stage: Stage, now: int, line: str, phases: dict[str, int]) -> None:
    """Own times of a stage and all within it by line: a step's is the phase it is in, a unit's the rest."""
    if stage.kind not in ("session", "unit", "step"):
        line = stage.name
    phases[line] = phases.get(line, 0) + stage.own_ns(now)
    for child in list(stage.children.values()):
        _add(child, now, line, phases)
