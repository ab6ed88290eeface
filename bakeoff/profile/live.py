"""The live display of a session on stderr: redrawn in place on a terminal, else one line per interval.

A thread refreshes it. Its CPU time is limited like that of a monitor: if a refresh takes more than 0.5 % of the
interval, the interval doubles, and the display says so. A pipeline that draws progress bars of its own should not use
it.
"""

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from time import thread_time_ns
from typing import TYPE_CHECKING, Any, TextIO

from bakeoff.machine.terminal import one_line
from bakeoff.models.words import counted

if TYPE_CHECKING:
    from bakeoff.profile.recording import Snapshot
    from bakeoff.profile.session import Session

MOST_SHARE = 0.005
"""Largest CPU time of a refresh, as a share of the interval."""
_COUNTED = 3
"""Number of last refreshes of which the cheapest is compared with that share, since the first ones also load
libraries."""
_PATIENCE_S = 1.0
"""Longest wait at the end for a refresh under way, as on a terminal that was halted by Ctrl-S."""
_running: "weakref.WeakSet[Live]" = weakref.WeakSet()
_is_registered: list[bool] = []


class Live:
    """The display of one session, from `start` to `stop`."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._asked_s = session.settings.display_interval
        self.interval_s = self._asked_s
        """Present interval, longer than the requested one if a refresh costs too much."""
        self._costs: deque[int] = deque(maxlen=_COUNTED)
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._stream: TextIO | None = None
        self._drawn: Any = None
        """rich's Live; None if lines are written."""
        self._replaced: dict[str, tuple[Any, Any]] = {}
        """The streams `sys.stdout` and `sys.stderr`: each as it was, and rich's replacement, which prints above the
        display."""

    def start(self) -> None:
        """Start the display, unless stderr is missing, rank 0 shows it, or this process shows another session.

        Raises what drawing raises.
        """
        rank = self._session.rank
        self._stream = sys.stderr
        if self._stream is None or _running or (rank is not None and rank.rank != 0):
            return
        if self._stream.isatty():
            self._draw(self._stream)
        _running.add(self)
        self._thread = threading.Thread(target=self._run, name="bakeoff live", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Show the last state and restore the terminal. A second call does nothing.

        Raises the error that ended the display earlier.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._ending.set()
        try:
            thread.join(_PATIENCE_S)
            if not thread.is_alive() and self._error is None:
                self._refresh()
        finally:
            self._release(thread.is_alive())
        if self._error is not None:
            raise self._error

    def _draw(self, stream: TextIO) -> None:
        """Begin to draw if the terminal can move its cursor."""
        from rich.console import Console
        from rich.live import Live as Drawn

        console = Console(file=stream, force_jupyter=False)
        if not console.is_terminal or console.is_dumb_terminal:
            return
        if not _is_registered:
            _is_registered.append(True)
            os.register_at_fork(after_in_child=_put_all_back)
        before = {name: getattr(sys, name) for name in ("stdout", "stderr")}
        self._drawn = Drawn(
            console=console,
            auto_refresh=False,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
            redirect_stderr=True,
        )
        self._drawn.start()
        self._replaced = {name: (stream, getattr(sys, name)) for name, stream in before.items()}
        console.show_cursor(True)  # nothing is to be repaired where the process is killed

    def _run(self) -> None:
        try:
            while not self._ending.wait(self.interval_s):
                began_ns = thread_time_ns()
                self._refresh()
                self._back_off_if_slow(thread_time_ns() - began_ns)
        except Exception as error:  # noqa: BLE001  # whatever the terminal or a stream does; `stop` raises it
            self._error = error
            self._put_back()

    def _back_off_if_slow(self, ns: int) -> None:
        """Double the interval if the last refreshes, of which the latest took `ns`, took too much of it."""
        self._costs.append(ns)
        if len(self._costs) == _COUNTED and min(self._costs) > MOST_SHARE * self.interval_s * 1e9:
            self.interval_s *= 2
            self._costs.clear()

    def _refresh(self) -> None:
        lines = lines_of_snapshot(self._session.snapshot())
        if self.interval_s > self._asked_s:
            lines.append(f"shown every {self.interval_s:g} s: more often would cost over {MOST_SHARE:.1%} of a core")
        if self._drawn is not None:
            from rich.text import Text

            self._drawn.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)
        elif self._stream is not None:
            self._stream.write(f"bakeoff: {'; '.join(lines)}\n")
            self._stream.flush()

    def _release(self, is_stuck: bool) -> None:
        """End drawing and restore the streams.

        If a refresh is stuck, it holds rich's locks: then only restore the streams.
        """
        _running.discard(self)
        drawn, self._drawn = self._drawn, None
        others = {name: getattr(sys, name) for name, (_, ours) in self._replaced.items()}
        others = {name: stream for name, stream in others.items() if stream is not self._replaced[name][1]}
        try:
            if drawn is not None and not is_stuck:
                drawn.stop()
        finally:
            self._put_back()
            for name, stream in others.items():  # rich puts back its own whatever is there
                setattr(sys, name, stream)

    def _put_back(self) -> None:
        """Restore `sys.stdout` and `sys.stderr`, unless other code has replaced them since."""
        replaced, self._replaced = self._replaced, {}
        for name, (before, ours) in replaced.items():
            if getattr(sys, name) is ours:
                setattr(sys, name, before)


