"""The inputs of a brought model in a loop of one call of it."""

from collections.abc import Callable
from functools import lru_cache

from torch import Tensor

from bakeoff.worker.brought.network import Network, open_network


def given(_session: int, _unit: int, draw: Callable[..., Tensor], folder: str, workload: str, name: str) -> Tensor:
    """Input `name` of the workload: one of the recorded calls, or where there is one alone, values like it."""
    network = _network(folder)
    config = network.component.presets[0].config
    inputs = network.inputs(network.component.workload(config, workload, 1))
    number = int(
        draw("inputs", (1,), "uniform").item() * 2**24
    )  # by the loop's seed and session; the same for all names
    return inputs.checked(number, number % inputs.checked_calls if inputs.checked_calls > 1 else 1)[name]


@lru_cache(maxsize=4)
def _network(folder: str) -> Network:
    return open_network(folder)
