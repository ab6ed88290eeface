"""Feeds the programs of a loop: finds the program that a call is for, and copies what its port does not hold yet.

A sliding window lies in one buffer that the programs of a slot share. State that a program makes for its own next call
is swapped with its inputs if the engine can do that. All other inputs of a call are given to the program's port, which
copies them or reads them where they are.
"""

import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from bakeoff.backends.backend import Engine
from bakeoff.backends.port import Port
from bakeoff.models.brought.about import read_about
from bakeoff.models.component import Component
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import Key, Loop
from bakeoff.models.signature import Node, Signature, flatten_call, rebuild
from bakeoff.worker.pipeline.account import Account
from bakeoff.worker.pipeline.lanes import Lane
from bakeoff.worker.torch_flags import Flags


@dataclass(frozen=True, slots=True)
class ProgramEngine:
    """A built program in the form that a runner takes."""

    engine: Engine
    outputs: Sequence[str]
    """Names of the outputs, in order."""
    inputs: Mapping[str, Tensor]
    """One set of inputs in the variant's dtype and on its device, which gives shapes and layouts; not overwritten."""
    flags: Flags | None = None
    """torch's flags at the program's build; set before each of its calls if programs have different flags."""
    call: tuple[Signature, Node] | None = None
    """Signature and result structure of a user's own module; None for a component, which takes tensors by name."""


@dataclass(slots=True)
class BoundProgram:
    """A program in the loop: its port, and the tensors that were fed to it."""

    key: Key
    built: ProgramEngine
    port: Port
    shapes: tuple[torch.Size, ...]
    carried: Mapping[str, str]
    """Output to the input that it becomes in the program's next call, by name."""
    keeps: bool
    """True if outputs are copied, because they are read after the next call and that call may overwrite them."""
    windows: Mapping[str, Tensor]
    """Buffers of the inputs that are windows, by input."""
    account: Account
    """That of its lane."""
    calls: int = 0
    last: Mapping[str, Tensor] = field(default_factory=dict)
    """Outputs of the last call."""
    fed: dict[str, tuple[Any, object]] = field(default_factory=dict)
    """Input to a weak reference to the tensor last fed to it, and a token that changes with that tensor's values."""


