"""Profiling of a user's own pipeline: sessions of units, phases and steps, and a monitor of the machine.

The short names are context managers and decorators; the names of Inferix' guides are listed in docs/compat.md.
Importing this package imports neither torch nor any other large library; they are imported when they are first needed.
"""

from bakeoff.profile.analyzer import DiffusionAnalyzer
from bakeoff.profile.decorators import event, phase, session, stage, step, unit
from bakeoff.profile.guides import (
    add_profiling_event,
    profile_block_computation,
    profile_diffusion_step,
    profile_method,
    profile_model_parameters,
    profile_session,
)
from bakeoff.profile.profiler import InferixProfiler, Profiler, configure
from bakeoff.profile.ranks import aggregate_reports
from bakeoff.profile.session import NO_SESSION, NoSession, Session, current
from bakeoff.profile.settings import ProfilingConfig, Settings

__all__ = [
    "NO_SESSION",
    "DiffusionAnalyzer",
    "InferixProfiler",
    "NoSession",
    "Profiler",
    "ProfilingConfig",
    "Session",
    "Settings",
    "add_profiling_event",
    "aggregate_reports",
    "configure",
    "current",
    "event",
    "phase",
    "profile_block_computation",
    "profile_diffusion_step",
    "profile_method",
    "profile_model_parameters",
    "profile_session",
    "session",
    "stage",
    "step",
    "unit",
]
