"""The live display of a session: one line on stderr at each interval, and one at its end."""

import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bakeoff.machine.terminal import one_line
from bakeoff.models.words import counted
from bakeoff.profile.stages import Stage
from bakeoff.record.monitor import SERIES

if TYPE_CHECKING:
    from bakeoff.profile.session import Session

_PATIENCE_S = 1.0
"""Longest wait at the end for a line under way, as on a terminal that was halted by Ctrl-S."""
_PHASES, _FINDINGS = 6, 3
"""Largest numbers of phases and findings shown: the longest phases, the last findings."""


class Live:
    """The display of one session, from its making to `stop`."""

    def __init__(self, session: "Session") -> None:
        self._session, self._stream = session, sys.stderr
        self._ending = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="bakeoff live", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write the last line. A second call does nothing. Raises the error that ended the display earlier."""
        if self._ending.is_set():
            return
        self._ending.set()
        self._thread.join(_PATIENCE_S)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._ending.wait(self._session.settings.display_interval):
                self._write()
            self._write()
        except Exception as error:  # noqa: BLE001  # whatever a stream does; `stop` raises it
            self._error = error

    def _write(self) -> None:
        if self._stream is not None:
            self._stream.write(f"bakeoff: {line_of(self._session)}\n")
            self._stream.flush()


def line_of(session: "Session") -> str:
    """Return the line shown: units and rates, shares of phases so far, the monitor's last values, the last findings."""
    latest = session.latest()
    values = ", ".join(
        f"{label} {latest[name]:{',.0f' if latest[name] >= 10 else '.2g'}} {unit}".rstrip()
        for name, (label, unit) in SERIES.items()
        if name in latest
    )
    findings = [f"{finding.code}: {finding.text}" for finding in session.notes.findings()[-_FINDINGS:]]
    return one_line("; ".join(filter(None, [*_progress(session), values, *findings])))


def _progress(session: "Session") -> Iterator[str]:
    with session.lock:
        now = session.now()
        ns = session.tree.root.total_ns(now)
        phases: dict[str, int] = {}
        _add(session.tree.root, now, "", phases)
    units, (frames_per_s, units_per_s) = session.units, session.units.recent()
    frames = f", {counted(units.frames, 'frame')}" if units.frames else ""
    yield f"{session.name} {ns / 1e9:.0f} s: {counted(units.count, 'unit')}{frames}"
    rates = {"frames/s": frames_per_s, "units/s": units_per_s}
    yield ", ".join(f"lately {rate:.2f} {unit}" for unit, rate in rates.items() if rate is not None)
    unattributed = phases.pop("", 0)
    if ns > 0 and phases:
        longest = sorted(phases.items(), key=lambda pair: -pair[1])
        others = sum(own_ns for _, own_ns in longest[_PHASES:])
        shown = [*longest[:_PHASES], *([("other phases", others)] if others else []), ("unattributed", unattributed)]
        yield ", ".join(f"{name} {own_ns / ns:.1%}" for name, own_ns in shown)


def _add(stage: Stage, now: int, line: str, phases: dict[str, int]) -> None:
    """Add the own times of a stage and all within it to `phases`; steps and units count for the range around them."""
    if stage.kind not in ("session", "unit", "step"):
        line = stage.name
    phases[line] = phases.get(line, 0) + stage.own_ns(now)
    for child in list(stage.children.values()):
        _add(child, now, line, phases)
