"""Eager backends that do what a test tells them to, as `loop_backends:COMPILES_AGAIN`. No torch at import."""

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    Engine,
    ModuleEngine,
    NoOptions,
    Prepared,
    Proof,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

COMPILED: list[str] = []
"""Why COMPILES_AGAIN has compiled again so far."""
FELL_BACK: list[str] = []
"""What FALLS_BACK runs instead."""
PRECISIONS: dict[str, set[str]] = {}
"""Precision of fp32 products in the calls of NOTES_PRECISION, by the dtype that the engine was built for."""
ADDED: list[float] = []
"""What GOES_WRONG adds to each of its outputs."""


def _compiling(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Engine:
    return ModuleEngine(
        module, lambda: Proof(recompiles=tuple(COMPILED)), lambda: {"compiled": len(COMPILED)}, rebinding=True
    )


def _falling(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Engine:
    return ModuleEngine(module, lambda: Proof(fell_back="".join(FELL_BACK)), rebinding=True)


def _go_wrong(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Engine:
    module.register_forward_hook(lambda _module, _given, outputs: tuple(output + sum(ADDED) for output in outputs))
    return ModuleEngine(module, rebinding=True)


def _note(module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, context: BuildContext) -> Engine:
    import torch

    seen = PRECISIONS.setdefault(context.dtype, set())
    module.register_forward_hook(lambda *_: seen.add(torch.get_float32_matmul_precision()))
    return ModuleEngine(module, rebinding=True)


def _waiting(name: str, seconds: float) -> Backend:
    def build(module: "nn.Module", _in: "Mapping[str, Tensor]", _options: NoOptions, _of: BuildContext) -> Engine:
        module.register_forward_hook(lambda *_: time.sleep(seconds))
        return ModuleEngine(module, rebinding=True)

    return Backend(name, "a test's", build=build, runs_eagerly=True)


def _prepare(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Prepared:
    return Prepared(module)


@dataclass(frozen=True)
class _InCall(ModuleEngine):
    """Does something in one of its calls, counted from the one of its build."""

    made: list[int] = field(default_factory=list)

    def activity(self) -> Mapping[str, int]:
        return {"compiled": len(self.made)}


def _in_call(number: int, wrong: float = 0.0, compiles: bool = True) -> Backend:
    """A backend whose engines take 100 ms in call `number`, in which they also compile, or add `wrong`."""

    def build(module: "nn.Module", _in: "Mapping[str, Tensor]", _options: NoOptions, _of: BuildContext) -> Engine:
        calls, made = count(1), list[int]()

        def call(*inputs: "Tensor") -> "tuple[Tensor, ...]":
            outputs: tuple[Tensor, ...] = module(*inputs)
            if next(calls) != number:
                return outputs
            if compiles:
                made.append(number)
            time.sleep(0.1)
            return tuple(output + wrong for output in outputs)

        return _InCall(call, rebinding=True, made=made)

    return Backend(f"in-call-{number}", "a test's", build=build, runs_eagerly=True)


COMPILES_IN_SECOND = _in_call(2)
ALLOCATES_IN_HUNDREDTH = _in_call(100, compiles=False)
FIRST_WRONG = _in_call(2, wrong=1.0, compiles=False)
COMPILES_AGAIN = Backend("compiles-again", "a test's", build=_compiling, runs_eagerly=True)
FALLS_BACK = Backend("falls-back", "a test's", build=_falling, runs_eagerly=True)
GOES_WRONG = Backend("goes-wrong", "a test's", build=_go_wrong, runs_eagerly=True)
NOTES_PRECISION = Backend("notes-precision", "a test's", build=_note, runs_eagerly=True, dtypes=("fp32", "tf32"))
SLOW, SLOWER = _waiting("slow", 0.005), _waiting("slower", 0.04)
PREPARES = Backend("prepares", "a test's", prepare=_prepare)


def _copy(module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext) -> Engine:
    return ModuleEngine(copy.deepcopy(module), rebinding=True)


def _write(module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, context: BuildContext) -> Engine:
    with (context.work_dir / "program").open("x"):
        return ModuleEngine(module, rebinding=True)


def _refuse(module: "nn.Module", inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext) -> Engine:
    if next(iter(inputs.values())).dim() == 4:
        raise RuntimeError("no pictures")
    return ModuleEngine(module, rebinding=True)


COPIES = Backend("copies", "a test's", build=_copy, runs_eagerly=True, keeps_module_weights=False)
WRITES = Backend("writes", "a test's", build=_write, runs_eagerly=True)
FAILS_FOR_PICTURES = Backend("fails", "a test's", build=_refuse, runs_eagerly=True)
