"""Reads and checks a context model of ONNX Runtime and the TensorRT for RTX engines that it names.

The 64 bytes with which an engine begins are not documented; they were read from engines of TensorRT for RTX 1.7.1 for
each target: bytes 0 to 3 are `vtrt`, 16 to 23 the file's size, 24 to 26 the version, 32 to 35 a bit for the target. The
provider's own check of them (`get_model_compatibility_for_ep_devices`) asks the driver which GPU is there, so that
it says "unsupported" of every engine on a host without one.
"""

import shutil
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakeoff.backends.format import BadArtifact
from bakeoff.backends.onnxruntime.artifact import check_weights
from bakeoff.backends.tensorrt_rtx.compile_engine import MODEL, PROVIDER

_HEADER = 64
_MAGIC = b"vtrt"
_TARGETS = {4: "sm86", 8: "sm89", 16: "sm120", 32: "sm121"}
_COMPATIBILITY = f"ep_compatibility_info.{PROVIDER}"


@dataclass(frozen=True, slots=True)
class EngineFile:
    """What an engine's header says of it."""

    target: str
    version: str
    """Of TensorRT for RTX."""
    bytes: int
    header: str
    """The header itself, in hexadecimal."""


def read_engine(path: Path) -> EngineFile:
    """Read an engine's header. Raises BadArtifact if the file is none, or not as long as it says."""
    with path.open("rb") as file:
        header = file.read(_HEADER)
    if len(header) < _HEADER or header[:4] != _MAGIC:
        raise BadArtifact(f"{path.name} is no engine of TensorRT for RTX; export the artifact again")
    (size,), (bit,) = struct.unpack_from("<Q", header, 16), struct.unpack_from("<I", header, 32)
    found = path.stat().st_size
    if size != found:
        raise BadArtifact(f"{path.name} states a size of {size} bytes and has {found}; export the artifact again")
    version = ".".join(map(str, header[24:27]))
    return EngineFile(_TARGETS.get(bit, f"an unknown target ({bit})"), version, size, header.hex())


def check_context(path: Path, files: Mapping[str, int]) -> EngineFile:
    """Check that a model holds engines of TensorRT for RTX alone, all for one target, in files of its artifact.

    `files` are the sizes of the artifact's files by name. Returns what the first engine says of itself. Raises
    BadArtifact otherwise.
    """
    model = check_weights(path, files)
    nodes = [node for part in (model.graph, *model.functions) for node in _nodes(part) if node.op_type == "EPContext"]
    if not nodes:
        raise BadArtifact(f"{path.name} holds no compiled engine; export the artifact again")
    found = [_checked(path, _attributes(node), files) for node in nodes]
    if len({engine.target for engine in found}) > 1:
        raise BadArtifact(f"{path.name} holds engines for {' and '.join(sorted({one.target for one in found}))}")
    stated = next((entry.value for entry in model.metadata_props if entry.key == _COMPATIBILITY), "")
    if len(found) == 1 and stated != found[0].header:
        raise BadArtifact(f"{path.name} was compiled with another engine than {path.stem}.0.engine; export it again")
    return found[0]


def _nodes(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a graph or a function, and of the graphs in their attributes, at any depth."""
    for node in graph.node:
        yield node
        for each in node.attribute:
            for inner in (each.g, *each.graphs):
                yield from _nodes(inner)


def _checked(path: Path, about: Mapping[str, Any], files: Mapping[str, int]) -> EngineFile:
    source, file = _text(about.get("source")), _text(about.get("ep_cache_context"))
    if source != PROVIDER:
        raise BadArtifact(f"{path.name} was compiled for '{source[:80]}', not for {PROVIDER}; do not use it")
    if about.get("embed_mode") != 0 or file not in files:
        raise BadArtifact(
            f"{path.name} reads its engine from '{file[:80]}', which is not a file of the artifact; do not use it"
        )
    return read_engine(path.parent / file)


def _attributes(node: Any) -> dict[str, Any]:
    return {each.name: each.s or each.i for each in node.attribute}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def copy_context(compiled: Path, folder: Path, name: str) -> str:
    """Copy a compiled model and its engines to an artifact's folder, with file names that begin with `name`.

    Returns the model's file name.
    """
    import onnx

    model = onnx.load(str(compiled / MODEL), load_external_data=False)
    for node in model.graph.node:
        for each in node.attribute if node.op_type == "EPContext" else ():
            if each.name == "ep_cache_context":
                file = _text(each.s)
                each.s = f"{name}.{file}".encode()
                shutil.copyfile(compiled / file, folder / f"{name}.{file}")
    onnx.save(model, str(folder / f"{name}.onnx"))
    return f"{name}.onnx"
