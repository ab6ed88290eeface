"""Describes a brought model by running it: its tensors, work and tolerance, and what no compiler can be blamed for."""

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bakeoff.backends.torch_internals import snapshot
from bakeoff.machine.files import write_atomically
from bakeoff.models.brought.about import ABOUT, GIVEN, About, Batched, InputSet
from bakeoff.models.brought.method import with_buffers
from bakeoff.models.brought.model import Model
from bakeoff.models.component import Layer, TensorSpec, Work, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.signature import (
    Constant,
    Node,
    Signature,
    describe_call,
    describe_output,
    flatten,
    flatten_call,
    rebuild,
)
from bakeoff.models.weights import fingerprint, state_digest
from bakeoff.process.jobs import DescribeJob, DescribeResult
from bakeoff.worker.brought.batches import find_batches
from bakeoff.worker.brought.hidden_state import Untouched, check_stateless, generators, untouched
from bakeoff.worker.brought.load import Call, load_module, one_line, user_error
from bakeoff.worker.brought.network import Flat, GivenInputs, as_eager, other_key, returned_key
from bakeoff.worker.brought.sizes import FoundSizes, find_sizes, sizes_of, with_shapes
from bakeoff.worker.brought.work import Counted, count
from bakeoff.worker.cast import GivenDtypes, cast_module, given_dtypes, is_part, is_wider, named_tensors, usual_dtype
from bakeoff.worker.reference.error import without_equal_infinities
from bakeoff.worker.reference.wide import in_high_precision
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import CHANGES, altered, cast_input, cast_inputs, held_inputs, set_count
from bakeoff.worker.torch_flags import flags

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


class _Held(nn.Module):
    """Takes the values of a call as they are held, and calls the model with them in one dtype."""

    def __init__(self, flat: Flat, specs: Sequence[TensorSpec], dtype: str) -> None:
        super().__init__()
        self.flat = flat
        self.specs = specs
        self.dtype = dtype

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = zip(self.specs, tensors, strict=True)
        return self.flat(*(cast_input(spec, tensor, self.dtype, "cpu") for spec, tensor in given))


@dataclass(slots=True)
class _Found:
    """One input set, as far as it is known."""

    name: str
    call: Signature
    calls: list[Tensors]
    """Floating ones in fp32, or in fp64 where they are given so."""
    result: Node
    specs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    given_outputs: tuple[Tensor, ...]
    """Of the first call, as the module returned them."""
    counted: Counted
    flat: Flat
    dtype: str
    """In which the model is called: `given`, or fp32 where it does not run so on this CPU."""
    noise: float
    """Largest relative L2 of an output between two calls in a row on the same inputs."""
    notes: list[str] = field(default_factory=list)
    sizes: FoundSizes | None = None
    others: list[Tensors] = field(default_factory=list)
    """Recorded calls of other sizes."""
    batches: tuple[Batched, ...] = ()
    fp32_dtypes: tuple[torch.dtype, ...] = ()
    """Of the outputs when the model computes in fp32; () where it does not."""

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
        returned = {
            returned_key(self.name, spec.name): one.detach().contiguous().clone()
            for spec, one in zip(self.outputs, self.given_outputs, strict=True)
            if self.dtype == "given"
        }
        return given | others | returned

    @property
    def held(self) -> _Held:
        """The model, to be called with values as they are held."""
        return _Held(self.flat, self.specs, self.dtype)

    def source(self, workload: Workload | None = None) -> GivenInputs:
        return GivenInputs(self.described, workload or self.workload, self.given, tuple(self.others))


