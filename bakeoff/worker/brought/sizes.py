"""Other sizes of a brought model's inputs: which there are, and what plain eager makes of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from bakeoff.models.brought.about import InputSet
from bakeoff.models.component import DynamicAxis, Size, TensorSpec, Work, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.signature import Signature, describe_call, flatten_call
from bakeoff.models.sizes import (
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
from bakeoff.worker.brought.load import Call, one_line
from bakeoff.worker.brought.network import GivenInputs
from bakeoff.worker.brought.work import count
from bakeoff.worker.subject import SIZED_SETS

Sets = Mapping[str, Sequence[Call]]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class FoundSizes:
    """The sizes of one input set."""

    workload: str
    """The set's name with the sizes."""
    axes: tuple[DynamicAxis, ...]
    usual: str
    sizes: tuple[Size, ...]
    notes: tuple[str, ...]

    def added_to(self, described: InputSet) -> InputSet:
        """The set with its sizes; whether its tensors stay fp32 holds for those of each size."""
        sizes = tuple(
            replace(
                size,
                inputs=with_shapes(described.inputs, size.inputs),
                outputs=with_shapes(described.outputs, size.outputs),
            )
            for size in self.sizes
        )
        return InputSet(
            described.name,
            described.call,
            described.result,
            described.inputs,
            described.outputs,
            described.work,
            described.calls,
            described.held,
            self.axes,
            self.usual,
            sizes,
        )


def with_shapes(specs: Sequence[TensorSpec], others: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """The specs with the shapes of others of the same tensors."""
    return tuple(replace(spec, shape=other.shape) for spec, other in zip(specs, others, strict=True))


def sizes_of(
    sets: Sets, parameters: Sequence[str], asked: AskedSizes
) -> tuple[Sets, Mapping[str, tuple[Dimension, ...]]]:
    """The sets to describe, and the dimensions of each that has some.

    With sizes, sets without any of the inputs are left out. With `recorded`, sets that are called alike become the
    first of them, with its calls of the first call's shapes, and the shapes of all their calls are its sizes. Raises
    BakeoffError where no set has such inputs, or no recorded sizes differ.
    """
    if not asked:
        return sets, {}
    if asked == RECORDED:
        return _recorded(sets, parameters)
    inputs = {name: _signature(calls[0], parameters).names for name, calls in sets.items()}
    dimensions = {
        name: tuple(one for one in asked if any(axis[0] in known for axis in one.axes))
        for name, known in inputs.items()
    }
    for one in asked:
        if not any(one in found for found in dimensions.values()):
            names = ", ".join(dict.fromkeys(tensor for known in inputs.values() for tensor in known))
            raise BakeoffError(f"--sizes: there is no input '{one.axes[0][0]}'; there are {names}", "bad-option")
    kept = {name: calls for name, calls in sets.items() if dimensions[name]}
    return kept, dimensions


def _recorded(sets: Sets, parameters: Sequence[str]) -> tuple[Sets, Mapping[str, tuple[Dimension, ...]]]:
    groups: list[tuple[str, Signature, list[Call]]] = []
    for name, calls in sets.items():
        signature = _signature(calls[0], parameters)
        known = next((group for group in groups if group[1] == signature), None)
        if known is None:
            groups.append((name, signature, list(calls)))
        else:
            known[2].extend(calls)
    kept: dict[str, Sequence[Call]] = {}
    found: dict[str, tuple[Dimension, ...]] = {}
    for name, signature, calls in groups:
        shapes = [_shapes(signature, call) for call in calls]
        found[name] = _dimensions(shapes)
        kept[name] = [call for call, shape in zip(calls, shapes, strict=True) if shape == shapes[0]]
    if not any(found.values()):
        text = "--sizes recorded: no recorded calls differ in sizes alone; record others, or name sizes as in x.0=1,4,8"
        raise BakeoffError(text, "bad-option")
    return {name: calls for name, calls in kept.items() if found[name]}, found


def _dimensions(shapes: Sequence[Shapes]) -> tuple[Dimension, ...]:
    """Axes whose sizes differ between calls; those that have the same ones in every call are one dimension."""
    together: dict[tuple[int, ...], list[tuple[str, int]]] = {}
    for name, shape in shapes[0].items():
        if any(len(other[name]) != len(shape) for other in shapes):
            return ()
        for axis in range(len(shape)):
            sizes = tuple(other[name][axis] for other in shapes)
            if len(set(sizes)) > 1:
                together.setdefault(sizes, []).append((name, axis))
    return tuple(Dimension(tuple(axes), tuple(sorted(set(sizes)))) for sizes, axes in together.items())


def _signature(call: Call, parameters: Sequence[str]) -> Signature:
    return describe_call(*call, parameters, lambda value: isinstance(value, Tensor))


def _shapes(signature: Signature, call: Call) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in flatten_call(signature, *call).items()}


def find_sizes(
    name: str,
    asked: Sequence[Dimension],
    module: nn.Module,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    source: Callable[[Workload], GivenInputs],
) -> FoundSizes:
    """Run the model at each size, in fp32. Raises BakeoffError where it fails at one of those asked for."""
    shapes = {spec.name: spec.shape for spec in inputs}
    pairs = [with_usual(one, shapes) for one in asked]
    dimensions, usual = tuple(one for one, _ in pairs), tuple(size for _, size in pairs)

    def run(point: Point, seen: bool) -> Size:
        wanted = shapes_at(shapes, dimensions, point)
        specs = tuple(replace(spec, shape=wanted[spec.name]) for spec in inputs)
        made = source(Workload(name, "", specs, outputs, Work(0, 0, 0)))
        results, counted = count(module, tuple(made.sized(0, 0).values()))
        for index in range(1, SIZED_SETS):
            again = module(*made.sized(0, index).values())
            if any(one.shape != other.shape for one, other in zip(results, again, strict=True)):
                raise ValueError("the shapes of its outputs depend on the values of its inputs")
        if any(one.is_floating_point() and not torch.isfinite(one).all() for one in results):
            raise ValueError("an output is not finite")
        given = tuple(replace(spec, shape=tuple(one.shape)) for spec, one in zip(outputs, results, strict=True))
        return Size(label(dimensions, point), seen, specs, given, counted.work((*specs, *given)))

    sizes = []
    for point in seen_points(dimensions, usual):
        try:
            sizes.append(run(point, seen=True))
        except Exception as error:
            text = f"the model itself fails at {label(dimensions, point)}: {type(error).__name__}: {one_line(error)}"
            raise BakeoffError(f"{name}: {text}; give sizes that it takes", "bad-user-code") from error
    unseen, note = _unseen(dimensions, run)
    return FoundSizes(
        workload_name(name, dimensions),
        dynamic_axes(dimensions, usual),
        label(dimensions, usual),
        (*sizes, *unseen),
        tuple(f"{name}: {text}" for text in note),
    )


def _unseen(dimensions: Sequence[Dimension], run: Callable[[Point, bool], Size]) -> tuple[list[Size], list[str]]:
    """The first size that is not listed and that the model takes; else why there is none."""
    problem = "all sizes within the range are listed"
    for point in unseen_points(dimensions):
        try:
            return [run(point, False)], []
        except Exception as error:  # noqa: BLE001  # whatever a module raises for a size that it does not take
            problem = f"the model fails at {label(dimensions, point)} ({type(error).__name__}: {one_line(error)})"
    return [], [f"no engine is judged at a size that was not listed: {problem}"]
