"""ONNX models as files of an artifact: the weights of all of them in one file, and none of them read from elsewhere."""

import contextlib
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakeoff.backends.format import BadArtifact

_WEIGHTS = "weights.data"
_DOMAINS = {"", "ai.onnx", "ai.onnx.ml", "com.microsoft"}


def add_model(made: Path, folder: Path, name: str) -> None:
    """Put a model into a folder, its weights into the one file that all models of the folder share.

    What an earlier model of the folder holds under the same name with the same bytes is pointed to, not stored twice.
    """
    import onnx

    model = onnx.load(str(made), load_external_data=False)
    earlier: dict[str, _Place] = {}
    for other in sorted(folder.glob("*.onnx")):
        earlier |= dict(_places(onnx.load(str(other), load_external_data=False)))
    shared = folder / _WEIGHTS
    shared.touch()
    sources: dict[str, mmap.mmap] = {}
    with shared.open("r+b") as file, contextlib.ExitStack() as stack:
        held = stack.enter_context(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)) if earlier else b""
        for tensor in model.graph.initializer:
            place = next((place for _, place in _places(tensor)), None)
            if place is None:
                continue
            if place.file not in sources:
                source = stack.enter_context((made.parent / place.file).open("rb"))
                sources[place.file] = stack.enter_context(mmap.mmap(source.fileno(), 0, prot=mmap.PROT_READ))
            data = memoryview(sources[place.file])[place.offset : place.offset + place.length]
            known = earlier.get(tensor.name)
            same = known is not None and known.length == place.length
            if known is None or not same or memoryview(held)[known.offset : known.offset + known.length] != data:
                file.seek(0, 2)
                file.write(bytes(-file.tell() % mmap.ALLOCATIONGRANULARITY))
                known = _Place(_WEIGHTS, file.tell(), place.length)
                file.write(data)
            data.release()
            del tensor.external_data[:]
            for key, value in (("location", _WEIGHTS), ("offset", known.offset), ("length", known.length)):
                tensor.external_data.add(key=key, value=str(value))
    onnx.save(model, str(folder / f"{name}.onnx"))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a weight lies."""

    file: str
    offset: int
    length: int


def _places(holder: Any) -> "Iterator[tuple[str, _Place]]":
    """The external weights of a model, or of one tensor of it. Raises BadArtifact for one of no known place."""
    for tensor in _tensors(holder):
        if not tensor.external_data and tensor.data_location == 0:
            continue
        about = {entry.key: entry.value for entry in tensor.external_data}
        try:
            yield tensor.name, _Place(about["location"], int(about.get("offset", 0)), int(about["length"]))
        except (KeyError, ValueError) as error:
            raise BadArtifact(f"the weight {tensor.name} says of its place only {about}") from error


def _tensors(holder: Any) -> "Iterator[Any]":
    """Every tensor that a protobuf message holds, however deep: initializers, attributes, subgraphs, functions."""
    if holder.DESCRIPTOR.name == "TensorProto":
        yield holder
        return
    for field, value in holder.ListFields():
        if field.message_type is not None:
            for part in value if hasattr(value, "add") else (value,):
                yield from _tensors(part)


def check_model(path: Path, files: Mapping[str, int]) -> None:
    """Weights lie in files of the artifact, whatever the model says (CVE-2022-25882, CVE-2024-27318)."""
    import onnx
    from google.protobuf.message import DecodeError

    if path.suffix != ".onnx":  # ONNX Runtime reads other formats by their endings
        raise BadArtifact(f"{path.name} is no .onnx file")
    try:
        model = onnx.load(str(path), format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise BadArtifact(f"{path.name} is no ONNX model: {error}") from error
    for name, place in _places(model):
        if place.file not in files:
            raise BadArtifact(f"{path.name} has the weight {name} in '{place.file}', which is no file of the artifact")
        if min(place.offset, place.length) < 0 or place.offset + place.length > files[place.file]:
            raise BadArtifact(
                f"{path.name} has the weight {name} at {place.offset} + {place.length} bytes of {place.file}, "
                f"which has {files[place.file]}"
            )
    domains = sorted({entry.domain for entry in model.opset_import} - _DOMAINS)
    if domains:
        raise BadArtifact(f"{path.name} needs operators of {', '.join(domains)}, which no ONNX Runtime brings")
