"""Finds the other input sizes at which a brought model is swept, and runs plain eager at each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from bakeoff.models.brought.about import batch_name
from bakeoff.models.brought.model import InputSets
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
from bakeoff.worker.brought.facts import ModelFacts, SetFacts
from bakeoff.worker.brought.load import given_tensors
from bakeoff.worker.subject import SIZED_SETS
from bakeoff.worker.work import count

Shapes = dict[str, tuple[int, ...]]


def sizes_of(
    sets: InputSets, parameters: Sequence[str], asked: Sequence[Dimension]
) -> tuple[InputSets, dict[str, tuple[Dimension, ...]]]:
    """Return the input sets to describe, and the sizes that are requested for each.

    Sets without any of the named inputs are left out; so are those outside of the range, if others are within it, and
    those that differ from an earlier one along the named axes alone. `parameters` are the names of the positional
    parameters. Raises BakeoffError if no set has a named input.
    """
    if not asked:
        return sets, dict.fromkeys(sets, ())
    names: dict[str, None] = {}
    found: dict[str, tuple[Dimension, ...]] = {}
    shapes: dict[str, Shapes] = {}
    forms: dict[str, object] = {}
    for name, calls in sets.items():
        signature = describe_call(*calls[0], parameters)
        tensors = given_tensors(name, signature, calls[0])
        names |= dict.fromkeys(tensors)
        own = tuple(each for each in asked if any(tensor in tensors for tensor, _ in each.axes))
        if own:
            found[name], shapes[name] = own, {key: tuple(one.shape) for key, one in tensors.items()}
            forms[name] = signature, {key: one.dtype for key, one in tensors.items()}, _others(shapes[name], own)
    for each in asked:
        if not any(each in own for own in found.values()):
            text = f"--sizes: there is no input '{each.axes[0][0]}'; there are {', '.join(names)}"
            raise BakeoffError(text, "bad-option")
    kept: list[str] = []
    for name in [name for name, own in found.items() if _in_range(shapes[name], own)] or found:
        if not any(forms[name] == forms[other] and shapes[name] != shapes[other] for other in kept):
            kept.append(name)
    return {name: sets[name] for name in kept}, {name: found[name] for name in kept}


def _in_range(shapes: Shapes, dimensions: Sequence[Dimension]) -> bool:
    """Return whether a call has all axes of these dimensions, with sizes in their ranges."""
    return all(
        name in shapes and axis < len(shapes[name]) and one.values[0] <= shapes[name][axis] <= one.values[-1]
        for one in dimensions
        for name, axis in one.axes
    )


def _others(shapes: Shapes, dimensions: Sequence[Dimension]) -> dict[str, list[int | None]]:
    """Return the shapes without the sizes along these axes."""
    axes = {axis for dimension in dimensions for axis in dimension.axes}
    return {
        name: [None if (name, axis) in axes else size for axis, size in enumerate(shape)]
        for name, shape in shapes.items()
    }


def find_sizes(model: ModelFacts, found: SetFacts) -> None:
    """Run the model at each requested size, and store the sizes, their axes and a name that states them in `found`.

    Raises BakeoffError if the model fails at a requested size.
    """
    asked = model.dimensions[found.name]
    if not asked:
        return
    model.report("reference", f"running the model at other sizes of {found.name}")
    shapes = {spec.name: spec.shape for spec in found.specs}
    pairs = [with_usual(one, shapes) for one in asked]
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
