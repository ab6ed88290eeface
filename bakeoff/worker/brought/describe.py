"""Describes a brought model by running it: its tensors, work and tolerance, and what no compiler can be blamed for."""

import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bakeoff.machine.files import write_atomically
from bakeoff.models.brought.about import ABOUT, GIVEN, About, Batched, InputSet
from bakeoff.models.brought.model import Model
from bakeoff.models.component import Layer, TensorSpec, Work, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.signature import Node, Signature, describe_call, describe_output, flatten, flatten_call, rebuild
from bakeoff.models.weights import fingerprint, state_digest
from bakeoff.process.jobs import DescribeJob, DescribeResult
from bakeoff.worker.brought.batches import find_batches
from bakeoff.worker.brought.load import Call, load_module, one_line, user_error
from bakeoff.worker.brought.network import Flat, GivenInputs, other_key
from bakeoff.worker.brought.sizes import FoundSizes, find_sizes, sizes_of, with_shapes
from bakeoff.worker.brought.work import Counted, count
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import CHANGE, altered, cast_inputs, held_inputs, set_count
from bakeoff.worker.torch_flags import TORCH_DTYPES, flags

_LEAST_TOLERANCE, _MOST_TOLERANCE = 1e-4, 1e-2
"""That of most components of this lab, and one above which fp32 would be no fp32 any more."""
_OF_EAGER = 10
"""Times eager's own fp32 error: other implementations sum in another order, and some use transforms."""
_KEPT = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
"""Dtypes of tensors that no variant changes."""
_FEW = 8
"""Distinct values up to which those of a float input may be a mask's."""
_LAYERS: Mapping[type[nn.Module], Layer] = {
    nn.Linear: "linear",
    nn.Conv1d: "conv1d",
    nn.Conv2d: "conv2d",
    nn.Conv3d: "conv3d",
    nn.MultiheadAttention: "attention",
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
Tensors = dict[str, Tensor]


@dataclass(slots=True)
class _Found:
    """One input set, as far as it is known."""

    name: str
    call: Signature
    calls: list[Tensors]
    """Floating ones in fp32."""
    result: Node
    specs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    given_outputs: tuple[Tensor, ...]
    """Of the first call, in fp32."""
    counted: Counted
    flat: Flat
    notes: list[str] = field(default_factory=list)
    sizes: FoundSizes | None = None
    others: list[Tensors] = field(default_factory=list)
    """Recorded calls of other sizes."""
    batches: tuple[Batched, ...] = ()

    @property
    def workload(self) -> Workload:
        return Workload(self.name, "", self.specs, self.outputs, Work(0, 0, 0))

    @property
    def described(self) -> InputSet:
        held = tuple(spec.name for spec in self.specs if spec.held)
        work = self.counted.work(self.specs + self.outputs)
        calls = len(self.calls)
        batches = tuple(
            Batched(one.batch, with_shapes(self.specs, one.inputs), with_shapes(self.outputs, one.outputs), one.work)
            for one in self.batches
        )
        described = InputSet(
            self.name,
            self.call,
            self.result,
            self.specs,
            self.outputs,
            work,
            calls,
            held,
            batches=batches,
            others=len(self.others),
        )
        return described if self.sizes is None else self.sizes.added_to(described)

    @property
    def given(self) -> Tensors:
        """As they are written."""
        given = {f"{self.name}/{n}/{name}": one for n, call in enumerate(self.calls) for name, one in call.items()}
        others = {
            other_key(self.name, n, name): one for n, call in enumerate(self.others) for name, one in call.items()
        }
        return given | others

    def source(self, workload: Workload | None = None) -> GivenInputs:
        return GivenInputs(self.described, workload or self.workload, self.given, tuple(self.others))


def describe_model(job: DescribeJob, report: Report) -> DescribeResult:
    """Run the model of a source and write its description and its given inputs into `job.folder`.

    Raises BakeoffError where the model cannot be run, differs from itself, or takes or gives what no check can compare;
    the message names the line or tensor, and says what to do.
    """
    report("weights")
    loaded = load_module(job.source, job.seed)
    module, said = loaded.module.requires_grad_(False), loaded.said
    weights = fingerprint(module)
    if any(one.is_floating_point() for one in module.parameters()):
        module = module.float()
    with flags("fp32", job.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user's own, which a plain call shows
        report("reference", "running the model in fp32")
        calls, asked = sizes_of(loaded.sets, _parameters(module), job.sizes)
        sets = [_run_given(name, calls[name], module, said) for name in calls]
        _check_said(said, sets)
        for one in sets:
            report("reference", f"varying the inputs of {one.name}")
            _hold(one)
            if one.name in asked:
                report("reference", f"running the model at other sizes of {one.name}")
                found = asked[one.name]
                one.others = [_tensors(one.name, one.call, other) for other in found.others]
                one.sizes = find_sizes(one.name, found, one.flat, one.specs, one.outputs, one.source)
                one.name = one.sizes.workload
                one.notes += one.sizes.notes
            if job.batches:
                report("reference", f"running the model with other batches of {one.name}")
                one.batches = find_batches(one.name, job.batches, one.flat, one.specs, one.outputs, one.source)
        report("reference", "running the model in fp64")
        fp64, errors = _fp64_errors(module, sets)
        report("reference", "running the model in bf16")
        _find_fp32_outputs(module, sets)
    notes = [*loaded.notes, *(note for one in sets for note in one.notes), *fp64]
    tolerance = said.tolerance_fp32
    if tolerance is None:
        tolerance = min(max([_LEAST_TOLERANCE, *(_OF_EAGER * error for error in errors)]), _MOST_TOLERANCE)
    given = {name: tensor for one in sets for name, tensor in one.given.items()}
    kind = type(module)
    about = About(
        name=job.name,
        preset=job.preset,
        summary=f"{kind.__module__}.{kind.__qualname__}, brought by a user",
        source=job.source,
        weights=weights,
        seed=job.seed,
        given=state_digest(given),
        parameters=sum(one.numel() for one in module.parameters()),
        layers=_layers(module, sets),
        tolerance_fp32=tolerance,
        fp64=not fp64,
        sets=tuple(one.described for one in sets),
        state=dict(said.state),
        notes=tuple(notes),
        place=said.place,
    )
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(given, folder / GIVEN)
    write_atomically(folder / ABOUT, msgspec.json.format(msgspec.json.encode(about), indent=1))
    return DescribeResult(about.notes)


def _changes_itself(name: str, module: nn.Module) -> BakeoffError:
    return _problem(f"{name}: a call changes the model's own parameters or buffers; {_eval_advice(module, 'changes')}")


def _state(module: nn.Module) -> str:
    """A digest of all parameters and buffers, those that no state dict has included."""
    return state_digest({**dict(module.named_parameters()), **dict(module.named_buffers())})


def _run_given(name: str, calls: Sequence[Call], module: nn.Module, said: Model) -> _Found:
    """Run a set's given calls, the first one twice, and check that nothing but the outputs comes of it."""
    if not _NAME.fullmatch(name):
        raise _problem(f"the input set '{name}' needs a name of letters, digits, - and _")
    call = describe_call(*calls[0], _parameters(module), _is_tensor)
    if not call.names:
        raise _problem(f"{name}: no input is a tensor; give tensors")
    recorded = [_tensors(name, call, one) for one in calls]
    for number, one in enumerate(recorded[1:], 1):
        different = [key for key, tensor in one.items() if tensor.shape != recorded[0][key].shape]
        if different:
            text = f"{name}: {different[0]} has other shapes in call {number}; put calls of other shapes in another set"
            raise _problem(text)
    inputs = {key: tensor.clone() for key, tensor in recorded[0].items()}
    before = fingerprint(module)
    value = _called(name, lambda: _whole_call(module, call, inputs))
    result = describe_output(value, _is_tensor)
    outputs: Tensors = {}
    flatten(result, value, outputs)
    if not outputs:
        raise _problem(f"{name}: the model returned no tensor, so there is nothing to check; return its result")
    _check_outputs(name, outputs)
    flat = Flat(module, call, result)
    first = tuple(tensor.clone() for tensor in outputs.values())
    changed = [key for key, tensor in inputs.items() if not torch.equal(tensor, recorded[0][key])]
    if changed:
        raise _problem(f"{name}: the model writes into its input {changed[0]}; let it work on a copy (x.clone())")
    if fingerprint(module) != before:
        raise _changes_itself(name, module)
    after_first = _state(module)  # the first call may fill buffers that are in no state dict
    again, counted = _called(name, lambda: count(flat, tuple(inputs.values())))
    if _state(module) != after_first:
        raise _changes_itself(name, module)
    for (output, mine), theirs in zip(outputs.items(), again, strict=True):
        apart = _apart(mine, theirs)
        if apart > _LEAST_TOLERANCE:
            text = f"{name}: {output} differs by {apart:.1e} (relative L2) between two calls on the same inputs"
            raise _problem(f"{text}, so no compiler can be checked against it; {_eval_advice(module, 'differs')}")
    specs = tuple(
        TensorSpec(
            key,
            tuple(tensor.shape),
            "given",
            keep_fp32=key in said.keep_fp32,
            dtype="" if tensor.is_floating_point() else _dtype_name(tensor),
            held=key in said.hold,
        )
        for key, tensor in recorded[0].items()
    )
    made = tuple(
        TensorSpec(key, tuple(one.shape), dtype="" if one.is_floating_point() else _dtype_name(one))
        for key, one in outputs.items()
    )
    notes = [f"{name}: {note}" for note in counted.notes]
    return _Found(name, call, recorded, result, specs, made, first, counted, flat, notes)


def _whole_call(module: nn.Module, call: Signature, inputs: Mapping[str, Tensor]) -> Any:
    args = [rebuild(node, inputs) for node in call.args]
    return module(*args, **{key: rebuild(node, inputs) for key, node in call.kwargs.items()})


def _called(name: str, run: Callable[[], Any]) -> Any:
    try:
        return run()
    except BakeoffError:
        raise
    except MemoryError:
        raise
    except Exception as error:
        raise user_error(f"{name}: the model", error) from error


def _tensors(name: str, signature: Signature, call: Call) -> Tensors:
    """The tensors of a call on the CPU, floating ones in fp32. Raises BakeoffError for a dtype that cannot be kept."""
    found: Tensors = {}
    for key, tensor in flatten_call(signature, *call).items():
        plain = tensor.detach().cpu()
        if not plain.is_floating_point() and plain.dtype not in _KEPT:
            raise _problem(
                f"{name}: the input {key} is {_dtype_name(plain)}; floats, integers and booleans can be swept"
            )
        if not plain.numel():
            raise _problem(f"{name}: the input {key} has no elements, shape {list(plain.shape)}; give values")
        found[key] = (plain.float() if plain.is_floating_point() else plain).contiguous().clone()
    return found


def _check_outputs(name: str, outputs: Mapping[str, Tensor]) -> None:
    for key, tensor in outputs.items():
        if not tensor.is_floating_point() and tensor.dtype not in _KEPT:
            raise _problem(
                f"{name}: the output {key} is {_dtype_name(tensor)}, which is not compared; return real numbers"
            )
        if type(tensor) not in (Tensor, nn.Parameter):
            raise _problem(f"{name}: the output {key} is a {type(tensor).__name__}; return plain tensors")
        if not tensor.numel():
            raise _problem(f"{name}: the output {key} has no elements; return values")
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise _problem(f"{name}: the output {key} is not finite for the given inputs; check weights and inputs")


def _check_said(said: Model, sets: Sequence[_Found]) -> None:
    """Raise BakeoffError for a name in `state`, `keep_fp32` or `hold` that no set has."""
    inputs = {spec.name: spec for one in sets for spec in one.specs}
    outputs = {spec.name: spec for one in sets for spec in one.outputs}
    for what, names, known in (
        ("keep_fp32", said.keep_fp32, inputs),
        ("hold", said.hold, inputs),
        ("state", said.state.keys(), outputs),
        ("state", said.state.values(), inputs),
    ):
        for name in names:
            if name not in known:
                raise _problem(f"{what}: there is no '{name}'; there are {', '.join(known)}")
    for output, to in said.state.items():
        if outputs[output].shape != inputs[to].shape:
            shapes = f"{list(outputs[output].shape)} and {list(inputs[to].shape)}"
            raise _problem(f"state: {output} cannot become {to}: their shapes are {shapes}")


def _hold(found: _Found) -> None:
    """Find out which inputs keep the given values, because the model does not take others of them.

    Tried in turn: none, integers and booleans, and also floats that look like a mask. Raises BakeoffError where the
    model takes no other values of any input.
    """
    masks = {key for key, tensor in found.calls[0].items() if tensor.is_floating_point() and _is_mask(tensor)}
    fixed = {key for key, tensor in found.calls[0].items() if not tensor.is_floating_point()}
    asked = {spec.name for spec in found.specs if spec.held}
    problem = ""
    for held in dict.fromkeys((frozenset(asked), frozenset(asked | fixed), frozenset(asked | fixed | masks))):
        found.specs = tuple(replace(spec, held=spec.name in held) for spec in found.specs)
        problem = _problem_with_others(found)
        if not problem:
            if all(spec.held for spec in found.outputs):
                break
            found.notes += [
                f"{found.name}: the output {spec.name} is the same for all inputs that were tried, and proves little"
                for spec in found.outputs
                if spec.held
            ]
            names = ", ".join(sorted(held - asked))
            if names:
                found.notes.append(
                    f"{found.name}: {names} keep the given values in all sets; the model takes no others"
                )
            return
    if not problem:
        text = (
            f"{found.name}: the outputs are the same for all inputs that were tried, so an engine that computes nothing"
        )
        raise _problem(f"{text} would pass; give inputs and weights that make a difference")
    text = f"{found.name}: the model takes no other values of its inputs than those given ({problem})"
    raise _problem(f"{text}; give several calls: bakeoff.Model(module, inputs, more=[...])")


def _problem_with_others(found: _Found) -> str:
    """What goes wrong with the sets that engines will be checked on; "" if nothing does."""
    source = found.source()
    sets = [source.checked(0, index) for index in range(1, set_count(found.workload))]
    same = dict.fromkeys((spec.name for spec in found.outputs), True)
    for inputs in (*sets, altered(sets[0], CHANGE, held_inputs(found.workload))):
        try:
            outputs = found.flat(*inputs.values())
        except Exception as error:  # noqa: BLE001  # whatever a module raises for values that it does not take
            return f"{type(error).__name__}: {one_line(error)}"
        for spec, given, tensor in zip(found.outputs, found.given_outputs, outputs, strict=True):
            if tuple(tensor.shape) != spec.shape:
                return (
                    f"{spec.name} has the shape {list(tensor.shape)} then, and {list(spec.shape)} with the given ones"
                )
            if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                return f"{spec.name} is not finite then"
            same[spec.name] &= torch.equal(given, tensor)
    found.outputs = tuple(replace(spec, held=same[spec.name]) for spec in found.outputs)
    return ""


def _fp64_errors(module: nn.Module, sets: Sequence[_Found]) -> tuple[list[str], list[float]]:
    """Why the model does not compute in fp64, if so, and eager's fp32 error by output of each set's first call."""
    module.double()
    errors: list[float] = []
    try:
        for one in sets:
            inputs = cast_inputs(one.workload, one.calls[0], "fp64", "cpu")
            wanted = one.flat(*inputs.values())
            errors += [_apart(a, b) for a, b in zip(one.given_outputs, wanted, strict=True)]
    except Exception as error:  # noqa: BLE001  # whatever a module raises whose code names a dtype
        text = f"it does not compute in fp64 ({type(error).__name__}: {one_line(error)}), so references are fp32"
        return [text], [_LEAST_TOLERANCE]
    finally:
        module.float()
    return [], errors


def _find_fp32_outputs(module: nn.Module, sets: Sequence[_Found]) -> None:
    """Mark outputs that stay fp32 when the model computes in bf16; changes the module for good."""
    module.to(TORCH_DTYPES["bf16"])
    for one in sets:
        inputs = cast_inputs(one.workload, one.calls[0], "bf16", "cpu")
        try:
            outputs = one.flat(*inputs.values())
        except Exception as error:  # noqa: BLE001  # as above
            one.notes.append(f"{one.name}: eager fails in bf16: {type(error).__name__}: {one_line(error)}")
            continue
        one.outputs = tuple(
            replace(spec, keep_fp32=tensor.dtype == torch.float32)
            for spec, tensor in zip(one.outputs, outputs, strict=True)
        )


def _layers(module: nn.Module, sets: Sequence[_Found]) -> tuple[Layer, ...]:
    found = {layer for kind, layer in _LAYERS.items() if any(isinstance(one, kind) for one in module.modules())}
    attends = any(one.counted.attends for one in sets)
    return tuple(sorted(found | ({"attention"} if attends else set())))


def _parameters(module: nn.Module) -> list[str]:
    """Names of the positional parameters of `forward`."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


def _eval_advice(module: nn.Module, what: str) -> str:
    if module.training:
        return "it is in training mode: call eval()"
    if what == "changes":
        return "return the state and take it as an input: bakeoff.Model(..., state={output: input})"
    return "take random numbers as an input, or seed them within forward"


def _is_mask(tensor: Tensor) -> bool:
    return not bool(torch.isfinite(tensor).all()) or (tensor.numel() > _FEW and tensor.unique().numel() <= _FEW)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _apart(one: Tensor, other: Tensor) -> float:
    a, b = one.double(), other.double()
    norm = float(b.norm())
    distance = float((a - b).norm())
    return distance / norm if norm else float(distance > 0)


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _problem(text: str) -> BakeoffError:
    return BakeoffError(text, code="bad-user-code")
