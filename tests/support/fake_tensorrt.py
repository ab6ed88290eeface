"""A module `tensorrt` that builds "engines" of ONNX models and runs them by onnxruntime on the CPU.

It has what the documentation of TensorRT's Python API says of the classes that examples/backends/tensorrt_onnx.py uses
(docs.nvidia.com/deeplearning/tensorrt/latest/_static/python-api: Builder, INetworkDefinition, OnnxParser,
IBuilderConfig, Runtime, ICudaEngine, IExecutionContext; 10.x): names, order of calls, and None or False for a failure.
Tensors are set by address, and an execution reads and writes these addresses. It builds no engine and proves none.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

_TYPES = {"tensor(float)": ("FLOAT", "float32"), "tensor(float16)": ("HALF", "float16")}


@dataclass
class Fake:
    """What the module was asked, and how it answers."""

    log: list[str] = field(default_factory=list)
    errors: tuple[str, ...] = ()
    """Of the parser."""
    builds: bool = True

    def module(self) -> ModuleType:
        made: Any = ModuleType("tensorrt")
        made.Logger = type("Logger", (), {"WARNING": 2, "__init__": lambda _self, _level: None})
        made.NetworkDefinitionCreationFlag = SimpleNamespace(STRONGLY_TYPED=1)
        made.BuilderFlag = SimpleNamespace(TF32="TF32")
        made.Builder = lambda _logger: _Builder(self)
        made.OnnxParser = lambda network, _logger: _Parser(self, network)
        made.Runtime = lambda _logger: SimpleNamespace(deserialize_cuda_engine=lambda data: _engine(self, data))
        return made


class _Builder:
    def __init__(self, fake: Fake) -> None:
        self.fake = fake

    def create_network(self, flags: int) -> SimpleNamespace:
        self.fake.log.append(f"network {flags:b}")
        return SimpleNamespace(model="")

    def create_builder_config(self) -> "_Config":
        return _Config(self.fake)

    def build_serialized_network(self, network: SimpleNamespace, config: "_Config") -> bytes | None:
        assert config.cache is not None
        self.fake.log.append(f"build at level {config.builder_optimization_level}")
        return f"plan {network.model}".encode() if self.fake.builds else None


class _Config:
    builder_optimization_level = 3

    def __init__(self, fake: Fake) -> None:
        self.fake = fake
        self.cache: bytes | None = None

    def clear_flag(self, flag: str) -> None:
        self.fake.log.append(f"clear {flag}")

    def create_timing_cache(self, known: bytes) -> bytes:
        self.fake.log.append(f"timing cache of {len(known)} bytes")
        return known

    def set_timing_cache(self, cache: bytes, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        self.cache = cache
        return True

    def get_timing_cache(self) -> SimpleNamespace:
        return SimpleNamespace(serialize=lambda: memoryview(b"timings"))


class _Parser:
    def __init__(self, fake: Fake, network: SimpleNamespace) -> None:
        self.fake, self.network = fake, network
        self.num_errors = len(fake.errors)

    def parse_from_file(self, path: str) -> bool:
        kept = Path(path).parents[2] / "kept"  # the model is gone when an engine runs
        kept.mkdir(exist_ok=True)
        for file in Path(path).parent.iterdir():
            (kept / file.name).write_bytes(file.read_bytes())
        self.network.model = str(kept / Path(path).name)
        self.fake.log.append("parse")
        return not self.fake.errors

    def get_error(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(desc=lambda: self.fake.errors[index])


def _engine(fake: Fake, data: bytes) -> "_Engine | None":
    return _Engine(fake, data.decode().removeprefix("plan ")) if data.startswith(b"plan ") else None


class _Engine:
    num_layers = 7

    def __init__(self, fake: Fake, model: str) -> None:
        import onnxruntime

        self.fake, self.session = fake, onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        self.tensors = {each.name: each for each in (*self.session.get_inputs(), *self.session.get_outputs())}
        self.num_io_tensors = len(self.tensors)

    def get_tensor_name(self, index: int) -> str:
        return [*self.tensors][index]

    def get_tensor_shape(self, name: str) -> list[int]:
        return list(self.tensors[name].shape)

    def get_tensor_dtype(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name=_TYPES[self.tensors[name].type][0])

    def create_execution_context(self) -> "_Context":
        self.fake.log.append("context")
        return _Context(self)


class _Context:
    def __init__(self, engine: _Engine) -> None:
        self.engine = engine
        self.addresses: dict[str, int] = {}

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return name in self.engine.tensors

    def execute_async_v3(self, stream: int) -> bool:
        self.engine.fake.log.append(f"execute on {stream}")
        if self.addresses.keys() != self.engine.tensors.keys():
            return False
        session = self.engine.session
        given = {each.name: self._array(each.name) for each in session.get_inputs()}
        for each, value in zip(session.get_outputs(), session.run(None, given), strict=True):
            self._array(each.name)[...] = value
        return True

    def _array(self, name: str) -> Any:
        import numpy as np

        tensor = self.engine.tensors[name]
        dtype = np.dtype(_TYPES[tensor.type][1])
        size = int(np.prod(tensor.shape, dtype=int)) * dtype.itemsize
        memory = (ctypes.c_char * size).from_address(self.addresses[name])
        return np.frombuffer(memory, dtype).reshape(tensor.shape)


@contextmanager
def installed() -> Iterator[Fake]:
    """Make `import tensorrt` return the fake."""
    fake, before = Fake(), sys.modules.get("tensorrt")
    sys.modules["tensorrt"] = fake.module()
    try:
        yield fake
    finally:
        if before is None:
            del sys.modules["tensorrt"]
        else:
            sys.modules["tensorrt"] = before
