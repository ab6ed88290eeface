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


_Entries = tuple[tuple[str, str, tuple[int, ...]], ...]
"""Name, dtype and shape of each tensor of the module's state. Their bytes follow one another in this order."""


@dataclass(frozen=True, slots=True)
class _Header:
    subject: str
    fingerprint: str
    entries: _Entries


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
    state = module.state_dict()
    with open(memory, "rb", closefd=False) as file:
        header = msgspec.json.decode(file.read(int.from_bytes(file.read(8), "little")), type=_Header)
        if header.subject != subject or header.entries != _entries(state) or not _are_plain(state):
            return ""
        for name, _, _ in header.entries:
            file.readinto(bytes_of(state[name]))
    return header.fingerprint


def _leave(memory: int, module: nn.Module, header: _Header) -> None:
    """Write the module's state to the memory and seal it, if there is room and all tensors are plain CPU tensors."""
    state = module.state_dict()
    total = sum(tensor.nbytes for tensor in state.values())
    if not _are_plain(state) or total > host.available_bytes("cpu") * _MOST_SHARE:
        return
    encoded = msgspec.json.encode(header)
    try:
        with open(memory, "wb", closefd=False) as file:
            file.write(len(encoded).to_bytes(8, "little") + encoded)
            for name, _, _ in header.entries:
                file.write(bytes_of(state[name]))
    except OSError:  # no memory after all
        os.ftruncate(memory, 0)
        return
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)


def _entries(state: Mapping[str, Tensor]) -> _Entries:
    return tuple((name, str(tensor.dtype), tuple(tensor.shape)) for name, tensor in state.items())


def _are_plain(state: Mapping[str, Tensor]) -> bool:
    return all(
        type(tensor) in (Tensor, nn.Parameter) and tensor.device.type == "cpu" and tensor.is_contiguous()
        for tensor in state.values()
    )


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor as a view of its memory."""
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().data
