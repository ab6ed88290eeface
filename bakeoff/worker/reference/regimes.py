"""Inputs of another kind than the given ones (regimes), and how the outputs for them are compared.

Inputs of one distribution pass what real ones expose: mass that a softmax clips, a table that ends, a scale that items
of a batch share. In a regime all floating inputs change together, but those that are held, kept in fp32 or not drawn
from a normal distribution (times, positions, masks), states, which keep their scale, and inputs of one or two values.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from bakeoff.models.component import Workload
from bakeoff.record.regimes import BATCH
from bakeoff.worker.reference.error import Difference, difference, expected_dtype
from bakeoff.worker.reference.files import set_name
from bakeoff.worker.subject import LoadedSubject, held_inputs

NamedSets = Iterator[tuple[str, Mapping[str, Tensor]]]
"""Sets of inputs, each with the name of its outputs."""
_LARGE = 16.0
"""Factor of an outlier channel, and of the items beside one."""
_NEARLY = 2.0**-8
"""Distance of a nearly constant row's values from its first one, relative to their own."""
_LOOKED_AT = 4096
"""Values of an input in which more than two different ones are looked for."""
_SATURATED, _AT_BOUND = 0.5, 0.999
"""An output is saturated if more than this share of its values is at least the second of its largest absolute value,
and is not so for the given inputs."""
_ITEMS = 32
"""Items of a batch that are compared, from the last one."""
_SAME = 1e-6
"""Relative L2 up to which items of a batch count as independent of each other in the model itself."""


def _outlier(values: Tensor) -> Tensor:
    axis = -3 if values.dim() > 3 else -1
    values.select(axis, 0).mul_(_LARGE)
    return values


def _constant(values: Tensor) -> Tensor:
    first = values[..., :1]
    return first + _NEARLY * (values - first)


def _power(values: Tensor, power: float) -> Tensor:
    """Raise absolute values to a power, and keep the signs and the root mean square."""
    raised = values.sign() * values.abs() ** power
    return raised * (values.square().mean() / raised.square().mean()).sqrt()


REGIMES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "x0.25": lambda values: values * 0.25,
    "x4": lambda values: values * 4.0,
    "x16": lambda values: values * 16.0,
    "outlier": _outlier,
    "constant": _constant,
    "sharper": partial(_power, power=2.0),
    "flatter": partial(_power, power=0.5),
}
"""How values of an input change in each regime but those of BATCH; values may be overwritten."""
FEW = 3
"""Regimes of a workload whose sets are so large that there are only two, or whose references in fp64 take long."""


def model_outputs(name: str) -> str:
    """Return the name of the model's outputs in a regime."""
    return f"regime-{name}"


def regime_file(name: str) -> str:
    """Return the name of a regime's references, which is also that of their file; in a batch they are set 0's."""
    return set_name(0) if name in BATCH else model_outputs(name)


def scaled_inputs(loaded: LoadedSubject) -> frozenset[str]:
    """Return the names of the inputs whose values regimes change."""
    workload = loaded.workload
    stream = loaded.component.stream(loaded.config, workload.name)
    states = {carry.input for carry in stream.carries if carry.to == workload.name} if stream else set[str]()
    return frozenset(
        spec.name
        for spec in workload.inputs
        if not (spec.dtype or spec.held or spec.keep_fp32 or spec.name in states)
        and spec.draw in ("normal", "given")
        and loaded.sets[0][spec.name].flatten()[:_LOOKED_AT].unique().numel() > 2
    )


def regime_names(loaded: LoadedSubject) -> tuple[str, ...]:
    """Return the regimes to try; () if no input may be changed, or no output is of real numbers."""
    if not scaled_inputs(loaded) or not any(spec.floating for spec in loaded.workload.outputs):
        return ()
    names = tuple(REGIMES) if loaded.workload.set_count > 2 else tuple(REGIMES)[:FEW]
    return (*names, *BATCH) if _batch(loaded.workload) > 1 else names


def _batch(workload: Workload) -> int:
    """Return the length of axis 0 of all outputs; 1 if they differ."""
    lengths = {spec.shape[:1] for spec in workload.outputs}
    return max(lengths.pop(), default=1) if len(lengths) == 1 else 1


def regime_inputs(loaded: LoadedSubject, name: str) -> dict[str, Tensor]:
    """Return the values of set 0 in this regime; tensors that do not change are the set's own."""
    values, batch = dict(loaded.sets[0]), _batch(loaded.workload)
    if name == "permuted":
        moved = {key for key, tensor in values.items() if tensor.shape[:1] == (batch,)} - held_inputs(loaded.workload)
        return {key: tensor.roll(1, 0) if key in moved else tensor for key, tensor in values.items()}
    for key in scaled_inputs(loaded):
        changed = values[key].clone(memory_format=torch.contiguous_format)
        if name != "alone":
            changed = REGIMES[name](changed)
        elif changed.shape[:1] == (batch,):
            changed[1:] *= _LARGE
        values[key] = changed
    return values


def regime_sets(loaded: LoadedSubject, names: Sequence[str]) -> NamedSets:
    """Yield (name, values) of regimes, made one at a time."""
    for name in names:
        yield model_outputs(name), regime_inputs(loaded, name)


def counted_regimes(loaded: LoadedSubject, outputs: Mapping[str, tuple[Tensor, ...]]) -> tuple[str, ...]:
    """Return the regimes in which the model's own `outputs` (by `model_outputs`) say something.

    They must be finite and not saturated. Items of a batch must not depend on each other, or on their order.
    """
    specs, names = loaded.workload.outputs, []
    own = {spec.name: tensor for spec, tensor in zip(specs, outputs[set_name(0)], strict=True)}
    for name in regime_names(loaded):
        found = outputs.get(model_outputs(name), ())
        if not found or not all(bool(torch.isfinite(tensor).all()) for tensor in found):
            continue
        if name in BATCH:
            counts = all(one.rel_l2 <= _SAME for one in regime_differences(loaded, name, found, own).values())
        else:
            pairs = ((one, own[spec.name]) for spec, one in zip(specs, found, strict=True) if spec.floating)
            counts = not any(_is_saturated(one) and not _is_saturated(given) for one, given in pairs)
        names += [name] * counts
    return tuple(names)


def _is_saturated(tensor: Tensor) -> bool:
    values = tensor.abs()
    return bool(tensor.numel()) and float((values >= _AT_BOUND * values.max()).double().mean()) > _SATURATED


def regime_differences(
    loaded: LoadedSubject, name: str, outputs: Sequence[Tensor], references: Mapping[str, Tensor], dtype: str = ""
) -> dict[str, Difference]:
    """Compare each floating output in a regime with its reference; `dtype` is the variant's, "" accepts any.

    Those of a batch are compared item by item, of `alone` the first alone, and the worst item counts.
    """
    found = {}
    for spec, output in zip(loaded.workload.outputs, outputs, strict=True):
        wanted, expected = references[spec.name], expected_dtype(spec, dtype) if dtype else output.dtype
        if not spec.floating:
            continue
        pairs = [(output, wanted)]
        if name == "alone":
            pairs = [(output[0], wanted[0])]
        elif name == "permuted":
            pairs = [*zip(output.roll(-1, 0), wanted, strict=True)][-_ITEMS:]
        each = [difference(mine, own, expected) for mine, own in pairs]
        found[spec.name] = max(each, key=lambda entry: entry.rel_l2)
    return found
