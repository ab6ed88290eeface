"""NVIDIA AITune 0.6 tries compilers on the module, measures each itself, and keeps one: a row like any other.

`aitune.torch.tune` builds TensorRT, inductor and others one after another in this process, or those that `backend`
names, and keeps eager where none was faster in its own measurement; then the row is `fell_back`. It checks that outputs
are finite and of the right shape and compares no values, and its TensorRT engines may multiply in TF32. So the
parity of a row is the first comparison with a reference. It writes recorded inputs to its cache folder.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    Call,
    Capability,
    DefaultOptions,
    Engine,
    Evidence,
    Footprint,
    Outputs,
    Proof,
    Requirement,
    searches_always,
)
from bakeoff.backends.graphs import TORCH
from bakeoff.backends.inductor import compiler_environment, missing_compiler
from bakeoff.backends.install import aitune_command
from bakeoff.backends.torch_internals import (
    INDUCTOR_KERNELS,
    CompileActivity,
    compile_ids,
    inductor_settings,
    read_counters,
    recompile_reasons,
    snapshot,
)
from bakeoff.backends.tracing import Trace, trace_operators

if TYPE_CHECKING:
    from torch import Tensor, nn

Candidate = Literal["default", "inductor", "inductor-aot", "tensorrt", "torch-tensorrt", "onnxruntime"]

_CLASSES: Mapping[Candidate, str] = {
    "inductor": "TorchInductorJitBackend",
    "inductor-aot": "TorchInductorAotBackend",
    "tensorrt": "TensorRTBackend",
    "torch-tensorrt": "TorchTensorRTAotBackend",
    "onnxruntime": "ONNXRuntimeBackend",
}
_STRATEGIES = {"throughput": "MaxThroughputStrategy", "latency": "MinLatencyStrategy", "first": "FirstWinsStrategy"}
_ON_CPU: tuple[Candidate, ...] = ("default", "inductor", "inductor-aot")
_EAGER = "TorchEagerBackend"
_NUMBERS = itertools.count(1)
_IMPORTED = ("aitune", "tensorrt", "modelopt", "polygraphy", "onnxruntime", "triton", "nvtx", "wrapt")
"""AITune imports each of them when it is imported itself, on a CPU too."""


@dataclass(frozen=True, slots=True)
class Options:
    backend: Candidate = "default"
    """AITune's own candidates in its order, or one of them alone."""
    strategy: Literal["throughput", "latency", "first"] = "throughput"
    """`MaxThroughputStrategy`, AITune's default; `MinLatencyStrategy`; `FirstWinsStrategy`."""
    against_eager: bool = True
    """AITune keeps eager where its own measurement shows no candidate to be faster; false: it measures no eager."""


def _unsupported(options: Options, device: str, _dtype: str) -> str | None:
    if device == "cpu" and options.backend not in _ON_CPU:
        return f"AITune's backend {options.backend} runs on CUDA only; use backend=inductor"
    return None


@dataclass(frozen=True, slots=True)
class _Choice:
    """What AITune reported: the backend that it selected, and what became of each that it tried."""

    selected: str
    """As AITune describes it; empty if tuning failed and the module was left as it was."""
    kept_eager: bool
    speedups: Mapping[str, float]
    """Candidates that it measured, with its own figure of their speed over eager."""
    failures: Mapping[str, str]
    """Candidates that it could not build or that failed its checks, with the first line of the error."""
    error: str
    """The first line of the error that ended the tuning."""

    def fell_back(self) -> str:
        """Why the row is a fallback, as a noun phrase; "" if AITune selected a compiler."""
        tried = [f"{name} was {speedup:.2f}x by its own measurement" for name, speedup in self.speedups.items()]
        tried += [f"{name} failed: {why}" for name, why in self.failures.items()]
        if not self.selected:
            return f"the module as it was: AITune's tuning failed: {'; '.join([self.error, *tried])}"
        return f"eager, which AITune kept: {'; '.join(tried) or 'no candidate succeeded'}" if self.kept_eager else ""


