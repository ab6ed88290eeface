"""Exports a variant as a model repository of Triton Inference Server: a folder for each program, with its config.pbtxt.

Names and files are those of the Triton releases from 26.05 on (github.com/triton-inference-server: docs/user_guide/
model_repository.md of `server`, README.md of `pytorch_backend`, src/onnxruntime_utils.cc of `onnxruntime_backend`).
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bakeoff.artifact.export import artifact_format, default_folder, export, staged
from bakeoff.export.manifest import Manifest, Port, Program
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import Plan
from bakeoff.sweeps.progress import Progress

CONFIG: Final = "config.pbtxt"
_VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class _Serving:
    """How Triton opens the programs of a format."""

    backend: str
    platform: str
    file: str
    lacks: tuple[str, ...] = ()
    """Dtypes that it has no inputs and outputs of."""


_SERVING: Final = {
    "onnx": _Serving("onnxruntime", "onnxruntime_onnx", "model.onnx"),
    "aoti": _Serving("pytorch", "torch_aoti", "model.pt2", ("bfloat16",)),
    "tensorrt": _Serving("tensorrt", "tensorrt_plan", "model.plan", ("float64", "int16")),
}
"""By the format's name in a manifest."""


def export_repository(
    plan: Plan, target: Path, force: bool, runs: Path, command: str, progress: Progress
) -> list[Path]:
    """Export the variant of `plan`, verify it, and write its programs to `target` as models; return their folders.

    Raises BakeoffError if the export fails, or if Triton cannot open the programs.
    """
    variant, known = plan.rows[0].variant, artifact_format(plan.rows[0])
    if known is None or known.name not in _SERVING:
        raise _refusal(str(variant), f"it opens {', '.join(_SERVING)}; use another backend")
    if variant.dtype == "bf16" and "bfloat16" in _SERVING[known.name].lacks:  # before minutes of building
        raise _refusal(str(variant), f"its {_SERVING[known.name].backend} backend has no bfloat16; use --dtype fp32")
    name = default_folder(plan).name
    with staged(target, force, is_repository) as part:
        artifact = part / "artifact"
        manifest = export(plan, artifact, False, runs, command, progress).manifest
        models = write_models(artifact, manifest, part, name)
        shutil.rmtree(artifact)
    return [target / model for model in models]


def is_repository(folder: Path) -> bool:
    """Return whether a folder contains models as `write_models` makes them, and nothing else."""
    try:
        return all(set(os.listdir(model)) == {_VERSION, CONFIG} for model in folder.iterdir())
    except OSError:
        return False


def write_models(artifact: Path, manifest: Manifest, repository: Path, name: str) -> list[str]:
    """Make a model of each program of an artifact, and return the names: `name`, or NAME-PROGRAM if there are several.

    Raises BakeoffError for what Triton cannot take.
    """
    serving, made = _SERVING[manifest.artifact], []
    for program in manifest.programs:
        inputs, outputs = _names(artifact, manifest, program)
        _check(manifest, program, serving)
        model = name if len(manifest.programs) == 1 else f"{name}-{program.name}"
        folder = repository / model / _VERSION
        source, beside = artifact / program.file, []
        if manifest.artifact == "tensorrt":
            source = source.with_suffix(".engine")
        elif manifest.artifact == "onnx":
            folder /= serving.file  # a model of several files is a folder
            beside = [path for path in artifact.glob("*.data") if path.stat().st_size]
        folder.mkdir(parents=True)
        _place(source, folder / serving.file)
        for path in beside:
            _place(path, folder / path.name)
        config = [
            f"# {manifest.variant}, {manifest.created}, by: {manifest.command}",
            f"name: {json.dumps(model)}",
            f'backend: "{serving.backend}"',
            f'platform: "{serving.platform}"',
            "max_batch_size: 0",
            *(_port("input", *pair) for pair in zip(inputs, program.inputs, strict=bool(inputs))),
            *(_port("output", *pair) for pair in zip(outputs, program.outputs, strict=bool(outputs))),
            f"instance_group {{ count: 1 kind: KIND_{'GPU' if manifest.device == 'cuda' else 'CPU'} }}",
        ]
        (repository / model / CONFIG).write_text("\n".join(config) + "\n", encoding="utf-8")
        made.append(model)
    return made


def _names(artifact: Path, manifest: Manifest, program: Program) -> tuple[Sequence[str], Sequence[str]]:
    """Return what inputs and outputs are called in the program's file; none of a plan, of which Triton reads them."""
    if manifest.artifact == "onnx":
        from bakeoff.backends.onnxruntime.artifact import port_names

        return port_names(artifact / program.file)
    if manifest.artifact == "tensorrt":
        return (), ()
    inputs, outputs = range(len(program.inputs)), range(len(program.outputs))
    return [f"INPUT__{index}" for index in inputs], [f"OUTPUT__{index}" for index in outputs]


def _check(manifest: Manifest, program: Program, serving: _Serving) -> None:
    """Raise BakeoffError for a program that Triton cannot open, or for an input or output that it cannot pass."""
    if program.constants:
        raise _refusal(program.name, f"its weights are beside it in {program.constants[0]}; use onnxruntime")
    if manifest.artifact == "tensorrt" and not program.facts["raw_engine"]:
        raise _refusal(program.name, "it is more than one TensorRT engine; use onnxruntime")
    for port in (*program.inputs, *program.outputs):
        if not port.shape:
            raise _refusal(f"{program.name}'s {port.name}", "it takes no scalars")
        if port.dtype in serving.lacks:
            raise _refusal(f"{program.name}'s {port.name}", f"its {serving.backend} backend has no {port.dtype}")
        if port.layout != "row-major" and manifest.artifact == "aoti":
            raise _refusal(f"{program.name}'s {port.name}", f"it passes no tensor in the order {port.order}")


def _refusal(what: str, why: str) -> BakeoffError:
    return BakeoffError(f"Triton cannot serve {what}: {why}", "not-exportable")


def _place(source: Path, target: Path) -> None:
    """Link a file, so that models share their weights; copy it where that is impossible."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _port(kind: str, name: str, port: Port) -> str:
    dims = ", ".join(map(str, port.shape))
    dtype = port.dtype.replace("bfloat", "bf").replace("float", "fp").upper()
    return f"{kind} {{ name: {json.dumps(name)} data_type: TYPE_{dtype} dims: [ {dims} ] }}"
