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


def _cache_steps(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Engine:
    """Every second call whose inputs go on as the last ones did, within 5 %, is extrapolated from the last outputs."""
    past: list[tuple[tuple[Tensor, ...], tuple[Tensor, ...]]] = []
    skipped = [False]

    def straight(place: int) -> "list[Tensor]":
        return [2 * last - before for before, last in zip(past[-2][place], past[-1][place], strict=True)]

    def call(*inputs: "Tensor") -> "tuple[Tensor, ...]":
        pairs = zip(straight(0), inputs, strict=True) if len(past) > 1 and not skipped[0] else ()
        near = [float((guess - given).norm()) < 0.05 * float(given.norm()) for guess, given in pairs]
        skipped[0] = bool(near) and all(near)
        outputs = tuple(straight(1)) if skipped[0] else module(*inputs)
        past.append((tuple(one.clone() for one in inputs), tuple(one.clone() for one in outputs)))
        del past[:-2]
        return outputs

    return ModuleEngine(call, rebinding=True)


CACHES_STEPS = Backend("caches-steps", "a test's", build=_cache_steps, runs_eagerly=True)


def _branching(grows: bool) -> Backend:
    """A backend of the toy's `world` that compiles for each noise level and number of empty entries in the cache that
    it has not met, or with `grows` for each level above all it has met, as for a buffer that must grow."""

    def build(module: "nn.Module", _in: "Mapping[str, Tensor]", _options: NoOptions, _of: BuildContext) -> Engine:
        met, made = set[object](), list[int]()

        def call(*inputs: "Tensor") -> "tuple[Tensor, ...]":
            level, empty = round(float(inputs[1].max()), 3), int(inputs[2].eq(0).all(2).sum())
            known = any(other >= level for other in met) if grows else (level, empty) in met  # type: ignore[operator]
            if not known:
                met.add(level if grows else (level, empty))
                made.append(len(made))
            outputs: tuple[Tensor, ...] = module(*inputs)
            return outputs

        return _InCall(call, rebinding=True, made=made)

    return Backend("branching", "a test's", build=build, runs_eagerly=True)


BRANCHES, GROWS = _branching(False), _branching(True)
COMPILES_IN_SECOND, COMPILES_IN_HUNDREDTH = _in_call(2), _in_call(100)
ALLOCATES_IN_HUNDREDTH = _in_call(100, compiles=False)
FIRST_WRONG = _in_call(2, wrong=1.0, compiles=False)
COMPILES_AGAIN = Backend("compiles-again", "a test's", build=_compiling, runs_eagerly=True)
FALLS_BACK = Backend("falls-back", "a test's", build=_falling, runs_eagerly=True)
GOES_WRONG = Backend("goes-wrong", "a test's", build=_go_wrong, runs_eagerly=True)
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
