"""Calls of a built engine on inputs of another kind, and after freed memory was overwritten."""

import ctypes
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from bakeoff.record.regimes import NEAR, Regime
from bakeoff.worker.checks.fresh_inputs import SLOW_NS, ChangeableInputs
from bakeoff.worker.checks.memory import tensors_bytes
from bakeoff.worker.checks.outputs import copied, same
from bakeoff.worker.failures import first_line, is_out_of_memory
from bakeoff.worker.reference.error import Difference
from bakeoff.worker.reference.parity import Reference
from bakeoff.worker.reference.regimes import regime_inputs
from bakeoff.worker.subject import LoadedSubject, cast_inputs, synchronise

_LEAST, _MOST = 1 << 22, 1 << 27
"""Least and most bytes of the largest block that is overwritten; else it is as large as all inputs."""
_SMALLEST, _SMALL = 1 << 6, 1 << 16
_BLOCKS, _SMALL_BLOCKS = 2, 16
"""Blocks of each power of two, and of each from `_SMALLEST` up to `_SMALL` bytes."""
_M_PERTURB, _ONES = -6, 0x100
"""The switch, and the value of which glibc writes the complement of the last byte."""


def call_in_regimes(
    loaded: LoadedSubject, entry: ChangeableInputs, reference: Reference, dtype: str, device: str, call_ns: float
) -> tuple[Regime, ...]:
    """Write each regime's values into the bound inputs of set 0, call once, and compare the outputs.

    What an engine raises is a result, unless memory ran out. Where a call takes over a second, only regimes in which a
    row must be right are tried.
    """
    found = []
    for name in reference.regimes:
        if call_ns > SLOW_NS and name not in NEAR:
            continue
        values = cast_inputs(loaded.workload, regime_inputs(loaded, name), dtype, device)
        try:
            with replace(entry, changed=values).changed_values() as call:
                outputs = call()
                synchronise(device)
                found.append(reference.regime(name, outputs))
        except Exception as error:  # whatever an engine raises for values that eager takes
            if is_out_of_memory(error):
                raise
            found.append(reference.regime(name, None, first_line(error)))
    return tuple(found)


def call_on_overwritten_memory(
    entry: ChangeableInputs, reference: Reference, device: str
) -> tuple[list[Difference], bool]:
    """Call twice on set 0, the second time so that memory which nobody wrote holds NaN.

    Return the differences of the second outputs from their references, and whether both have equal bits.
    """
    first = copied(entry.call())
    synchronise(device)
    with _unwritten_is_nan(entry.tensors, device):
        again = entry.call()
        synchronise(device)
    return reference.differences(0, again, "after freed memory was filled with NaN"), same(first, again)


@contextmanager
def _unwritten_is_nan(inputs: Mapping[str, Tensor], device: str) -> Iterator[None]:
    """Let glibc fill what it allocates with ones, which every floating dtype reads as NaN (`man 3 mallopt`).

    Blocks of up to a kilobyte that are freed and taken again at once keep their values. Where there is no such switch,
    as on a GPU, fill freed memory beforehand.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if device == "cpu" else None
    if mallopt is None:
        _overwrite_freed(inputs, device)
        yield
        return
    mallopt(_M_PERTURB, _ONES)
    try:
        yield
    finally:
        mallopt(_M_PERTURB, 0)


def _overwrite_freed(inputs: Mapping[str, Tensor], device: str) -> None:
    """Take blocks of all sizes from the allocator, the largest first, fill them with NaN, and free them."""
    size, blocks = min(max(tensors_bytes(inputs.values()), _LEAST), _MOST), []
    while size >= _SMALLEST:
        count = _BLOCKS if size > _SMALL else _SMALL_BLOCKS
        blocks += [torch.full((size // 4,), math.nan, dtype=torch.float32, device=device) for _ in range(count)]
        size //= 2
    synchronise(device)
