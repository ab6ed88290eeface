"""Which of the framework's operators a call runs one by one, by torch's own profiler."""

from collections import Counter
from collections.abc import Callable, Mapping

from torch.autograd.profiler import profile

_NAMESPACE = "aten::"


def dispatched(call: Callable[[], object]) -> Counter[str]:
    """ATen operators that one call dispatches from the host, nested ones too, with their number."""
    with profile() as recorded:  # torch.profiler's own would import inductor, which takes a second
        call()
    found: Counter[str] = Counter()
    for event in recorded.key_averages():
        if event.key.startswith(_NAMESPACE):
            found[event.key.removeprefix(_NAMESPACE)] += event.count
    return found


def is_eager(found: Mapping[str, int], eager: Mapping[str, int]) -> bool:
    """Whether a call runs all that plain eager runs, each operator as often at least.

    A compiler that did anything has fused, decomposed or replaced some of them: composite operators such as `linear`
    or `conv2d` never come out of one.
    """
    return bool(eager) and all(found.get(name, 0) >= count for name, count in eager.items())
