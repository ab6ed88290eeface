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
from bakeoff.models.component import Quantisation
from bakeoff.models.errors import BakeoffError
from bakeoff.models.types import Device

if TYPE_CHECKING:
    from torch import Tensor, nn

Outputs = tuple["Tensor", ...]
Call = Callable[[], Outputs]


class Unavailable(BakeoffError):
    """A library or device is missing; the message says which and how to get it."""


class Unsupported(BakeoffError):
    """This backend cannot do this dtype, device or component; the message says why."""


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Options of a backend that has none."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """An importable module a backend needs and the command that brings it."""

    module: str
    install: str


@dataclass(frozen=True, slots=True)
class Choice:
    """One set of options that a sweep takes by itself: in the default suite, or only in the full one."""

    options: Any
    devices: tuple[str, ...] = ("cpu", "cuda")
    suite: Literal["default", "full"] = "default"
    dtypes: tuple[str, ...] = ()
    """Those it is taken in when none is asked for; empty: this host's. bf16 becomes fp32 where a CPU lacks it."""
    then: str = ""
    """What builds a module that this backend only prepares, as it would be typed: `inductor[freezing]`."""
    components: tuple[str, ...] = ()
    """The components it is for; empty: all of them."""


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


def _no_gap(_options: Any, _device: str) -> str:
    return ""


def _full_precision(_options: Any) -> Quantisation:
    return ""


def _no_environment(_cache_dir: Path) -> Mapping[str, str]:
    return {}


def _anything(_options: Any, _device: str, _dtype: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Backend:
    """A compiler, a quantiser, or both; one file in backends/ makes one of these."""

    name: str
    summary: str
    build: BuildFunction | None = None
    prepare: PrepareFunction | None = None
    options: type = NoOptions
    requires: tuple[Requirement, ...] = ()
    devices: tuple[str, ...] = ("cpu", "cuda")
    dtypes: tuple[str, ...] = ("fp32", "tf32", "bf16", "fp16")
    choices: tuple[Choice, ...] = (Choice(NoOptions()),)
    baseline: bool = False
    """Speed-ups are against this one."""
    interprets: bool = False
    """Runs the framework's operators one by one by design; for any other, running them all is falling back."""
    really_ran: str = ""
    """What the proof checks before this backend is said to have run; anything less is `fell_back`."""
    through_inductor: bool = False
    """Its engines are inductor's code; for any other backend, a graph that inductor compiles is falling back."""
    keeps_module: bool = True
    """Its engines read the module's own parameters; if not, they are let go once the engine stands."""
    quantises: Callable[[Any], Quantisation] = _full_precision
    """Options to the class of quantisation they ask for."""
    caches: bool = False
    """A build leaves something that makes the next one faster."""
    weight_copies: float = 1.0
    """Copies of the weights, in the variant's dtype, that a build holds at its peak; for the memory estimate."""
    environment: Callable[[Path], Mapping[str, str]] = _no_environment
    """Cache folder to what the worker's environment needs before torch is imported."""
    host_gap: Callable[[Any, str], str] = _no_gap
    """(options, device) to what this host lacks, or ""; runs in the parent, so it imports no framework."""
    objection: Callable[[Any, str, str], str] = _anything
    """(options, device, dtype) to why this cannot be, or ""."""
    form: ArtifactFormat | None = None
    """How its engines are exported; None: they live in one process alone."""

    def unavailable(self, options: Any, device: str) -> str:
        """Why this backend cannot run here on `device`, with the way to mend it; empty if it can."""
        for requirement in self.requires:
            if find_spec(requirement.module) is None:
                return f"{requirement.module} is not installed; {requirement.install}"
        return self.host_gap(options, device)

    def unsupported(self, options: Any, device: str, dtype: str) -> str:
        """Why this backend cannot do this at all; empty if it can."""
        if device not in self.devices:
            return f"{self.name} runs on {', '.join(self.devices)}, not on {device}"
        if dtype not in self.dtypes:
            return f"{self.name} does {', '.join(self.dtypes)}, not {dtype}"
        return self.objection(options, device, dtype)


@dataclass(frozen=True, slots=True)
class ModuleEngine(Engine):
    """An engine around a callable that takes the workload's inputs by position: eager and torch.compile alike."""

    function: "Callable[..., Outputs]"
    proof: Callable[[], Proof] = Proof
    counters: Callable[[], Mapping[str, int]] = dict
    own_kernels: tuple[str, ...] = ()
    """How the names of the compiler's own kernels begin."""

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        function, tensors = self.function, tuple(inputs.values())
        return lambda: function(*tensors)

    def activity(self) -> Mapping[str, int]:
        return self.counters()

    def prove(self) -> Proof:
        return self.proof()

    def trace(self, call: Call) -> Trace:
        return trace_operators(call, self.own_kernels)
