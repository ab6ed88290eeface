"""What a backend is: something that prepares a module, builds an engine from it, or both, and can prove that it ran."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bakeoff.backends.format import ArtifactFormat
from bakeoff.backends.port import Port, buffers_like
from bakeoff.backends.tracing import Trace, trace_operators
from bakeoff.models.component import Layer, Quantisation
from bakeoff.models.errors import BakeoffError, ErrorCode
from bakeoff.models.types import Device

if TYPE_CHECKING:
    from torch import Tensor, nn

Outputs = tuple["Tensor", ...]
Call = Callable[[], Outputs]


class Unavailable(BakeoffError):
    """A library or device is missing; the message says which and how to get it."""

    def __init__(self, message: str, code: ErrorCode = "missing-library") -> None:
        super().__init__(message, code)


class Unsupported(BakeoffError):
    """This backend cannot do this dtype, device or component; the message says why."""

    def __init__(self, message: str, code: ErrorCode = "unsupported") -> None:
        super().__init__(message, code)


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Options of a backend that has none."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """An importable module that a backend needs."""

    module: str
    install: str
    """The command that installs it, as an error prints it."""


@dataclass(frozen=True, slots=True)
class DefaultOptions:
    """One set of options that a sweep takes by itself: in the default suite, or only in the full one."""

    options: Any
    devices: tuple[str, ...] = ("cpu", "cuda")
    suite: Literal["default", "full"] = "default"
    dtypes: tuple[str, ...] = ()
    """Those it is taken in when none is asked for; empty: this host's. bf16 becomes fp32 where a CPU lacks it."""
    then: str = ""
    """What builds a module that this backend only prepares, as it would be typed: `inductor[freezing]`."""
    layers: tuple[Layer, ...] = ()
    """Only for components that have one of these layers; empty: for all components."""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Where and for what an engine is built. `device`, `dtype` and `threads` are facts, not requests: flags are set."""

    variant: str
    device: Device
    dtype: str
    threads: int
    work_dir: Path
    """Scratch of this worker alone, removed afterwards."""
    cache_dir: Path
    """The compiler's cache; a second build finds here what the first one left."""
    draw: Callable[[str], "Mapping[str, Tensor]"]
    """Inputs like those given, of the same shapes and dtypes, drawn with another seed: what calibration needs."""
    trace: bool = False
    """Build with whatever the compiler needs to be traced; such an engine is never timed."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A module that was changed before it is built, and what was changed."""

    module: "nn.Module"
    quantised: Mapping[str, str] = field(default_factory=dict)
    """Layers or graph nodes that compute or store less than the dtype, each with how."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Layers that were left as they are, each with why."""
    facts: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proof:
    """What an engine knows about how it was built; asked for after its first call."""

    fell_back: str = ""
    """Empty if the asked compiler did the work; else what ran instead."""
    graphs: int | None = None
    graph_breaks: int | None = None
    recompiles: tuple[str, ...] = ()
    """The compiler's own reasons, one for each recompile so far."""
    operators_inside: Mapping[str, int] = field(default_factory=dict)
    """Operators the compiler took, with their number."""
    operators_outside: Mapping[str, int] = field(default_factory=dict)
    """Operators left to the framework or to library kernels."""
    quantised: Mapping[str, str] = field(default_factory=dict)
    """Layers or nodes that the compiler itself quantised, each with how."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Layers or nodes that it might have quantised and left, each with why."""
    facts: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """What is particular to this compiler: kernels generated, providers, cache hits."""
    graph_hash: str = ""
    artifact_bytes: int | None = None


class Engine(ABC):
    """A built variant. Not thread-safe; it cannot leave its process. Only `bind` must be implemented."""

    __slots__ = ()

    @abstractmethod
    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        """A call that computes the outputs of these inputs, in order.

        Binding is not timed. It may copy the inputs and must compute nothing from them: what depends on their values
        belongs into the call.
        """

    def port(self, inputs: "Mapping[str, Tensor]", outputs: Sequence[str]) -> Port:
        """Bind to copies of the inputs, which the caller writes between calls; `outputs` names the outputs in order.

        An engine whose `bind` may copy its inputs overrides this, so that the port's buffers are what calls read.
        """
        buffers = buffers_like(inputs)
        return Port(buffers, self.bind(buffers), outputs)

    def captures(self) -> bool:
        """Whether a set of inputs is recorded once, when bound or first called, and each later call is a replay."""
        return False

    def activity(self) -> Mapping[str, int]:
        """Counters by name that change when anything is compiled, tuned or captured; in steady state none changes."""
        return {}

    def prove(self) -> Proof:
        """What the build learned about itself; a fallback is stated in `fell_back`, not raised."""
        return Proof()

    def trace(self, call: Call) -> Trace:
        """Run a bound call a few times and attribute its time to kernels. Only for engines built with `trace`."""
        return trace_operators(call)

    def close(self) -> None:  # noqa: B027  # most engines hold nothing that must be given back
        """Release threads, graphs and device memory that the engine holds."""


