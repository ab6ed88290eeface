"""ONNX Runtime sessions: their settings, how they are opened, and the engine that runs one."""

import contextlib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import Call, Engine, Proof
from bakeoff.backends.graphs import check_layouts
from bakeoff.backends.onnxruntime.binding import bind_tensors, runner
from bakeoff.backends.onnxruntime.options import PROVIDERS, Options, provider_of
from bakeoff.backends.onnxruntime.profile import read_profile
from bakeoff.backends.port import Port, buffers_like
from bakeoff.backends.tracing import TRACED_CALLS, Trace

if TYPE_CHECKING:
    import onnxruntime
    from torch import Tensor


@dataclass(slots=True)
class Session(Engine):
    """An engine that runs a session.

    `outputs` are name, shape and torch dtype of each output; `bound` counts the bound sets of inputs.
    """

    session: "onnxruntime.InferenceSession"
    inputs: tuple[str, ...]
    layouts: Mapping[str, str]
    outputs: "tuple[tuple[str, tuple[int, ...], Any], ...]"
    provider: str
    proof: Proof
    captured: bool
    bound: int = 0

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        check_layouts(self.layouts, inputs)
        return self._bind(inputs)

    def port(self, inputs: "Mapping[str, Tensor]", outputs: Sequence[str]) -> Port:
        """As Engine.port; the buffers are contiguous, because binding would copy others."""
        check_layouts(self.layouts, inputs)
        buffers = buffers_like(inputs, contiguous=True)
        return Port(buffers, self._bind(buffers), outputs)

    def _bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        keep = bind_tensors(self.session, self.inputs, tuple(inputs.values()), self.outputs)
        run = runner(self.session, keep.results[0].device.type)
        settings = self._run_settings()

        def call() -> tuple["Tensor", ...]:
            run(keep.binding, settings)
            return keep.results

        return call

    def _run_settings(self) -> "onnxruntime.RunOptions | None":
        """Give each binding its own captured graph, since a graph replays the addresses it was captured with."""
        if not self.captured:
            return None
        import onnxruntime

        self.bound += 1
        settings = onnxruntime.RunOptions()
        settings.add_run_config_entry("gpu_graph_id", str(self.bound))
        return settings

    def captures(self) -> bool:
        return self.captured

    def prove(self) -> Proof:
        return self.proof

    def trace(self, call: Call) -> Trace:
        for _ in range(TRACED_CALLS):
            call()
        return read_profile(Path(self.session.end_profiling()), self.provider)


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
    path: Path, provider: str, settings: "onnxruntime.SessionOptions", provided: Mapping[str, str]
) -> "onnxruntime.InferenceSession":
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), settings, providers=[(provider, dict(provided))])


def session_options(options: Options, threads: int, profile: Path | None = None) -> "onnxruntime.SessionOptions":
    """Settings of a session. `profile` is the prefix of the profile's file name; None: no profile."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
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


def provider_options(options: Options, device: str, dtype: str, cache_dir: Path | None) -> dict[str, str]:
    """Options for the provider. TF32 is set explicitly: the CUDA provider uses it for fp32 by default since 1.18."""
    wanted = provider_of(options, device)
    if wanted == PROVIDERS["cuda"]:
        return {"use_tf32": str(int(dtype == "tf32")), "enable_cuda_graph": str(int(options.cuda_graph))}
    if wanted == PROVIDERS["tensorrt"]:
        precision = {"trt_fp16_enable": str(dtype == "fp16"), "trt_bf16_enable": str(dtype == "bf16")}
        if cache_dir is None:
            return precision
        kept = str(cache_dir / "tensorrt")
        return precision | {
            "trt_engine_cache_enable": "True",
            "trt_engine_cache_path": kept,
            "trt_timing_cache_enable": "True",
            "trt_timing_cache_path": kept,
        }
    return {}


def other_provider(requested: str, session: "onnxruntime.InferenceSession") -> str | None:
    """The providers that run instead of the requested one, as a noun phrase; None if that one is first in the list."""
    found = session.get_providers()
    return None if found and found[0] == requested else f"{', '.join(found) or 'no provider'} instead of {requested}"


def outputs_of(session: "onnxruntime.InferenceSession") -> "tuple[tuple[str, tuple[int, ...], Any], ...]":
    """Name, shape and dtype of each output."""
    return tuple((value.name, tuple(value.shape), _torch_type(value.type)) for value in session.get_outputs())


def _torch_type(name: str) -> Any:
    import torch

    return {"tensor(float)": torch.float32, "tensor(float16)": torch.float16, "tensor(bfloat16)": torch.bfloat16}[name]


def load_errors() -> tuple[type[Exception], ...]:
    """Exceptions that ONNX Runtime raises for a model it cannot open; they have no common base but Exception."""
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    names = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoSuchFile", "NotImplemented")
    return (errors.RuntimeException, *(getattr(errors, name) for name in names))
