"""Runs the calls that a user gave for a model, and finds out which inputs they take and which outputs they return."""

import inspect
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bakeoff.backends.torch_internals import storage_id
from bakeoff.models.brought.method import MethodOf
from bakeoff.models.brought.model import Call
from bakeoff.models.component import TensorSpec
from bakeoff.models.errors import BakeoffError, a_type
from bakeoff.models.signature import (
    Signature,
    describe_call,
    describe_output,
    flatten,
    flatten_call,
    rebuild,
)
from bakeoff.models.weights import fingerprint
from bakeoff.worker.brought.facts import CastModel, ModelFacts, SetFacts, Tensors, bad_model, dtype_name, on_cpu
from bakeoff.worker.brought.hidden_state import generators
from bakeoff.worker.brought.load import given_tensors
from bakeoff.worker.brought.network import Flat
from bakeoff.worker.cast import cast_module, is_wider, named_tensors, usual_dtype
from bakeoff.worker.failures import users_code
from bakeoff.worker.reference.error import apart
from bakeoff.worker.subject import cast_input
from bakeoff.worker.work import count

LEAST_TOLERANCE = 1e-4
"""Smallest fp32 tolerance, as of most components of this lab; two calls on the same inputs differ by less."""
_KEPT = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
"""Dtypes of tensors that no variant changes."""
_IN_TRAINING = "it is in training mode: call eval()"
_DRAWS = "take random numbers as an input, and call F.dropout with training=self.training"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def run_sets(model: ModelFacts) -> Iterator[SetFacts]:
    """Yield each input set that can be described; for any other set, add the reason to the model's notes.

    Raises BakeoffError if no set can be described.
    """
    failed: list[BakeoffError] = []
    for name in model.asked:
        try:
            yield _run_given(name, model)
        except BakeoffError as error:
            failed.append(error)
            if len(failed) == len(model.asked):
                raise failed[0] from (error if failed[1:] else error.__cause__)
            model.notes.append(f"the input set {name} is left out: {error}")


def _run_given(name: str, model: ModelFacts) -> SetFacts:
    """Run a set's first call twice and count its work, and describe its inputs, outputs and work.

    Raises BakeoffError if the set's calls differ in shape, or if the first call has side effects or random outputs.
    """
    if not _NAME.fullmatch(name):
        raise bad_model(f"the input set '{name}' needs a name of letters, digits, - and _")
    module, device, calls = model.module, model.job.device, model.asked[name]
    call = describe_call(*calls[0], parameter_names(module))
    if not call.names:
        raise bad_model(f"{name}: no input is a tensor; give tensors")
    recorded = [call_tensors(name, call, one) for one in calls]
    for number, one in enumerate(recorded[1:], 1):
        different = [key for key, tensor in one.items() if tensor.shape != recorded[0][key].shape]
        if different:
            raise bad_model(
                f"{name}: {different[0]} has other shapes in call {number}; put calls of other shapes in another set"
            )
    given_now = flatten_call(call, *calls[0])
    notes = list(_input_notes(given_now))
    specs = _input_specs(given_now, model)
    inputs = {spec.name: cast_input(spec, recorded[0][spec.name], "given", device) for spec in specs}
    dtype, value = _first_call(name, model, call, inputs, specs, notes)
    result = describe_output(value)
    outputs: Tensors = {}
    flatten(result, value, outputs)
    if not outputs:
        raise bad_model(f"{name}: the model returned no tensor, so there is nothing to check; return its result")
    _check_outputs(name, outputs, {storage_id(one) for one in module.buffers()})
    outputs = dict(zip(outputs, on_cpu(tuple(outputs.values())), strict=True))
    flat = Flat(module, call, result)
    first = tuple(tensor.clone() for tensor in outputs.values())
    before = fingerprint(module)
    drawn = generators()
    with users_code(f"{name}: the model"):
        again, counted = count(CastModel(flat, specs, dtype, device), tuple(recorded[0].values()))
    if module.training and fingerprint(module) != before:
        raise bad_model(f"{name}: a call changes the model's own parameters or buffers; {_IN_TRAINING}")
    noise = {key: apart(mine, theirs) for (key, mine), theirs in zip(outputs.items(), again, strict=True)}
    for output, error in noise.items():
        if error > LEAST_TOLERANCE and (module.training or generators() != drawn):
            text = f"{name}: {output} differs by {error:.1e} (relative L2) between two calls on the same inputs"
            advice = _IN_TRAINING if module.training else _DRAWS
            raise bad_model(f"{text}, so no compiler can be checked against it; {advice}")
    made = tuple(_spec(key, one) for key, one in outputs.items())
    model.notes += [f"{name}: {note}" for note in (*notes, *counted.notes)]
    return SetFacts(name, call, recorded, result, specs, made, first, counted, flat, dtype, device, max(noise.values()))


