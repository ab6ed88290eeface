"""More backends with one fault each, as real compilers have them."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.backend import BuildContext, BuildFunction, Engine, ModuleEngine, NoOptions, Outputs
from bakeoff.selftest.faulty import Inputs, canary, doing, each_call

if TYPE_CHECKING:
    from torch import Tensor, nn


def changing(change: Callable[[Outputs], Outputs], counters: Callable[[], Mapping[str, int]] = dict) -> BuildFunction:
    """Return a build function whose engine returns eager's outputs after `change`."""

    def build(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
        return ModuleEngine(lambda *tensors: change(module(*tensors)), counters=counters)

    return build


def nan(outputs: Outputs) -> Outputs:
    return tuple(output * float("nan") for output in outputs)


# These end the worker or the build.


def hang() -> None:
    while True:
        time.sleep(60)


def _fail() -> None:
    raise RuntimeError("no kernel for this operator")


def _fail_once(number: int, outputs: Outputs) -> Outputs:
    if number == 2:
        raise RuntimeError("only once")
    return outputs


def leave_result(content: bytes) -> None:
    Path("result.json").write_bytes(content)
    os._exit(0)


def _print_much() -> None:
    for _ in range(64):
        os.write(1, bytes(range(256)) * 4096)  # a MiB, most of it not UTF-8


KILLED = canary(
    "killed",
    "is killed, as for lack of memory",
    doing(lambda: os.kill(os.getpid(), signal.SIGKILL)),
)
EXITS_SILENTLY = canary("exits-silently", "exits with 0 and no result", doing(lambda: os._exit(0)))
PARTIAL_RESULT = canary(
    "partial-result", "writes half a result", doing(lambda: leave_result(b'{"value":{"status":"ok"'))
)
HOSTILE_RESULT = canary("hostile-result", "writes a result that is not JSON", doing(lambda: leave_result(b"\xff{[")))
HANG = canary("hang", "sleeps for ever", doing(hang))
RAISES_AT_BUILD = canary("raises-at-build", "raises while it builds", doing(_fail))
RAISES_AT_CALL = canary("raises-at-call", "raises at its second call", each_call(_fail_once))
NOISY = canary("noisy", "prints 64 MiB that are not text", doing(_print_much))


# These give numbers that are wrong or not comparable.


def _compute_in_bf16(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    module.bfloat16()
    return ModuleEngine(
        lambda *tensors: tuple(output.float() for output in module(*(tensor.bfloat16() for tensor in tensors)))
    )


# Fault: complex weights are cast to a real dtype, which drops their imaginary parts.
# Seen in: torch.nn.Module.to(dtype), with no more than a warning (pytorch#46374).
def _drop_imaginary(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    for owner in module.modules():
        for name, buffer in owner.named_buffers(recurse=False):
            if buffer.is_complex():
                setattr(owner, name, buffer.real.contiguous())
    return ModuleEngine(module)


def _store_by_address(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    kept: dict[int, Outputs] = {}

    def call(*tensors: "Tensor") -> Outputs:
        address = tensors[0].data_ptr()
        if address not in kept:
            kept[address] = module(*tensors)
        return tuple(output.clone() for output in kept[address])

    return ModuleEngine(call)


def _compile_nothing(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    return ModuleEngine(torch.compile(module, backend=lambda graph, _example: graph.forward, fullgraph=True))


HALF_PRECISION = canary("half-precision", "computes in bf16 instead of fp32", _compute_in_bf16)
DROPS_IMAGINARY = canary("drops-imaginary", "casts complex weights to real ones", _drop_imaginary)
CACHED_OUTPUT = canary("cached-output", "stores outputs by the address of the first input", _store_by_address)
NAN = canary("nan", "returns NaN", changing(nan))
WRONG_SHAPE = canary("wrong-shape", "drops a column", changing(lambda outputs: tuple(o[..., 1:] for o in outputs)))
UNCHANGED_GRAPH = canary(
    "unchanged-graph", "captures a graph and returns it unchanged", _compile_nothing, runs_eagerly=False
)
