"""Records the inputs of modules during passes, and writes them as folders of live modules that a sweep takes."""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bakeoff.models.brought.method import MethodOf
from bakeoff.models.brought.model import Call, Model
from bakeoff.models.errors import BakeoffError
from bakeoff.models.signature import Signature, describe_call
from bakeoff.process.inspected import Recorded
from bakeoff.worker.brought.calls import parameter_names
from bakeoff.worker.brought.load import given_tensors
from bakeoff.worker.inspection.numbers import Facts, RecordedCall, as_tensors, without_numbers

MOST_CALLS = 8
"""Largest number of different calls of a module that are kept, of as many sizes as possible."""
Form = tuple[Signature, Facts]


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
    def forms(self) -> list[Form]:
        """Form of each call, without the values of its numbers."""
        return [_form(call) for call in self.calls]

    @property
    def is_full(self) -> bool:
        """Whether no further call would be kept, not even one of a new form, which replaces one of a repeated form."""
        forms = self.forms
        return bool(self.problem) or (len(forms) >= MOST_CALLS and all(forms.count(form) == 1 for form in forms))


def _form(call: RecordedCall) -> Form:
    return without_numbers(call.signature), call.facts


class Recording:
    """Keeps the inputs of calls as they were at the entry, in the order of the calls; equal calls are kept once."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        """Record only the modules and methods of these names; () records all."""
        self._names = tuple(names)
        self._written: dict[str, Mapping[str, Sequence[RecordedCall]]] = {}
        self._taken: dict[str, _CallsOfOne] = {}
        self.changes = 0
        """Number of times that a call was kept so far, of all modules together."""

    def _make_room(self, taken: _CallsOfOne, form: Form) -> bool:
        """Return whether a call of this form is kept.

        If there is no room, a call of a new form replaces the last call of the commonest form.
        """
        if len(taken.calls) < MOST_CALLS:
            return True
        forms = taken.forms
        most = max(forms, key=forms.count)
        if form in forms or forms.count(most) == 1:
            return False
        del taken.calls[len(forms) - 1 - forms[::-1].index(most)]
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
            same = (other.signature, other.facts) == (signature, call.facts)
            if same and all(torch.equal(kept, call.tensors[key]) for key, kept in other.tensors.items()):
                return
        if not self._make_room(taken, _form(call)):
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
            for key, calls in self._written[name].items()
        }

    def _write(self, name: str, folder: Path) -> Recorded:
        from bakeoff.models.brought.live_write import write_live

        taken = self._taken.get(name)
        if taken is None:
            return Recorded(name, "", 0, 0, (), "it was not called while calls were recorded")
        calls = len(taken.calls)
        if taken.problem:
            return Recorded(name, "", calls, taken.seen, (), taken.problem)
        module = taken.called
        kept, notes = as_tensors(module, taken.calls, parameter_names(module))
        self._written[name] = _grouped(kept)
        sets = sets_of(kept)
        numbers = sorted({name for call in kept for name in call.fractions})
        shutil.rmtree(folder, ignore_errors=True)
        try:
            write_live(Model(module, keep_fp32=tuple(numbers), place=name), sets, folder)
        except BakeoffError as error:
            shutil.rmtree(folder, ignore_errors=True)
            return Recorded(name, "", calls, taken.seen, (), str(error))
        return Recorded(name, str(folder), calls, taken.seen, tuple(sets), notes=tuple(notes))


def _grouped(calls: Sequence[RecordedCall]) -> dict[str, list[RecordedCall]]:
    """Group calls by input set: `call`, then `call-2` and so on for other shapes, dtypes or plain values."""
    order: list[Form] = []
    sets: list[list[RecordedCall]] = []
    for call in calls:
        form = (call.signature, call.facts)
        if form not in order:
            order.append(form)
            sets.append([])
        sets[order.index(form)].append(call)
    return {"call" if index == 0 else f"call-{index + 1}": made for index, made in enumerate(sets)}


def sets_of(calls: Sequence[RecordedCall]) -> dict[str, list[Call]]:
    return {name: [call.arguments for call in made] for name, made in _grouped(calls).items()}


def folder_name(name: str) -> str:
    """Return a module's name as used in folder and component names: lower-case letters, digits, dots and hyphens."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-").lower() or "module"