def _build(module: "nn.Module", _inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    import aitune
    import aitune.torch as ait
    import aitune.torch.backend as candidates
    from aitune.torch.module_registry import MODULE_REGISTRY

    before = snapshot()
    report = context.work_dir / "aitune.json"
    given = {} if options.backend == "default" else {"backends": [getattr(candidates, _CLASSES[options.backend])()]}
    strategy = getattr(ait, _STRATEGIES[options.strategy])(**given)
    strategy.enable_performance_validation(options.against_eager)
    samples = list(context.draw("aitune").values())
    # A sample without a batch axis is what AITune expects; here the one batch is collated already.
    loader = ait.DataLoaderFactory([0], collate_fn=lambda _numbers: samples)
    name = f"bakeoff-{next(_NUMBERS)}"
    names_kernels = context.trace and context.device == "cpu"  # on CUDA they have names anyway
    # By default it moves the module's weights to the device `meta` where the selected backend has its own.
    with (
        _set(ait.config, device_after_tuning=context.device, tuning_data_output_path=report),
        inductor_settings(**{"cpp.enable_kernel_profile": True}) if names_kernels else nullcontext(),
    ):
        tuned = ait.Module(module, name, strategy=strategy)
        try:
            ait.tune(tuned, loader, batch_sizes=[1], device=context.device)
        finally:
            MODULE_REGISTRY.unregister(name)  # the next call of `tune` would tune it again
    speedups = {result.backend_description: float(result.speedup) for result in strategy.perf_validation_results}
    return _TunedEngine(tuned, _choice(tuned, _read(report), speedups), before, aitune.__version__)


@contextmanager
def _set(config: Any, **changes: Any) -> Iterator[None]:
    """Change AITune's global settings; leaving the context restores them."""
    before = {name: getattr(config, name) for name in changes}
    for name, value in changes.items():
        setattr(config, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


def _read(report: Path) -> Mapping[str, Any]:
    """The one module of AITune's report; empty where it wrote none."""
    try:
        (module,) = json.loads(report.read_bytes())["modules"]
    except (OSError, ValueError, KeyError):
        return {}
    return dict(module)


def _choice(tuned: Any, report: Mapping[str, Any], speedups: Mapping[str, float]) -> _Choice:
    builds = [build for graph in report.get("graphs", ()) for build in graph["backend_builds"]]
    failures = {build["backend"]: _first_line(build["exception"]) for build in builds if build["exception"]}
    if tuned.state.value != "tuned":
        return _Choice("", False, speedups, failures, _first_line(report.get("exception")))
    (selected,) = tuned.module.backends.values()
    return _Choice(selected.describe(), type(selected).__name__ == _EAGER, speedups, failures, "")


def _first_line(exception: Mapping[str, str] | None) -> str:
    return exception["message"].strip().partition("\n")[0] if exception else "no reason was reported"


@dataclass(slots=True)
class _TunedEngine(Engine):
    """The module that AITune tuned."""

    tuned: Any
    choice: _Choice
    before: CompileActivity
    version: str
    _compiled: CompileActivity = field(default_factory=CompileActivity, init=False)
    """During the build and the first call."""
    _known: frozenset[str] | None = field(default=None, init=False)
    """Dynamo's compilations before the second call; later ones are recompilations."""

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        tensors = tuple(inputs.values())
        return lambda: self._run(*tensors)

    def _run(self, *tensors: "Tensor") -> Outputs:
        outputs: Outputs = self.tuned(*tensors)
        if self._known is None:
            self._compiled = snapshot() - self.before
            self._known = frozenset(compile_ids())
        return outputs

    def activity(self) -> Mapping[str, int]:
        return read_counters("stats", "aot_autograd", "inductor")

    def trace(self, call: Call) -> Trace:
        return trace_operators(call, own=INDUCTOR_KERNELS)

    def prove(self) -> Proof:
        choice, compiled = self.choice, self._compiled
        fell_back = choice.fell_back()
        by_dynamo = choice.selected.startswith(_CLASSES["inductor"])
        if by_dynamo and not compiled.compiled:
            fell_back = f"eager: AITune selected {choice.selected}, but inductor compiled no graph"
        later = [one for one in compile_ids() if one not in (self._known or ())]
        speedup = choice.speedups.get(choice.selected)
        return Proof(
            fell_back=fell_back,
            graphs=compiled.captured if by_dynamo else None,
            graph_breaks=compiled.graph_breaks if by_dynamo else None,
            recompiles=recompile_reasons(later),
            facts={
                "aitune": self.version,
                "aitune_selected": choice.selected,
                "aitune_failed": ", ".join(choice.failures),
                **({"aitune_speedup": speedup} if speedup is not None else {}),
                **({"kernels_generated": compiled.kernels} if by_dynamo else {}),
            },
        )


def _environment(cache_dir: Path) -> Mapping[str, str]:
    return {**compiler_environment(cache_dir), "AITUNE_CACHE_DIR": str(cache_dir / "aitune")}


BACKEND = Backend(
    name="aitune",
    summary="NVIDIA AITune: the compiler that it selects by its own measurement",
    build=_build,
    options=Options,
    defaults=(DefaultOptions(Options(), suite="full"),),
    capability=Capability(
        requires=(TORCH, *(Requirement(module, aitune_command()) for module in _IMPORTED)),
        dtypes=("fp32", "bf16", "fp16"),
        missing=missing_compiler,
        unsupported=_unsupported,
        own_attention=True,  # it may select TensorRT
    ),
    evidence=Evidence(
        checks="AITune selected a backend other than eager, and if that is inductor, it compiled a graph",
        uses_inductor=True,
        same_when_traced=("cuda",),
    ),
    footprint=Footprint(caches=True, weight_copies=3.0, environment=_environment, searches=searches_always),
)
