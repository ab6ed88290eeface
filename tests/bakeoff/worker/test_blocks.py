"""One side of a comparison: which calls of a block are its samples."""

import itertools
import os
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch", reason="a worker's modules import it")

from bakeoff.backends.backend import Outputs
from bakeoff.process.phases import Block
from bakeoff.process.supervisor import Event
from bakeoff.record.policy import Policy
from bakeoff.worker.clocks.clock import TimingConfig
from bakeoff.worker.compare import _run_blocks
from bakeoff.worker.device import GpuWatch
from bakeoff.worker.reporter import Reporter


@pytest.mark.parametrize(("queued", "samples"), [(False, [3, 2]), (True, [1, 1])])
def test_a_block_is_as_many_calls_as_asked_for_after_one_that_is_no_sample(queued: bool, samples: list[int]) -> None:
    made = itertools.count()

    def call() -> Outputs:
        next(made)
        return ()

    checked: Any = SimpleNamespace(built=SimpleNamespace(calls=(call, call)))
    config = TimingConfig("cpu", Policy(), lambda _index, _outputs: None)
    commands, told = os.pipe()
    events, written = os.pipe()
    os.write(told, b"3\n2\nstop\n")
    _run_blocks(queued, checked, config, GpuWatch(), commands, Reporter(written))
    for descriptor in (told, written):
        os.close(descriptor)
    with os.fdopen(events, "rb") as lines:
        blocks = [msgspec.json.decode(line, type=Event).block for line in lines]
    assert [len(block.samples_ns) for block in blocks if isinstance(block, Block)] == samples
    assert next(made) == 4 + 3, "the first of each finds the caches as another side left them"