BuildFunction = Callable[["nn.Module", "Mapping[str, Tensor]", Any, BuildContext], Engine]
PrepareFunction = Callable[["nn.Module", "Mapping[str, Tensor]", Any, BuildContext], Prepared]


def _nothing_missing(_options: Any, _device: str) -> str | None:
    return None


def _everything_supported(_options: Any, _device: str, _dtype: str) -> str | None:
    return None


def _full_precision(_options: Any) -> Quantisation:
    return ""


def _no_environment(_cache_dir: Path) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Capability:
    """What a backend needs and what it can do. Read in the parent process: the functions import no framework."""

    requires: tuple[Requirement, ...] = ()
    devices: tuple[str, ...] = ("cpu", "cuda")
    dtypes: tuple[str, ...] = ("fp32", "tf32", "bf16", "fp16")
    missing: Callable[[Any, str], str | None] = _nothing_missing
    """(options, device) to what this host lacks beyond `requires` and how to get it; None: nothing."""
    unsupported: Callable[[Any, str, str], str | None] = _everything_supported
    """(options, device, dtype) to why this combination cannot work on any host; None: it can."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the lab must see before it reports that a backend, and nothing else, did the work."""

    checks: str = ""
    """What the proof checks, in words for reports; anything less is `fell_back`."""
    runs_eagerly: bool = False
    """Runs the framework's operators one by one by design; for any other backend that is falling back."""
    uses_inductor: bool = False
    """Its engines are inductor's code; for any other backend, a graph that inductor compiles is falling back."""
    quantises: Callable[[Any], Quantisation] = _full_precision
    """Options to the class of quantisation that they ask for; "": none."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a build takes and leaves: memory, and a compiler's cache."""

    caches: bool = False
    """A build leaves files that make the next one faster."""
    weight_copies: float = 1.0
    """Copies of the weights, in the variant's dtype, that a build holds at its peak; for the memory estimate."""
    keeps_module_weights: bool = True
    """Its engines read the module's own parameters; if not, these are freed after the build."""
    environment: Callable[[Path], Mapping[str, str]] = _no_environment
    """Cache folder to the variables that the worker's environment needs before torch is imported."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A compiler, a quantiser, or both; one file or folder in backends/ makes one of these."""

    name: str
    summary: str
    build: BuildFunction | None = None
    prepare: PrepareFunction | None = None
    options: type = NoOptions
    baseline: bool = False
    """Speed-ups are against this one."""
    defaults: tuple[DefaultOptions, ...] = (DefaultOptions(NoOptions()),)
    """What a sweep takes by itself, in the order of its rows."""
    capability: Capability = Capability()
    evidence: Evidence = Evidence()
    footprint: Footprint = Footprint()
    artifact: ArtifactFormat | None = None
    """How its engines are exported; None: they exist in one process only."""

    def unavailable(self, options: Any, device: str) -> str | None:
        """Why this backend cannot run here on `device`, and how to get what is missing; None if it can."""
        for requirement in self.capability.requires:
            if find_spec(requirement.module) is None:
                return f"{requirement.module} is not installed; {requirement.install}"
        return self.capability.missing(options, device)

    def unsupported(self, options: Any, device: str, dtype: str) -> str | None:
        """Why this backend cannot do this on any host; None if it can."""
        if device not in self.capability.devices:
            return f"{self.name} runs on {', '.join(self.capability.devices)}, not on {device}"
        if dtype not in self.capability.dtypes:
            return f"{self.name} does {', '.join(self.capability.dtypes)}, not {dtype}"
        return self.capability.unsupported(options, device, dtype)


@dataclass(frozen=True, slots=True)
class ModuleEngine(Engine):
    """An engine around a callable that takes the workload's inputs by position: eager and torch.compile alike."""

    function: "Callable[..., Outputs]"
    proof: Callable[[], Proof] = Proof
    counters: Callable[[], Mapping[str, int]] = dict
    own_kernels: tuple[str, ...] = ()
    """Prefixes of the names of the compiler's own kernels."""
    wrappers: tuple[str, ...] = ()
    """Prefixes of the names of profiler events that only wrap other work: they are not counted as kernels."""

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        function, tensors = self.function, tuple(inputs.values())
        return lambda: function(*tensors)

    def activity(self) -> Mapping[str, int]:
        return self.counters()

    def prove(self) -> Proof:
        return self.proof()

    def trace(self, call: Call) -> Trace:
        return trace_operators(call, self.own_kernels, self.wrappers)
