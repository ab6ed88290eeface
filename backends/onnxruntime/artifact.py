"""The ONNX artifact format: the models of a folder share one file of weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.backend import Unavailable, Unsupported
from bakeoff.backends.format import ArtifactFormat, HostRequirement, Opening, Run, WriteRequest, Written
from bakeoff.backends.onnxruntime.binding import bind_tensors, runner
from bakeoff.backends.onnxruntime.export import export_model
from bakeoff.backends.onnxruntime.onnx_files import add_model, check_model
from bakeoff.backends.onnxruntime.options import INSTALL, provider_of
from bakeoff.backends.onnxruntime.session import (
    load_errors,
    open_session,
    other_provider,
    outputs_of,
    preload,
    provider_options,
    session_options,
)

if TYPE_CHECKING:
    from torch import Tensor

_LEAST_RUNTIME = "1.18"
"""First version that reads opset 20 and IR version 10 (onnxruntime.ai/docs/reference/compatibility.html)."""


def _write(request: WriteRequest) -> Written:
    import onnx

    if request.options.cuda_graph:
        raise Unsupported(
            "a captured CUDA graph cannot be exported; export without cuda_graph, and capture it where it is deployed"
        )
    made = export_model(request.module, request.inputs, request.options, request.context)
    add_model(made.path, request.folder, request.name)
    model = onnx.load(str(request.folder / f"{request.name}.onnx"), load_external_data=False)
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    needs = [HostRequirement("onnxruntime", "at least", _LEAST_RUNTIME)]
    if request.context.device == "cuda":
        needs.append(HostRequirement("driver", "at least"))
    return Written(f"{request.name}.onnx", (), tuple(needs), {"opset": opset, "ir_version": model.ir_version})


def _read(path: Path, _constants: Sequence[Path], opening: Opening) -> Run:
    provider = provider_of(opening.options, opening.device)
    preload(provider)
    provided = provider_options(opening.options, opening.device, opening.dtype, None)
    try:
        session = open_session(path, provider, session_options(opening.options, opening.threads), provided)
    except load_errors() as error:
        raise RuntimeError(str(error)) from error
    other = other_provider(provider, session)
    if other is not None:
        raise Unavailable(f"ONNX Runtime opened {path.name} with {other}; {INSTALL}")
    names, outputs = [value.name for value in session.get_inputs()], outputs_of(session)
    run_bound = runner(session, opening.device)

    def run(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        bound = bind_tensors(session, names, tensors, outputs)
        run_bound(bound.binding)
        return bound.results

    return run


FORMAT = ArtifactFormat(
    name="onnx",
    summary="ONNX models (.onnx), and one file with the weights of all of them",
    write=_write,
    check=check_model,
    read=_read,
)
