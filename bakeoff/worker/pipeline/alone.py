"""Times each program of a mix alone, in the process that runs the loop, before its first unit."""

import time

from bakeoff.record.policy import Policy
from bakeoff.record.schema import Samples
from bakeoff.worker.clocks.clock import TimingConfig, time_call
from bakeoff.worker.failures import call_stage
from bakeoff.worker.pipeline.programs import LoopProgram
from bakeoff.worker.pipeline.runner import LoopRunner
from bakeoff.worker.torch_flags import apply_flags

_WARM_UP, _FEWEST, _MOST, _LONGEST_S = 2, 5, 200, 2.0


def time_alone(runner: LoopRunner, program: LoopProgram, device: str, policy: Policy) -> Samples:
    """Calls of the program's port with the values that it was checked with. Changes windows that the loop shares, and
    outputs that it holds: open a session afterwards.

    Raises StageError where a call fails.
    """
    port = runner.ports()[program.key]
    for name, value in program.checked.sets[0].items():
        port.inputs[name].copy_(value)
    config = TimingConfig(device, policy, lambda _index, _outputs: None)
    apply_flags(program.flags)

    def call() -> tuple[()]:
        port.call()
        return ()

    for _ in range(_WARM_UP):
        call_stage(lambda: time_call(call, config))
    samples: list[int] = []
    started = time.monotonic()
    while len(samples) < _FEWEST or (len(samples) < _MOST and time.monotonic() - started < _LONGEST_S):
        samples.append(call_stage(lambda: time_call(call, config))[0])
    return Samples(samples)
