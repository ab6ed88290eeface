"""Describes a brought model by running it: tensors, work, tolerance, and effects that no compiler is to blame for."""

import contextlib
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bakeoff.backends.torch_internals import snapshot
from bakeoff.machine.files import write_atomically
from bakeoff.models.brought.about import ABOUT, GIVEN, About
from bakeoff.models.brought.method import with_buffers
from bakeoff.models.brought.model import InputSets, Model
from bakeoff.models.component import Layer
from bakeoff.models.errors import BakeoffError
from bakeoff.models.lookup import one_line
from bakeoff.models.signature import describe_call, describe_output
from bakeoff.models.weights import fingerprint, state_digest
from bakeoff.process.jobs import DescribeJob
from bakeoff.worker.brought.calls import call_model, parameter_names, run_sets
from bakeoff.worker.brought.facts import ModelFacts, SetFacts, Tensors, bad_model
from bakeoff.worker.brought.hidden_state import Untouched, check_stateless
from bakeoff.worker.brought.load import load_module
from bakeoff.worker.brought.network import Flat, as_eager
from bakeoff.worker.brought.precision import find_fixed_outputs, find_mixed, find_precision
from bakeoff.worker.brought.sizes import find_batches, find_sizes, sizes_of
from bakeoff.worker.cast import cast_module, given_dtypes, is_part, named_tensors
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import CHANGES, altered, cast_input, held_inputs, same_values
from bakeoff.worker.torch_flags import flags

_MORE = "give several calls: bakeoff.Model(module, inputs, more=[...])"
_BY_VALUES = "the shapes of its outputs depend on the values of its inputs"
_FEW = 8
"""Largest number of distinct values of a float input that may be a mask."""
_LAYERS: Mapping[type[nn.Module], Layer] = {
    nn.Linear: "linear",
    nn.Conv1d: "conv1d",
    nn.Conv2d: "conv2d",
    nn.Conv3d: "conv3d",
    nn.MultiheadAttention: "attention",
}


