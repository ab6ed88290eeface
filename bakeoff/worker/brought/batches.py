"""A brought model at multiples of the given batch: shapes of its inputs and outputs, and its work, by running it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import nn

from bakeoff.models.brought.about import Batched
from bakeoff.models.component import TensorSpec, Work, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.user_code import one_line
from bakeoff.worker.brought.network import GivenInputs
from bakeoff.worker.brought.work import count


def find_batches(
    name: str,
    asked: Sequence[int],
    module: nn.Module,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    source: Callable[[Workload], GivenInputs],
) -> tuple[Batched, ...]:
    """Run the model in fp32 with axis 0 of its inputs so many times as long, for each of `asked`.

    Axis 0 is the batch of those inputs in which it is as long as in the first. Raises BakeoffError where the model
    fails so, or gives outputs that are not so many times as long.
    """
    return tuple(_run(name, batch, module, inputs, outputs, source) for batch in asked)


def _run(
    name: str,
    batch: int,
    module: nn.Module,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    source: Callable[[Workload], GivenInputs],
) -> Batched:
    usual = inputs[0].shape[:1]
    if not usual:
        raise _problem(name, batch, f"its first input, {inputs[0].name}, has no axes")
    wanted = tuple(
        replace(spec, shape=(batch * spec.shape[0], *spec.shape[1:])) if spec.shape[:1] == usual else spec
        for spec in inputs
    )
    made = source(Workload(name, "", wanted, outputs, Work(0, 0, 0)))
    try:
        results, counted = count(module, tuple(made.sized(0, 0).values()))
    except Exception as error:
        raise _problem(name, batch, f"the model raised {type(error).__name__}: {one_line(error)}") from error
    for spec, result in zip(outputs, results, strict=True):
        if result.is_floating_point() and not torch.isfinite(result).all():
            raise _problem(name, batch, f"{spec.name} is not finite")
    longer = [spec.name for spec, one in zip(outputs, results, strict=True) if one.numel() == batch * spec.elements]
    if not longer:
        raise _problem(name, batch, f"no output is {batch} times as large")
    given = tuple(replace(spec, shape=tuple(one.shape)) for spec, one in zip(outputs, results, strict=True))
    return Batched(batch, wanted, given, counted.work((*wanted, *given)))


def _problem(name: str, batch: int, text: str) -> BakeoffError:
    return BakeoffError(
        f"--batch {batch}: {name}: {text} when axis 0 of the inputs is so many times as long", "bad-option"
    )
