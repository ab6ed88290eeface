"""Loads a subject: the module with its weights and the sets of inputs, the same in every worker of a sweep."""

import hashlib
import random
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from bakeoff.models import resolve_component
from bakeoff.models.checkpoint import adapt_config, load_checkpoint
from bakeoff.models.component import Component, TensorSpec, Work, Workload, laid_out
from bakeoff.models.tables import FixedTable
from bakeoff.models.weights import randomize
from bakeoff.process.jobs import Subject
from bakeoff.record.kept import read_work
from bakeoff.worker import kept_weights
from bakeoff.worker.cast import GivenDtypes, cast_module, given_dtypes
from bakeoff.worker.reference.error import expected_dtype
from bakeoff.worker.work import count_work

SIZED_SETS = 2
"""Sets of inputs of each size: the second one exposes an engine that stores the outputs for the first."""
CHANGES = (1 - 2**-4, 1 - 2**-2, 2**-1)
"""Factors tried for changing a set's values: the first one whose effect shows in the outputs is used."""


@dataclass(frozen=True, slots=True)
class LoadedSubject:
    """A component's module and inputs on the CPU, as loaded; `cast_subject` casts them for a variant."""

    subject: Subject
    component: Component
    config: Any
    workload: Workload
    module: nn.Module
    given: GivenDtypes
    """Dtypes of the module as it was loaded."""
    weights: str
    """Fingerprint of the weights as they were loaded."""
    sets: tuple[dict[str, Tensor], ...]
    """Sets of inputs by name; timed calls take them in turn."""
    source: "InputSource"
    """Makes further inputs."""
    sized: tuple[tuple[dict[str, Tensor], ...], ...] = ()
    """Sets of inputs for each of the workload's other sizes."""

    @property
    def work(self) -> Work:
        """Work of one call: as the model's description states it, else as the parent stored it, else counted now."""
        asked = self.subject
        kept = self.workload.work or read_work(asked.component, self.config, asked.workload, asked.batch)
        return kept or count_work(self.component, self.config, self.workload, asked.batch)

    def cast(self, dtype: str, device: str) -> nn.Module:
        """Cast and move the module in place, and return it. Half precision loses the original weights for good."""
        return cast_module(self.module, self.given, dtype, device)


def plain_eager(component: Component) -> AbstractContextManager[object]:
    """Return a context in which components that call torch.compile run in eager, for baselines and references."""
    if not component.compiles:
        return nullcontext()  # the other one imports dynamo, which takes a second
    return torch.compiler.set_stance("force_eager")


class InputSource(Protocol):
    """Makes inputs of a workload on the CPU: floating ones in fp32, or in fp64 if they were provided in fp64."""

    def checked(self, seed: int, index: int) -> dict[str, Tensor]:
        """Return set `index` of the inputs that engines are checked and timed on."""

    def calibration(self, seed: str) -> dict[str, Tensor]:
        """Return inputs that no engine is checked on."""

    def keyed(self, key: Callable[[str], str]) -> dict[str, Tensor]:
        """Return the inputs of a call in a loop; they depend only on `key`, which returns a name's key."""

    def one(self, spec: TensorSpec, key: str) -> Tensor:
        """Return one input, or a part of it if the spec's shape is smaller; it depends on the spec and `key` only."""

    def returned(self) -> Mapping[str, Tensor]:
        """Return what the user's own call on set 0 returned when the model was described; empty without such a call."""


@dataclass(frozen=True, slots=True)
class DrawnInputs:
    """Source of random inputs, drawn as the workload's specs say."""

    workload: Workload

    def checked(self, seed: int, index: int) -> dict[str, Tensor]:
        return self.keyed(lambda name: f"{seed}:{index}:{name}")

    def calibration(self, seed: str) -> dict[str, Tensor]:
        return self.keyed(lambda name: f"{seed}:{name}")

    def keyed(self, key: Callable[[str], str]) -> dict[str, Tensor]:
        return {spec.name: draw(spec, key(spec.name)) for spec in self.workload.inputs}

    def one(self, spec: TensorSpec, key: str) -> Tensor:
        return draw(spec, key)

    def returned(self) -> Mapping[str, Tensor]:
        return {}


def input_source(network: Any, workload: Workload) -> InputSource:
    """Return the source of a component's inputs: those given with a brought model, else random ones."""
    make: Callable[[Workload], InputSource] = getattr(network, "inputs", DrawnInputs)
    return make(workload)


def changed_inputs(loaded: LoadedSubject, index: int, change: float) -> dict[str, Tensor]:
    """Return set `index` with every second value scaled by `change`, at most CHANGES[0]: enough to show in bf16.

    Inputs that no check may change keep their values.
    """
    return altered(loaded.sets[index], change, held_inputs(loaded.workload))


def held_inputs(workload: Workload) -> frozenset[str]:
    """Return the names of the inputs whose values no check may change."""
    return frozenset(spec.name for spec in workload.inputs if spec.held)


