"""The artifact format of TensorRT for RTX: a context model of ONNX Runtime, and its engines as files of their own."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bakeoff.backends.backend import Unsupported
from bakeoff.backends.format import ArtifactFormat, HostRequirement, Opening, Run, WriteRequest, WrittenProgram
from bakeoff.backends.onnxruntime.artifact import session_program
from bakeoff.backends.tensorrt_rtx.compiler import compiled
from bakeoff.backends.tensorrt_rtx.engines import check_context, copy_context
from bakeoff.backends.tensorrt_rtx.options import DISTRIBUTION, LEAST_DRIVER, LEAST_RUNTIME, capability_of
from bakeoff.backends.tensorrt_rtx.session import open_context


def _write(request: WriteRequest) -> WrittenProgram:
    if request.options.cuda_graph:
        raise Unsupported(
            "a captured CUDA graph cannot be exported; export without cuda_graph, and capture it where it is deployed"
        )
    made = compiled(request.module, request.inputs, request.options.target, request.context)
    file = copy_context(made.folder, request.folder, request.name)
    needs = (
        HostRequirement("compute capability", "is", capability_of(made.engine.target)),
        HostRequirement(DISTRIBUTION, "is", made.about["provider"]),
        HostRequirement("onnxruntime", "at least", LEAST_RUNTIME),
        HostRequirement("driver", "at least", LEAST_DRIVER),
    )
    facts = {"target": made.engine.target, "tensorrt_rtx": made.engine.version, "engines": made.about["engines"]}
    return WrittenProgram(file, (), needs, facts)


def _check(path: Path, files: Mapping[str, int]) -> None:
    check_context(path, files)


def _read(path: Path, _constants: Sequence[Path], opening: Opening) -> Run:
    return session_program(open_context(path, opening.options.cuda_graph, opening.device, opening.threads))


FORMAT = ArtifactFormat(
    name="tensorrt-rtx",
    summary="context models of ONNX Runtime (.onnx), and their engines of TensorRT for RTX (.engine)",
    write=_write,
    check=_check,
    read=_read,
)