def _first_call(
    name: str, model: ModelFacts, call: Signature, inputs: Tensors, specs: Sequence[TensorSpec], notes: list[str]
) -> tuple[str, Any]:
    """Make the user's own call; return the dtype in which the model runs on its device, and what the call returned.

    A model in half precision that fails on the device is run in fp32 instead, with a note. Raises BakeoffError if the
    model raises, or writes into an input.
    """
    module, given, device = model.module, model.given, model.job.device
    cast_module(module, given, "given", device)
    before = {key: tensor.clone() for key, tensor in inputs.items()}
    dtype = "given"
    try:
        value = call_model(name, module, call, inputs)
    except BakeoffError as error:
        if all(one.itemsize >= torch.float32.itemsize for one in given.tensors.values()):
            raise
        place = "CPU" if device == "cpu" else "GPU"
        notes.append(f"it does not run as it was given on this {place}, and is described in fp32 ({error})")
        dtype, before = "fp32", {spec.name: cast_input(spec, before[spec.name], "fp32", device) for spec in specs}
        cast_module(module, given, dtype, device)
        inputs = {key: tensor.clone() for key, tensor in before.items()}
        value = call_model(name, module, call, inputs)
    changed = [key for key, one in inputs.items() if not torch.equal(one.nan_to_num(), before[key].nan_to_num())]
    if changed:
        raise bad_model(f"{name}: the model writes into its input {changed[0]}; let it work on a copy (x.clone())")
    return dtype, value


def _input_specs(tensors: Tensors, model: ModelFacts) -> tuple[TensorSpec, ...]:
    """Return the specs of the inputs as they were given in the first call."""
    usual = usual_dtype(one for _, one in named_tensors(model.module)) or usual_dtype(iter(tensors.values()))
    return tuple(
        replace(
            _spec(key, tensor),
            draw="given",
            keep_fp32=key in model.said.keep_fp32 or (usual is not None and is_wider(tensor.dtype, usual)),
            held=key in model.said.hold,
            order=_order(tensor) or (),
        )
        for key, tensor in tensors.items()
    )


def _spec(key: str, tensor: Tensor) -> TensorSpec:
    dtype, floating = dtype_name(tensor), tensor.is_floating_point()
    return TensorSpec(
        key,
        tuple(tensor.shape),
        dtype="" if floating else dtype,
        given=dtype if floating and dtype != "float32" else "",
    )


def _order(tensor: Tensor) -> tuple[int, ...] | None:
    """Return the axes from the slowest to the fastest in memory, or () if contiguous.

    None if the tensor does not fill a contiguous block of memory, as slices may not.
    """
    if tensor.is_contiguous():
        return ()
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], axis)))
    return order if tensor.permute(*order).is_contiguous() else None


def _input_notes(tensors: Tensors) -> Iterator[str]:
    """Yield a note on each tensor that is made contiguous, or plain."""
    for key, tensor in tensors.items():
        if type(tensor) not in (Tensor, nn.Parameter):
            yield f"{key} was given as {a_type(type(tensor))}; it is taken as a plain tensor"
        if _order(tensor) is None:
            yield f"{key} was given as a part of a larger tensor (strides {list(tensor.stride())}): made contiguous"


def call_model(name: str, module: nn.Module, call: Signature, inputs: Mapping[str, Tensor]) -> Any:
    with users_code(f"{name}: the model"):
        args = [rebuild(node, inputs) for node in call.args]
        return module(*args, **{key: rebuild(node, inputs) for key, node in call.kwargs.items()})


def call_tensors(name: str, signature: Signature, call: Call) -> Tensors:
    """Return copies of a call's tensors on the CPU; floating ones in fp32, or in fp64 if they are given so.

    Raises BakeoffError for a dtype that cannot be swept, such as complex ones, and as `given_tensors` does.
    """
    found: Tensors = {}
    for key, tensor in given_tensors(name, signature, call).items():
        plain = tensor.detach().cpu()
        if not hasattr(plain, "__tensor_flatten__"):
            plain = plain.as_subclass(Tensor)
        if not plain.is_floating_point() and plain.dtype not in _KEPT:
            raise bad_model(
                f"{name}: the input {key} is {dtype_name(plain)}; floats, integers and booleans can be swept"
            )
        narrow = plain.is_floating_point() and plain.dtype != torch.float64
        found[key] = (plain.float() if narrow else plain).contiguous().clone()
    return found


def _check_outputs(name: str, outputs: Mapping[str, Tensor], own: Collection[int]) -> None:
    for key, tensor in outputs.items():
        if not tensor.is_floating_point() and tensor.dtype not in _KEPT:
            raise bad_model(
                f"{name}: the output {key} is {dtype_name(tensor)}, which is not compared; return real numbers"
            )
        if type(tensor) is not Tensor or storage_id(tensor) in own:
            kind = "a buffer" if type(tensor) is Tensor else a_type(type(tensor))
            raise bad_model(f"{name}: the output {key} is {kind}; return plain tensors of a call's own, as by clone()")
        if tensor.is_floating_point() and torch.isnan(tensor).any():
            raise bad_model(f"{name}: the output {key} is not finite for the given inputs; check weights and inputs")
    if not any(tensor.numel() for tensor in outputs.values()):
        raise bad_model(f"{name}: no output has elements, so there is nothing to check; return values")


def parameter_names(module: nn.Module) -> list[str]:
    """Return the names of the positional parameters of `forward`, or of the method that a `MethodOf` calls."""
    function = getattr(module.module, module.method) if isinstance(module, MethodOf) else module.forward
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
