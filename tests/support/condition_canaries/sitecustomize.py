"""Put on the path of a worker: programs of torch.export are wrong under one condition of use, as CANARY_FAULT says."""

import asyncio
import os
import queue
import signal
import threading
import time
import zlib

from bakeoff.backends import torch_export
from bakeoff.export import loader

_honest_open, _honest_call = torch_export._open, loader.Program.__call__
_opened = []


def _noise(outputs):
    return tuple(-output for output in outputs)


def shares_scratch(run, _path):
    """All calls compute from one list of inputs."""
    scratch = []

    def call(tensors):
        scratch[:] = tensors
        time.sleep(0.001)
        return run(scratch)

    return call


def captures_for_its_thread(run, _path):
    """As graphs of CUDA that inductor keeps for each thread: right where it was opened (debpalash/VoiceStudio#343)."""
    state = threading.local()
    state.captured = True
    return lambda tensors: run(tensors) if hasattr(state, "captured") else _noise(run(tensors))


def dies_in_another_thread(run, _path):
    owner = threading.get_ident()
    return lambda tensors: run(tensors) if threading.get_ident() == owner else os.kill(os.getpid(), signal.SIGSEGV)


def computes_in_a_thread_of_its_own(run, _path):
    """In a fork that thread does not exist, and a call waits for ever; the loader does not refuse it."""
    asked, made = queue.Queue(), queue.Queue()

    def serve():
        while True:
            made.put(run(asked.get()))

    threading.Thread(target=serve, daemon=True).start()

    def call(tensors):
        asked.put(tensors)
        return made.get()

    def without_guard(self, *unnamed, **inputs):
        object.__setattr__(self, "_process", os.getpid())
        return _honest_call(self, *unnamed, **inputs)

    loader.Program.__call__ = without_guard
    return call


def belongs_to_the_first_process(run, _path):
    """What a started process inherits says that another one holds the device."""
    owner = os.environ.setdefault("CANARY_OWNER", str(os.getpid()))
    return lambda tensors: run(tensors) if owner == str(os.getpid()) else _noise(run(tensors))


def runs_a_loop_of_its_own(run, _path):
    async def later(tensors):
        return run(tensors)

    def call(tensors):
        made = later(tensors)
        try:
            return asyncio.run(made)
        finally:
            made.close()

    return call


def is_one_of_a_kind(run, _path):
    """A program that is opened takes the memory of the one before it."""
    _opened.append(run)
    return lambda tensors: run(tensors) if _opened[-1] is run else _noise(run(tensors))


def splits_for_its_first_threads(run, _path):
    import torch

    first = []

    def call(tensors):
        first.append(torch.get_num_threads())
        return run(tensors) if first[-1] == first[0] else _noise(run(tensors))

    return call


def remembers_inputs_by_version(run, _path):
    """Tensors of inference mode have no version."""

    def call(tensors):
        assert [tensor._version for tensor in tensors]
        return run(tensors)

    return call


def ignores_strides(run, _path):
    import torch

    def contiguous(tensor):
        return torch.as_strided(tensor, tensor.shape, torch.empty(tensor.shape).stride(), tensor.storage_offset())

    loader.laid_out = lambda tensor, _order: tensor
    return lambda tensors: run([contiguous(tensor) for tensor in tensors])


def returns_its_own_buffers(run, _path):
    """As a static output of a captured graph (hao-ai-lab/FastVideo#1650)."""
    held = []

    def call(tensors):
        outputs = run(tensors)
        held.extend(output.clone() for output in outputs[len(held) :])
        return tuple(kept.copy_(output) for kept, output in zip(held, outputs, strict=True))

    return call


def reads_its_file_in_each_call(run, path):
    first = zlib.crc32(path.read_bytes())
    return lambda tensors: run(tensors) if zlib.crc32(path.read_bytes()) == first else _noise(run(tensors))


def has_a_table_to_5(run, _path, end=5.0):
    return lambda tensors: run([tensor.clamp(-end, end) for tensor in tensors])


def has_a_table_to_20(run, path):
    return has_a_table_to_5(run, path, 20.0)


def keeps_memory(run, _path):
    import torch

    kept = []

    def call(tensors):
        kept.append(torch.ones(4096))
        return run(tensors)

    return call


def counts_to_a_thousand(run, _path):
    made = []

    def call(tensors):
        made.append(1)
        return run(tensors) if len(made) <= 1000 else _noise(run(tensors))

    return call


def forgets_while_idle(run, _path, late=_noise):
    last = [time.monotonic()]
    asleep = []

    def call(tensors):
        asleep.extend([1] if time.monotonic() - last[0] > 1.0 else [])
        outputs = run(tensors)
        last[0] = time.monotonic()
        return late(outputs) if asleep else outputs

    return call


def slows_down_while_idle(run, path):
    def late(outputs):
        time.sleep(0.01)
        return outputs

    return forgets_while_idle(run, path, late)


if os.environ["CANARY_FAULT"] in ("keeps_memory", "counts_to_a_thousand"):
    from bakeoff.worker.export import conditions

    conditions._MANY = 2_000

torch_export._open = lambda path: globals()[os.environ["CANARY_FAULT"]](_honest_open(path), path)
