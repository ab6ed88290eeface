"""Shares weights between workers: the first worker of a subject leaves them in memory, and later ones copy them.

The memory belongs to bakeoff.sweeps.context. It is sealed once it is complete (fcntl(2), F_SEAL_WRITE): from then on no
process can change it. Memory that is not sealed is not read.
"""

import fcntl
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

_MOST_SHARE = 1 / 8
"""Largest share of the free memory that the kept weights may take."""
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclass(frozen=True, slots=True)
class _Entry:
    """One tensor of the module's state. The tensors' bytes follow one another in the order of the entries."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Header:
    subject: str
    fingerprint: str
    entries: tuple[_Entry, ...]


def filled(module: nn.Module, subject: str, fill: Callable[[], None]) -> str:
    """Fill the module on the CPU with its weights, and return their fingerprint.

    If an earlier worker left weights of the same `subject`, they are copied. Otherwise `fill` makes them, and they are
    left for later workers if there is enough memory.
    """
    with _memory() as memory:
        if memory is None:
            fill()
            return fingerprint(module)
        if not _is_sealed(memory):
            fcntl.flock(memory, fcntl.LOCK_EX)  # of several workers that begin at once, one makes them
        if _is_sealed(memory):
            known = _copied(memory, module, subject)
            if known:
                return known
        fill()
        made = fingerprint(module)
        if not _is_sealed(memory):
            _leave(memory, module, _Header(subject, made, _entries(module.state_dict())))
        return made


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


def _copied(memory: int, module: nn.Module, subject: str) -> str:
    """Copy the kept weights into the module and return their fingerprint; "" if they are not this subject's."""
    size = int.from_bytes(os.pread(memory, 8, 0), "little")
    header = msgspec.json.decode(os.pread(memory, size, 8), type=_Header)
    state = module.state_dict()
    if header.subject != subject or header.entries != _entries(state) or not _are_plain(state):
        return ""
    offset = 8 + size
    for entry in header.entries:
        part = bytes_of(state[entry.name])
        done = 0
        while done < len(part):  # a call reads at most 2 GiB
            done += os.preadv(memory, [part[done:]], offset + done)
        offset += len(part)
    return header.fingerprint


def _leave(memory: int, module: nn.Module, header: _Header) -> None:
    """Write the module's state to the memory and seal it, if there is room and all tensors are plain CPU tensors."""
    state = module.state_dict()
    total = sum(tensor.nbytes for tensor in state.values())
    if not _are_plain(state) or total > host.available_bytes("cpu") * _MOST_SHARE:
        return
    encoded = msgspec.json.encode(header)
    try:
        os.ftruncate(memory, 8 + len(encoded) + total)
        _write(memory, memoryview(len(encoded).to_bytes(8, "little") + encoded), 0)
        offset = 8 + len(encoded)
        for entry in header.entries:
            part = bytes_of(state[entry.name])
            _write(memory, part, offset)
            offset += len(part)
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


def _are_plain(state: Mapping[str, Tensor]) -> bool:
    return all(
        type(tensor) in (Tensor, nn.Parameter) and tensor.device.type == "cpu" and tensor.is_contiguous()
        for tensor in state.values()
    )


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor as a view of its memory."""
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().data
