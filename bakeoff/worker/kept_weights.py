"""Shares weights between workers: the first worker of a subject leaves them in memory, and later ones map them.

The memory belongs to bakeoff.sweeps.context. It is sealed once it is complete (fcntl(2), F_SEAL_WRITE): from then on no
process can change it. Memory that is not sealed is not read.
"""

import fcntl
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import torch
from torch import Tensor, nn

from bakeoff.machine import host
from bakeoff.models.weights import fingerprint
from bakeoff.process.environment import WEIGHTS
from bakeoff.worker.cast import named_tensors

_MOST_SHARE = 1 / 8
"""Largest share of the free memory that the kept weights may take."""
_ALIGNMENT = 64
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclass(frozen=True, slots=True)
class _Entry:
    """One parameter or buffer. Their bytes follow one another in the order of the entries, each at `_ALIGNMENT`."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Header:
    subject: str
    fingerprint: str
    entries: tuple[_Entry, ...]


def filled(module: nn.Module, subject: str, fill: Callable[[], None]) -> tuple[str, bool]:
    """Fill the module on the CPU with its weights; return their fingerprint, and whether they lie in shared memory.

    If an earlier worker left weights of the same `subject`, the module's tensors become private views of them, whose
    pages are not the allocator's: copy them before anything is timed. Otherwise `fill` makes the weights, and they are
    left for later workers if there is enough memory.
    """
    with _memory() as memory:
        if memory is None:
            fill()
            return fingerprint(module), False
        if not _is_sealed(memory):
            fcntl.flock(memory, fcntl.LOCK_EX)  # of several workers that begin at once, one makes them
        if _is_sealed(memory):
            known = _mapped(memory, module, subject)
            if known:
                return known, True
        fill()
        made = fingerprint(module)
        if not _is_sealed(memory):
            _leave(memory, module, _Header(subject, made, _entries(dict(named_tensors(module)))))
        return made, False


@contextmanager
def _memory() -> Iterator[int | None]:
    """Yield the descriptor of the shared memory; None if this worker was given none."""
    try:
        memory = os.open(os.environ.get(WEIGHTS, ""), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield memory
    finally:
        os.close(memory)


def _is_sealed(memory: int) -> bool:
    return fcntl.fcntl(memory, fcntl.F_GET_SEALS) & _SEALS == _SEALS


def _mapped(memory: int, module: nn.Module, subject: str) -> str:
    """Let the module's tensors be views of the kept weights and return their fingerprint; "" if they are not this
    subject's."""
    size = int.from_bytes(os.pread(memory, 8, 0), "little")
    header = msgspec.json.decode(os.pread(memory, size, 8), type=_Header)
    state = dict(named_tensors(module))
    if header.subject != subject or header.entries != _entries(state) or not _are_plain(state):
        return ""
    # As a tensor of its own, which holds the mapping until no view is left. What is written to it stays private.
    kept = torch.frombuffer(mmap.mmap(memory, 0, flags=mmap.MAP_PRIVATE), dtype=torch.uint8)
    *starts, _ = _starts(8 + size, state)
    for tensor, start in zip(state.values(), starts, strict=True):
        tensor.data = kept[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
    return header.fingerprint


def _leave(memory: int, module: nn.Module, header: _Header) -> None:
    """Write the module's state to the memory and seal it, if there is room and all tensors are plain CPU tensors."""
    state = dict(named_tensors(module))
    encoded = msgspec.json.encode(header)
    *starts, end = _starts(8 + len(encoded), state)
    if not _are_plain(state) or end > host.available_bytes("cpu") * _MOST_SHARE:
        return
    try:
        os.ftruncate(memory, end)
        _write(memory, memoryview(len(encoded).to_bytes(8, "little") + encoded), 0)
        for tensor, start in zip(state.values(), starts, strict=True):
            _write(memory, bytes_of(tensor), start)
    except OSError:  # no memory after all
        os.ftruncate(memory, 0)
        return
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)


def _write(memory: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(memory, data[done:], offset + done)


def _entries(state: Mapping[str, Tensor]) -> tuple[_Entry, ...]:
    return tuple(_Entry(name, str(tensor.dtype), tuple(tensor.shape)) for name, tensor in state.items())


def _starts(header_end: int, state: Mapping[str, Tensor]) -> list[int]:
    """Return where each tensor begins in the memory, aligned for any dtype, and where the last one ends."""
    starts = [_aligned(header_end)]
    for tensor in state.values():
        starts.append(_aligned(starts[-1] + tensor.nbytes))
    return starts


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def _are_plain(state: Mapping[str, Tensor]) -> bool:
    """Return whether these are contiguous CPU tensors of no class of their own, and none is a view of another."""
    own = {id(tensor): tensor.data_ptr() for tensor in state.values() if tensor.numel()}
    return len(set(own.values())) == len(own) and all(
        type(tensor) in (Tensor, nn.Parameter) and tensor.device.type == "cpu" and tensor.is_contiguous()
        for tensor in state.values()
    )


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor as a view of its memory."""
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().data
