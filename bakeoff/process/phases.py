"""The phases of a worker: what the progress line says of each, and which deadline each has.

A worker announces a phase when it enters it; the parent announces those that no worker is in ("start", "rounds").
A phase ends when the next one is announced.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bakeoff.record.session import UnitKind

DeadlineClass = Literal["startup", "build", "reference", "phase"]
"""Which limit of a sweep's policy applies: `startup_deadline_s`, the row's build deadline, the longer of that one and
`phase_deadline_s` (no compiler can be blamed for a reference), or `phase_deadline_s`."""


@dataclass(frozen=True, slots=True)
class PhaseInfo:
    """Facts about one phase."""

    text: str
    """Text of the progress line while it lasts."""
    deadline: DeadlineClass = "phase"
    by_step: bool = False
    """Whether the deadline is that of one step: each report of progress within the phase starts it anew."""


PHASES: Mapping[str, PhaseInfo] = {
    "start": PhaseInfo("starting a worker", "startup"),
    "import": PhaseInfo("importing torch", "startup"),
    "weights": PhaseInfo("making weights and inputs", "reference"),
    "build": PhaseInfo("compiling, up to the first call", "build"),
    "prove": PhaseInfo("collecting backend statistics"),
    "check": PhaseInfo("comparing outputs with the reference"),
    "turn": PhaseInfo("built; waiting until nothing else runs"),
    "warm-up": PhaseInfo("waiting for steady state"),
    "latency": PhaseInfo("timing calls"),
    "throughput": PhaseInfo("timing calls"),
    "memory": PhaseInfo("measuring memory"),
    "fresh inputs": PhaseInfo("calling with fresh inputs"),
    "sizes": PhaseInfo("calling at other sizes", "build"),
    "reference": PhaseInfo("computing reference outputs", "reference"),
    "traced build": PhaseInfo("building an engine to trace", "build"),
    "trace": PhaseInfo("profiling kernels", "build"),
    "ready": PhaseInfo("ready"),
    "block": PhaseInfo("running a block of calls"),
    "loop reference": PhaseInfo("running the loop in eager and high precision", "reference", by_step=True),
    "loop check": PhaseInfo("comparing units of the loop with the reference", by_step=True),
    "bind": PhaseInfo("binding programs to the loop's memory", "build"),
    "opening": PhaseInfo("opening a session"),
    "unit": PhaseInfo("running units"),
    "rounds": PhaseInfo("rounds"),
    "profile": PhaseInfo("tracing units; nothing is timed any more", "build"),
    "headers": PhaseInfo("precompiling torch's C++ headers, once for all builds", "build"),
    "ceilings": PhaseInfo("measuring the peak rates of this device"),
    "clock": PhaseInfo("checking the clock against a busy wait and torch's timer"),
    "open": PhaseInfo("checking the artifact's files and loading it"),
    "sample": PhaseInfo("calling the artifact with its sample"),
    "conditions": PhaseInfo("calling the artifact under a condition of use"),
    "timing": PhaseInfo("timing calls"),
    "load": PhaseInfo("loading your file and calling your function"),
    "passes": PhaseInfo("timing passes, with and without instrumentation"),
    "recording": PhaseInfo("recording the inputs of modules"),
}


TIMED = ("latency", "throughput")
"""Phases whose calls are sampled."""


def phase_text(phase: str) -> str:
    """Return a phase's text on the progress line; the phase's own name if the table lacks it, as for a backend's
    phases."""
    return PHASES[phase].text if phase in PHASES else phase


def is_by_step(phase: str) -> bool:
    """Return whether each report of progress within the phase starts its deadline anew."""
    return phase in PHASES and PHASES[phase].by_step


@dataclass(frozen=True, slots=True)
class Block:
    """One block of timed calls, as one side of a comparison sends it with the phase "block"."""

    samples_ns: tuple[int, ...]
    """Time of each call, in nanoseconds."""
    idle_cpu_s: float
    """CPU time that the process took while it was idle before this block, in seconds."""
    kind: str = ""
    """Kind of a pipeline's unit, which is a block of one sample: opening, filling or steady."""
    resumed: int = 0
    """How many of its first units find threads asleep and caches cold after the pause before it, and do not count."""
    calls_per_sample: int = 1
    """More than one if calls were queued; a sample is then the time per call."""

    @property
    def seconds(self) -> float:
        """Time that its timed calls took together."""
        return sum(self.samples_ns) * self.calls_per_sample / 1e9


@dataclass(frozen=True, slots=True)
class UnitStamp:
    """One unit of a sustained run, as a worker reports it when the unit is ready."""

    started_ns: int
    """By the worker's clock, in nanoseconds from any start."""
    wall_ns: int
    frames: int
    kind: UnitKind
    session: int
    opened_ns: int
    """Time to open its session; 0 if the session was open."""
