"""More backends that do less once they are hot, each as fast as it can be and padded by a busy wait."""

import hashlib

from bakeoff.backends.backend import Backend, Call, Outputs
from bakeoff.selftest.faulty import (
    Compute,
    Idle,
    Shorten,
    Tensors,
    canary,
    memoise_when_hot,
    round_when_hot,
    shortened,
)


def _clones(outputs: Outputs) -> Outputs:
    return tuple(output.clone() for output in outputs)


# Fault: it computes in the first calls of a binding and after an idle gap only; else it returns the last outputs.
# Seen in: asynchronous runtimes that drop a launch while an earlier one has not been fetched.
def _return_stale_when_hot(compute: Compute, tensors: Tensors) -> Call:
    stored: list[Outputs] = []
    idle = Idle()

    def call() -> Outputs:
        if idle.looks_watched() or not stored:
            stored[:] = [compute(*tensors)]
        outputs = _clones(stored[0])
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


def _as_fast_as_it_can(name: str, summary: str, shorten: Shorten) -> Backend:
    return canary(name, summary, shortened(shorten, padded_share=0.0))


def _pair(name: str, summary: str, shorten: Shorten) -> tuple[Backend, Backend]:
    return _as_fast_as_it_can(name, summary, shorten), canary(
        f"{name}-padded", f"{summary}, padded", shortened(shorten)
    )


TIERED_MEMO = _as_fast_as_it_can("tiered-memo", "stores results of hot inputs", memoise_when_hot)
GAP_STALE, GAP_STALE_PADDED = _pair("gap-stale", "computes only after a gap", _return_stale_when_hot)
GAP_PRECISION = _as_fast_as_it_can("gap-precision", "computes in bf16 when hot", round_when_hot)
EVERY_THIRD, EVERY_THIRD_PADDED = _pair("every-third", "reuses each third result", _reuse_every_third)
CONTENT_HASH, CONTENT_HASH_PADDED = _pair("content-hash", "stores results by the inputs' values", _store_by_content)
