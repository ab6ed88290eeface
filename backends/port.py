"""Ports: engines bound to named inputs, to which a loop gives new values before each call.

There are three kinds, chosen by the engine (`Engine.port`), and a loop uses all of them in the same way:
- `Port` copies new values into the buffers that the engine was bound to.
- `ReplacingPort` is for engines that read the tensors they are given at each call: values are replaced, not copied.
- `SwappingPort` is for engines that write into given memory: two bindings, with carried inputs and outputs swapped.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from bakeoff.backends.torch_internals import copier
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted

if TYPE_CHECKING:
    from torch import Tensor

NOTHING_CARRIED: Mapping[str, str] = MappingProxyType({})
_ALIGNMENT = 16
"""Alignment in bytes. Inductor copies CUDA inputs with another alignment (torch/_inductor/utils.py, ALIGNMENT)."""


class Port:
    """Inputs and outputs of a bound engine, by name; `feed` copies values into the inputs. Not thread-safe.

    The engine reads the tensors of `inputs` directly, so an input that does not change costs nothing.
    """

    __slots__ = ("_call", "_called", "_carried", "_clones", "_names", "_outputs", "inputs", "reuses_outputs")

    def __init__(
        self,
        inputs: "Mapping[str, Tensor]",
        call: "Callable[[], tuple[Tensor, ...]]",
        names: Sequence[str],
        carried: Mapping[str, str] = NOTHING_CARRIED,
        clones: bool = False,
    ):
        """Create a port for `call`, which reads `inputs` and returns one output for each of `names`, in order.

        `carried` maps an output's name to the name of the input that it becomes in the next call. `clones` is for
        engines whose outputs the next call of another engine may overwrite: the call copies all outputs to new memory,
        and `advance` counts these bytes too. Raises BakeoffError for unknown names, and for two outputs that become one
        input.
        """
        _check_carried(inputs, names, carried)
        self.inputs = inputs
        """Tensors that the next call reads. They may be written in place. Replacing a tensor here has no effect on the
        engine; use `feed`."""
        self._call = call
        self._names = tuple(names)
        self._carried = dict(carried)
        self._clones = clones
        self.reuses_outputs = not clones
        """Whether the next call may write into the memory of the last outputs."""
        self._outputs: tuple[Tensor, ...] | None = None
        self._called = False
        """Whether `call` ran since the last `advance`."""

    def feed(self, values: "Mapping[str, Tensor]") -> int:
        """Set the values of inputs, by name, for the next calls; return the number of bytes that were copied.

        A value that is not copied is read by the engine itself: it must not be overwritten before the last call that
        reads it. Raises BakeoffError for an unknown name, and for another shape, dtype or device. Strides may differ.
        """
        for name, value in values.items():
            _fitting(self.inputs, name, value, "the value")
        return _overwrite(self.inputs, values)

    def call(self) -> None:
        """Compute the outputs for the current values of `inputs`. On CUDA this returns before they are computed."""
        outputs = self._call()
        self._outputs = tuple(output.clone() for output in outputs) if self._clones else outputs
        self._called = True

    def advance(self) -> int:
        """Make the carried outputs of the last call inputs of the next; return the number of bytes that were copied.

        Other inputs keep their values. Until a carried input is fed again, the output that became it may be the memory
        that the next call reads, so it must not be overwritten. A second `advance` after one call does nothing. Raises
        BakeoffError before the first call, and for an output of another shape, dtype or device than its input.
        """
        values = self._values_to_carry()
        if not self._called:
            return 0
        self._called = False
        return self._carry(values)

    @property
    def outputs(self) -> "dict[str, Tensor]":
        """Outputs of the last call, valid until the next call, which may write into the same memory.

        If the module returns an input unchanged, that output may be the input's buffer, and is valid until the buffer
        is overwritten. Raises BakeoffError before the first call, and if the engine returns another number of outputs.
        """
        if self._outputs is None:
            raise BakeoffError("the port was not called yet; call it before reading its outputs", "wrong-output")
        if len(self._outputs) != len(self._names):
            raise _wrong_number(len(self._outputs), self._names)
        return dict(zip(self._names, self._outputs, strict=True))

    def _values_to_carry(self) -> "dict[str, Tensor]":
        """Return the outputs of the last call that are carried, by the names of the inputs that they become."""
        outputs = self.outputs
        values = {name: outputs[output] for output, name in self._carried.items()}
        for output, name in self._carried.items():
            _fitting(self.inputs, name, outputs[output], f"the output {output}, which is carried to it,")
        return values

    def _carry(self, values: "Mapping[str, Tensor]") -> int:
        cloned = sum(output.nbytes for output in self._outputs or ()) if self._clones else 0
        return cloned + _overwrite(self.inputs, values)


class ReplacingPort(Port):
    """A port that passes the fed and carried tensors themselves to the engine: `feed` and `advance` copy nothing.

    A tensor is nevertheless copied if compiled code would treat it differently from the one before: because of its
    strides, an address that is not a multiple of 16 bytes, or whether it was made under `torch.inference_mode`. An
    output that shares memory with one of the caller's tensors is copied to new memory in the call, because the caller
    may overwrite that tensor next; `advance` counts these bytes too.
    """

    __slots__ = ("_bind", "_callers", "_changed", "_copied", "_current", "_shared")

    def __init__(
        self,
        inputs: "Mapping[str, Tensor]",
        bind: "Callable[[Mapping[str, Tensor]], Callable[[], tuple[Tensor, ...]]]",
        names: Sequence[str],
        carried: Mapping[str, str] = NOTHING_CARRIED,
        shared: bool = False,
    ):
        """Create a port that calls `bind` again after each change, so `bind` must be cheap.

        The calls that `bind` returns read the tensors given to it, and return new memory, views of them, or constants.
        With `shared`, `inputs` are the caller's tensors, into which `advance` copies.
        """
        self._current = dict(inputs)
        super().__init__(MappingProxyType(self._current), bind(self._current), names, carried)
        self.reuses_outputs = False
        self._bind = bind
        self._changed = False
        self._shared = dict(inputs) if shared else {}
        self._callers = {name: _storage(tensor) for name, tensor in self._shared.items()}
        """Storage of each input that is the caller's tensor."""
        self._copied = 0

    def feed(self, values: "Mapping[str, Tensor]") -> int:
        total = 0
        for name, value in values.items():
            taken, copied = _like(_fitting(self.inputs, name, value, "the value"), value)
            self._replace(name, taken, callers=not copied)
            total += copied
        return total

    def call(self) -> None:
        self._outputs = None  # frees memory that nobody else holds
        if self._changed:
            self._call = self._bind(self._distinct())
            self._changed = False
        super().call()
        if self._callers:
            storages = set(self._callers.values())
            given: tuple[Tensor, ...] = self._outputs or ()
            self._outputs = tuple(output.clone() if _storage(output) in storages else output for output in given)
            pairs = zip(self._outputs, given, strict=True)
            self._copied += sum(output.nbytes for output, before in pairs if output is not before)

    def _carry(self, values: "Mapping[str, Tensor]") -> int:
        copied, self._copied = self._copied, 0
        if self._shared:
            for name in values:
                self._replace(name, self._shared[name], callers=True)
            return copied + _overwrite(self._shared, values)
        for name, value in values.items():
            taken, more = _like(self._current[name], value)
            self._replace(name, taken, callers=False)
            copied += more
        return copied

    def _replace(self, name: str, tensor: "Tensor", callers: bool) -> None:
        self._current[name] = tensor
        self._changed = True
        if callers:
            self._callers[name] = _storage(tensor)
        else:
            self._callers.pop(name, None)

    def _distinct(self) -> "Mapping[str, Tensor]":
        """Return the inputs, each a separate tensor object: dynamo compiles again if one object is passed as two
        inputs."""
        seen: set[int] = set()
        for name, tensor in self._current.items():
            if id(tensor) in seen:
                self._current[name] = tensor.detach()
            seen.add(id(self._current[name]))
        return self._current