def describe_model(job: DescribeJob, report: Report) -> None:
    """Run the model of a source and write its description and its given inputs into `job.folder`.

    If one of several input sets cannot be described, it is left out and a note says why. Raises BakeoffError if the
    model cannot be run, gives other outputs each time, or has inputs or outputs that no check can compare; the message
    names the line or tensor, and the remedy.
    """
    report("weights")
    model = _load(job, report)
    with flags("fp32", job.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user's own, which a plain call shows
        for check in _CHECKS:
            check(model)
    _write(model)


def _load(job: DescribeJob, report: Report) -> ModelFacts:
    said, sets = load_module(job.source, job.seed)
    module, notes = as_eager(said.module)
    kind, weights = type(module), fingerprint(module)
    module, calls, state = with_buffers(module, said.buffers, sets, said.state)
    said, parts = replace(said, state=state), _parts_of(module, calls, said)
    given, before = given_dtypes(module, parts), Untouched(module)
    asked, dimensions = sizes_of(calls, parameter_names(module), job.sizes)
    return ModelFacts(job, report, said, kind, weights, module, parts, given, before, asked, dimensions, notes)


def _run_as_given(model: ModelFacts) -> None:
    """Run each input set as it was given. Raises BakeoffError if none can be described."""
    model.report("reference", "running the model as it was given")
    compiled = snapshot()
    model.sets = tuple(run_sets(model))
    model.compiles = (snapshot() - compiled).captured > 0
    if model.compiles:
        model.notes.append("its code calls torch.compile, perhaps by cond: eager rows and references run that in eager")


def _check_sets(model: ModelFacts) -> None:
    for one in model.sets:
        cast_module(model.module, model.given, one.dtype, one.device)
        for check in _SET_CHECKS:
            check(model, one)


def _parts_of(module: nn.Module, sets: InputSets, said: Model) -> tuple[str, ...]:
    """Return the names in `said.keep_fp32` of parts of the module; all others must be inputs.

    A name that is both an input and a part means the input; the part can be named by its path or by those of its
    tensors.
    """
    inputs: set[str] = set()
    for (args, kwargs), *_ in sets.values():
        with contextlib.suppress(BakeoffError):  # of a set that is left out
            inputs.update(describe_call(args, kwargs, parameter_names(module)).names)
    names = [name for name, _ in named_tensors(module)]
    return tuple(one for one in said.keep_fp32 if one not in inputs and any(is_part(name, [one]) for name in names))


def _check_declared(model: ModelFacts) -> None:
    """Raise BakeoffError if no set has a name in `keep_fp32`, `hold` or `state`, or if shapes in `state` differ."""
    said = model.said
    inputs = {spec.name: spec for one in model.sets for spec in one.specs}
    outputs = {spec.name: spec for one in model.sets for spec in one.outputs}
    for what, names, known in (
        ("keep_fp32", [name for name in said.keep_fp32 if name not in model.parts], inputs),
        ("hold", said.hold, inputs),
        ("state", said.state.keys(), outputs),
        ("state", said.state.values(), inputs),
    ):
        for name in names:
            if name not in known:
                raise bad_model(f"{what}: there is no '{name}'; there are {', '.join(known)}")
    for output, to in said.state.items():
        if outputs[output].shape != inputs[to].shape:
            shapes = f"{list(outputs[output].shape)} and {list(inputs[to].shape)}"
            raise bad_model(f"state: {output} cannot become {to}: their shapes are {shapes}")


def _find_held(model: ModelFacts, found: SetFacts) -> None:
    """Find out which inputs must keep their given values because the model accepts no others; mark them in `found`.

    Tried in turn, besides those that the user holds: no inputs, integers and booleans, and also floats that look like a
    mask. Raises BakeoffError if the model accepts other values of no input, or if its outputs are always the same.
    """
    model.report("reference", f"varying the inputs of {found.name}")
    masks = {key for key, tensor in found.calls[0].items() if tensor.is_floating_point() and _is_mask(tensor)}
    fixed = {key for key, tensor in found.calls[0].items() if not tensor.is_floating_point()}
    asked = frozenset(model.said.hold)
    for held in dict.fromkeys((asked, asked | fixed, asked | fixed | masks)):
        found.specs = tuple(replace(spec, held=spec.name in held) for spec in found.specs)
        problem = _problem_with_others(found)
        if not problem:
            if all(spec.held for spec in found.outputs):
                break
            if all(same_values(found.calls[0], one) for one in _other_inputs(found)[:-1]):
                raise bad_model(
                    f"{found.name}: other inputs are drawn from the values of those given, and are the same again; "
                    f"{_MORE}"
                )
            model.notes += [
                f"{found.name}: the output {spec.name} is the same for all inputs that were tried, and proves little"
                for spec in found.outputs
                if spec.held
            ]
            names = ", ".join(sorted(held - asked))
            if names:
                model.notes.append(
                    f"{found.name}: {names} keep the given values in all sets; the model takes no others"
                )
            return
    if not problem:
        raise bad_model(
            f"{found.name}: the outputs are the same for all inputs that were tried, so an engine that computes "
            "nothing would pass; give inputs and weights that make a difference"
        )
    if problem.startswith(_BY_VALUES):
        raise bad_model(
            f"{found.name}: {problem}, and engines are compared at one shape; sweep the parts that compute, which "
            "bakeoff inspect FILE.py:NAME --record PART makes"
        )
    raise bad_model(
        f"{found.name}: the model takes no other values of its inputs than those given ({problem}); {_MORE}"
    )


def _problem_with_others(found: SetFacts) -> str:
    """Return what goes wrong on the other checked sets, "" if nothing does; mark outputs that are always the same."""
    held = found.held
    same = dict.fromkeys((spec.name for spec in found.outputs), True)
    for inputs in _other_inputs(found):
        try:
            outputs = held(*inputs.values())
        except Exception as error:  # noqa: BLE001  # whatever a module raises for values that it does not take
            return f"{type(error).__name__}: {one_line(error)}"
        for spec, given, tensor in zip(found.outputs, found.given_outputs, outputs, strict=True):
            if tuple(tensor.shape) != spec.shape:
                return f"{_BY_VALUES}: {spec.name} is {list(spec.shape)} with those given, then {list(tensor.shape)}"
            if torch.isfinite(given).all() and not torch.isfinite(tensor).all():
                return f"{spec.name} is not finite then"
            if tensor.isnan().any():
                return f"{spec.name} is not a number then"
            same[spec.name] &= torch.equal(given, tensor)
    found.outputs = tuple(replace(spec, held=same[spec.name]) for spec in found.outputs)
    return ""


def _other_inputs(found: SetFacts) -> list[Tensors]:
    """Return the inputs of all checked sets but the given one, and those of the first of them with changed values."""
    source = found.source()
    sets = [source.checked(0, index) for index in range(1, found.workload.set_count)]
    return [*sets, altered(sets[0], CHANGES[0], held_inputs(found.workload))]


def _check_hidden_state(model: ModelFacts, found: SetFacts) -> None:
    """Raise BakeoffError if outputs depend on earlier calls."""
    recorded, held = found.calls[0], held_inputs(found.workload)
    sets = {"A": recorded, "B": _other_inputs(found)[0], "C": altered(recorded, CHANGES[0], held)}

    def call(each: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        flat = Flat(cast_module(each, model.given, found.dtype, found.device), found.call, found.result)
        return replace(found, flat=flat).held(*inputs)

    values = {key: tuple(one.values()) for key, one in sets.items()}
    check_stateless(found.name, model.before, call, model.module, values, found.noise)


def _check_constants(model: ModelFacts, found: SetFacts) -> None:
    """Note if a part of the result that is no tensor changes with the inputs."""
    other = zip(found.specs, _other_inputs(found)[0].values(), strict=True)
    inputs = {spec.name: cast_input(spec, tensor, found.dtype, found.device) for spec, tensor in other}
    if describe_output(call_model(found.name, model.module, found.call, inputs)) != found.result:
        model.notes.append(
            f"{found.name}: a part of its result that is no tensor changes with the inputs, and is not compared; "
            "return a tensor"
        )


_SET_CHECKS = (
    _find_held,
    _check_constants,
    _check_hidden_state,
    find_sizes,
    find_batches,
)
_CHECKS = (
    _run_as_given,
    _check_declared,
    _check_sets,
    find_precision,
    find_fixed_outputs,
    find_mixed,
)
"""What is found out about a model, in this order: each adds to its facts, and may refuse it. The last ones cast it."""


def _write(model: ModelFacts) -> None:
    said, job = model.said, model.job
    described = {name: one for found in model.sets for name, one in found.given.items()}
    about = About(
        name=job.name,
        preset=job.preset,
        summary=f"{model.kind.__module__}.{model.kind.__qualname__}, brought by a user",
        source=job.source,
        weights=model.weights,
        seed=job.seed,
        given=state_digest({key: one for key, one in described.items() if "/returned/" not in key}),
        parameters=sum(one.numel() for one in model.module.parameters()),
        layers=_layers(model),
        tolerance_fp32=model.tolerance,
        fp64=model.precision == "fp64",
        sets=tuple(one.described for one in model.sets),
        state=dict(said.state),
        notes=tuple(model.notes),
        place=said.place,
        keep_fp32=model.parts,
        buffers=said.buffers,
        mixed=model.mixed,
        compiles=model.compiles,
    )
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(described, folder / GIVEN)
    write_atomically(folder / ABOUT, msgspec.json.format(msgspec.json.encode(about), indent=1))


def _layers(model: ModelFacts) -> tuple[Layer, ...]:
    found = {layer for one in model.module.modules() for kind, layer in _LAYERS.items() if isinstance(one, kind)}
    if any(one.counted.attends for one in model.sets):
        found.add("attention")
    return tuple(sorted(found))


def _is_mask(tensor: Tensor) -> bool:
    return not bool(torch.isfinite(tensor).all()) or (tensor.numel() > _FEW and tensor.unique().numel() <= _FEW)
