"""Engines and context models of TensorRT for RTX as their headers and attributes say, for hosts without the plugin.

They imitate what onnxruntime-ep-nv-tensorrt-rtx-cu13 0.5.0 with ONNX Runtime 1.31.1 wrote for the toy component: its
engines begin with `76747274 00000000 02000000 00000000 SIZE 01070174 76747274 TARGET` and zeros.
"""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bakeoff.backends.tensorrt_rtx.compile_engine import PROVIDER

BITS = {"sm86": 4, "sm89": 8, "sm120": 16, "sm121": 32}
COMPATIBILITY = f"ep_compatibility_info.{PROVIDER}"


def engine(target: str | int = "sm89", size: int = 96, stated: int | None = None, fill: bytes = b"\x7f") -> bytes:
    """An engine of `size` bytes whose header is for a target, or has this number in its place."""
    bit = BITS[target] if isinstance(target, str) else target
    size_stated = size if stated is None else stated
    header = struct.pack("<4s4xQQ3s5sI28x", b"vtrt", 2, size_stated, b"\x01\x07\x01", b"tvtrt", bit)
    assert len(header) == 64
    return header + fill * (size - len(header))


def node(file: str | bytes = "0.engine", **changes: Any) -> Any:
    """An EPContext node; an attribute that is None is left out."""
    from onnx import helper

    name = file.decode(errors="replace") if isinstance(file, bytes) else file
    known = {"source": PROVIDER, "embed_mode": 0, "ep_cache_context": file, "main_context": 1, **changes}
    kept = {key: value for key, value in known.items() if value is not None}
    return helper.make_node("EPContext", ["x"], [f"y_{name}"], domain="com.microsoft", **kept)


def context_model(
    folder: Path,
    nodes: Sequence[Any],
    engines: Mapping[str, bytes],
    stated: str | None = None,
    name: str = "model.onnx",
) -> Path:
    """Write a context model; `stated` is in its metadata, where the header of a single engine is by default."""
    import onnx
    from onnx import TensorProto, helper

    folder.mkdir(parents=True, exist_ok=True)
    for file, data in engines.items():
        (folder / file).write_bytes(data)
    values = [helper.make_tensor_value_info(value, TensorProto.FLOAT, [1]) for value in ("x", nodes[0].output[0])]
    graph = helper.make_graph(nodes, "context", values[:1], values[1:])
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports)
    header = next(iter(engines.values()), b"")[:64].hex() if len(engines) == 1 else ""
    helper.set_model_props(model, {COMPATIBILITY: header if stated is None else stated})
    onnx.save(model, str(folder / name))
    return folder / name


def sizes(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in folder.iterdir()}
