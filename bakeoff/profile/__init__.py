"""Profiling somebody's own pipeline: sessions of units, phases and steps, with monitors beside them.

Its short names are context managers and decorators; those of Inferix' guides are listed in docs/compat.md. Importing it
imports no torch and nothing else that is large; what is needed later is imported when it is needed.
"""

from bakeoff.profile.analyzer import DiffusionAnalyzer
from bakeoff.profile.decorators import event, parameters, phase, session, stage, step, unit
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
    "parameters",
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
