"""What feeding an engine that replays a captured graph takes: copies of the inputs into the buffers that it reads."""

import time
from collections.abc import Mapping

from torch import Tensor

from bakeoff.backends.backend import Engine, Outputs
from bakeoff.record.schema import InputCopy, Samples
from bakeoff.worker.checks.changed_inputs import write
from bakeoff.worker.checks.memory import tensors_bytes
from bakeoff.worker.clocks.clock import TimingConfig, time_call

_WARM_UP, _FEWEST, _MOST, _LONGEST_S = 3, 20, 500, 1.0


def measure_input_copy(
    engine: Engine, buffers: Mapping[str, Tensor], values: Mapping[str, Tensor], config: TimingConfig
) -> InputCopy | None:
    """Time copies of `values` into `buffers`, those that the engine's calls read; None where nothing is captured.

    All inputs are copied, one after the other as with a port: of a step's inputs all are new, and state that the last
    step returned has to be moved to where the graph reads it. Where the calls copy, nothing is timed. Overwrites
    `buffers`.
    """
    size = tensors_bytes(values.values())
    if engine.copies_inputs():
        return InputCopy(True, size)
    if not engine.captures():
        return None

    def copy() -> Outputs:
        write(buffers, values)
        return ()

    for _ in range(_WARM_UP):
        copy()
    samples: list[int] = []
    started = time.monotonic()
    while len(samples) < _FEWEST or (len(samples) < _MOST and time.monotonic() - started < _LONGEST_S):
        samples.append(time_call(copy, config)[0])
    return InputCopy(False, size, Samples(samples))
