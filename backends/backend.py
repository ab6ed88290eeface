"""The backend interface. A backend prepares a module, builds an engine from it, or both, and can prove what ran."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from bakeoff.backends.format import ArtifactFormat
from bakeoff.backends.port import NOTHING_CARRIED, Port, ReplacingPort, port_buffers
from bakeoff.backends.tracing import Trace, trace_operators
from bakeoff.models.component import DynamicAxis, Layer, Quantisation
from bakeoff.models.errors import BakeoffError, ErrorCode
from bakeoff.models.types import DTYPES, Device

if TYPE_CHECKING:
    from torch import Tensor, nn

Outputs = tuple["Tensor", ...]
Call = Callable[[], Outputs]


class Unavailable(BakeoffError):
    """A library or device is missing; the message names it and says how to get it."""

    def __init__(self, message: str, code: ErrorCode = "missing-library") -> None:
        super().__init__(message, code)


class Unsupported(BakeoffError):
    """The backend does not support this dtype, device or component; the message says why."""

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
    """The command that installs the module, as errors print it."""


Suite = Literal["quick", "default", "full"]
SUITES: tuple[Suite, ...] = get_args(Suite)
"""The suites, from the smallest to the largest."""


@dataclass(frozen=True, slots=True)
class DefaultOptions:
    """One set of options that a sweep runs by default."""

    options: Any
    devices: tuple[str, ...] = ("cpu", "cuda")
    suite: Suite = "default"
    """The smallest suite that includes these options; each suite includes all smaller ones."""
    dtypes: tuple[str, ...] = ()
    """Dtypes to run if the user names none; empty: the host's defaults. bf16 becomes fp32 if the CPU has no bf16, and
    fp16 if the GPU has none. The full suite runs options of the smaller suites in all dtypes."""
    then: str = ""
    """The backend that builds the module that this backend only prepares, as typed: `inductor[freezing]`."""
    layers: tuple[Layer, ...] = ()
    """Run only for components that have one of these layers; empty: for all components."""
    least_capability: tuple[int, int] = (0, 0)
    """Least compute capability of a GPU that computes these options. Other GPUs run them in the full suite only, where
    their rows say what they lack."""


def make_alone(_file: Path, make: Callable[[], None]) -> None:
    """Make a file without sharing it with other builds."""
    make()


def _keep_nothing(_save: Callable[[], Mapping[str, Any]]) -> None:
    pass


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The variant, host settings and folders of one build.

    `device`, `dtype` and `threads` are in effect already: the worker has cast the module and set torch's flags.
    """

    variant: str
    device: Device
    dtype: str
    threads: int
    work_dir: Path
    """Temporary folder of this worker, which is deleted afterwards."""
    cache_dir: Path
    """The compiler's cache folder, which later builds of the variant reuse."""
    draw: Callable[[str], "Mapping[str, Tensor]"]
    """Function from a seed to new random inputs with the names, shapes and dtypes of the workload's; used for
    calibration."""
    trace: bool = False
    """Build with the settings that tracing needs; a traced build is never timed."""
    sizes: tuple[DynamicAxis, ...] = ()
    """Axes of inputs whose size differs from call to call, with their ranges: the engine must accept all sizes within
    them. The build's inputs have a size of at least two along each axis, since torch specialises graphs on size one.
    (): all calls have the shapes of the build's inputs. Not empty only for backends whose
    `Backend.unsupported_sizes` allows it."""
    share: Callable[[Path, Callable[[], None]], None] = make_alone
    """Makes a file that every build on this host compiles the same way, such as torch's precompiled C++ headers, given
    the file and what makes it: from what another build made, else by making it. Untimed."""
    keep: Callable[[Callable[[], Mapping[str, Any]]], None] = _keep_nothing
    """Accepts a function that writes to `cache_dir` what `Backend.open` needs to open the engine, and returns the rest
    as JSON values. If engines are kept, the function is called at once, untimed."""
    opens: bool = False
    """Whether an earlier build has filled `cache_dir`, so that this one need not check whether its files fit the host.
    """
    untimed: Callable[[], AbstractContextManager[None]] = nullcontext
    """Context for work that only this project needs, such as hashing weights for a cache key. Its time is excluded from
    the build's seconds and recorded separately."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A module that was changed for a later build, with a list of the changes."""

    module: "nn.Module"
    quantised: Mapping[str, str] = field(default_factory=dict)
    """Layers or graph nodes that compute or store in lower precision than the dtype, with the method of each."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Layers that were not changed, with the reason for each."""
    facts: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Global settings of torch that were changed on purpose, by their names in a record, with their new values. They
    apply to the build and to every call; any other change makes the row unstable."""
    shrinks_weights: bool = True
    """Whether quantised layers take fewer bytes than before. False if nodes were inserted that the build turns into low
    precision."""
    ran_instead: tuple[Callable[[frozenset[str], bool], str], ...] = ()
    """Functions that return what a call ran instead of what was prepared, as a noun phrase; "" if nothing shows a
    substitute. They are given the names of operators, library calls and kernels that were seen to run in one call, and
    whether nothing else did: a call may replay a captured graph, whose kernels only a trace names."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Facts about an engine's build, read after the engine's first call."""

    fell_back: str = ""
    """Empty if the requested compiler did the work, else a noun phrase for what ran instead."""
    graphs: int | None = None
    graph_breaks: int | None = None
    recompiles: tuple[str, ...] = ()
    """The compiler's reason for each recompilation so far."""
    operators_inside: Mapping[str, int] = field(default_factory=dict)
    """Number of each operator that the compiler compiled."""
    operators_outside: Mapping[str, int] = field(default_factory=dict)
    """Number of each operator that the framework or a library kernel runs."""
    quantised: Mapping[str, str] = field(default_factory=dict)
    """Layers or nodes that the compiler itself quantised, with the method of each."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Layers or nodes that the compiler did not quantise although it quantises their kind, with the reason for each."""
    facts: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Facts particular to this compiler: kernels generated, providers, cache hits."""
    graph_hash: str = ""
    artifact_bytes: int | None = None


class Engine(ABC):
    """A built variant. Only `bind` must be implemented. Not thread-safe, and not usable in another process."""

    __slots__ = ()

    @abstractmethod
    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        """Return a function that computes the outputs for these inputs, in the workload's order.

        Binding is not timed. It may copy the inputs, but must not compute anything from their values: that work belongs
        in the returned function.
        """

    def port(
        self,
        inputs: "Mapping[str, Tensor]",
        outputs: Sequence[str],
        carried: Mapping[str, str] = NOTHING_CARRIED,
        shared: bool = False,
    ) -> Port:
        """Bind the engine to copies of the inputs, for a loop that sets new values between calls.

        `outputs` are the names of the outputs, in order. `carried` maps an output's name to the name of the input that
        it becomes in the next call, at `Port.advance`; both must have the same shape and dtype, else BakeoffError is
        raised here or by the first `advance`. With `shared`, the port reads the caller's own tensors, so that ports of
        several programs share one state, which the caller, or the `advance` of one of them, updates in place. Shared
        tensors must be contiguous if the engine reads only contiguous memory (else BakeoffError).

        An engine whose `bind` may copy its inputs must override this, so that its calls read the port's buffers and not
        another copy.
        """
        buffers = port_buffers(inputs, shared)
        if self.rebinds():
            return ReplacingPort(buffers, self.bind, outputs, carried, shared)
        return Port(buffers, self.bind(buffers), outputs, carried)

    def rebinds(self) -> bool:
        """Return whether a loop may bind other tensors before each call instead of copying values into bound ones.

        True only if `bind` is cheap, neither copies nor captures, accepts every tensor of the same shape, dtype, device
        and strides without compiling again, and each call returns new memory, views of its inputs, or constants.
        """
        return False

    def captures(self) -> bool:
        """Return whether each bound set of inputs is captured once (as a CUDA graph) and only replayed later."""
        return False

    def copies_inputs(self) -> bool:
        """Return whether each timed call copies its inputs into the buffers of a captured graph."""
        return False

    def activity(self) -> Mapping[str, int]:
        """Return counters by name that change when anything is compiled, tuned or captured; in steady state none
        changes."""
        return {}

    def compilations(self) -> int:
        """Return how often this engine was compiled or captured so far; other engines of the process do not count.

        0 if the engine cannot be compiled again. CUDA graphs that torch itself captures inside compiled code do not
        count.
        """
        return 0

    def prove(self) -> Proof:
        """Return what is known about the build. A fallback is reported in `fell_back`, not raised."""
        return Proof()

    def trace(self, call: Call) -> Trace:
        """Run a bound call a few times and attribute its time to kernels.

        The engine must have been built with `BuildContext.trace`, unless the backend is `same_when_traced`.
        """
        return trace_operators(call)

    def close(self) -> None:  # noqa: B027  # most engines hold nothing to release
        """Release threads, graphs and device memory that the engine uses."""


BuildFunction = Callable[["nn.Module", "Mapping[str, Tensor]", Any, BuildContext], Engine]
OpenFunction = Callable[[Mapping[str, Any], "Mapping[str, Tensor]", Any, BuildContext], Engine]
PrepareFunction = Callable[["nn.Module", "Mapping[str, Tensor]", Any, BuildContext], Prepared]


def _nothing(*_asked: Any) -> None:
    return None


T = TypeVar("T")


def by_options(value: T | Callable[[Any], T], options: Any) -> T:
    """Return the value of a backend's field, which may be a function of its options."""
    return value(options) if callable(value) else value


