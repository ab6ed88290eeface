"""One side of a comparison: which calls of a block are its samples, and which are looked at."""

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch", reason="a worker's modules import it")

from bakeoff.backends.backend import Outputs
from bakeoff.process.phases import Block
from bakeoff.process.supervisor import Event
from bakeoff.record.policy import Policy
from bakeoff.worker.checks.window import WindowChecker
from bakeoff.worker.clocks.clock import TimingConfig
from bakeoff.worker.compare import _run_blocks
from bakeoff.worker.device import GpuWatch
from bakeoff.worker.reporter import Reporter


class References:
    """Keeps the sets whose outputs are compared."""

    def __init__(self) -> None:
        self.compared: list[int] = []

    def differences(self, index: int, _outputs: object, _when: str = "") -> list[Any]:
        self.compared.append(index)
        return []


def run(queued: bool, calls: Sequence[Callable[[], Outputs]], commands: bytes, checker: WindowChecker) -> list[Block]:
    config = TimingConfig("cpu", Policy(), lambda _index, _outputs: None)
    read, told = os.pipe()
    events, written = os.pipe()
    os.write(told, commands)
    _run_blocks(queued, calls, config, checker, GpuWatch(), read, Reporter(written))
    for descriptor in (told, written):
        os.close(descriptor)
    with os.fdopen(events, "rb") as lines:
        blocks = [msgspec.json.decode(line, type=Event).block for line in lines]
    return [block for block in blocks if isinstance(block, Block)]


@pytest.mark.parametrize(("queued", "samples"), [(False, [3, 2]), (True, [1, 1])])
def test_a_block_is_as_many_calls_as_asked_for_after_one_that_is_no_sample(queued: bool, samples: list[int]) -> None:
    made = itertools.count()

    def call() -> Outputs:
        next(made)
        return ()

    references: Any = References()
    blocks = run(queued, (call, call), b"3\n2\nstop\n", WindowChecker(references, (), 1))
    assert [len(block.samples_ns) for block in blocks] == samples
    assert next(made) == 4 + 3, "the first of each finds the caches as another side left them"


@pytest.mark.parametrize("queued", [False, True])
def test_in_each_block_the_outputs_of_a_call_that_is_drawn_are_compared(queued: bool) -> None:
    import torch

    references: Any = References()
    checker = WindowChecker(references, (), 1)
    run(queued, [lambda: (torch.zeros(1),)] * 4, b"7\n" * 20 + b"stop\n", checker)
    assert checker.record.compared == len(references.compared) == 20
    assert len(set(references.compared)) > 1


def test_checks_within_the_blocks_take_a_twentieth_of_the_calls() -> None:
    import torch

    made = itertools.count()

    def call() -> Outputs:
        next(made)
        return (torch.zeros(1),)

    references: Any = References()
    checker = WindowChecker(references, (), 1)
    checker.begin_blocks(1e6)
    run(False, [call] * 4, b"50\n" * 100 + b"stop\n", checker)
    added = next(made) / (51 * 100) - 1
    assert 0.01 < added < 0.1
    assert checker.record.compared > 100, "a call of each block, and the checks"
