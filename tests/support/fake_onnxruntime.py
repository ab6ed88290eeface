"""An onnxruntime with GPU providers, for hosts without a GPU: sessions of the installed CPU library under other names.

It imitates onnxruntime-gpu 1.31.1, whose texts and behaviour were observed on a host without its libraries and with
empty stand-ins for them:
- a provider whose library cannot be loaded is compiled in and so `available`; the CUDA provider is dropped from the
  session with a logged warning (python/onnxruntime_pybind_state.cc:1295), TensorRT's raises RuntimeError (:729);
- the Python class then prints and opens the model with other providers, unless `enable_fallback` is 0
  (capi/onnxruntime_inference_collection.py, InferenceSession.__init__);
- a session without its GPU provider ends the process when it is run on device memory (onnxruntime#21865), so that here
  such a session must not be bound.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest
import torch

from bakeoff.backends.onnxruntime import session
from bakeoff.backends.onnxruntime.options import PROVIDERS

CUDA, TENSORRT, CPU = PROVIDERS["cuda"], PROVIDERS["tensorrt"], PROVIDERS["cpu"]
LIBRARY_LOST = "libnvinfer.so.10: cannot open shared object file: No such file or directory"
TENSORRT_LOST = (
    "/onnxruntime_src/onnxruntime/python/onnxruntime_pybind_state.cc:729 void onnxruntime::python::"
    "RegisterTensorRTPluginsAsCustomOps(PySessionOptions&, const onnxruntime::ProviderOptions&) Please install "
    "TensorRT libraries as mentioned in the GPU requirements page, make sure they're in the PATH or LD_LIBRARY_PATH, "
    "and that your GPU is supported.\n"
)
NOT_IMPLEMENTED = (
    "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Pow(15) node with name 'node_pow'"
)
NO_PROVIDER = (
    "[ONNXRuntimeError] : 1 : FAIL : Exception during initialization: /onnxruntime_src/onnxruntime/core/optimizer/"
    "transformer_memcpy.cc:253 bool onnxruntime::TransformerMemcpyImpl::IsNodeCompatibleWithProvider(const "
    "onnxruntime::Node&) const !node_provider_type.empty() was false. Provider type for "
    "LeakyRelu node with name 'n0' is not set.\n"
)
BAD_TYPE = (
    "[ONNXRuntimeError] : 10 : INVALID_GRAPH : Load model from model.onnx failed:This is an invalid model. Type Error: "
    "Type 'tensor(bfloat16)' of input parameter (z) of operator (Conv) in node (node_Conv_646) is invalid."
)
NO_CAPTURE = (
    "[ONNXRuntimeError] : 1 : FAIL : This session cannot use the graph capture feature as requested by the user  as "
    "all compute graph nodes have not been partitioned to the CUDAExecutionProvider"
)
ARENA = (
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Exception during initialization: /onnxruntime_src/onnxruntime/core/"
    "framework/bfc_arena.cc:358 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*) "
    "Failed to allocate memory for requested buffer of size 4831838208\n"
)


class Stream:
    """A CUDA stream that only notes what waits for what."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.cuda_stream, self.name, self.log = 140098743390512, name, log

    def wait_stream(self, other: "Stream") -> None:
        self.log.append(f"{self.name} waits for {other.name}")


@dataclass
class Library:
    """How the library behaves, and what was asked of it."""

    cache: Path
    """Where models are exported to."""
    lost: tuple[str, ...] = ()
    """Providers whose library cannot be loaded."""
    error: Exception | None = None
    """What opening a session raises."""
    place: Callable[[str], str] = lambda _operator: CUDA
    """Operator to the provider that runs it."""
    tells: bool = True
    """Whether sessions can tell the placement, as from 1.24 on."""
    log: list[str] = field(default_factory=list)
    opened: "list[FakeSession]" = field(default_factory=list)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        real = onnxruntime.InferenceSession

        def open_one(path: str, settings: Any, providers: Sequence[Any], enable_fallback: int = 1) -> FakeSession:
            made = FakeSession(self, real, path, settings, providers, bool(enable_fallback))
            self.opened.append(made)
            return made

        patch.setattr(onnxruntime, "InferenceSession", open_one)
        patch.setattr(onnxruntime, "preload_dlls", lambda: None)
        patch.setattr(onnxruntime, "get_available_providers", lambda: [TENSORRT, CUDA, CPU])
        patch.setattr(session, "missing_library", self._missing)
        patch.setattr(session, "new_stream", lambda: Stream("session", self.log))
        patch.setattr(torch.cuda, "current_stream", lambda: Stream("torch", self.log))

    def _missing(self, provider: str, _folder: Path) -> str | None:
        return LIBRARY_LOST if provider in self.lost else None


class FakeSession:
    """A session of the CPU library that says it has GPU providers."""

    def __init__(
        self, library: Library, real: Any, path: str, settings: Any, providers: Sequence[Any], fallback: bool
    ) -> None:
        self.library = library
        self.asked: dict[str, Mapping[str, str]] = dict(providers)
        names = [*self.asked, CPU]
        try:
            if library.error is not None:
                raise library.error
            if TENSORRT in self.asked and TENSORRT in library.lost:
                raise RuntimeError(TENSORRT_LOST)
        except (ValueError, RuntimeError):
            if not fallback:
                raise
            names = [name for name in (CUDA, CPU) if name in names]
        self.names = [name for name in dict.fromkeys(names) if name not in library.lost]
        self.real = real(path, settings, providers=[CPU])
        if library.tells:
            self.get_provider_graph_assignment_info = self._assigned

    def get_providers(self) -> list[str]:
        return self.names

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        own = {"cudnn_conv_algo_search": "EXHAUSTIVE"}
        return {name: {**(own if name == CUDA else {}), **self.asked.get(name, {})} for name in self.names}

    def _assigned(self) -> list[SimpleNamespace]:
        """One group for each node; the CPU library's placement with the providers exchanged."""
        return [
            SimpleNamespace(ep_name=self.library.place(node.op_type), get_nodes=lambda node=node: [node])
            for part in self.real.get_provider_graph_assignment_info()
            for node in part.get_nodes()
        ]

    def io_binding(self) -> Any:
        assert len(self.names) > 1, "a segmentation fault: bound without a GPU provider"
        return self.real.io_binding()

    def run_with_iobinding(self, binding: Any, settings: Any = None) -> None:
        unwaited = settings.get_run_config_entry("disable_synchronize_execution_providers")
        self.library.log.append(f"run, waiting disabled {unwaited}")
        self.real.run_with_iobinding(binding)

    def end_profiling(self) -> str:
        """The CPU library's profile with the providers exchanged."""
        path = Path(self.real.end_profiling())
        events = json.loads(path.read_text(encoding="utf-8"))
        for event in events:
            if "provider" in event["args"]:
                event["args"]["provider"] = self.library.place(event["args"]["op_name"])
        path.write_text(json.dumps(events), encoding="utf-8")
        return str(path)

    def __getattr__(self, name: str) -> Any:
        if name == "get_provider_graph_assignment_info":
            raise AttributeError(name)
        return getattr(self.real, name)
