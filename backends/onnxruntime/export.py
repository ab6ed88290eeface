"""Exports a module as an ONNX model with separate weights into the cache, or finds it there, and opens a session."""

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bakeoff.backends.artifact_cache import load_or_build
from bakeoff.backends.backend import BuildContext, Unavailable, Unsupported
from bakeoff.backends.graphs import Shape, check_not_quantised, export, graph_hash, output_shapes, program_key
from bakeoff.backends.onnxruntime.options import INSTALL, Options, provider_of
from bakeoff.backends.onnxruntime.session import OpenSession, load_errors, open_session, preload

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

_OPSET, _OPSET_BF16 = 20, 22
"""Opset 22 is the first whose Conv, Sin and Cos accept bf16; a bf16 model that has them in an earlier opset is invalid.
"""
MODEL = "model.onnx"
Translations = Mapping[Callable[..., Any], Callable[..., Any]]
"""By operator, the onnxscript function that stands for it in an ONNX model."""


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """An exported model in the cache, and a session that runs it."""

    path: Path
    opened: OpenSession
    provider: str
    graph: str
    cached: bool
    shapes: "Callable[[Sequence[Tensor]], tuple[Shape, ...]] | None" = None
    """Function from the inputs to the shapes of the outputs, if these differ from call to call."""


def export_model(
    module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext
) -> ExportedModel:
    """Open the module's model from the cache; export it first if it is missing.

    Raises Unavailable if onnxruntime lacks the provider or cannot load it, Unsupported if the module cannot be exported
    or the provider has no kernel for it.
    """
    import onnxruntime

    provider = provider_of(options, context.device)
    preload(provider)
    if provider not in onnxruntime.get_available_providers():
        raise Unavailable(f"the installed onnxruntime {onnxruntime.__version__} has no {provider}; {INSTALL}")
    check_not_quantised(module, "torch.onnx", "use onnxruntime[int8]")
    exported = export_program(module, inputs, context, options.int8)
    folder = context.cache_dir / f"onnx-{exported.key}"
    profile = context.work_dir / "profile" if context.trace else None
    opened, cached = load_or_build(
        folder,
        lambda saved: _opened(saved, options, context, profile),
        lambda target: exported.convert(target, options.int8),
        context.work_dir / "onnx",
        load_errors(),
    )
    context.keep(lambda: {"folder": folder.name, "graph": exported.graph})
    shapes = output_shapes(exported.program) if context.sizes else None
    return ExportedModel(folder / MODEL, opened, provider, exported.graph, cached, shapes)


@dataclass(frozen=True, slots=True)
class ExportedProgram:
    """A module as one graph of ATen operators, to be converted to ONNX."""

    program: "torch.export.ExportedProgram"
    inputs: tuple[str, ...]
    opset: int
    graph: str
    """Hash of the graph."""
    key: str
    """Hash of the graph, its tensors and the settings of its conversion."""

    def convert(self, folder: Path, int8: bool = False, translations: Translations = MappingProxyType({})) -> None:
        """Write model.onnx and its file of weights to a new folder, with MatMul in dynamic int8 if `int8`.

        `translations` are for operators that torch.onnx does not know. Raises Unsupported with the names of operators
        that it cannot translate.
        """
        _convert(self.program, list(self.inputs), int8, self.opset, folder, translations)


def export_program(
    module: "nn.Module", inputs: "Mapping[str, Tensor]", context: BuildContext, *settings: object
) -> ExportedProgram:
    """Export a module; `settings` are what the key depends on beside the graph and its tensors."""
    program = export(module, inputs, context.sizes)
    hashed = graph_hash([program.graph])
    opset = _OPSET_BF16 if context.dtype in ("bf16", "given") else _OPSET
    with context.untimed():
        key = program_key(program, hashed, *settings, opset, *context.sizes)
    return ExportedProgram(program, tuple(inputs), opset, hashed, key)


def open_model(folder: Path, hashed: str, options: Options, context: BuildContext) -> ExportedModel:
    """Open a model that an earlier build left in the cache; `hashed` is the hash of its graph."""
    provider = provider_of(options, context.device)
    preload(provider)
    return ExportedModel(folder / MODEL, _opened(folder, options, context), provider, hashed, True)


def _opened(folder: Path, options: Options, context: BuildContext, profile: Path | None = None) -> OpenSession:
    return open_session(
        folder / MODEL, options, context.device, context.dtype, context.threads, context.cache_dir, profile
    )


def _convert(
    program: "torch.export.ExportedProgram",
    names: list[str],
    int8: bool,
    opset: int,
    folder: Path,
    translations: Translations,
) -> None:
    import torch

    try:
        made = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=opset,
            input_names=names,
            custom_translation_table=dict(translations),
            verbose=False,
        )
    except torch.onnx.OnnxExporterError as error:
        missing = re.findall(r"No ONNX function found for <OpOverload\(op='([\w.:]+)'", str(error))
        if not missing:
            raise
        operators = ", ".join(dict.fromkeys(missing))
        raise Unsupported(f"torch.onnx cannot translate {operators}; use another backend, such as inductor") from error
    assert made is not None
    full = folder / "full" if int8 else folder
    full.mkdir(parents=True)
    made.save(str(full / MODEL), external_data=True)
    del made
    if int8:
        _quantise(full / MODEL, folder / MODEL)
        shutil.rmtree(full)


def _saturates() -> bool:
    """Return whether this CPU adds pairs of int8 products in 16 bits, which overflow for weights of eight bits.

    x86 without VNNI does (ONNX Runtime's documentation, "Quantize ONNX models", U8S8 on AVX2 and AVX512), so weights
    get seven bits there.
    """
    import torch

    found = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    vnni = any(found.get(name) for name in ("avx512_vnni", "avx_vnni", "amx_int8"))
    return found.get("architecture") == "x86_64" and not vnni


def _quantise(full: Path, small: Path) -> None:
    """Write the model at `full` to `small` with MatMul in dynamic int8.

    The two must be in different folders, or the new file of weights could overwrite the old one.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # onnxruntime 1.31 transposes a Gemm's weights and then fails on the shapes that were stored before: remove these.
    model = onnx.load(str(full), load_external_data=False)
    del model.graph.value_info[:]
    onnx.save(model, str(full))
    quantize_dynamic(
        full,
        small,
        op_types_to_quantize=["MatMul"],
        weight_type=QuantType.QInt8,
        reduce_range=_saturates(),
        use_external_data_format=True,  # one protobuf file holds 2 GiB at most
    )