class SwappingPort(Port):
    """A port with two bindings: the carried outputs of one are inputs of the other, so `advance` copies nothing."""

    __slots__ = ("_next",)

    def __init__(
        self,
        first: "tuple[Mapping[str, Tensor], Callable[[], tuple[Tensor, ...]]]",
        second: "tuple[Mapping[str, Tensor], Callable[[], tuple[Tensor, ...]]]",
        names: Sequence[str],
        carried: Mapping[str, str],
    ):
        """Create a port from two bindings, each the inputs and the call that reads them.

        Inputs that are not carried must be the same tensors in both, so that they are fed once.
        """
        super().__init__(*first, names, carried)
        self._next = second

    def _carry(self, _values: "Mapping[str, Tensor]") -> int:
        now = (self.inputs, self._call)
        (self.inputs, self._call), self._next = self._next, now
        return 0


def bound_port(
    inputs: "Mapping[str, Tensor]",
    results: "Sequence[Tensor]",
    bind: "Callable[[Mapping[str, Tensor], Sequence[Tensor]], Callable[[], tuple[Tensor, ...]]]",
    names: Sequence[str],
    carried: Mapping[str, str],
    shared: bool,
) -> Port:
    """Return the port of an engine whose calls write into given memory; `bind` takes inputs and results, all
    contiguous.

    `inputs` are the caller's tensors; they are copied unless `shared`. If outputs are carried, a second binding reads
    their memory and writes into that of the inputs; all other inputs and outputs are the same in both bindings. A
    shared port is bound once and its `advance` copies, because the caller's tensors must hold the current values.
    Raises BakeoffError for a shared tensor that is not contiguous, and at once for carried outputs that `Port` would
    refuse.
    """
    if shared:
        for name, tensor in inputs.items():
            if not tensor.is_contiguous():
                raise BakeoffError(f"the shared input {name} is not contiguous; make it so", "bad-input")
    buffers = port_buffers(inputs, shared, contiguous=True)
    first = bind(buffers, results)
    if shared or not carried:
        return Port(buffers, first, names, carried)
    _check_carried(buffers, names, carried)
    if len(results) != len(names):
        raise _wrong_number(len(results), names)
    other_inputs, other_results = dict(buffers), list(results)
    for output, name in carried.items():
        index = names.index(output)
        _fitting(buffers, name, results[index], f"the output {output}, which is carried to it,")
        other_inputs[name], other_results[index] = results[index], buffers[name]
    return SwappingPort((buffers, first), (other_inputs, bind(other_inputs, other_results)), names, carried)


