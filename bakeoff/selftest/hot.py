"""Backends that do less once they are hot: they compute when they are new, idle or changed, as checks often find them.

Each comes in two forms: as fast as it can be, and padded by a busy wait to a believable share of the time of a call, so
that no floor shows it. The comment above each names the fault and where compilers and runtimes have it.
"""

import hashlib
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import Backend, BuildContext, BuildFunction, Call, Engine, NoOptions, Outputs
from bakeoff.selftest.faulty import BoundEngine, Inputs, canary

if TYPE_CHECKING:
    from torch import Tensor, nn

_PADDED_SHARE = 0.4
_IDLE_S = 0.01
_FIRST_CALLS = 4
_HOT_CALLS = 8

Tensors = tuple["Tensor", ...]
Compute = Callable[..., Outputs]
Shorten = Callable[[Compute, Tensors], Call]
"""Makes a call that sometimes does less, of a function that computes the module and of the bound tensors."""


def _building(shorten: Shorten, padded: bool) -> BuildFunction:
    def build(module: "nn.Module", inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
        compute = _without_gradients(module)
        wait_s = _PADDED_SHARE * _typical_s(compute, tuple(inputs.values())) if padded else 0.0

        def bind(inputs: Inputs) -> Call:
            shortened = shorten(compute, tuple(inputs.values()))

            def call() -> Outputs:
                until = time.perf_counter() + wait_s
                outputs = shortened()
                while time.perf_counter() < until:
                    pass
                return outputs

            return call

        return BoundEngine(bind)

    return build


def _without_gradients(module: Compute) -> Compute:
    def compute(*tensors: "Tensor") -> Outputs:
        import torch

        with torch.no_grad():
            return tuple(module(*tensors))

    return compute


def _typical_s(compute: Compute, tensors: Tensors) -> float:
    samples = []
    for _ in range(50):
        started = time.perf_counter()
        compute(*tensors)
        samples.append(time.perf_counter() - started)
    return median(samples[10:])


def _clones(outputs: Outputs) -> Outputs:
    return tuple(output.clone() for output in outputs)


class _Idle:
    """Finds out whether a call is one of the first of its binding, or comes after an idle gap."""

    def __init__(self) -> None:
        self._calls, self._ended = 0, 0.0

    def looks_watched(self) -> bool:
        self._calls += 1
        return self._calls <= _FIRST_CALLS or time.perf_counter() - self._ended > _IDLE_S

    def end(self) -> None:
        self._ended = time.perf_counter()


# Fault: after eight calls without a new version of an input the outputs count as constants.
# Seen in: tiered compilers that fold what did not change (guards on `_version`). A write through torch moves the
# version and is computed, so every output is right; only the time is not that of a computation.
def _memoise_when_hot(compute: Compute, tensors: Tensors) -> Call:
    stored: list[Outputs] = []
    state: list[Any] = [None, 0]

    def call() -> Outputs:
        versions = [tensor._version for tensor in tensors]
        state[:] = [versions, state[1] + 1 if versions == state[0] else 1]
        if state[1] <= _HOT_CALLS or not stored:
            stored[:] = [compute(*tensors)]
        return _clones(stored[0])

    return call


# Fault: it computes in the first calls of a binding and after an idle gap only; else it returns the last outputs.
# Seen in: asynchronous runtimes that drop a launch while an earlier one has not been fetched.
def _return_stale_when_hot(compute: Compute, tensors: Tensors) -> Call:
    stored: list[Outputs] = []
    idle = _Idle()

    def call() -> Outputs:
        if idle.looks_watched() or not stored:
            stored[:] = [compute(*tensors)]
        outputs = _clones(stored[0])
        idle.end()
        return outputs

    return call


# Fault: fp32 in the first calls and after an idle gap, bf16 while it is hot.
# Seen in: runtimes that switch to a faster kernel under load, or when autotuning has ended.
def _round_when_hot(compute: Compute, tensors: Tensors) -> Call:
    idle = _Idle()

    def call() -> Outputs:
        import torch

        if idle.looks_watched():
            outputs = compute(*tensors)
        else:
            with torch.no_grad(), torch.autocast(tensors[0].device.type, dtype=torch.bfloat16):
                outputs = tuple(output.float() for output in compute(*tensors))
        idle.end()
        return outputs

    return call


# Fault: each third call returns what the call before it returned.
# Seen in: frame generation and step caches, which reuse a result every few steps.
def _reuse_every_third(compute: Compute, tensors: Tensors) -> Call:
    stored: list[Outputs] = []
    made = [0]

    def call() -> Outputs:
        made[0] += 1
        if made[0] % 3 or not stored:
            stored[:] = [compute(*tensors)]
        return _clones(stored[0])

    return call


# Fault: outputs are stored by a hash of the inputs' values.
# Seen in: request caches of serving systems. Every output is right.
def _store_by_content(compute: Compute, tensors: Tensors) -> Call:
    stored: dict[bytes, Outputs] = {}

    def call() -> Outputs:
        digest = hashlib.blake2b(digest_size=16)
        for tensor in tensors:
            digest.update(tensor.cpu().numpy().data)
        key = digest.digest()
        if key not in stored:
            stored[key] = compute(*tensors)
        return _clones(stored[key])

    return call


def _pair(name: str, summary: str, shorten: Shorten) -> tuple[Backend, Backend]:
    padded = canary(f"{name}-padded", f"{summary}, padded", _building(shorten, padded=True))
    return canary(name, summary, _building(shorten, padded=False)), padded


TIERED_MEMO, TIERED_MEMO_PADDED = _pair("tiered-memo", "stores results of hot inputs", _memoise_when_hot)
GAP_STALE, GAP_STALE_PADDED = _pair("gap-stale", "computes only after a gap", _return_stale_when_hot)
GAP_PRECISION, GAP_PRECISION_PADDED = _pair("gap-precision", "computes in bf16 when hot", _round_when_hot)
EVERY_THIRD, EVERY_THIRD_PADDED = _pair("every-third", "reuses each third result", _reuse_every_third)
CONTENT_HASH, CONTENT_HASH_PADDED = _pair("content-hash", "stores results by the inputs' values", _store_by_content)
