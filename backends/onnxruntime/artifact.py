"""The ONNX artifact format: writes, checks and reads models; the models of a folder share one file of weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.backend import Unsupported
from bakeoff.backends.format import ArtifactFormat, HostRequirement, Opening, Run, WriteRequest, WrittenProgram
from bakeoff.backends.onnxruntime.binding import bind_tensors, new_results, run_settings, runner
from bakeoff.backends.onnxruntime.export import export_model
from bakeoff.backends.onnxruntime.options import provider_of
from bakeoff.backends.onnxruntime.session import OpenSession, load_errors, open_session, outputs_of, preload

if TYPE_CHECKING:
    from torch import Tensor
import contextlib
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bakeoff.backends.format import BadArtifact

_WEIGHTS = "weights.data"
_DOMAINS = {"", "ai.onnx", "ai.onnx.ml", "com.microsoft"}


def add_model(made: Path, folder: Path, name: str) -> None:
    """Add the model at `made` to a folder, and its weights to the one file that all models of the folder share.

    A weight that an earlier model of the folder stores under the same name with the same bytes is not stored again.
    """
    import onnx

    model = onnx.load(str(made), load_external_data=False)
    earlier: dict[str, _Location] = {}
    for other in sorted(folder.glob("*.onnx")):
        earlier |= dict(_locations(onnx.load(str(other), load_external_data=False)))
    shared = folder / _WEIGHTS
    shared.touch()
    sources: dict[str, mmap.mmap] = {}
    with shared.open("r+b") as file, contextlib.ExitStack() as stack:
        held = stack.enter_context(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)) if earlier else b""
        for tensor in model.graph.initializer:
            origin = next((location for _, location in _locations(tensor)), None)
            if origin is None:
                continue
            if origin.file not in sources:
                source = stack.enter_context((made.parent / origin.file).open("rb"))
                sources[origin.file] = stack.enter_context(mmap.mmap(source.fileno(), 0, prot=mmap.PROT_READ))
            data = memoryview(sources[origin.file])[origin.offset : origin.offset + origin.length]
            known = earlier.get(tensor.name)
            same = known is not None and known.length == origin.length
            if known is None or not same or memoryview(held)[known.offset : known.offset + known.length] != data:
                file.seek(0, 2)
                file.write(bytes(-file.tell() % mmap.ALLOCATIONGRANULARITY))
                known = _Location(_WEIGHTS, file.tell(), origin.length)
                file.write(data)
            data.release()
            del tensor.external_data[:]
            for key, value in (("location", _WEIGHTS), ("offset", known.offset), ("length", known.length)):
                tensor.external_data.add(key=key, value=str(value))
    onnx.save(model, str(folder / f"{name}.onnx"))


@dataclass(frozen=True, slots=True)
class _Location:
    """File, offset and length in bytes of a stored weight."""

    file: str
    offset: int
    length: int


def _locations(message: Any) -> "Iterator[tuple[str, _Location]]":
    """Yield name and location of each external weight in a model, or in one tensor.

    Raises BadArtifact for a weight without a valid location.
    """
    for tensor in _tensors(message):
        if not tensor.external_data and tensor.data_location == 0:
            continue
        about = {entry.key: entry.value for entry in tensor.external_data}
        try:
            yield tensor.name, _Location(about["location"], int(about.get("offset", 0)), int(about["length"]))
        except (KeyError, ValueError) as error:
            raise BadArtifact(
                f"the weight {tensor.name} has no valid file, offset and length: {about}; export the artifact again"
            ) from error


def _tensors(message: Any) -> "Iterator[Any]":
    """Yield every tensor in a protobuf message, at any depth: initializers, attributes, subgraphs, functions."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if hasattr(value, "add") else (value,):
                yield from _tensors(part)


def check_model(path: Path, files: Mapping[str, int]) -> None:
    """Check a model as `check_weights`; also raise BadArtifact for operators that ONNX Runtime does not include."""
    domains = sorted({entry.domain for entry in check_weights(path, files).opset_import} - _DOMAINS)
    if domains:
        raise BadArtifact(
            f"{path.name} needs operators of {', '.join(domains)}, which ONNX Runtime does not include; "
            "export the artifact again"
        )


def check_weights(path: Path, files: Mapping[str, int]) -> Any:
    """Check that a model reads weights only from files of the artifact, within their size; return the model.

    A model can name any file for its weights (CVE-2022-25882, CVE-2024-27318). `files` are the sizes of the artifact's
    files by name. Raises BadArtifact otherwise.
    """
    import onnx
    from google.protobuf.message import DecodeError

    if path.suffix != ".onnx":  # ONNX Runtime reads other formats by their endings
        raise BadArtifact(f"{path.name} does not end in .onnx; export the artifact again")
    try:
        model = onnx.load(str(path), format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise BadArtifact(f"{path.name} is not an ONNX model: {error}; export the artifact again") from error
    for name, location in _locations(model):
        if location.file not in files:
            raise BadArtifact(
                f"{path.name} reads the weight {name} from '{location.file}', which is not a file of the artifact; "
                "do not use it"
            )
        if min(location.offset, location.length) < 0 or location.offset + location.length > files[location.file]:
            raise BadArtifact(
                f"{path.name} reads the weight {name} from byte {location.offset} of {location.file}, "
                f"{location.length} bytes long, but the file has {files[location.file]} bytes; export it again"
            )
    return model


_LEAST_RUNTIME = {20: "1.18", 22: "1.21"}
"""First version of ONNX Runtime that reads a model of each opset with IR version 10
(onnxruntime.ai/docs/reference/compatibility.html)."""


def _write(request: WriteRequest) -> WrittenProgram:
    import onnx

    if request.options.cuda_graph:
        raise Unsupported(
            "a captured CUDA graph cannot be exported; export without cuda_graph, and capture it where it is deployed"
        )
    made = export_model(request.module, request.inputs, request.options, request.context)
    add_model(made.path, request.folder, request.name)
    model = onnx.load(str(request.folder / f"{request.name}.onnx"), load_external_data=False)
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    needs = [HostRequirement("onnxruntime", "at least", _LEAST_RUNTIME[opset])]
    if request.context.device == "cuda":
        needs.append(HostRequirement("driver", "at least"))
    return WrittenProgram(f"{request.name}.onnx", (), tuple(needs), {"opset": opset, "ir_version": model.ir_version})


def _read(path: Path, _constants: Sequence[Path], opening: Opening) -> Run:
    preload(provider_of(opening.options, opening.device))
    try:
        opened = open_session(
            path, opening.options, opening.device, opening.dtype, opening.threads, weights=path.parent / _WEIGHTS
        )
    except load_errors() as error:
        raise RuntimeError(str(error)) from error
    return session_program(opened)


def session_program(opened: OpenSession) -> Run:
    """Return a session as a program that binds its inputs and new outputs in each call."""
    names, outputs = [value.name for value in opened.session.get_inputs()], outputs_of(opened.session)
    output_names = [name for name, _, _ in outputs]
    run_bound, settings = runner(opened.session, opened.stream), run_settings(opened.stream)

    def run(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        results = new_results(outputs, tensors[0].device)
        kept = [tensor.contiguous() for tensor in tensors]  # until the run has ended
        run_bound(bind_tensors(opened.session, names, kept, output_names, results), settings)
        return results

    return run


FORMAT = ArtifactFormat(
    name="onnx",
    summary="ONNX models (.onnx), and one file with the weights of all of them",
    write=_write,
    check=check_model,
    read=_read,
)