class Feeder:
    """Binds the programs of a loop, and gives each call its inputs. Copies are timed and counted in the account."""

    def __init__(
        self, loop: Loop, engines: Mapping[Key, ProgramEngine], account: Account, lane: Lane | None = None
    ) -> None:
        """Bind every program. Raises BakeoffError if one is missing, or if values do not fit its inputs."""
        missing = [key for key in loop.programs if key not in engines]
        if missing:
            raise BakeoffError(f"the loop calls {missing[0]}, which was not built", code="bad-config")
        self._loop, self._account, self._lane = loop, account, lane
        if lane is not None:
            lane.main, lane.held = account, self.held
        self.windows = {
            path: torch.zeros_like(engines[Key(slot, program)].inputs[name])
            for path, [(slot, program, name), *_] in loop.windows.items()
        }
        """Buffer of each window, by its path in the state."""
        self.sets_flags = len({built.flags for key, built in engines.items() if not self.is_apart(key)}) > 1
        """Whether the programs have different flags of torch, to be set before each call."""
        self.programs = {key: self._bind(key, built) for key, built in engines.items()}
        self._makers = WeakTensorKeyDictionary()
        """Output tensor to the program that made it, whose next call may overwrite it."""
        self._copies = WeakTensorKeyDictionary()
        """Value that the second lane was given, with its token, to the copy."""

    def is_apart(self, key: Key) -> bool:
        """Return whether a program is one of the second lane."""
        return self._lane is not None and key in self._lane.programs

    def _bind(self, key: Key, built: ProgramEngine) -> BoundProgram:
        lane = self._lane if self.is_apart(key) else None
        windows = {
            name: self.windows[path]
            for path, readers in self._loop.windows.items()
            for slot, program, name in readers
            if (slot, program) == key and (lane is None or not lane.behind)  # else it slides while the lane reads it
        }
        buffers = {name: windows.get(name, torch.zeros_like(like)) for name, like in built.inputs.items()}
        carried = self._loop.carried.get(str(key), {})
        make = partial(built.engine.port, buffers, built.outputs, carried=carried, shared=bool(windows))
        # Graphs that one thread captures share a cuBLAS workspace: each handle, which is of a thread, has one for each
        # stream, and captures have the same (PyTorch 2.13, CUDA semantics, cuBLAS workspaces; torch/cuda/graphs.py).
        port = make() if lane is None else lane.do(make)
        shapes, keeps = (
            tuple(one.shape for one in built.inputs.values()),
            key in self._loop.kept and port.reuses_outputs,
        )
        account = self._account if lane is None else lane.account
        return BoundProgram(key, built, port, shapes, carried, keeps, windows, account)

    def choose(
        self, slot: str, program: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[BoundProgram, Mapping[str, Tensor]]:
        """Return the program that a call is for, and the call's inputs by name. Raises BakeoffError if none fits."""
        bound = self.programs.get(Key(slot, program))
        if bound is not None and bound.built.call is None:
            return bound, {**dict(zip(bound.port.inputs, args, strict=False)), **kwargs}
        method = f"{slot}.{program}" if program else slot
        for key, bound in self.programs.items():
            if key.slot == method and bound.built.call is not None:
                inputs = called_as(bound.built.call[0], bound.shapes, args, kwargs)
                if inputs is not None:
                    return bound, inputs
        leaves = pytree.tree_leaves((args, kwargs))
        given = (str(list(leaf.shape)) if isinstance(leaf, Tensor) else f"{leaf!r:.40}" for leaf in leaves)
        text = f"slot {method} is called with other shapes, names or plain values than in the first units, now with "
        raise BakeoffError(f"{text}{', '.join(given) or 'nothing'}; let every unit call it alike", "bad-user-code")

    def feed(self, program: BoundProgram, inputs: Mapping[str, Tensor]) -> None:
        """Give the program's port each input whose values it does not hold yet."""
        account, port, advanced = program.account, program.port, self._advanced(program, inputs)
        new: dict[str, Tensor] = {}
        for name, value in inputs.items():
            if name in advanced or program.windows.get(name) is value:
                continue
            token, held = self._token(value), program.fed.get(name)
            if held is not None and held[0]() is value and held[1] == token is not None:
                continue
            tensor, wanted = value, port.inputs[name]
            if (tensor.dtype, tensor.device) != (wanted.dtype, wanted.device):
                account.clock.mark(account.copies)
                tensor = tensor.to(wanted.device, wanted.dtype)
                account.clock.mark(account.glue)
            new[name], program.fed[name] = tensor, (weakref.ref(value), token)
        account.copied_bytes += port.feed(new)

    def _advanced(self, program: BoundProgram, inputs: Mapping[str, Tensor]) -> Collection[str]:
        """Swap all carried inputs at once if they are outputs of the program's last call; return their names.

        Returns () if they are not, or if the program has none.
        """
        carried = program.carried
        if not carried or any(inputs[name] is not program.last.get(output) for output, name in carried.items()):
            return ()
        program.account.copied_bytes += program.port.advance()
        for name in carried.values():
            program.fed.pop(name, None)  # what was fed before is no longer there
        return carried.values()

    def _token(self, value: Tensor) -> tuple[int, int] | None:
        """Return a token that changes whenever the tensor's values do; None if that cannot be known."""
        maker = self._makers.get(value)
        if value.is_inference():
            return None if maker is None else (0, maker.calls)
        return value._version, 0 if maker is None else maker.calls

    def held(self, value: Tensor) -> Tensor:
        """Return the value as the second lane may read it later: a copy, unless only that lane overwrites it."""
        maker, token, lane = self._makers.get(value), self._token(value), self._lane
        if maker is not None and maker.account is not self._account:
            return value
        if lane is not None and not lane.behind and any(value is buffer for buffer in self.windows.values()):
            lane.reading.append(value)
            return value  # `slide` waits for the lane
        known = self._copies.get(value)
        if known is None or known[0] is None or known[0] != token:
            known = self._copies[value] = token, value.clone()
            self._account.copied_bytes += value.nbytes
            if lane is not None:
                lane.keep(known[1])
        copy: Tensor = known[1]
        return copy

    def apart_bytes(self) -> int:
        """Return the most bytes of copies that the second lane was given so far, and those of its own buffers for
        windows."""
        assert self._lane is not None
        lanes = [one for key, one in self.programs.items() if self.is_apart(key) and not one.windows]
        readers = {reader for known in self._loop.windows.values() for reader in known}
        own = (one.port.inputs[name] for one in lanes for name in one.port.inputs if (*one.key, name) in readers)
        return self._lane.most_bytes() + sum(tensor.nbytes for tensor in own)

    def forget(self) -> None:
        """Give each program all inputs at its next call, since ports hold others than it was fed."""
        for program in self.programs.values():
            program.fed.clear()
            program.last = {}

    def outputs(self, program: BoundProgram) -> Mapping[str, Tensor]:
        """Return the outputs of the call that the program just made; the program's next call may overwrite them."""
        if not program.calls:
            _check_memory(program)
        program.calls += 1
        outputs = program.port.outputs
        if program.keeps:
            outputs = {name: output.clone() for name, output in outputs.items()}
            program.account.copied_bytes += sum(output.nbytes for output in outputs.values())
            program.account.clock.mark(program.account.copies)
        else:
            self._makers.update(dict.fromkeys(outputs.values(), program))
        program.last = outputs
        return outputs


def result_of(program: BoundProgram, outputs: Mapping[str, Tensor]) -> Any:
    """Return what a call returns to the loop."""
    call = program.built.call
    return dict(outputs) if call is None else rebuild(call[1], outputs)


def _check_memory(program: BoundProgram) -> None:
    """Raise BakeoffError if an engine's output shares the memory of an input, which the next call overwrites."""
    buffers = {buffer.untyped_storage().data_ptr(): name for name, buffer in program.port.inputs.items()}
    for output, value in program.port.outputs.items():
        name = buffers.get(value.untyped_storage().data_ptr())
        if name is not None and value.numel():
            text = f"{program.key}: the output {output} is memory of the input {name}, which the next call"
            raise BakeoffError(f"{text} overwrites; a loop cannot hold it", "wrong-output")


def called_as(
    signature: Signature, shapes: Sequence[torch.Size], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Tensor] | None:
    """Return a call's inputs by name; None if `signature` or `shapes` do not fit the call."""
    try:
        inputs = flatten_call(signature, args, kwargs)
    except BakeoffError:
        return None
    given = [tuple(one.shape) if isinstance(one, Tensor) else None for one in inputs.values()]
    return inputs if given == list(shapes) else None


def call_of(loop: Loop, key: Key, component: Component) -> tuple[Signature, Node] | None:
    """Return the signature and the result structure of a program of the author's own module; None for a component's."""
    if not loop.slot(key.slot).users:
        return None
    one = read_about(Path(component.folder)).input_set(key.program)
    return one.call, one.result
