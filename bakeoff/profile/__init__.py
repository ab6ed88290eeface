"""Profiling somebody's own pipeline: sessions of units, phases and steps, with monitors beside them.

Importing it imports no torch and nothing else that is large; what is needed later is imported when it is needed.
"""

from bakeoff.profile.decorators import event, parameters, phase, session, stage, step, unit
from bakeoff.profile.profiler import Profiler, configure
from bakeoff.profile.session import NO_SESSION, NoSession, Session, current
from bakeoff.profile.settings import Settings

__all__ = [
    "NO_SESSION",
    "NoSession",
    "Profiler",
    "Session",
    "Settings",
    "configure",
    "current",
    "event",
    "parameters",
    "phase",
    "session",
    "stage",
    "step",
    "unit",
]
