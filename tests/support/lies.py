"""Candidates with one fault each, as functions on a module, for this lab and for other tools; torch only when called.

Each takes a module and returns what runs in its place: a callable of the same inputs. The lab sweeps them as
`lies:ZEROS`; tests/support/aitune_lies.py gives the same functions to NVIDIA AITune.
"""

import copy
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    BuildFunction,
    Engine,
    ModuleEngine,
    NoOptions,
    Outputs,
)
from bakeoff.backends.graphs import TORCH
from bakeoff.backends.inductor import BACKEND as INDUCTOR
from bakeoff.backends.inductor import Options, missing_compiler
from bakeoff.selftest.faulty import Inputs, canary

if TYPE_CHECKING:
    from torch import Tensor, nn

Lie = Callable[["nn.Module"], Callable[..., Outputs]]
FIRST_CALL_S = 1.0
"""How long the first call at each new batch takes longer."""


def _shapes(tensors: "tuple[Tensor, ...]") -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(tensor.shape) for tensor in tensors)


def zeros(module: "nn.Module") -> Callable[..., Outputs]:
    """Zeros of the right shapes and dtypes; the module runs once for each shape of inputs."""
    forms: dict[Any, Outputs] = {}

    def call(*tensors: "Tensor") -> Outputs:
        import torch

        key = _shapes(tensors)
        if key not in forms:
            with torch.no_grad():
                forms[key] = module(*tensors)
        return tuple(torch.zeros_like(form) for form in forms[key])

    return call


def bf16(module: "nn.Module") -> Callable[..., Outputs]:
    """Computes in bf16 and returns fp32."""
    half = copy.deepcopy(module).bfloat16()

    def call(*tensors: "Tensor") -> Outputs:
        return tuple(output.float() for output in half(*(tensor.bfloat16() for tensor in tensors)))

    return call


def tf32(module: "nn.Module") -> Callable[..., Outputs]:
    """Multiplies in TF32 on CUDA; the settings are as before when it returns."""

    def call(*tensors: "Tensor") -> Outputs:
        import torch

        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        before = (matmul.allow_tf32, cudnn.allow_tf32)
        matmul.allow_tf32 = cudnn.allow_tf32 = True
        try:
            outputs: Outputs = module(*tensors)
        finally:
            matmul.allow_tf32, cudnn.allow_tf32 = before
        return outputs

    return call


def slow_first(module: "nn.Module") -> Callable[..., Outputs]:
    """Sleeps at the first call at each new batch, as where a compiler works then; it is as fast as eager afterwards."""
    seen: set[int] = set()

    def call(*tensors: "Tensor") -> Outputs:
        batch = tensors[0].shape[0]
        if batch not in seen:
            seen.add(batch)
            time.sleep(FIRST_CALL_S)
        outputs: Outputs = module(*tensors)
        return outputs

    return call


def aborts(_module: "nn.Module") -> Callable[..., Outputs]:
    """Ends the process, as a failed assertion in a library's C++ does."""
    os.abort()


def plain(module: "nn.Module") -> Callable[..., Outputs]:
    """The module itself: no lie."""
    return module


def disable(module: "nn.Module") -> None:
    """Keep dynamo out of everything that the module does."""
    import torch

    module.forward = torch.compiler.disable(module.forward)  # type: ignore[method-assign]


def _built(lie: Lie) -> BuildFunction:
    def build(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
        return ModuleEngine(lie(module))

    return build


def _disabled(module: "nn.Module", inputs: Inputs, options: Options, context: BuildContext) -> Engine:
    disable(module)
    assert INDUCTOR.build is not None
    return INDUCTOR.build(module, inputs, options, context)


def _disabled_in_parts(module: "nn.Module", _inputs: Inputs, _options: Options, _context: BuildContext) -> Engine:
    import torch

    disable(module)
    return ModuleEngine(torch.compile(module, dynamic=False))


ZEROS = canary("zeros", "returns zeros", _built(zeros))
BF16 = canary("bf16-as-fp32", "computes in bf16, returns fp32", _built(bf16))
TF32 = canary("tf32-as-fp32", "computes in TF32, returns fp32", _built(tf32))
SLOW_FIRST = canary("slow-first", "takes a second longer at each new batch", _built(slow_first))
ABORTS = canary("aborts", "calls abort() while it is built", _built(aborts))
PLAIN = canary("plain", "eager under another name", _built(plain))
_COMPILES: dict[str, Any] = {
    "options": Options,
    "requires": (TORCH,),
    "missing": missing_compiler,
    "uses_inductor": True,
    **{
        name: getattr(INDUCTOR, name)
        for name in ("caches", "weight_copies", "gpu_weight_copies", "environment", "overlaps", "searches")
    },
}
DISABLED = Backend("disabled", "inductor on a module that dynamo may not enter", _disabled, **_COMPILES)
DISABLED_IN_PARTS = Backend("disabled-in-parts", "the same with graph breaks allowed", _disabled_in_parts, **_COMPILES)
