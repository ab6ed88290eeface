"""Replays golden files: runs a component with a file's weights and inputs, and compares outputs with the file's."""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from bakeoff.models import component_names, resolve_component
from bakeoff.models.component import Component
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import GoldenFile, GoldenJob, GoldenOutput, GoldenResult
from bakeoff.worker.reporter import Report
from bakeoff.worker.torch_flags import flags

_SUGGESTED = ("atol", "rtol")
_ATOL_STATE, _ATOL_VIDEO = 1e-3, 1e-4
"""Absolute tolerances where a file suggests none: for caches and for all other outputs."""


def replay_files(job: GoldenJob, report: Report) -> GoldenResult:
    """Replay each file in fp32; an unusable file has a `problem` and does not stop the others."""
    files = []
    for name in job.files:
        report("replay", Path(name).name)
        with flags("fp32", job.threads):
            files.append(_replay(Path(name)))
    return GoldenResult(tuple(files))


def _replay(path: Path) -> GoldenFile:
    try:
        about, tensors = _read(path)
        component = _component_of(about, path)
        if not component.golden:
            raise BakeoffError(f"The component {component.name} has no golden files to replay.", code="bad-golden")
        found = import_module(component.golden).replay(about, _part(tensors, "weights."), _part(tensors, "inputs."))
        wanted = _part(tensors, "outputs.")
        return GoldenFile(
            str(path),
            component.name,
            tuple(_compare(name, found[name], wanted[name], about) for name in wanted if name in found),
            tuple(name for name in wanted if name not in found),
            _missing(wanted, found),
        )
    except BakeoffError as error:
        return GoldenFile(str(path), "", (), (), str(error))


def _missing(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str:
    """Why outputs are missing, or ""; intermediates (aux.*) may be."""
    needed = [name for name in wanted if name not in found and not name.startswith("aux.")]
    return f"the component did not return {', '.join(needed[:5])}" if needed else ""


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    beside = path.with_suffix(".json")
    if path.suffix != ".safetensors":
        raise BakeoffError(
            f"{path.name} is not a golden file. Name a .safetensors file that has a .json file beside it.",
            code="bad-golden",
        )
    for file in (path, beside):
        if not file.is_file():
            raise BakeoffError(f"{file.name}: no such file in {file.parent}", code="bad-golden")
    try:
        about = json.loads(beside.read_text(encoding="utf-8"))
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, ValueError, SafetensorError) as error:
        raise BakeoffError(f"{path.name} cannot be read: {str(error).splitlines()[0]}", code="bad-golden") from error
    if not isinstance(about, dict) or not isinstance(about.get("config"), dict):
        raise BakeoffError(f"{beside.name} has no config", code="bad-golden")
    suggested = about.get("suggested_tolerance_fp32") or {}
    if not isinstance(suggested, dict) or not all(isinstance(suggested.get(key, 0), int | float) for key in _SUGGESTED):
        raise BakeoffError(
            f"{beside.name}: suggested_tolerance_fp32 must be an object with numbers atol and rtol", code="bad-golden"
        )
    if not _part(tensors, "outputs."):
        raise BakeoffError(f"{path.name} has no outputs.* to compare with", code="bad-golden")
    return about, tensors


def _component_of(about: Mapping[str, Any], path: Path) -> Component:
    name = str(about.get("component", ""))
    components = [resolve_component(known) for known in component_names()]
    for component in components:
        if name and name.startswith(component.golden_names) and component.golden_names:
            return component
    known = ", ".join(prefix for component in components for prefix in component.golden_names)
    raise BakeoffError(f"{path.name}: no component for '{name}'; known: {known}", code="unknown-name")


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _compare(name: str, found: Tensor, wanted: Tensor, about: Mapping[str, Any]) -> GoldenOutput:
    suggested = about.get("suggested_tolerance_fp32") or {}
    atol = float(suggested.get("atol", _ATOL_STATE if "cache" in name else _ATOL_VIDEO))
    rtol = float(suggested.get("rtol", 0.0))
    if found.shape != wanted.shape:
        raise BakeoffError(
            f"{name} has shape {list(found.shape)}, the file's has {list(wanted.shape)}", code="wrong-output"
        )
    error = (found.double() - wanted.double()).abs()
    passed = bool((error <= atol + rtol * wanted.double().abs()).all()) and bool(torch.isfinite(found).all())
    largest = float(wanted.double().abs().max())
    worst = float(error.max())
    return GoldenOutput(name, worst, worst / largest if largest else worst, atol, rtol, passed)