def _put_all_back() -> None:
    """Restore the streams in a forked child, where no thread would release rich's locks."""
    for live in list(_running):
        live._put_back()


_PHASES, _FINDINGS = 6, 3
"""Largest numbers of phases and findings shown: the longest phases, the last findings."""
_REST = "unattributed"
_LATEST: Mapping[str, str] = {
    "gpu.memory": "GPU {:,.0f} MiB",
    "gpu.power": "{:.0f} W",
    "gpu.busy": "some kernel ran {:.0f} %",
    "gpu.sm_active": "SMs active {:.0f} %",
    "gpu.temperature": "{:.0f} C",
    "cpu.process": "process {:.0f} % of a core",
    "cpu.process_memory": "{:,.0f} MiB",
}


def lines_of_snapshot(now: "Snapshot") -> list[str]:
    """Return the lines shown: units and rates, shares of phases so far, the monitor's last values, the last
    findings."""
    shown = [_progress(now), _shares(now), _values(now.latest), *_findings(now)]
    return [one_line(line) for line in shown if line]


def _progress(now: "Snapshot") -> str:
    frames = f", {counted(now.frames, 'frame')}" if now.frames else ""
    rates = []
    if now.frames_per_s is not None:
        rates.append(f"{now.frames_per_s:.2f} frames/s")
    if now.units_per_s is not None:
        rates.append(f"{now.units_per_s:.2f} units/s")
    lately = f"; lately {', '.join(rates)}" if rates else ""
    return f"{now.name} {now.ns / 1e9:.0f} s: {counted(now.units, 'unit')}{frames}{lately}"


def _shares(now: "Snapshot") -> str:
    """Return the shares of the longest phases so far, then those of all other phases and of unattributed time."""
    if now.ns <= 0 or not now.phases:
        return ""
    longest = sorted(now.phases.items(), key=lambda pair: -pair[1])
    shown = longest[:_PHASES]
    left = sum(ns for _, ns in longest[_PHASES:])
    others = [("other phases", left)] if left else []
    return ", ".join(f"{name} {ns / now.ns:.1%}" for name, ns in [*shown, *others, (_REST, now.unattributed_ns)])


def _values(latest: Mapping[str, float]) -> str:
    return ", ".join(text.format(latest[name]) for name, text in _LATEST.items() if name in latest)


def _findings(now: "Snapshot") -> list[str]:
    return [f"{finding.code}: {finding.text}" for finding in now.findings[-_FINDINGS:]]
