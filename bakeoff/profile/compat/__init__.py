"""Names of Inferix' profiling module, so that a pipeline that uses it runs here with its imports changed.

See docs/compat.md for what each does here.
"""

from bakeoff.profile.compat.analyzer import DiffusionAnalyzer
from bakeoff.profile.compat.config import ProfilingConfig
from bakeoff.profile.compat.decorators import (
    add_profiling_event,
    profile_block_computation,
    profile_diffusion_step,
    profile_layer,
    profile_method,
    profile_model_parameters,
    profile_session,
    profile_streaming,
)
from bakeoff.profile.compat.profiler import InferixProfiler
from bakeoff.profile.compat.reports import aggregate_reports

__all__ = [
    "DiffusionAnalyzer",
    "InferixProfiler",
    "ProfilingConfig",
    "add_profiling_event",
    "aggregate_reports",
    "profile_block_computation",
    "profile_diffusion_step",
    "profile_layer",
    "profile_method",
    "profile_model_parameters",
    "profile_session",
    "profile_streaming",
]