def describe_model(job: DescribeJob, report: Report) -> DescribeResult:
    """Run the model of a source and write its description and its given inputs into `job.folder`.

    Where one of several input sets cannot be described it is left out, and a note says why. Raises BakeoffError where
    the model cannot be run, differs from itself, or takes or gives what no check can compare; the message names the
    line or tensor, and says what to do.
    """
    report("weights")
    loaded = load_module(job.source, job.seed)
    module, taken_off = as_eager(loaded.module)
    kind, said = type(module), loaded.said
    weights = fingerprint(module)
    parts, keep_inputs = _split_pins(module, said)
    module, calls, state = with_buffers(module, said.buffers, loaded.sets, said.state)
    said = replace(said, state=state, keep_fp32=keep_inputs)
    given = given_dtypes(module, parts)
    before = untouched(module)
    compiled = snapshot()
    notes = [*loaded.notes, *taken_off]
    with flags("fp32", job.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user's own, which a plain call shows
        report("reference", "running the model as it was given")
        calls, asked = sizes_of(calls, _parameters(module), job.sizes)
        sets = list(_run_sets(calls, module, given, said, notes))
        compiles = (snapshot() - compiled).captured > 0
        if compiles:
            notes.append("its code calls torch.compile: in eager rows and references those parts run in eager")
        _check_said(said, sets)
        for one in sets:
            report("reference", f"varying the inputs of {one.name}")
            cast_module(module, given, one.dtype, "cpu")
            _hold(one)
            _check_hidden_state(one, module, given, before)
            if one.name in asked:
                report("reference", f"running the model at other sizes of {one.name}")
                found = asked[one.name]
                one.others = [_tensors(one.name, one.call, other) for other in found.others]
                one.sizes = find_sizes(one.name, found, one.held, one.specs, one.outputs, one.source)
                one.name = one.sizes.workload
                one.notes += one.sizes.notes
            if job.batches:
                report("reference", f"running the model with other batches of {one.name}")
                one.batches = find_batches(one.name, job.batches, one.held, one.specs, one.outputs, one.source)
        described = {name: one for found in sets for name, one in found.given.items()}
        report("reference", "running the model in fp64")
        precision, errors = _fp32_errors(module, given, sets)
        report("reference", "running the model in bf16")
        _find_fixed_outputs(module, given, sets)
    mixed = _mixed(given, sets)
    notes += [note for one in sets for note in one.notes]
    notes += _precision_notes(precision, given, mixed, sets)
    tolerance = said.tolerance_fp32
    if tolerance is None:
        tolerance = min(max([_LEAST_TOLERANCE, *(_OF_EAGER * error for error in errors)]), _MOST_TOLERANCE)
    about = About(
        name=job.name,
        preset=job.preset,
        summary=f"{kind.__module__}.{kind.__qualname__}, brought by a user",
        source=job.source,
        weights=weights,
        seed=job.seed,
        given=state_digest({key: one for key, one in described.items() if "/returned/" not in key}),
        parameters=sum(one.numel() for one in module.parameters()),
        layers=_layers(module, sets),
        tolerance_fp32=tolerance,
        fp64=precision == "fp64",
        sets=tuple(one.described for one in sets),
        state=dict(said.state),
        notes=tuple(notes),
        place=said.place,
        keep_fp32=parts,
        buffers=said.buffers,
        mixed=mixed,
        compiles=compiles,
    )
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(described, folder / GIVEN)
    write_atomically(folder / ABOUT, msgspec.json.format(msgspec.json.encode(about), indent=1))
    return DescribeResult(about.notes)


def _split_pins(module: nn.Module, said: Model) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of the names in `keep_fp32` those of parts of the module, and the others, which are to be inputs."""
    names = [name for name, _ in named_tensors(module)]
    parts = tuple(one for one in said.keep_fp32 if any(is_part(name, [one]) for name in names))
    return parts, tuple(one for one in said.keep_fp32 if one not in parts)


def _run_sets(
    calls: Mapping[str, Sequence[Call]], module: nn.Module, given: GivenDtypes, said: Model, notes: list[str]
) -> Iterator[_Found]:
    """Each input set that can be described; the reason of another one is added to `notes`.

    Raises BakeoffError where none can be described.
    """
    failed: list[BakeoffError] = []
    for name in calls:
        try:
            yield _run_given(name, calls[name], module, given, said)
        except BakeoffError as error:
            failed.append(error)
            if len(failed) == len(calls):
                raise failed[0] from error
            notes.append(f"the input set {name} is left out: {error}")


def _changes_itself(name: str, module: nn.Module) -> BakeoffError:
    return _problem(f"{name}: a call changes the model's own parameters or buffers; {_eval_advice(module, 'changes')}")


def _run_given(name: str, calls: Sequence[Call], module: nn.Module, given: GivenDtypes, said: Model) -> _Found:
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
    notes = [f"{name}: {note}" for note in _call_notes(call, calls[0], _parameters(module))]
    specs = _input_specs(call, calls[0], module, said)
    inputs = {spec.name: cast_input(spec, recorded[0][spec.name], "given", "cpu") for spec in specs}
    dtype, value = _first_call(name, module, given, call, inputs, specs, notes)
    result = describe_output(value, _is_tensor)
    outputs: Tensors = {}
    flatten(result, value, outputs)
    if not outputs:
        raise _problem(f"{name}: the model returned no tensor, so there is nothing to check; return its result")
    _check_outputs(name, outputs)
    flat = Flat(module, call, result)
    first = tuple(tensor.clone() for tensor in outputs.values())
    before = fingerprint(module)
    drawn = generators()
    again, counted = _called(name, lambda: count(_Held(flat, specs, dtype), tuple(recorded[0].values())))
    if module.training and fingerprint(module) != before:
        raise _changes_itself(name, module)
    noise = {key: _apart(mine, theirs) for (key, mine), theirs in zip(outputs.items(), again, strict=True)}
    for output, apart in noise.items():
        if apart > _LEAST_TOLERANCE and (module.training or generators() != drawn):
            text = f"{name}: {output} differs by {apart:.1e} (relative L2) between two calls on the same inputs"
            raise _problem(f"{text}, so no compiler can be checked against it; {_eval_advice(module, 'differs')}")
    made = tuple(
        TensorSpec(
            key,
            tuple(one.shape),
            dtype="" if one.is_floating_point() else _dtype_name(one),
            given=_dtype_name(one) if one.is_floating_point() and one.dtype != torch.float32 else "",
        )
        for key, one in outputs.items()
    )
    notes += [f"{name}: {note}" for note in counted.notes]
    return _Found(name, call, recorded, result, specs, made, first, counted, flat, dtype, max(noise.values()), notes)


def _first_call(
    name: str,
    module: nn.Module,
    given: GivenDtypes,
    call: Signature,
    inputs: Tensors,
    specs: Sequence[TensorSpec],
    notes: list[str],
) -> tuple[str, Any]:
    """The user's own call: in which dtype the model runs here, and what it returns.

    Half precision that this CPU has no kernels for is run in fp32 instead, with a note. Raises BakeoffError where the
    model raises, or writes into an input.
    """
    cast_module(module, given, "given", "cpu")
    before = {key: tensor.clone() for key, tensor in inputs.items()}
    dtype = "given"
    try:
        value = _called(name, lambda: _whole_call(module, call, inputs))
    except BakeoffError as error:
        if all(one.itemsize >= torch.float32.itemsize for one in given.tensors.values()):
            raise
        notes.append(f"{name}: it does not run as it was given on this CPU, and is described in fp32 ({error})")
        dtype, before = "fp32", {spec.name: cast_input(spec, before[spec.name], "fp32", "cpu") for spec in specs}
        cast_module(module, given, dtype, "cpu")
        inputs = {key: tensor.clone() for key, tensor in before.items()}
        value = _called(name, lambda: _whole_call(module, call, inputs))
    changed = [key for key, tensor in inputs.items() if not _equal(tensor, before[key])]
    if changed:
        raise _problem(f"{name}: the model writes into its input {changed[0]}; let it work on a copy (x.clone())")
    return dtype, value


def _equal(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.nan_to_num(), other.nan_to_num()) if one.is_floating_point() else torch.equal(one, other)


def _input_specs(call: Signature, first: Call, module: nn.Module, said: Model) -> tuple[TensorSpec, ...]:
    """The inputs as they were given in the first call."""
    tensors = flatten_call(call, *first)
    usual = usual_dtype(one for _, one in named_tensors(module)) or usual_dtype(iter(tensors.values()))
    return tuple(
        TensorSpec(
            key,
            tuple(tensor.shape),
            "given",
            keep_fp32=key in said.keep_fp32 or (usual is not None and is_wider(tensor.dtype, usual)),
            dtype="" if tensor.is_floating_point() else _dtype_name(tensor),
            held=key in said.hold,
            given=_dtype_name(tensor) if tensor.is_floating_point() and tensor.dtype != torch.float32 else "",
            order=_order(tensor) or (),
        )
        for key, tensor in tensors.items()
    )


def _order(tensor: Tensor) -> tuple[int, ...] | None:
    """The axes from the slowest to the fastest in memory, () where they are in order; None where that is no whole
    block of memory, such as a slice."""
    if tensor.is_contiguous():
        return ()
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], axis)))
    return order if tensor.permute(*order).is_contiguous() else None


def _call_notes(call: Signature, first: Call, parameters: Sequence[str]) -> Iterator[str]:
    """What of a call every set has as it was given, or has otherwise."""
    for key, tensor in flatten_call(call, *first).items():
        if _order(tensor) is None:
            strides = f"strides {list(tensor.stride())}"
            yield f"{key} was given as a part of a larger tensor ({strides}); it is made contiguous"
    for key, node in [*zip(parameters, call.args, strict=False), *call.kwargs.items()]:
        if isinstance(node, Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            yield f"{key} is the number {node.value} in every call; give a tensor for one that varies"


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
    """The tensors of a call on the CPU, floating ones in fp32, or fp64 where they are given so.

    Raises BakeoffError for a dtype that cannot be kept, and for a tensor without values.
    """
    found: Tensors = {}
    for key, tensor in flatten_call(signature, *call).items():
        if tensor.is_meta:
            raise _problem(f"{name}: the input {key} is on the meta device, without values; give values")
        plain = tensor.detach().cpu()
        if not plain.is_floating_point() and plain.dtype not in _KEPT:
            raise _problem(
                f"{name}: the input {key} is {_dtype_name(plain)}; floats, integers and booleans can be swept"
            )
        narrow = plain.is_floating_point() and plain.dtype != torch.float64
        found[key] = (plain.float() if narrow else plain).contiguous().clone()
    return found


def _check_outputs(name: str, outputs: Mapping[str, Tensor]) -> None:
    for key, tensor in outputs.items():
        if not tensor.is_floating_point() and tensor.dtype not in _KEPT:
            raise _problem(
                f"{name}: the output {key} is {_dtype_name(tensor)}, which is not compared; return real numbers"
            )
        if type(tensor) not in (Tensor, nn.Parameter):
            raise _problem(f"{name}: the output {key} is a {type(tensor).__name__}; return plain tensors")
        if tensor.is_floating_point() and torch.isnan(tensor).any():
            raise _problem(f"{name}: the output {key} is not finite for the given inputs; check weights and inputs")
    if not any(tensor.numel() for tensor in outputs.values()):
        raise _problem(f"{name}: no output has elements, so there is nothing to check; return values")


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
    held = found.held
    same = dict.fromkeys((spec.name for spec in found.outputs), True)
    for inputs in _other_inputs(found):
        try:
            outputs = held(*inputs.values())
        except Exception as error:  # noqa: BLE001  # whatever a module raises for values that it does not take
            return f"{type(error).__name__}: {one_line(error)}"
        for spec, given, tensor in zip(found.outputs, found.given_outputs, outputs, strict=True):
            if tuple(tensor.shape) != spec.shape:
                return (
                    f"{spec.name} has the shape {list(tensor.shape)} then, and {list(spec.shape)} with the given ones"
                )
            if tensor.is_floating_point() and torch.isfinite(given).all() and not torch.isfinite(tensor).all():
                return f"{spec.name} is not finite then"
            if tensor.is_floating_point() and tensor.isnan().any():
                return f"{spec.name} is not a number then"
            same[spec.name] &= torch.equal(given, tensor)
    found.outputs = tuple(replace(spec, held=same[spec.name]) for spec in found.outputs)
    return ""


def _other_inputs(found: _Found) -> list[Tensors]:
    """The inputs of all sets but the given one, and those of one of them with changed values."""
    source = found.source()
    sets = [source.checked(0, index) for index in range(1, set_count(found.workload))]
    return [*sets, altered(sets[0], CHANGES[0], held_inputs(found.workload))]


def _check_hidden_state(found: _Found, module: nn.Module, given: GivenDtypes, before: Untouched) -> None:
    """Raise BakeoffError where outputs depend on earlier calls."""
    recorded, held = found.calls[0], held_inputs(found.workload)
    sets = {"A": recorded, "B": _other_inputs(found)[0], "C": altered(recorded, CHANGES[0], held)}

    def call(each: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        flat = Flat(cast_module(each, given, found.dtype, "cpu"), found.call, found.result)
        outputs: tuple[Tensor, ...] = _Held(flat, found.specs, found.dtype)(*inputs)
        return outputs

    values = {key: tuple(one.values()) for key, one in sets.items()}
    check_stateless(found.name, before, call, module, values, found.noise)


def _run(found: _Found, module: nn.Module, given: GivenDtypes, dtype: str) -> tuple[Tensor, ...]:
    """The outputs for the first given call in a dtype; leaves the module in it."""
    cast_module(module, given, dtype, "cpu")
    outputs: tuple[Tensor, ...] = found.flat(*cast_inputs(found.workload, found.calls[0], dtype, "cpu").values())
    return outputs


def _fp32_errors(module: nn.Module, given: GivenDtypes, sets: Sequence[_Found]) -> tuple[str, list[float]]:
    """The dtype that the model's references are in, and eager's fp32 error by output of each set's first call."""
    errors: list[float] = []
    precision, wanted = in_high_precision("fp64", lambda dtype: [_run(one, module, given, dtype) for one in sets])
    if precision != "fp64":
        errors.append(_LEAST_TOLERANCE)
    for one, reference in zip(sets, wanted, strict=True):
        try:
            outputs = _run(one, module, given, "fp32")
        except Exception as error:  # noqa: BLE001  # whatever a module raises whose code names a dtype
            one.notes.append(f"{one.name}: eager fails in fp32: {type(error).__name__}: {one_line(error)}")
            continue
        one.fp32_dtypes = tuple(tensor.dtype for tensor in outputs)
        errors += [_apart(a, b) for a, b in zip(outputs, reference, strict=True) if a.is_floating_point()]
    return precision, errors


def _find_fixed_outputs(module: nn.Module, given: GivenDtypes, sets: Sequence[_Found]) -> None:
    """Mark outputs that stay fp32 when the model computes in bf16, and those of one dtype in both; changes the module
    for good."""
    for one in sets:
        try:
            outputs = _run(one, module, given, "bf16")
        except Exception as error:  # noqa: BLE001  # as above
            one.notes.append(f"{one.name}: eager fails in bf16: {type(error).__name__}: {one_line(error)}")
            continue
        wide = one.fp32_dtypes or tuple(torch.float32 for _ in outputs)
        one.outputs = tuple(map(_with_dtypes, one.outputs, wide, (tensor.dtype for tensor in outputs)))


def _with_dtypes(spec: TensorSpec, in_fp32: torch.dtype, in_bf16: torch.dtype) -> TensorSpec:
    if not spec.floating:
        return spec
    if in_fp32 == in_bf16 != torch.float32:
        return replace(spec, dtype=_name(in_bf16))
    return replace(spec, keep_fp32=in_bf16.itemsize > torch.bfloat16.itemsize)


def _mixed(given: GivenDtypes, sets: Sequence[_Found]) -> bool:
    """Whether the model and its inputs have floating tensors of several dtypes."""
    own = {one for one in given.tensors.values() if one.is_floating_point}
    return (
        len(own | {getattr(torch, spec.given or "float32") for one in sets for spec in one.specs if not spec.dtype}) > 1
    )


def _precision_notes(precision: str, given: GivenDtypes, mixed: bool, sets: Sequence[_Found]) -> list[str]:
    """What is said about dtypes, each in one sentence."""
    found = []
    if precision != "fp64":
        found.append(f"it does not compute in fp64, so references are in {precision}")
    names = sorted({_name(one) for one in given.tensors.values() if one.is_floating_point})
    if mixed:
        inputs = {spec.given or "float32" for one in sets for spec in one.specs if not spec.dtype}
        text = f"its floating dtypes are mixed ({', '.join(sorted({*names, *inputs}))})"
        found.append(f"{text}: a sweep takes it as it was given, --dtype given; other dtypes are taken where asked for")
    elif names and names != ["float32"]:
        found.append(f"its weights were given in {names[0]}; rows of other dtypes have their values cast to those")
    return found


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
    a, b = without_equal_infinities(one, other)
    norm = float(b.norm())
    distance = float((a - b).norm())
    return distance / norm if norm else float(distance > 0)


def _dtype_name(tensor: Tensor) -> str:
    return _name(tensor.dtype)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _problem(text: str) -> BakeoffError:
    return BakeoffError(text, code="bad-user-code")