def same_values(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Return whether two sets of one workload have the same values."""
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def altered(values: Mapping[str, Tensor], scale: float, held: Collection[str] = ()) -> dict[str, Tensor]:
    """Return copies of a set of inputs with every second value scaled, except in the inputs named in `held`.

    Not every value is scaled, because a module that normalises its input gives the same outputs for all values scaled
    alike. In integer and boolean inputs every second value is replaced by another value of the same tensor, since
    scaled indices may be out of range. Which one is drawn from `scale`.
    """
    changed = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in values.items()}
    for name in changed.keys() - set(held):
        flat = changed[name].view(-1)
        if flat.is_floating_point():
            flat[::2] *= scale
        else:
            draw, before = random.Random(scale), flat[::2].clone()
            for _ in range(8):  # until one differs, which those of a periodic input may not
                flat[::2] = flat.roll(draw.randrange(1, max(2, flat.numel())))[::2]
                if not torch.equal(flat[::2], before):
                    break
    return changed


def load_subject(subject: Subject) -> LoadedSubject:
    """Build the subject's module and draw its inputs.

    Raises BakeoffError if the component or workload does not exist, or if the checkpoint does not fit.
    """
    component = resolve_component(subject.component)
    config = component.preset(subject.preset).config
    path = Path(subject.checkpoint) if subject.checkpoint else None
    if path is not None:
        config = adapt_config(config, component, path)
    workload = component.workload(config, subject.workload, subject.batch)
    network = component.network_module()
    source: Any = input_source(network, workload)
    if component.weights:
        module, weights = network.build(config, subject.workload, subject.batch), network.about.weights
    else:
        module = build_module(lambda: network.build(config, subject.workload, subject.batch), subject.weight_seed)
        module.requires_grad_(False)

        def fill() -> None:
            if path is None:
                randomize(module, subject.weight_seed, getattr(network, "initial_std", None))
            else:
                load_checkpoint(path, module, component)

        weights = kept_weights.filled(module, _identity(subject), fill)
    sets = tuple(source.checked(subject.input_seed, index) for index in range(workload.set_count))
    sources = [input_source(network, workload.at(size)) for size in workload.sizes]
    sized = tuple(tuple(one.checked(subject.input_seed, index) for index in range(SIZED_SETS)) for one in sources)
    given = given_dtypes(module, component.keep_fp32)
    return LoadedSubject(subject, component, config, workload, module, given, weights, sets, source, sized)


def _identity(subject: Subject) -> str:
    """Return text that identifies the subject's weights in a sweep, where all workers have one component source."""
    weights = subject.checkpoint_hash if subject.checkpoint else f"seed {subject.weight_seed}"
    return f"{subject.component}:{subject.preset}.{subject.workload}, batch {subject.batch}, {weights}"


def build_module(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a module on the CPU. Its parameters may have any values; all its other tensors have their initial values.

    It is built on the meta device, because initialising large weights takes time. If a buffer or another tensor would
    then have no values, or if the constructor reads values, it is built on the CPU instead, with torch's global
    generator seeded, so that every worker gets the same buffers.
    """
    try:
        with torch.device("meta"):
            module = build()
    except RuntimeError:  # "Tensor.item() cannot be called on meta tensors", NotImplementedError and others
        pass
    else:
        if not any(_constants(layer) for layer in module.modules()):
            # As to_empty(device="cpu"), whose empty_like of a meta tensor imports sympy: a second and a half.
            return module._apply(lambda tensor: torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype))
        del module
    with torch.random.fork_rng(devices=()), torch.device("cpu"):
        torch.manual_seed(seed)
        return build()


def _constants(layer: nn.Module) -> list[Tensor]:
    """Return one layer's own tensors that are not parameters; none of a FixedTable, which fills its tensors itself."""
    if isinstance(layer, FixedTable):
        return []
    own = [value for name, value in vars(layer).items() if name not in ("_parameters", "_buffers", "_modules")]
    inner = [
        part
        for value in own
        for part in (value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ())
    ]
    tensors = [value for value in (*own, *inner) if isinstance(value, Tensor) and not isinstance(value, nn.Parameter)]
    return [*layer.buffers(recurse=False), *tensors]


def draw(spec: TensorSpec, key: str) -> Tensor:
    """Draw a benchmark input in fp32; it depends on its spec and `key` only."""
    generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(key.encode()).digest()[:7]))
    if isinstance(spec.draw, tuple):
        return torch.tensor(spec.draw)[torch.randint(0, len(spec.draw), spec.shape, generator=generator)]
    if spec.draw == "uniform":
        return torch.rand(spec.shape, generator=generator)
    if spec.draw == "binary":
        return torch.randint(0, 2, spec.shape, generator=generator).float()
    return torch.randn(spec.shape, generator=generator)


def drawn_inputs(loaded: LoadedSubject, seed: str, dtype: str, device: str) -> dict[str, Tensor]:
    """Return further inputs of the workload, for calibration, in a variant's dtype and on its device."""
    return cast_inputs(loaded.workload, loaded.source.calibration(seed), dtype, device)


def cast_subject(loaded: LoadedSubject, dtype: str, device: str) -> tuple[dict[str, Tensor], ...]:
    """Cast and move the module in place, and return copies of its sets of inputs in this dtype and on this device."""
    loaded.cast(dtype, device)
    return tuple(cast_inputs(loaded.workload, inputs, dtype, device) for inputs in loaded.sets)


def cast_inputs(workload: Workload, inputs: Mapping[str, Tensor], dtype: str, device: str) -> dict[str, Tensor]:
    """Return copies of a set of inputs in a variant's dtype and on its device; `keep_fp32` inputs are at least fp32."""
    return {spec.name: cast_input(spec, inputs[spec.name], dtype, device) for spec in workload.inputs}


def cast_input(spec: TensorSpec, value: Tensor, dtype: str, device: str) -> Tensor:
    """Return a copy of one input on the device, with the dtype and memory layout that `spec` states for a variant."""
    copy = value.to(device=device, dtype=expected_dtype(spec, dtype), copy=True)
    return laid_out(copy, spec.order)


def synchronise(device: str) -> None:
    """Wait until the device has done all queued work; does nothing on a CPU."""
    if device == "cuda":
        torch.cuda.synchronize()
