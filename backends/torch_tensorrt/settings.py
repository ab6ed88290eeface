"""Settings of torch_tensorrt that both backends use; its versions differ in which they have.

2.11 and 2.12 have `use_explicit_typing` and `enabled_precisions`, 2.13 has neither and ignores both. Precision is the
module's own, which was cast before; TensorRT keeps it (strong typing).
"""

from collections.abc import Collection, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bakeoff.backends.backend import BuildContext, Unsupported

LEVELS = range(6)
"""Optimisation levels of TensorRT's builder."""


def settings(wanted: Mapping[str, Any], known: Collection[str], context: BuildContext) -> dict[str, Any]:
    """What torch_tensorrt is to be called with: what was asked for, and what each build here gets.

    `known` are the settings that this version has. It raises for none that it does not know but drops them
    (dynamo/utils.py, parse_dynamo_kwargs; dynamo/_compiler.py takes any keyword), so that Unsupported is raised here.
    """
    chosen: dict[str, Any] = {
        **wanted,
        "pass_through_build_failures": True,  # else a build that fails is PyTorch's own graph, in silence
        "disable_tf32": context.dtype != "tf32",
        "timing_cache_path": str(context.cache_dir / "timing.bin"),
    }
    if "use_explicit_typing" in known:
        # Before 2.13. Its decompositions take attention apart in ways that TensorRT has no converter for.
        chosen |= {"use_explicit_typing": True, "decompose_attention": True}
    strangers = sorted(chosen.keys() - set(known))
    if strangers:
        raise Unsupported(f"torch_tensorrt {version('torch_tensorrt')} has no setting {', '.join(strangers)}")
    return chosen


def cache_settings(cache_dir: Path) -> dict[str, Any]:
    """Its engine cache, which keeps refittable engines alone and tells graphs apart by operators and shapes.

    It looks past an operator's arguments (dynamo/_engine_cache.py, canonicalize_graph): only one variant may share it.
    """
    return {
        "immutable_weights": False,
        "cache_built_engines": True,
        "reuse_cached_engines": True,
        "engine_cache_dir": str(cache_dir / "engines"),
    }


def unsupported_settings(level: int, min_block_size: int) -> str | None:
    """Why TensorRT has no such optimisation level or block size; None if it has."""
    if level not in LEVELS:
        return f"TensorRT has no optimization_level={level}; give {LEVELS[0]} to {LEVELS[-1]}"
    return None if min_block_size >= 1 else f"min_block_size={min_block_size} is too small; give 1 or more operators"
