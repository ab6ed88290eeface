"""Describes a brought model by running it: tensors, work, tolerance, and effects that no compiler is to blame for."""

import contextlib
import warnings
from collections.abc import Mapping, Sequence
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
from bakeoff.models.signature import describe_call
from bakeoff.models.weights import fingerprint, state_digest
from bakeoff.process.jobs import DescribeJob
from bakeoff.worker.brought.calls import LEAST_TOLERANCE, call_tensors, parameter_names, run_sets
from bakeoff.worker.brought.hidden_state import Untouched, check_stateless
from bakeoff.worker.brought.load import check_repeats, load_module
from bakeoff.worker.brought.network import Flat, as_eager
from bakeoff.worker.brought.precision import (
    affordable,
    find_fixed_outputs,
    fp32_errors,
    is_mixed,
    precision_notes,
)
from bakeoff.worker.brought.set_facts import CastModel, SetFacts, Tensors, bad_model
from bakeoff.worker.brought.sizes import find_batches, find_sizes, sizes_of
from bakeoff.worker.cast import GivenDtypes, cast_module, given_dtypes, is_part, named_tensors
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import CHANGES, altered, held_inputs, same_values
from bakeoff.worker.torch_flags import flags

_MOST_TOLERANCE = 1e-2
"""Largest fp32 tolerance; outputs with a larger error could not be called fp32."""
_OF_EAGER = 10
"""Allowed multiple of eager's own fp32 error: other implementations sum in another order, and some use transforms."""
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
    loaded = load_module(job.source, job.seed)
    check_repeats(job.source, job.seed, loaded)
    module, notes = as_eager(loaded.module)
    kind, said = type(module), loaded.said
    weights = fingerprint(module)
    module, calls, state = with_buffers(module, said.buffers, loaded.sets, said.state)
    parts, keep_inputs = _split_pins(module, calls, said)
    said = replace(said, state=state, keep_fp32=keep_inputs)
    given = given_dtypes(module, parts)
    before = Untouched(module)
    compiled = snapshot()
    with flags("fp32", job.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user's own, which a plain call shows
        report("reference", "running the model as it was given")
        asked = sizes_of(calls, parameter_names(module), job.sizes)
        calls = {name: one.calls for name, one in asked.items()}
        sets = list(run_sets(calls, module, given, said, notes, job.device))
        compiles = (snapshot() - compiled).captured > 0
        if compiles:
            notes.append("its code calls torch.compile, perhaps by cond: eager rows and references run that in eager")
        _check_said(said, sets)
        for one in sets:
            report("reference", f"varying the inputs of {one.name}")
            cast_module(module, given, one.dtype, job.device)
            _hold(one)
            _check_hidden_state(one, module, given, before)
            if asked[one.name].dimensions:
                report("reference", f"running the model at other sizes of {one.name}")
                one.others = [call_tensors(one.name, one.call, other) for other in asked[one.name].others]
                find_sizes(one, asked[one.name])
            if job.batches:
                report("reference", f"running the model with other batches of {one.name}")
                find_batches(one, job.batches)
        described = {name: one for found in sets for name, one in found.given.items()}
        start = affordable(module, sets)
        report("reference", f"running the model in {start}")
        draws = any(one.counted.draws for one in sets)
        precision, errors = fp32_errors(module, given, sets, "fp32" if draws else start)
        report("reference", "running the model in bf16")
        find_fixed_outputs(module, given, sets)
    mixed = is_mixed(given, sets)
    notes += [note for one in sets for note in one.notes]
    notes += precision_notes(precision, start, given, mixed, sets)
    tolerance = said.tolerance_fp32
    if tolerance is None:
        tolerance = min(max([LEAST_TOLERANCE, *(_OF_EAGER * error for error in errors)]), _MOST_TOLERANCE)
        if tolerance > LEAST_TOLERANCE:
            notes.append(
                f"its own fp32 outputs are up to {max(errors):.1e} off {precision}, by rounding or by casts within, so "
                f"rows in fp32 may be {tolerance:.1e} off in place of {LEAST_TOLERANCE:.0e}; one that leaves out "
                "such a cast passes"
            )
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


def _split_pins(module: nn.Module, sets: InputSets, said: Model) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the names in `said.keep_fp32` into those of parts of the module, and all others, which must be inputs.

    A name that is both an input and a part means the input; the part can be named by its path or by those of its
    tensors.
    """
    inputs: set[str] = set()
    for (args, kwargs), *_ in sets.values():
        with contextlib.suppress(BakeoffError):  # of a set that is left out
            inputs.update(describe_call(args, kwargs, parameter_names(module)).names)
    names = [name for name, _ in named_tensors(module)]
    parts = tuple(one for one in said.keep_fp32 if one not in inputs and any(is_part(name, [one]) for name in names))
    return parts, tuple(one for one in said.keep_fp32 if one not in parts)


def _check_said(said: Model, sets: Sequence[SetFacts]) -> None:
    """Raise BakeoffError if no set has a name in `keep_fp32`, `hold` or `state`, or if shapes in `state` differ."""
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
                raise bad_model(f"{what}: there is no '{name}'; there are {', '.join(known)}")
    for output, to in said.state.items():
        if outputs[output].shape != inputs[to].shape:
            shapes = f"{list(outputs[output].shape)} and {list(inputs[to].shape)}"
            raise bad_model(f"state: {output} cannot become {to}: their shapes are {shapes}")


def _hold(found: SetFacts) -> None:
    """Find out which inputs must keep their given values because the model accepts no others; mark them in `found`.

    Tried in turn, besides those that the user holds: no inputs, integers and booleans, and also floats that look like a
    mask. Raises BakeoffError if the model accepts other values of no input, or if its outputs are always the same.
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
            if all(same_values(found.calls[0], one) for one in _other_inputs(found)[:-1]):
                text = f"{found.name}: other inputs are drawn from the values of those given, and are the same again"
                raise bad_model(f"{text}; {_MORE}")
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
        raise bad_model(f"{text} would pass; give inputs and weights that make a difference")
    if problem.startswith(_BY_VALUES):
        advice = "sweep the parts that compute: bakeoff inspect FILE.py:NAME --sweep PART"
        raise bad_model(f"{found.name}: {problem}, and engines are compared at one shape; {advice}")
    text = f"{found.name}: the model takes no other values of its inputs than those given ({problem})"
    raise bad_model(f"{text}; {_MORE}")


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
            if tensor.is_floating_point() and torch.isfinite(given).all() and not torch.isfinite(tensor).all():
                return f"{spec.name} is not finite then"
            if tensor.is_floating_point() and tensor.isnan().any():
                return f"{spec.name} is not a number then"
            same[spec.name] &= torch.equal(given, tensor)
    found.outputs = tuple(replace(spec, held=same[spec.name]) for spec in found.outputs)
    return ""


def _other_inputs(found: SetFacts) -> list[Tensors]:
    """Return the inputs of all checked sets but the given one, and those of the first of them with changed values."""
    source = found.source()
    sets = [source.checked(0, index) for index in range(1, found.workload.set_count)]
    return [*sets, altered(sets[0], CHANGES[0], held_inputs(found.workload))]


def _check_hidden_state(found: SetFacts, module: nn.Module, given: GivenDtypes, before: Untouched) -> None:
    """Raise BakeoffError if outputs depend on earlier calls; `before` is the module before its first call."""
    recorded, held = found.calls[0], held_inputs(found.workload)
    sets = {"A": recorded, "B": _other_inputs(found)[0], "C": altered(recorded, CHANGES[0], held)}

    def call(each: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        flat = Flat(cast_module(each, given, found.dtype, found.device), found.call, found.result)
        outputs: tuple[Tensor, ...] = CastModel(flat, found.specs, found.dtype, found.device)(*inputs)
        return outputs

    values = {key: tuple(one.values()) for key, one in sets.items()}
    check_stateless(found.name, before, call, module, values, found.noise)


def _layers(module: nn.Module, sets: Sequence[SetFacts]) -> tuple[Layer, ...]:
    found = {layer for kind, layer in _LAYERS.items() if any(isinstance(one, kind) for one in module.modules())}
    attends = any(one.counted.attends for one in sets)
    return tuple(sorted(found | ({"attention"} if attends else set())))


def _is_mask(tensor: Tensor) -> bool:
    return not bool(torch.isfinite(tensor).all()) or (tensor.numel() > _FEW and tensor.unique().numel() <= _FEW)
