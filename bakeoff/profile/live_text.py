"""What the live display says of a session, as plain text."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bakeoff.machine.terminal import one_line
from bakeoff.models.words import counted

if TYPE_CHECKING:
    from bakeoff.profile.snapshot import Snapshot

_PHASES, _FINDINGS = 6, 3
"""Shown at most: the longest phases, the last findings."""
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
    """The unit and the rates, shares of phases so far, the monitor's last values, the last findings."""
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
    """Of the session so far, the longest first; those that are left out are in the last figure."""
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
