"""What a torch that the pipeline has imported is doing: whether it profiles, and how much it has compiled.

Nothing here imports torch; every function asks the modules that are loaded, in well below a microsecond.
"""

import sys
from contextlib import ExitStack
from typing import Any

_MODULES = sys.modules


def compiled() -> int:
    """A count that grows whenever torch.compile compiles in this process; 0 where it was never used.

    Frames that it tried, and graphs that it made: with `fullgraph=True` it counts no frames.
    """
    utils = _MODULES.get("torch._dynamo.utils")
    counters: Any = getattr(utils, "counters", None)
    if not counters:
        return 0
    frames, stats = counters.get("frames"), counters.get("stats")
    return (frames.get("total", 0) if frames else 0) + (stats.get("unique_graphs", 0) if stats else 0)


def is_profiling() -> bool:
    """Whether a torch profiler records. Only then is a `record_function` entered: within compiled code one costs as
    much as a small program (https://github.com/pytorch/pytorch/issues/163747)."""
    profiler = _MODULES.get("torch.autograd.profiler")
    return profiler is not None and getattr(profiler, "_is_profiler_enabled", False) is True


def annotate(name: str, nvtx: bool) -> ExitStack:
    """Open a range of this name in a profiler that records, and in NVTX if asked.

    Whatever torch raises here is left to the caller.
    """
    opened = ExitStack()
    if is_profiling():
        opened.enter_context(_MODULES["torch.autograd.profiler"].record_function(name))
    cuda = _MODULES.get("torch.cuda") if nvtx else None
    if cuda is not None and cuda.is_available():
        cuda.nvtx.range_push(name)
        opened.callback(cuda.nvtx.range_pop)
    return opened
