"""Which of the framework's operators a call runs one by one, by torch's own profiler."""

from collections import Counter
from collections.abc import Callable, Mapping

import torch

_NAMESPACE = "aten::"


def dispatched(call: Callable[[], object]) -> Counter[str]:
    """ATen operators that one call dispatches from the host, nested ones too, with their number."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    found: Counter[str] = Counter()
    for event in profile.key_averages():
        if event.key.startswith(_NAMESPACE):
            found[event.key.removeprefix(_NAMESPACE)] += event.count
    return found


def is_eager(found: Mapping[str, int], eager: Mapping[str, int]) -> bool:
    """Whether a call runs all that plain eager runs, each operator as often at least.

    A compiler that did anything has fused, decomposed or replaced some of them: composite operators such as `linear`
    or `conv2d` never come out of one.
    """
    return bool(eager) and all(found.get(name, 0) >= count for name, count in eager.items())
