"""Records the inputs of modules during passes, and writes them as folders of live modules that a sweep takes."""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bakeoff.models.brought.method import MethodOf
from bakeoff.models.brought.model import Call, Model
from bakeoff.models.errors import BakeoffError
from bakeoff.models.signature import Signature, describe_call, rebuild
from bakeoff.process.inspected import Recorded
from bakeoff.worker.brought.calls import parameter_names
from bakeoff.worker.brought.load import given_tensors

MOST_CALLS = 8
"""Largest number of different calls of a module that are kept, of as many sizes as possible."""
Facts = tuple[tuple[str, tuple[int, ...], torch.dtype], ...]
"""Name, shape and dtype of each tensor."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """Arguments of a call as they were when it began."""

    signature: Signature
    tensors: dict[str, Tensor]

    @property
    def facts(self) -> Facts:
        return tuple((key, tuple(one.shape), one.dtype) for key, one in self.tensors.items())

    @property
    def form(self) -> tuple[Signature, Facts]:
        """What calls of one input set have in common."""
        return self.signature, self.facts

    @property
    def arguments(self) -> Call:
        """Positional and keyword arguments."""
        args = tuple(rebuild(node, self.tensors) for node in self.signature.args)
        return args, {key: rebuild(node, self.tensors) for key, node in self.signature.kwargs.items()}


@dataclass(slots=True)
class _CallsOfOne:
    """Recorded calls of one module or method so far."""

    module: nn.Module
    method: str
    calls: list[RecordedCall] = field(default_factory=list)
    seen: int = 0
    problem: str = ""

    @property
    def called(self) -> nn.Module:
        """The module itself, or a module that calls its method."""
        return MethodOf(self.module, self.method) if self.method else self.module

    @property
    def is_full(self) -> bool:
        """Whether no further call would be kept, not even one of a new size, which replaces one of a repeated size."""
        sizes = [call.facts for call in self.calls]
        return bool(self.problem) or (len(sizes) >= MOST_CALLS and all(sizes.count(size) == 1 for size in sizes))


class Recording:
    """Keeps the inputs of calls as they were at the entry, in the order of the calls; equal calls are kept once."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        """Record only the modules and methods of these names; () records all."""
        self._names = tuple(names)
        self._taken: dict[str, _CallsOfOne] = {}
        self.changes = 0
        """Number of times that a call was kept so far, of all modules together."""

    def _make_room(self, taken: _CallsOfOne, size: Facts) -> bool:
        """Return whether a call of this size is kept.

        If there is no room, a call of a new size replaces the last call of the commonest size.
        """
        if len(taken.calls) < MOST_CALLS:
            return True
        sizes = [call.facts for call in taken.calls]
        most = max(sizes, key=sizes.count)
        if size in sizes or sizes.count(most) == 1:
            return False
        del taken.calls[len(sizes) - 1 - sizes[::-1].index(most)]
        return True

    def take(self, name: str, module: nn.Module, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Keep the inputs of a call that begins, unless an equal one is kept or no room is left; a tree's `capture`."""
        if self._names and name not in self._names:
            return
        taken = self._taken.setdefault(name, _CallsOfOne(module, method))
        taken.seen += 1
        if taken.problem:
            return
        try:
            signature = describe_call(args, kwargs, parameter_names(taken.called))
            tensors = given_tensors("call", signature, (tuple(args), dict(kwargs)))
        except BakeoffError as error:
            if len(taken.calls) < MOST_CALLS:
                taken.problem = str(error)
            return
        call = RecordedCall(signature, tensors)
        for other in taken.calls:
            alike = other.form == call.form
            if alike and all(torch.equal(kept, call.tensors[key]) for key, kept in other.tensors.items()):
                return
        if not self._make_room(taken, call.facts):
            return
        self.changes += 1
        taken.calls.append(RecordedCall(signature, {key: one.detach().clone() for key, one in call.tensors.items()}))

    @property
    def full(self) -> bool:
        """Whether no further call of the named modules would be kept."""
        return all(name in self._taken and self._taken[name].is_full for name in self._names)

    def write(self, folder: Path, of: str) -> tuple[Recorded, ...]:
        """Write the calls of each name as the folder of a live module, named `OF.NAME`, and return what was written.

        If a module or its calls cannot be moved to another process, the entry's `problem` says why.
        """
        names = self._names or tuple(self._taken)
        return tuple(self._write(name, folder / f"{of}.{folder_name(name)}") for name in names)

    def signatures(self, name: str) -> dict[str, tuple[Signature, list[torch.Size]]]:
        """Return, by input set written for `name`, the signature of its first call and the shapes of the tensors."""
        return {
            key: (calls[0].signature, [one.shape for one in calls[0].tensors.values()])
            for key, calls in _grouped(self._taken[name].calls).items()
        }

    def _write(self, name: str, folder: Path) -> Recorded:
        from bakeoff.models.brought.live_write import write_live

        taken = self._taken.get(name)
        if taken is None:
            return Recorded(name, "", 0, 0, (), "it was not called while calls were recorded")
        calls = len(taken.calls)
        if taken.problem:
            return Recorded(name, "", calls, taken.seen, (), taken.problem)
        sets = sets_of(taken.calls)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            write_live(Model(taken.called, place=name), sets, folder)
        except BakeoffError as error:
            shutil.rmtree(folder, ignore_errors=True)
            return Recorded(name, "", calls, taken.seen, (), str(error))
        return Recorded(name, str(folder), calls, taken.seen, tuple(sets))


def _grouped(calls: Sequence[RecordedCall]) -> dict[str, list[RecordedCall]]:
    """Group calls by input set: `call`, then `call-2` and so on for other shapes, dtypes or plain values."""
    order: list[tuple[Signature, Facts]] = []
    sets: list[list[RecordedCall]] = []
    for call in calls:
        if call.form not in order:
            order.append(call.form)
            sets.append([])
        sets[order.index(call.form)].append(call)
    return {"call" if index == 0 else f"call-{index + 1}": made for index, made in enumerate(sets)}


def sets_of(calls: Sequence[RecordedCall]) -> dict[str, list[Call]]:
    return {name: [call.arguments for call in made] for name, made in _grouped(calls).items()}


def folder_name(name: str) -> str:
    """Return a module's name as used in folder and component names: lower-case letters, digits, dots and hyphens."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-").lower() or "module"
