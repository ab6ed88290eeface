"""Backends that are unusual but correct: a check that reports one of them raises a false alarm.

One of them starts a process that does its work. CPU time and memory of that process belong to the row, and a finding
says so.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import BuildContext, Call, Engine, ModuleEngine, NoOptions, Outputs
from bakeoff.backends.port import NOTHING_CARRIED, Port, port_buffers
from bakeoff.selftest.faulty import BoundEngine, Inputs, canary

if TYPE_CHECKING:
    from torch import Tensor, nn


# Outputs are slices of arenas of 1 MiB, with a storage offset and a storage far larger than the output; an arena is
# never written twice. Seen in: memory pools.
def _pool(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    arena: dict[Any, tuple[Tensor, int]] = {}

    def place(output: "Tensor") -> "Tensor":
        count = output.numel()
        room, start = arena.get(output.dtype, (torch.empty(0, dtype=output.dtype), 0))
        if start + count > room.numel():
            room, start = torch.empty(max(count, 1 << 18), dtype=output.dtype, device=output.device), 0
        arena[output.dtype] = (room, start + count + (-count) % 16)
        return room[start : start + count].view(output.shape).copy_(output)

    def call(*tensors: "Tensor") -> Outputs:
        with torch.no_grad():
            return tuple(place(output) for output in module(*tensors))

    return ModuleEngine(call)


# Outputs are views that are not contiguous: rows are padded to a multiple of 16, and the padding is NaN.
# Seen in: aligned layouts for vector and tensor cores. Reading the storage instead of the tensor would be wrong.
def _stride(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    def pad(output: "Tensor") -> "Tensor":
        width = output.shape[-1]
        shape = (*output.shape[:-1], width + 16 - width % 16)
        padded = torch.full(shape, float("nan"), dtype=output.dtype, device=output.device)
        return padded[..., :width].copy_(output)

    def call(*tensors: "Tensor") -> Outputs:
        with torch.no_grad():
            return tuple(pad(output) for output in module(*tensors))

    return ModuleEngine(call)


# Internal static inputs and outputs; each call copies its inputs in, computes, and copies the outputs to new tensors.
# Seen in: deployments of captured graphs. No tensor of the caller changes.
def _copy_out(module: "nn.Module", inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    inside = tuple(tensor.clone() for tensor in inputs.values())
    with torch.no_grad():
        outside = tuple(output.clone() for output in module(*inside))

    def call(*tensors: "Tensor") -> Outputs:
        with torch.inference_mode():
            for own, tensor in zip(inside, tensors, strict=True):
                own.copy_(tensor)
            for own, output in zip(outside, module(*inside), strict=True):
                own.copy_(output)
        with torch.no_grad():
            return tuple(own.clone() for own in outside)

    return ModuleEngine(call)


# The engine's own thread computes while the call waits for it; the thread sleeps between calls and ends at close.
# Seen in: runtimes with a thread per session (ONNX Runtime's intra-op pool, OpenVINO's streams).
def delegate(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    pool = ThreadPoolExecutor(1)

    def work(tensors: "tuple[Tensor, ...]") -> Outputs:
        import torch

        with torch.no_grad():
            outputs: Outputs = module(*tensors)
        return outputs

    def bind(inputs: Inputs) -> Call:
        tensors = tuple(inputs.values())
        return lambda: pool.submit(work, tensors).result()

    return BoundEngine(bind, closer=pool.shutdown)


# One static output for all sets of inputs, valid until the next call. Seen in: inductor's reduce-overhead. Outputs that
# a later call overwrites are not stale.
def _reuse(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    static: list[Tensor] = []

    def call(*tensors: "Tensor") -> Outputs:
        with torch.inference_mode():
            outputs: Outputs = module(*tensors)
            if not static:
                static.extend(torch.empty_like(output) for output in outputs)
            return tuple(own.copy_(output) for own, output in zip(static, outputs, strict=True))

    return ModuleEngine(call)


# A ring of three outputs for all sets of inputs, each valid until two more calls. Seen in: pipelined runtimes.
def _ring(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    slots: list[Outputs] = []
    turn = [0]

    def call(*tensors: "Tensor") -> Outputs:
        turn[0] += 1
        with torch.inference_mode():
            outputs: Outputs = module(*tensors)
            if len(slots) < 3:
                slots.append(tuple(output.clone() for output in outputs))
                return slots[-1]
            slot = slots[turn[0] % 3]
            return tuple(own.copy_(output) for own, output in zip(slot, outputs, strict=True))

    return ModuleEngine(call)


# Each binding has its own static outputs and reads its inputs in place. Seen in: captured CUDA graphs.
def _keep_static_outputs(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    def bind(inputs: Inputs) -> Call:
        tensors = tuple(inputs.values())
        with torch.inference_mode():
            static = tuple(output.clone() for output in module(*tensors))

        def call() -> Outputs:
            with torch.inference_mode():
                return tuple(own.copy_(output) for own, output in zip(static, module(*tensors), strict=True))

        return call

    return BoundEngine(bind)


# Inputs are copied into the engine's own layout when they are bound, so that later writes to them have no effect.
# Seen in: runtimes on devices with memory of their own. The second form offers no port to write into.
def _copy_at_bind(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    return _CopyingEngine(module)


def _copy_without_port(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    return BoundEngine(_CopyingEngine(module).bind)


class _CopyingEngine(Engine):
    def __init__(self, module: "nn.Module") -> None:
        self._module = module

    def bind(self, inputs: Inputs) -> Call:
        return self._call(tuple(tensor.clone() for tensor in inputs.values()))

    def port(
        self,
        inputs: Inputs,
        outputs: Sequence[str],
        carried: Mapping[str, str] = NOTHING_CARRIED,
        shared: bool = False,
    ) -> Port:
        buffers = port_buffers(inputs, shared)
        return Port(buffers, self._call(tuple(buffers.values())), outputs, carried)

    def _call(self, tensors: "tuple[Tensor, ...]") -> Call:
        import torch

        def call() -> Outputs:
            with torch.no_grad():
                return tuple(self._module(*tensors))

        return call


POOLED = canary("pooled", "returns slices of an arena", _pool)
STRIDED = canary("strided", "returns views with padding that is NaN", _stride)
COPIES_OUT = canary("copies-out", "copies inputs into and outputs out of internal buffers", _copy_out)
DELEGATES = canary("delegates", "computes in its own thread", delegate)
REUSES_OUTPUT = canary("reuses-output", "has one output buffer for all sets of inputs", _reuse)
RING = canary("ring", "has a ring of three outputs for all sets of inputs", _ring)
STATIC_BUFFERS = canary("static-buffers", "has static outputs for each set of inputs", _keep_static_outputs)
COPIES_AT_BIND = canary("copies-at-bind", "copies inputs when they are bound", _copy_at_bind)
COPIES_WITHOUT_PORT = canary("copies-without-port", "copies bound inputs and has no port", _copy_without_port)


def _serve(module: "nn.Module", requests: Connection) -> None:
    """Answer requests until the other end is closed. Runs in a process of its own and does not return."""
    import torch

    try:
        while True:
            tensors = [torch.from_numpy(array) for array in requests.recv()]
            with torch.no_grad():
                requests.send([output.numpy() for output in module(*tensors)])
    finally:
        os._exit(0)


# A forked process computes, and each call sends it the inputs and waits for the outputs. Seen in: inference servers
# behind a client library, pools that work around the interpreter's lock.
def _ask_server(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    ours, theirs = Pipe()
    server = os.fork()
    if server == 0:
        ours.close()
        _serve(module, theirs)
    theirs.close()

    def bind(inputs: Inputs) -> Call:
        return lambda: call(*inputs.values())

    def call(*tensors: "Tensor") -> Outputs:
        import torch

        ours.send([tensor.numpy() for tensor in tensors])
        return tuple(torch.from_numpy(array) for array in ours.recv())

    def close() -> None:
        ours.close()
        os.waitpid(server, 0)

    return BoundEngine(bind, closer=close)


SERVER = canary("server", "has another process compute", _ask_server, devices=("cpu",))
