"""Resolves which backends, options and dtypes a request means: those it names, or one of the device's suites.

The backends state in `defaults` what a suite contains; the dtypes of a device are defined here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.backends.backend import SUITES, Backend, DefaultOptions, Suite
from bakeoff.machine import host
from bakeoff.models.component import Component
from bakeoff.models.errors import BakeoffError
from bakeoff.models.options import options_of
from bakeoff.models.types import Device
from bakeoff.plan.request import Request
from bakeoff.variant import parse_use, split_outside_brackets

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """One backend of a composition with its options. All but the last prepare the module; the last builds it."""

    backend: Backend
    reference: str
    """The backend's name as typed: one in the table, mine.py:BACKEND or package.module:BACKEND."""
    options: Any


@dataclass(frozen=True, slots=True)
class Composition:
    """Backends in order, and the dtypes in which they run if the request names none."""

    steps: tuple[Step, ...]
    dtypes: tuple[str, ...]


def compositions(request: Request, component: Component, device: Device) -> list[Composition]:
    """Return the requested compositions, or those of all backends. A name without options stands for its defaults."""
    usual = component.dtypes or _default_dtypes(device, request.suite)
    if request.build_for:
        return [*_built_for(request, component)]
    found: list[Composition] = []
    for text in request.backends or backend_names():
        parts = [_read_backend(part) for part in split_outside_brackets(text, "+")]
        if len(parts) > 1 or parts[0][2] is not None:
            found.append(Composition(tuple(_step(*part) for part in parts), usual))
            continue
        backend, reference, _ = parts[0]
        defaults = _default_options(backend, request, component, device)
        found += [_composed(backend, reference, one, usual, request.suite, device) for one in defaults]
        if not defaults and request.backends:
            found.append(Composition((Step(backend, reference, backend.options()),), usual))
    return found


def _built_for(request: Request, component: Component) -> Iterator[Composition]:
    """Yield the compositions that build for each of the requested GPUs; in fp16 if the model has no dtypes of its own.

    Raises BakeoffError if a named backend builds for this machine alone, or not for such a GPU.
    """
    able = [name for name in backend_names() if hasattr(resolve_backend(name).options(), "target")]
    for text in request.backends or able:
        *before, (backend, reference, options) = [_read_backend(part) for part in split_outside_brackets(text, "+")]
        if reference not in able:
            known = f"backends that build for other GPUs: {', '.join(able)}"
            asked = ", ".join(request.build_for)
            raise BakeoffError(f"for {asked}: {backend.name} builds for this machine alone; {known}", "bad-option")
        for target in request.build_for:
            stated = asdict(options or backend.options()) | {"target": target}
            steps = (*(_step(*part) for part in before), Step(backend, reference, options_of(backend, stated)))
            yield Composition(steps, component.dtypes or ("fp16",))


def _default_options(
    backend: Backend, request: Request, component: Component, device: Device
) -> Sequence[DefaultOptions]:
    """Return the default options of a backend that the request includes, in the backend's order.

    On a CPU, a backend for CUDA only, or for builders that are, contributes one set of options, except in the quick
    suite: its row says what it lacks, so that a table made without a GPU still lists it. Options for components with
    other layers, and except in the full suite for other GPUs, are left out, unless the request names the backend and it
    has no others.
    """
    builders = [_read_backend(one.then)[0] for one in backend.defaults if one.then] or [backend]
    able_devices = set(backend.devices) & {each for one in builders for each in one.devices}
    refused = device == "cpu" and device not in able_devices
    fitting: Sequence[DefaultOptions] = [one for one in backend.defaults if refused or device in one.devices]
    if refused and request.suite == "quick" and not request.backends:
        return []
    fitting = _of_suite(fitting, request.suite, named=bool(request.backends))
    capability = (99, 0) if request.suite == "full" else host.gpu_capability()
    able = [
        one
        for one in fitting
        if one.least_capability <= capability and (not one.layers or set(one.layers) & set(component.layers))
    ]
    fitting = able if able or not request.backends else fitting
    return [replace(one, dtypes=one.dtypes or ("bf16",)) for one in fitting[:1]] if refused else fitting


def _of_suite(defaults: Sequence[DefaultOptions], suite: Suite, named: bool) -> Sequence[DefaultOptions]:
    """Return the options in the suite; for a `named` backend with none there, those of the next larger suite that has
    some."""
    for larger in SUITES[SUITES.index(suite) :]:
        taken = [one for one in defaults if SUITES.index(one.suite) <= SUITES.index(larger)]
        if taken or not named:
            return taken
    return ()


def default_preset(component: Component, device: str) -> str:
    """Return the component's default preset for `device`. Raises BakeoffError if it has none."""
    return _default(component.default_preset, component, device, "--preset")


def default_workloads(component: Component, config: Any, device: str, suite: str) -> tuple[str, ...]:
    """Return the default workloads, or all workloads in the full suite. Raises BakeoffError if there is no default."""
    if suite == "full":
        return component.workload_names(config)
    return _default(component.default_workloads, component, device, "--workload")


def _default(defaults: Mapping[str, T], component: Component, device: str, option: str) -> T:
    if device not in defaults:
        raise BakeoffError(f"{component.name} states no default for {device}; give {option}", "bad-option")
    return defaults[device]


def _default_dtypes(device: Device, suite: Suite) -> tuple[str, ...]:
    """Return the dtypes for options that state none: fp32 and the device's 16-bit dtype.

    In the quick suite only the latter, in the full suite all dtypes of the device.
    """
    half = host.half_dtype(device)
    if suite == "quick":
        return (half,)
    if suite == "full":
        return ("fp32", "bf16") if device == "cpu" else ("fp32", "tf32", "bf16", "fp16")
    return tuple(dict.fromkeys(("fp32", half)))


def _composed(
    backend: Backend, reference: str, default: DefaultOptions, usual: tuple[str, ...], suite: Suite, device: Device
) -> Composition:
    """Return a composition of default options, with the dtypes in which it runs."""
    later = [_step(*_read_backend(part)) for part in split_outside_brackets(default.then, "+")] if default.then else []
    dtypes = usual
    if usual == ("given",):  # of every backend that takes it, whatever dtypes it is usually shown in
        able = all("given" in each.dtypes for each in (backend, *(step.backend for step in later)))
        dtypes = usual if able else ()
    elif default.dtypes and (suite == "default" or (suite, default.suite) == ("full", "full")):
        dtypes = _stated(default.dtypes, usual, device)
    return Composition((Step(backend, reference, default.options), *later), dtypes)


def _stated(dtypes: tuple[str, ...], usual: tuple[str, ...], device: Device) -> tuple[str, ...]:
    """Return the stated dtypes that this host supports.

    On a CPU, dtypes outside `usual` are left out; if none is left, fp32 is returned. On a GPU, bf16 becomes the GPU's
    16-bit dtype.
    """
    if device == "cpu":
        return tuple(dtype for dtype in dtypes if dtype in usual) or ("fp32",)
    half = host.half_dtype(device)
    return tuple(dict.fromkeys(half if dtype == "bf16" else dtype for dtype in dtypes))


def _read_backend(text: str) -> tuple[Backend, str, Any]:
    """Read `name`, `name[options]` or `mine.py:BACKEND[options]`; return backend, reference and options.

    The options are None if the text has no brackets.
    """
    reference, pairs = parse_use(text)
    backend = resolve_backend(reference)
    return backend, reference, None if pairs is None else options_of(backend, pairs)


def _step(backend: Backend, reference: str, options: Any) -> Step:
    return Step(backend, reference, backend.options() if options is None else options)