@dataclass(frozen=True, slots=True)
class Backend:
    """A compiler, a quantiser, or both. Each file or folder in backends/ defines one or more.

    The parent process reads it, so its functions must not import a framework, but for `build`, `prepare` and `open`.
    """

    name: str
    summary: str
    build: BuildFunction | None = None
    prepare: PrepareFunction | None = None
    options: type = NoOptions
    baseline: bool = False
    """Whether speed-ups are computed against this backend."""
    defaults: tuple[DefaultOptions, ...] = ()
    """The options that a sweep runs by default, in the order of its rows; if empty, `options` as they are by default.
    """
    artifact: ArtifactFormat | None = None
    """Format in which the engines are exported; None: engines cannot be exported."""
    open: OpenFunction | None = None
    """Opens an engine without the module, from the values that its build passed to `BuildContext.keep`; raises what its
    library raises for damaged files. None: engines are always built."""

    # What it needs and supports.
    requires: tuple[Requirement, ...] = ()
    devices: tuple[str, ...] = ("cpu", "cuda")
    dtypes: tuple[str, ...] = DTYPES
    missing: Callable[[Any, str], str | None] = _nothing
    """Given (options, device), returns what this host lacks besides `requires`, and how to get it; None: nothing."""
    unsupported_options: Callable[[Any, str, str], str | None] = _nothing
    """Given (options, device, dtype), returns why no host supports this combination; None: it is supported."""
    unsupported_builder: Callable[[Any, "Backend"], str | None] = _nothing
    """Given (options, builder), returns why `builder` cannot build what this backend prepares; None: it can."""
    unsupported_sizes: str | Callable[[Any], str | None] | None = (
        "it builds engines for one size of each input; leave out --sizes"
    )
    """Why this backend's modules or engines cannot accept the sizes of `BuildContext.sizes`; None: they can."""
    own_attention: bool = False
    """Whether its engines compute attention with kernels of their own, whatever torch's settings say."""
    quantise_operators: tuple[str, ...] = ()
    """Operators of quantisers, by their names in graphs, that its engines turn into low precision."""
    builds_for: str | Callable[[Any], str] = ""
    """The architecture of another GPU for which its engines are built, and so neither bound nor timed here; "": they
    run here. The option is called `target`."""

    # What must be shown before a report says that this backend, and nothing else, did the work.
    checks: str = ""
    """Description, for reports, of what the proof checks; a row that fails the check is `fell_back`."""
    runs_eagerly: bool = False
    """The backend runs the framework's operators one by one by design; for any other backend this is a fallback."""
    uses_inductor: bool = False
    """The backend's engines are inductor's code; for any other backend a graph compiled by inductor is a fallback."""
    quantises: Quantisation | Callable[[Any], Quantisation] = ""
    """The class of quantisation that is requested; "": none."""
    tracer: str = ""
    """Name of the compiler's own profiler, if it traces the kernels of traced builds; "": torch's profiler does."""
    same_when_traced: tuple[str, ...] = ()
    """Devices on which `BuildContext.trace` changes nothing, so that any build may be traced."""

    # What a build needs: memory, cache files, and whether it must have the machine to itself.
    caches: bool = False
    """Whether a build writes cache files that make the next build faster."""
    weight_copies: float = 1.0
    """Copies of the weights, in the variant's dtype, in memory at a build's peak; for the memory estimate."""
    gpu_weight_copies: float | None = None
    """Copies of the weights in GPU memory at a build's peak; None: as many as `weight_copies`."""
    host_weight_copies: float = 0.0
    """Copies of the weights in host memory at the peak of a build for a GPU."""
    binds_memory: bool | Callable[[Any], bool] = False
    """Whether a loop copies new inputs into memory that an engine is bound to; otherwise it passes other tensors."""
    own_threads: bool = False
    """Whether on a CPU the engines compute on threads of their own, beside those of torch."""
    keeps_module_weights: bool = True
    """Whether the engines read the module's own parameters; if not, these are freed after the build."""
    environment: Callable[[Path], Mapping[str, str]] = lambda _cache_dir: {}
    """Given the cache folder, returns the environment variables that the worker must set before it imports torch."""
    overlaps: bool | Callable[[Any], bool] = False
    """Whether a CPU build may run at the same time as other builds, because it chooses no kernels by timing them. False
    by default, since this is unknown for a user's own backend. Builds on a GPU overlap only on request."""
    searches: bool | Callable[[Any], bool] = False
    """Whether a build times many kernels for each operator, as TensorRT and max-autotune do. Such a build has the
    longer deadline, and a longer estimate if no record exists."""

    def __post_init__(self) -> None:
        if not self.defaults:
            object.__setattr__(self, "defaults", (DefaultOptions(self.options()),))

    def unavailable(self, options: Any, device: str) -> str | None:
        """Return why this host's `device` cannot run this backend, and how to get what is missing; None if it can."""
        for requirement in self.requires:
            if find_spec(requirement.module) is None:
                return f"{requirement.module} is not installed; {requirement.install}"
        return self.missing(options, device)

    def unsupported(self, options: Any, device: str, dtype: str) -> str | None:
        """Return why no host supports this combination of options, device and dtype; None if it is supported."""
        if device not in self.devices:
            return f"{self.name} runs on {', '.join(self.devices)}, not on {device}"
        if dtype not in self.dtypes:
            return f"{self.name} supports {', '.join(self.dtypes)}, not {dtype}"
        return self.unsupported_options(options, device, dtype)


@dataclass(frozen=True, slots=True)
class ModuleEngine(Engine):
    """An engine for a callable that takes the workload's inputs by position, such as a module."""

    function: "Callable[..., Outputs]"
    proof: Callable[[], Proof] = Proof
    counters: Callable[[], Mapping[str, int]] = dict
    rebinding: bool = False
    """Whether the function returns new memory and keeps none of its arguments, as `Engine.rebinds` requires."""

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        function, tensors = self.function, tuple(inputs.values())
        return lambda: function(*tensors)

    def rebinds(self) -> bool:
        return self.rebinding

    def activity(self) -> Mapping[str, int]:
        return self.counters()

    def prove(self) -> Proof:
        return self.proof()