def port_buffers(inputs: "Mapping[str, Tensor]", shared: bool, contiguous: bool = False) -> "dict[str, Tensor]":
    """Return the tensors that a port reads: the given ones if `shared`, else copies made by `buffers_like`."""
    return dict(inputs) if shared else buffers_like(inputs, contiguous)


def buffers_like(inputs: "Mapping[str, Tensor]", contiguous: bool = False) -> "dict[str, Tensor]":
    """Copy the inputs into new memory, with the same strides unless `contiguous`.

    The copies can be written in any mode, even if the inputs were made under `torch.inference_mode`.
    """
    import torch

    layout = torch.contiguous_format if contiguous else torch.preserve_format
    with torch.inference_mode(False), torch.no_grad():
        return {name: tensor.clone(memory_format=layout) for name, tensor in inputs.items()}


def _check_carried(inputs: "Mapping[str, Tensor]", names: Sequence[str], carried: Mapping[str, str]) -> None:
    """Raise BakeoffError if a carried output or its input does not exist, or an input is named twice."""
    for what, wanted, known in (("output", carried.keys(), names), ("input", carried.values(), inputs)):
        for name in wanted:
            if name not in known:
                raise BakeoffError(f"carried: no {what} {name}; the {what}s are {', '.join(known)}", "bad-input")
    twice = [name for name in inputs if list(carried.values()).count(name) > 1]
    if twice:
        raise BakeoffError(f"carried makes two outputs the input {twice[0]}; name it once", "bad-input")


def _fitting(inputs: "Mapping[str, Tensor]", name: str, value: "Tensor", what: str) -> "Tensor":
    """Return the input of this name.

    Raises BakeoffError if there is none, or if `value`, which the message calls `what`, differs in shape, dtype or
    device.
    """
    if name not in inputs:
        raise BakeoffError(f"the port has no input {name}; its inputs are {', '.join(inputs)}", "bad-input")
    own = inputs[name]
    if (value.shape, value.dtype, value.device) != (own.shape, own.dtype, own.device):
        given, wanted = _described(value), _described(own)
        raise BakeoffError(f"{what} is {given}, but the input {name} is {wanted}; convert it first", "bad-input")
    return own


def _described(tensor: "Tensor") -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)} on {tensor.device}"


def _wrong_number(found: int, names: Sequence[str]) -> BakeoffError:
    text = f"the engine returns {counted(found, 'output')}; name each in order, not {', '.join(names)}"
    return BakeoffError(text, "wrong-output")


def _overwrite(buffers: "Mapping[str, Tensor]", values: "Mapping[str, Tensor]") -> int:
    """Copy each value into the buffer of its name, unless it is that buffer; return the number of bytes copied."""
    new = {name: value for name, value in values.items() if not _same(value, buffers[name])}
    written = {_storage(buffers[name]) for name in new}
    for name, value in new.items():
        if _storage(value) in written:  # such as a view of an input that is overwritten too
            new[name] = value = value.clone()
        if value.requires_grad:
            new[name] = value.detach()
    copier(buffers, new)()
    return sum(value.nbytes for value in new.values())


def _like(own: "Tensor", value: "Tensor") -> "tuple[Tensor, int]":
    """Return the value, or a copy if compiled code would treat it differently from `own`, and the number of bytes
    copied."""
    import torch

    if value.requires_grad or type(value) is not torch.Tensor:
        value = value.detach()
    if (
        value.stride() == own.stride()
        and value.data_ptr() % _ALIGNMENT == 0
        and value.is_inference() == own.is_inference()
    ):
        return value, 0
    with torch.inference_mode(own.is_inference()), torch.no_grad():
        return torch.empty_like(own).copy_(value), value.nbytes


def _same(one: "Tensor", other: "Tensor") -> bool:
    """Return whether two tensors of one shape have the same memory."""
    return one.data_ptr() == other.data_ptr() and one.stride() == other.stride()


def _storage(tensor: "Tensor") -> int:
    """Return the address of the tensor's storage, which all its views share."""
    return tensor.untyped_storage().data_ptr()
