"""The ONNX artifact format: the models of a folder share one file of weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.backend import Unsupported
from bakeoff.backends.format import ArtifactFormat, HostRequirement, Opening, Run, WriteRequest, Written
from bakeoff.backends.onnxruntime.binding import bind_tensors, new_results, run_settings, runner
from bakeoff.backends.onnxruntime.export import export_model
from bakeoff.backends.onnxruntime.onnx_files import add_model, check_model
from bakeoff.backends.onnxruntime.options import provider_of
from bakeoff.backends.onnxruntime.session import load_errors, open_session, outputs_of, preload

if TYPE_CHECKING:
    from torch import Tensor

_LEAST_RUNTIME = {20: "1.18", 22: "1.21"}
"""First version that reads a model of each opset with IR version 10
(onnxruntime.ai/docs/reference/compatibility.html)."""


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
    needs = [HostRequirement("onnxruntime", "at least", _LEAST_RUNTIME[opset])]
    if request.context.device == "cuda":
        needs.append(HostRequirement("driver", "at least"))
    return Written(f"{request.name}.onnx", (), tuple(needs), {"opset": opset, "ir_version": model.ir_version})


def _read(path: Path, _constants: Sequence[Path], opening: Opening) -> Run:
    preload(provider_of(opening.options, opening.device))
    try:
        opened = open_session(path, opening.options, opening.device, opening.dtype, opening.threads)
    except load_errors() as error:
        raise RuntimeError(str(error)) from error
    names, outputs = [value.name for value in opened.session.get_inputs()], outputs_of(opened.session)
    output_names = [name for name, _, _ in outputs]
    run_bound, settings = runner(opened.session, opened.stream), run_settings(opened.stream)

    def run(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        results = new_results(outputs, tensors[0].device)
        bound = bind_tensors(opened.session, names, tensors, output_names, results)
        run_bound(bound.binding, settings)
        return bound.results

    return run


FORMAT = ArtifactFormat(
    name="onnx",
    summary="ONNX models (.onnx), and one file with the weights of all of them",
    write=_write,
    check=check_model,
    read=_read,
)
