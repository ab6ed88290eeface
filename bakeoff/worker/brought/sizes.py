"""Finds the other input sizes at which a brought model is swept, and runs plain eager at each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from bakeoff.models.brought.about import batch_name
from bakeoff.models.brought.model import Call, InputSets
from bakeoff.models.component import Size
from bakeoff.models.errors import BakeoffError
from bakeoff.models.lookup import one_line
from bakeoff.models.signature import describe_call
from bakeoff.models.sizes import (
    Dimension,
    Point,
    dynamic_axes,
    label,
    seen_points,
    shapes_at,
    unseen_points,
    with_usual,
    workload_name,
)
from bakeoff.worker.brought.calls import call_tensors
from bakeoff.worker.brought.facts import AskedSet, ModelFacts, SetFacts
from bakeoff.worker.brought.load import given_tensors
from bakeoff.worker.subject import SIZED_SETS
from bakeoff.worker.work import count

Shapes = dict[str, tuple[int, ...]]


def sizes_of(sets: InputSets, parameters: Sequence[str], asked: Sequence[Dimension]) -> Mapping[str, AskedSet]:
    """Return the input sets to describe by name, with their other sizes if `asked` requests any.

    Sets without any of the named inputs are left out, and sets that differ only along the named axes are merged into
    the first that has a size in the range. `parameters` are the names of the positional parameters. Raises
    BakeoffError if no set has a named input.
    """
    if not asked:
        return {name: AskedSet(calls) for name, calls in sets.items()}
    known = [_set(name, calls, parameters) for name, calls in sets.items()]
    own = {
        one.name: tuple(each for each in asked if any(axis[0] in one.shapes[0] for axis in each.axes)) for one in known
    }
    for each in asked:
        if not any(each in found for found in own.values()):
            names = ", ".join(dict.fromkeys(tensor for one in known for tensor in one.shapes[0]))
            raise BakeoffError(f"--sizes: there is no input '{each.axes[0][0]}'; there are {names}", "bad-option")
    known = [one for one in known if own[one.name]]
    inside = [one for one in known if _in_range(one.shapes[0], own[one.name])]
    kept: dict[str, _Set] = {}
    others: dict[str, list[Call]] = {}
    for one in [*inside, *(each for each in known if each not in inside)]:
        main = next((each for each in kept.values() if _differ_along(each, one, own[one.name])), None)
        if main is None:
            kept[one.name], others[one.name] = one, []
        else:
            others[main.name] += one.calls
    return {one.name: AskedSet(one.calls, own[one.name], others[one.name]) for one in known if one.name in kept}


@dataclass(frozen=True, slots=True)
class _Set:
    """Calls of one form: the same structure, constants and dtypes."""

    name: str
    form: object
    calls: tuple[Call, ...]
    shapes: tuple[Shapes, ...]
    """Shapes of each call."""


def _set(name: str, calls: Sequence[Call], parameters: Sequence[str]) -> _Set:
    signature = describe_call(*calls[0], parameters)
    tensors = [given_tensors(name, signature, call) for call in calls]
    dtypes = {key: one.dtype for key, one in tensors[0].items()}
    shapes = tuple({key: tuple(one.shape) for key, one in call.items()} for call in tensors)
    return _Set(name, (signature, dtypes), tuple(calls), shapes)


def _in_range(shapes: Shapes, dimensions: Sequence[Dimension]) -> bool:
    """Return whether a call has all axes of these dimensions, with sizes in their ranges."""
    return all(
        name in shapes and axis < len(shapes[name]) and one.values[0] <= shapes[name][axis] <= one.values[-1]
        for one in dimensions
        for name, axis in one.axes
    )


def _differ_along(one: _Set, other: _Set, dimensions: Sequence[Dimension]) -> bool:
    """Return whether two sets have the same form, and shapes that differ only along these axes."""
    axes = {axis for dimension in dimensions for axis in dimension.axes}

    def rest(shapes: Shapes) -> object:
        return {
            name: [None if (name, axis) in axes else size for axis, size in enumerate(shape)]
            for name, shape in shapes.items()
        }

    first, second = one.shapes[0], other.shapes[0]
    return one.form == other.form and first != second and rest(first) == rest(second)


def find_sizes(model: ModelFacts, found: SetFacts) -> None:
    """Run the model at each requested size, and store the sizes, their axes and a name that states them in `found`.

    Raises BakeoffError if the model fails at a requested size.
    """
    asked = model.asked[found.name]
    if not asked.dimensions:
        return
    model.report("reference", f"running the model at other sizes of {found.name}")
    found.others = [call_tensors(found.name, found.call, other) for other in asked.others]
    shapes = {spec.name: spec.shape for spec in found.specs}
    pairs = [with_usual(one, shapes) for one in asked.dimensions]
    dimensions, usual = tuple(one for one, _ in pairs), tuple(size for _, size in pairs)

    def run(point: Point, seen: bool) -> Size:
        return _run_at(found, label(dimensions, point), shapes_at(shapes, dimensions, point), seen)

    sizes = []
    listed = seen_points(dimensions, usual)
    for point in listed:
        try:
            sizes.append(run(point, seen=True))
        except Exception as error:
            text = f"the model itself fails at {label(dimensions, point)}: {type(error).__name__}: {one_line(error)}"
            raise BakeoffError(f"{found.name}: {text}; give sizes that it takes", "bad-user-code") from error
    problem = "all sizes within the range are listed"
    for point in unseen_points([*listed, usual]):
        try:
            sizes.append(run(point, seen=False))
            break
        except Exception as error:  # noqa: BLE001  # whatever a module raises for a size that it does not take
            problem = f"the model fails at {label(dimensions, point)} ({type(error).__name__}: {one_line(error)})"
    else:
        model.notes.append(f"{found.name}: no engine is checked at a size that was not listed: {problem}")
    found.sizes = tuple(sizes)
    found.axes, found.usual = dynamic_axes(dimensions, usual), label(dimensions, usual)
    found.name = workload_name(found.name, dimensions)


def find_batches(model: ModelFacts, found: SetFacts) -> None:
    """Run the model with axis 0 of its inputs multiplied by each requested batch, and store these sizes in `found`.

    Only inputs whose axis 0 is as long as that of the first input are enlarged. Raises BakeoffError if the model fails,
    or none of its outputs grows by the same factor.
    """
    for batch in model.job.batches:
        model.report("reference", f"running the model with other batches of {found.name}")
        try:
            found.batches += (_batched(found, batch),)
        except Exception as error:
            text = f"--batch {batch}: {found.name} fails where axis 0 of its inputs is so many times as long"
            raise BakeoffError(f"{text}: {type(error).__name__}: {one_line(error)}", "bad-option") from error


def _batched(found: SetFacts, batch: int) -> Size:
    first = found.specs[0]
    if not first.shape:
        raise ValueError(f"its first input, {first.name}, has no axes")
    shapes = {
        spec.name: (batch * spec.shape[0], *spec.shape[1:]) if spec.shape[:1] == first.shape[:1] else spec.shape
        for spec in found.specs
    }
    made = _run_at(found, batch_name(batch), shapes, seen=True)
    if not any(one.elements == batch * spec.elements for spec, one in zip(found.outputs, made.outputs, strict=True)):
        raise ValueError(f"no output is {batch} times as large")
    return made


def _run_at(found: SetFacts, name: str, shapes: Mapping[str, tuple[int, ...]], seen: bool) -> Size:
    """Run the model with inputs of these shapes, and return the size; `seen` states whether it was requested.

    Raises whatever the model raises, and ValueError for outputs that are not finite or whose shapes depend on values.
    """
    specs = tuple(replace(spec, shape=shapes[spec.name]) for spec in found.specs)
    source = found.source(replace(found.workload, inputs=specs))
    results, counted = count(found.held, tuple(source.checked(0, 0).values()))
    for index in range(1, SIZED_SETS):
        again = found.held(*source.checked(0, index).values())
        if any(one.shape != other.shape for one, other in zip(results, again, strict=True)):
            raise ValueError("the shapes of its outputs depend on the values of its inputs")
    if any(one.is_floating_point() and not torch.isfinite(one).all() for one in results):
        raise ValueError("an output is not finite")
    outputs = tuple(replace(spec, shape=tuple(one.shape)) for spec, one in zip(found.outputs, results, strict=True))
    return Size(name, seen, specs, outputs, counted.work(specs + outputs))
