"""Finds the other input sizes at which a brought model is swept, and runs plain eager at each of them."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import prod

import torch

from bakeoff.models.brought.about import batch_name
from bakeoff.models.brought.model import Call, InputSets
from bakeoff.models.component import Size
from bakeoff.models.errors import BakeoffError
from bakeoff.models.lookup import one_line
from bakeoff.models.signature import describe_call
from bakeoff.models.sizes import (
    MOST_VALUES,
    RECORDED,
    AskedSizes,
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
from bakeoff.worker.brought.load import given_tensors
from bakeoff.worker.brought.set_facts import SetFacts
from bakeoff.worker.subject import SIZED_SETS
from bakeoff.worker.work import count

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class AskedSet:
    """An input set to describe, and the sizes that are requested for it."""

    calls: Sequence[Call]
    dimensions: tuple[Dimension, ...] = ()
    others: Sequence[Call] = ()
    """Recorded or given calls of other sizes."""
    points: tuple[Point, ...] = ()
    """Sizes of all recorded calls, if these are requested; () for every listed size."""


def sizes_of(sets: InputSets, parameters: Sequence[str], asked: AskedSizes) -> Mapping[str, AskedSet]:
    """Return the input sets to describe by name, with their other sizes if `asked` requests any.

    If `asked` names axes, sets without any of the named inputs are left out, and sets that differ only along these axes
    are merged into the first that has a size in the range. If it is `recorded`, sets of one form are merged into the
    first: `calls` are those with the first call's shapes, and calls with an empty input are left out. `parameters` are
    the names of the positional parameters. Raises BakeoffError if no set has a named input, or no recorded sizes
    differ.
    """
    if not asked:
        return {name: AskedSet(calls) for name, calls in sets.items()}
    known = [_set(name, calls, parameters) for name, calls in sets.items()]
    return _recorded(known) if asked == RECORDED else _named(known, asked)


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


def _named(known: Sequence[_Set], asked: Sequence[Dimension]) -> Mapping[str, AskedSet]:
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


def _recorded(known: Sequence[_Set]) -> Mapping[str, AskedSet]:
    found: dict[str, AskedSet] = {}
    for index, first in enumerate(known):
        if any(one.form == first.form for one in known[:index]):
            continue
        group = [one for one in known if one.form == first.form]
        calls = [pair for one in group for pair in zip(one.calls, one.shapes, strict=True)]
        calls = [(call, shapes) for call, shapes in calls if all(map(prod, shapes.values()))] or calls
        usual = calls[0][1]
        calls = _fewer(calls, usual)
        dimensions = _dimensions([shapes for _, shapes in calls])
        if dimensions:
            points = tuple(dict.fromkeys(_point(shapes, dimensions) for _, shapes in calls))
            same = [call for call, shapes in calls if shapes == usual]
            others = [call for call, shapes in calls if shapes != usual]
            found[first.name] = AskedSet(same, dimensions, others, points)
    if not found:
        text = "--sizes recorded: no recorded calls differ in sizes alone; record others, or name sizes as in x.0=1,4,8"
        raise BakeoffError(text, "bad-option")
    return found


def _fewer(calls: list[tuple[Call, Shapes]], usual: Shapes) -> list[tuple[Call, Shapes]]:
    """Return the calls of at most `MOST_VALUES` sizes: the usual one, and others from the smallest to the largest."""
    sizes = sorted((shapes for _, shapes in calls), key=lambda shapes: sum(prod(one) for one in shapes.values()))
    different = [one for index, one in enumerate(sizes) if one not in sizes[:index]]
    if len(different) <= MOST_VALUES:
        return calls
    rest, last = [one for one in different if one != usual], MOST_VALUES - 2
    chosen = [usual, *(rest[index * (len(rest) - 1) // last] for index in range(last + 1))]
    return [(call, shapes) for call, shapes in calls if shapes in chosen]


def _point(shapes: Shapes, dimensions: Sequence[Dimension]) -> Point:
    return tuple(shapes[name][axis] for name, axis in (one.axes[0] for one in dimensions))


def _dimensions(shapes: Sequence[Shapes]) -> tuple[Dimension, ...]:
    """Return the axes whose sizes differ between calls; axes with the same sizes in every call form one dimension."""
    together: dict[tuple[int, ...], list[tuple[str, int]]] = {}
    for name, shape in shapes[0].items():
        if any(len(other[name]) != len(shape) for other in shapes):
            return ()
        for axis in range(len(shape)):
            sizes = tuple(other[name][axis] for other in shapes)
            if len(set(sizes)) > 1:
                together.setdefault(sizes, []).append((name, axis))
    return tuple(Dimension(tuple(axes), tuple(sorted(set(sizes)))) for sizes, axes in together.items())


def find_sizes(found: SetFacts, asked: AskedSet) -> None:
    """Run the model at each size, and store the sizes, their axes and a name that states them in `found`.

    Raises BakeoffError if the model fails at a requested size. With recorded sizes, the smallest and the largest size
    of all axes together are run even if nobody recorded them; if the model fails there, a note says so.
    """
    shapes = {spec.name: spec.shape for spec in found.specs}
    pairs = [with_usual(one, shapes) for one in asked.dimensions]
    dimensions, usual = tuple(one for one, _ in pairs), tuple(size for _, size in pairs)

    def run(point: Point, seen: bool) -> Size:
        return _run_at(found, label(dimensions, point), shapes_at(shapes, dimensions, point), seen)

    sizes = []
    listed = {*asked.points} or {*seen_points(dimensions, usual)}
    for point in sorted(listed - {usual}):
        try:
            sizes.append(run(point, seen=True))
        except Exception as error:
            text = f"the model itself fails at {label(dimensions, point)}: {type(error).__name__}: {one_line(error)}"
            raise BakeoffError(f"{found.name}: {text}; give sizes that it takes", "bad-user-code") from error
    ends = {tuple(one.values[end] for one in dimensions) for end in (0, -1)} if asked.points else set()
    unseen, notes = _unseen(dimensions, unseen_points(listed | {usual}), ends - listed, run)
    found.notes += [f"{found.name}: {text}" for text in notes]
    found.sizes = (*sizes, *unseen)
    found.axes, found.usual = dynamic_axes(dimensions, usual), label(dimensions, usual)
    found.name = workload_name(found.name, dimensions)


def find_batches(found: SetFacts, batches: Sequence[int]) -> None:
    """Run the model with axis 0 of its inputs multiplied by each of `batches`, and store these sizes in `found`.

    Only inputs whose axis 0 is as long as that of the first input are enlarged. Raises BakeoffError if the model fails,
    or none of its outputs grows by the same factor.
    """
    for batch in batches:
        try:
            found.batches += (_batched(found, batch),)
        except Exception as error:
            text = f"{found.name} fails where axis 0 of its inputs is so many times as long"
            said = f"{type(error).__name__}: {one_line(error)}"
            raise BakeoffError(f"--batch {batch}: {text}: {said}", "bad-option") from error


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


def _unseen(
    dimensions: Sequence[Dimension], between: Sequence[Point], ends: Set[Point], run: Callable[[Point, bool], Size]
) -> tuple[list[Size], list[str]]:
    """Run the model at sizes that were not requested; return those at which it runs, and notes on the failures.

    The sizes are those of `between`, up to the first at which the model runs, and all of `ends`.
    """
    sizes, notes = [], []

    def tried(point: Point) -> str:
        """Run the model at a size and keep the result; return why the model failed, or "" if it did not."""
        try:
            sizes.append(run(point, False))
        except Exception as error:  # noqa: BLE001  # whatever a module raises for a size that it does not take
            return f"the model fails at {label(dimensions, point)} ({type(error).__name__}: {one_line(error)})"
        return ""

    problem = "all sizes within the range are listed"
    for point in between:
        problem = tried(point)
        if not problem:
            break
    if problem:
        notes.append(f"no engine is checked at a size that was not listed: {problem}")
    done = {size.name for size in sizes}
    return sizes, [*notes, *filter(None, [tried(one) for one in sorted(ends) if label(dimensions, one) not in done])]
