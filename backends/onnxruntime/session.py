"""ONNX Runtime sessions: their settings, how they are opened, the engine that runs one, and their profiles."""

import contextlib
import importlib
import mmap
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import Call, Proof, Unavailable
from bakeoff.backends.graphs import BoundEngine, Shape
from bakeoff.backends.onnxruntime.binding import bind_tensors, new_results, run_settings, runner
from bakeoff.backends.onnxruntime.options import INSTALL, PROVIDERS, Options, missing_library, session_providers
from bakeoff.backends.onnxruntime.placement import RECORDED, refusal
from bakeoff.backends.tracing import TRACED_CALLS, Trace, trace_operators
from bakeoff.models.component import DynamicAxis

if TYPE_CHECKING:
    import onnxruntime
    import torch
    from torch import Tensor
import json
from collections import Counter

from bakeoff.backends.onnxruntime.placement import Placement, profiled_integers, sort_nodes
from bakeoff.backends.tracing import Kernel

_OWN_KERNELS = ("void onnxruntime::", "onnxruntime::")
"""Prefixes of the names of the CUDA provider's own kernels; its products and convolutions are cuBLAS's and cuDNN's."""

SPINNING = "session.intra_op.allow_spinning"
"""Whether threads of the session spin before they sleep (onnxruntime_session_options_config_keys.h)."""
_CUDA_FAILURE = re.compile(r"CUDA failure \d+: [^;\n]*")
"""Error of core/providers/cuda/cuda_call.cc."""


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session and the CUDA stream that it runs on; the stream is None on a CPU."""

    session: "onnxruntime.InferenceSession"
    stream: "torch.cuda.Stream | None"


@dataclass(slots=True)
class Session(BoundEngine):
    """An engine that runs an ONNX Runtime session.

    `outputs` are name, shape and torch dtype of each output; `bound` counts the sets of inputs bound for capture.
    """

    opened: OpenSession
    inputs: tuple[str, ...]
    layouts: Mapping[str, str]
    outputs: "tuple[tuple[str, tuple[int, ...], Any], ...]"
    provider: str
    proof: Proof
    captured: bool
    bound: int = 0
    sizes: tuple[DynamicAxis, ...] = ()
    shapes: "Callable[[Sequence[Tensor]], tuple[Shape, ...]] | None" = None
    """Function from the inputs to the shapes of the outputs, if these differ from call to call."""

    def results(self, inputs: "Mapping[str, Tensor]") -> "tuple[Tensor, ...]":
        tensors = tuple(inputs.values())
        outputs = self.outputs
        if self.shapes is not None:
            given = zip(outputs, self.shapes(tensors), strict=True)
            outputs = tuple((name, shape, dtype) for (name, _, dtype), shape in given)
        return new_results(outputs, tensors[0].device)

    def bind_to(self, inputs: "Mapping[str, Tensor]", results: "Sequence[Tensor]") -> Call:
        """Return a call that reads the inputs and writes the outputs into `results`."""
        names = tuple(name for name, _, _ in self.outputs)
        kept = tuple(tensor.contiguous() for tensor in inputs.values()), tuple(results)
        binding = bind_tensors(self.opened.session, self.inputs, kept[0], names, kept[1])
        run = runner(self.opened.session, self.opened.stream)
        if self.captured:
            self.bound += 1
        settings = run_settings(self.opened.stream, self.bound if self.captured else None)

        def call() -> tuple["Tensor", ...]:
            run(binding, settings)
            return kept[1]

        return call

    def captures(self) -> bool:
        return self.captured

    def compilations(self) -> int:
        """Return the number of captured graphs, one for each binding; 0 if nothing is captured."""
        return self.bound

    def prove(self) -> Proof:
        return self.proof

    def trace(self, call: Call) -> Trace:
        """Trace a call. On CUDA, torch's profiler records the kernels: CUPTI reports every kernel of the process.

        The session's profile is then read only for the provider of each node. Its times are those of launching kernels,
        since published builds leave out ONNX Runtime's own use of CUPTI (their CUDA provider does not need libcupti).
        """
        if self.opened.stream is None:
            for _ in range(TRACED_CALLS):
                call()
            return read_profile(Path(self.opened.session.end_profiling()), self.provider)
        traced = trace_operators(call, _OWN_KERNELS)
        placed = read_providers(Path(self.opened.session.end_profiling()), self.provider)
        return replace(traced, operators_inside=dict(placed.inside), operators_outside=dict(placed.fallback))


def preload(provider: str) -> None:
    """Load the libraries that a GPU provider needs.

    `preload_dlls` finds CUDA's in torch's wheels, but not TensorRT's. Importing `tensorrt` loads those from its wheel;
    without that wheel the system's loader may still find them.
    """
    import onnxruntime

    if provider != PROVIDERS["cpu"]:
        onnxruntime.preload_dlls()
    if provider == PROVIDERS["tensorrt"]:
        with contextlib.suppress(ImportError):
            importlib.import_module("tensorrt")


def open_session(
    path: Path,
    options: Options,
    device: str,
    dtype: str,
    threads: int,
    cache_dir: Path | None = None,
    profile: Path | None = None,
    weights: Path | None = None,
) -> OpenSession:
    """Open a model with the requested provider. `cache_dir` and `profile` are as in `provider_options` and
    `session_options`.

    The model's file of weights is copied if `weights` names it, from ONNX Runtime versions on that can do that. By
    default it is mapped: whoever overwrites it changes the weights of an open session.

    Raises Unavailable if a provider was not loaded, naming the missing library, and Unsupported if a provider has no
    kernel for an operator. ONNX Runtime itself would print the former error and run the model on other providers; that
    is switched off (`enable_fallback`). A provider that it dropped with a mere warning is detected here, before
    anything is bound: running a session without a GPU provider on device memory ends the process (onnxruntime#21865).
    """
    import onnxruntime

    requested = session_providers(options, device)
    stream = new_stream() if device == "cuda" else None
    providers = [(name, provider_options(name, options, dtype, cache_dir, stream)) for name in requested]
    settings = session_options(options, threads, profile)
    copy = getattr(settings, "add_external_initializers_from_files_in_memory", None)
    if copy is not None and weights is not None and weights.exists() and weights.stat().st_size:
        with weights.open("rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        copy([weights.name], [content], [len(content)])
    failures: tuple[type[Exception], ...] = (RuntimeError, *load_errors())
    try:
        session = onnxruntime.InferenceSession(str(path), settings, providers=providers, enable_fallback=0)
    except failures as error:
        # Without its GPU provider the CPU provider gets the whole model, and may refuse it: so this is asked first.
        reason = _why_lost(requested)
        if reason is not None:
            raise Unavailable(f"{requested[0]} cannot be loaded: {reason}; {INSTALL}") from error
        refused = refusal(error, requested[0], dtype, path)
        if refused is not None:
            raise refused from error
        failed = _CUDA_FAILURE.search(str(error))
        if failed is not None:  # its text begins with the C++ signature of the checking function
            raise RuntimeError(f"{requested[0]}: {failed[0].strip()}") from error
        raise
    lost = [name for name in requested if name not in session.get_providers()]
    if lost:
        reason = _why_lost(lost) or "its libraries can be loaded; ONNX Runtime's warning in the log says more"
        raise Unavailable(
            f"ONNX Runtime opened the model with {', '.join(session.get_providers())}, without {lost[0]}: {reason}; "
            f"{INSTALL}"
        )
    return OpenSession(session, stream)


def new_stream() -> "torch.cuda.Stream":
    import torch

    return torch.cuda.Stream()


def _why_lost(providers: "Sequence[str]") -> str | None:
    """Return why a library of one of these GPU providers cannot be loaded; None if all can. The CPU provider needs
    none."""
    import onnxruntime

    folder = Path(onnxruntime.__file__).parent / "capi"
    found = (missing_library(name, folder) for name in providers if name != PROVIDERS["cpu"])
    return next(filter(None, found), None)


def session_options(options: Options, threads: int, profile: Path | None = None) -> "onnxruntime.SessionOptions":
    """Return the settings of a session. `profile` is the prefix of the profile's file name; None: no profile."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":
        settings.add_session_config_entry(SPINNING, "0")
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    settings.add_session_config_entry(RECORDED, "1")
    levels = onnxruntime.GraphOptimizationLevel
    settings.graph_optimization_level = {
        "all": levels.ORT_ENABLE_ALL,
        "extended": levels.ORT_ENABLE_EXTENDED,
        "basic": levels.ORT_ENABLE_BASIC,
        "none": levels.ORT_DISABLE_ALL,
    }[options.level]
    if profile is not None:
        settings.enable_profiling = True
        settings.profile_file_prefix = str(profile)
    return settings


def provider_options(
    provider: str, options: Options, dtype: str, cache_dir: Path | None, stream: "torch.cuda.Stream | None"
) -> dict[str, str]:
    """Return the options for one of the session's providers, all as text.

    TF32 is set explicitly: the CUDA provider uses it for fp32 by default since 1.18. TensorRT's provider keeps engines
    in `cache_dir`; None: it keeps none.
    """
    own = {} if stream is None else {"user_compute_stream": str(stream.cuda_stream)}
    if provider == PROVIDERS["cuda"]:
        return own | {"use_tf32": str(int(dtype == "tf32")), "enable_cuda_graph": str(int(options.cuda_graph))}
    if provider == PROVIDERS["tensorrt"]:
        own |= {"trt_fp16_enable": str(dtype == "fp16"), "trt_bf16_enable": str(dtype == "bf16")}
        if cache_dir is None:
            return own
        kept = str(cache_dir / "tensorrt")
        return own | {
            "trt_engine_cache_enable": "True",
            "trt_engine_cache_path": kept,
            "trt_timing_cache_enable": "True",
            "trt_timing_cache_path": kept,
        }
    return {}


def outputs_of(session: "onnxruntime.InferenceSession") -> "tuple[tuple[str, tuple[int, ...], Any], ...]":
    """Return name, shape and torch dtype of each output."""
    return tuple((value.name, tuple(value.shape), _torch_type(value.type)) for value in session.get_outputs())


def _torch_type(name: str) -> Any:
    import torch

    own = name.removeprefix("tensor(").removesuffix(")")  # torch names integers and booleans as ONNX Runtime does
    return torch.float32 if own == "float" else getattr(torch, own)


def load_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that ONNX Runtime raises for a model that it cannot open; their only common base is
    Exception."""
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    names = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoSuchFile", "NotImplemented")
    return (errors.RuntimeException, *(getattr(errors, name) for name in names))


def read_profile(path: Path, provider: str) -> Trace:
    """Read node times and providers from the last TRACED_CALLS calls of a profile, and delete the file.

    Earlier calls are warm-up. `provider` is the requested one: its nodes are inside, all others outside. Only for the
    CPU provider: for a GPU's, a node's time is that of launching its kernels, and a captured graph has no nodes.
    """
    events = _read(path)
    runs = [event for event in events if event.get("name") == "model_run"][-TRACED_CALLS:]
    begin = runs[0]["ts"]
    nodes = [event for event in _nodes(events) if event["ts"] >= begin]
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for event in nodes:
        times[_name(event)] += event["dur"] * 1000
        counts[_name(event)] += 1
    kernels = tuple(
        Kernel(name, counts[name] / len(runs), ns // len(runs), name.endswith(f"({provider})"))
        for name, ns in times.most_common()
    )
    placed = _placement(nodes, provider)
    total_ns = sum(run["dur"] for run in runs) * 1000 // len(runs)
    return Trace(kernels, total_ns, dict(placed.inside), placed.outside)


def read_providers(path: Path, provider: str) -> Placement:
    """Read from all calls of a profile which provider ran each node, and delete the file.

    This includes the calls before a graph is captured, since a replay has no nodes.
    """
    return _placement(_nodes(_read(path)), provider)


def _read(path: Path) -> "list[dict[str, Any]]":
    events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    path.unlink(missing_ok=True)
    return events


def _nodes(events: "Sequence[Mapping[str, Any]]") -> "list[Mapping[str, Any]]":
    return [event for event in events if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")]


def _placement(nodes: "Sequence[Mapping[str, Any]]", provider: str) -> Placement:
    """Return the placement of these nodes; each counts once, however often it ran."""
    once = {_name(event): event["args"] for event in nodes}.values()
    kinds = ((about["op_name"], about["provider"], profiled_integers(about)) for about in once)
    return sort_nodes(kinds, provider)


def _name(event: "Mapping[str, Any]") -> str:
    about = event["args"]
    return f"{about['op_name']} {event['name'].removesuffix('_kernel_time')} ({about['provider']})"
