"""Backends whose engines say that they take a range of sizes, each with one fault; used as `sized_backends:PADS`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    BuildFunction,
    Call,
    Engine,
    ModuleEngine,
    NoOptions,
    Outputs,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

Inputs = Mapping[str, "Tensor"]


def _backend(name: str, summary: str, build: BuildFunction) -> Backend:
    return Backend(name, summary, build, dtypes=("fp32",), unsupported_sizes=None, runs_eagerly=True)


def _pad(module: "nn.Module", inputs: "Inputs", _options: NoOptions, context: BuildContext) -> Engine:
    import torch

    axes = {list(inputs).index(one.input): one for one in context.sizes}

    def call(*tensors: "Tensor") -> Outputs:
        padded = list(tensors)
        for position, one in axes.items():
            shape = list(padded[position].shape)
            shape[one.axis] = one.max - shape[one.axis]
            padded[position] = torch.cat([padded[position], padded[position].new_zeros(shape)], one.axis)
        return tuple(output[: tensors[0].shape[0]].clone() for output in module(*padded))

    return ModuleEngine(call)


@dataclass(slots=True)
class _Compiling(Engine):
    """Counts a compilation for each new shape."""

    module: "nn.Module"
    shapes: set[tuple[int, ...]] = field(default_factory=set)

    def bind(self, inputs: "Inputs") -> Call:
        tensors = tuple(inputs.values())

        def call() -> Outputs:
            self.shapes.add(tuple(tensors[0].shape))
            outputs: Outputs = self.module(*tensors)
            return outputs

        return call

    def compilations(self) -> int:
        return len(self.shapes)


def _compile(module: "nn.Module", _inputs: "Inputs", _options: NoOptions, _context: BuildContext) -> Engine:
    return _Compiling(module)


def _refuse(module: "nn.Module", _inputs: "Inputs", _options: NoOptions, context: BuildContext) -> Engine:
    known = {size for one in context.sizes for size in (one.min, one.usual, one.max)}

    def call(*tensors: "Tensor") -> Outputs:
        size = tensors[0].shape[context.sizes[0].axis]
        if size not in known:
            raise ValueError(f"no kernel for {size} rows")
        outputs: Outputs = module(*tensors)
        return outputs

    return ModuleEngine(call)


def _go_wrong(module: "nn.Module", _inputs: "Inputs", _options: NoOptions, context: BuildContext) -> Engine:
    def call(*tensors: "Tensor") -> Outputs:
        outputs: Outputs = module(*tensors)
        largest = tensors[0].shape[context.sizes[0].axis] == context.sizes[0].max
        return tuple(output * 1.5 for output in outputs) if largest else outputs

    return ModuleEngine(call)


def _static(module: "nn.Module", _inputs: "Inputs", _options: NoOptions, _context: BuildContext) -> Engine:
    return ModuleEngine(module)


PADS = _backend("pads", "computes the largest size always", _pad)
COMPILES = _backend("compiles", "compiles for each size", _compile)
REFUSES = _backend("refuses", "takes the listed sizes alone", _refuse)
GOES_WRONG = _backend("goes-wrong", "is wrong at the largest size", _go_wrong)
STATIC = Backend("static", "says nothing about sizes", _static, runs_eagerly=True)
