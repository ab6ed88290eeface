"""Which backends, options and dtypes a request means: what was typed, or the device's default or full suite."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.backends.backend import Backend, Choice
from bakeoff.machine import host
from bakeoff.models.component import Component
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.request import Request
from bakeoff.variant import options_of, parse_use, split_outside_brackets

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """One backend of a composition with its options; all but the last prepare the module, the last builds it."""

    backend: Backend
    reference: str
    """As it was typed: a name in the table, or package.module:BACKEND."""
    options: Any


@dataclass(frozen=True, slots=True)
class Composition:
    """Backends in order, and the dtypes they are taken in when none is asked for."""

    steps: tuple[Step, ...]
    dtypes: tuple[str, ...]


def compositions(request: Request, component: Component, device: str) -> list[Composition]:
    """What is asked for; a bare name stands for all its default options in the suite. Nothing asked: every backend."""
    usual = _default_dtypes(device, request.suite)
    found: list[Composition] = []
    for text in request.backends or backend_names():
        parts = [_read_backend(part) for part in split_outside_brackets(text, "+")]
        if len(parts) > 1 or parts[0][2] is not None:
            found.append(Composition(tuple(_step(*part) for part in parts), usual))
            continue
        backend, reference, _ = parts[0]
        choices = [choice for choice in backend.choices if device in choice.devices]
        usual_choices = [choice for choice in choices if choice.suite == "default"]
        if request.suite == "default" and (usual_choices or not request.backends):
            choices = usual_choices
        if not request.backends:
            choices = [choice for choice in choices if component.name in (choice.components or (component.name,))]
        widened = request.suite == "full"
        found += [_chosen(backend, reference, choice, usual, widened) for choice in choices]
        if not choices and request.backends:
            found.append(Composition((Step(backend, reference, backend.options()),), usual))
    return found


def default_preset(component: Component, device: str) -> str:
    """Raises BakeoffError where the component states none for `device`."""
    return _default(component.default_preset, component, device, "--preset")


def default_workloads(component: Component, config: Any, device: str, suite: str) -> tuple[str, ...]:
    """The default suite's workloads, or all of them. Raises BakeoffError where the component states none."""
    if suite == "full":
        return component.workload_names(config)
    return _default(component.default_workloads, component, device, "--workload")


def _default(defaults: Mapping[str, T], component: Component, device: str, option: str) -> T:
    if device not in defaults:
        raise BakeoffError(f"{component.name} states no default for {device}; give {option}", "bad-option")
    return defaults[device]


def _default_dtypes(device: str, suite: str) -> tuple[str, ...]:
    """CUDA: fp32 and bf16. CPU: fp32, and bf16 where the CPU has bf16 instructions. The full suite adds the others."""
    if device == "cuda":
        return ("fp32", "bf16") if suite == "default" else ("fp32", "tf32", "bf16", "fp16")
    return ("fp32", "bf16") if host.has_native_bf16() or suite == "full" else ("fp32",)


def _chosen(backend: Backend, reference: str, choice: Choice, usual: tuple[str, ...], widened: bool) -> Composition:
    """The full suite widens a choice of the default one to all dtypes."""
    dtypes = usual
    if choice.dtypes and not (widened and choice.suite == "default"):
        dtypes = tuple(dtype for dtype in choice.dtypes if dtype in usual) or ("fp32",)
    later = [_step(*_read_backend(part)) for part in split_outside_brackets(choice.then, "+")] if choice.then else []
    return Composition((Step(backend, reference, choice.options), *later), dtypes)


def _read_backend(text: str) -> tuple[Backend, str, Any]:
    """`name`, `name[options]` or `package.module:BACKEND[options]`; options are None where no bracket is written."""
    reference, pairs = parse_use(text)
    backend = resolve_backend(reference)
    return backend, reference, None if pairs is None else options_of(backend, pairs)


def _step(backend: Backend, reference: str, options: Any) -> Step:
    return Step(backend, reference, backend.options() if options is None else options)
