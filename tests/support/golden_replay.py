"""Golden files replayed: a component run in fp32 on a file's weights and inputs, and the error of every output."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import golden_audio
import golden_image
import golden_matrix_vae
import golden_matrix_wm
import golden_wm
from golden_files import Tensors, read_file
from torch import Tensor

from bakeoff.machine import host
from bakeoff.models.errors import BakeoffError
from bakeoff.worker.torch_flags import flags

REPLAYS: Mapping[str, Callable[[Mapping[str, Any], Tensors, Tensors], Tensors]] = {
    "wm_": golden_wm.replay,
    "image_decoder": golden_image.replay,
    "audio_decoder": golden_audio.replay,
    "matrix_game_vae_decoder": golden_matrix_vae.replay,
    "matrix_game_wm": golden_matrix_wm.replay,
}
"""By what the `component` field of a file begins with: description, weights and inputs to outputs."""
_ATOL_STATE, _ATOL_VIDEO = 1e-3, 1e-4
"""Absolute tolerances where a file suggests none: for caches and for all other outputs."""


@dataclass(frozen=True, slots=True)
class Output:
    """How far one output is from the file's."""

    name: str
    error: str
    """The largest |a-b|, or what cannot be compared."""
    relative: str
    """That over the largest |b|."""
    tolerance: str
    passed: bool | None
    """None for an intermediate (`aux.*`) that the component does not return."""


def replay_file(path: Path) -> list[Output]:
    """Compare every output of a golden file. Raises BakeoffError where the file cannot be replayed."""
    about, weights, inputs, outputs = read_file(path)
    name = str(about.get("component", ""))
    replay = next((replay for prefix, replay in REPLAYS.items() if name.startswith(prefix)), None)
    if replay is None:
        raise BakeoffError(f"{path.name}: no component for '{name}'; known: {', '.join(REPLAYS)}")
    tolerances = {key: _tolerance(key, about, path) for key in outputs}
    with flags("fp32", host.usable_cores()):
        found = replay(about, weights, inputs)
    return [_compare(key, found.get(key), wanted, *tolerances[key]) for key, wanted in outputs.items()]


def _tolerance(name: str, about: Mapping[str, Any], path: Path) -> tuple[float, float]:
    """Absolute and relative tolerance of an output."""
    stated = about.get("suggested_tolerance_fp32") or {}
    default = {"atol": _ATOL_STATE if "cache" in name else _ATOL_VIDEO, "rtol": 0.0}
    found = [stated.get(key, default[key]) for key in default] if isinstance(stated, dict) else [None]
    if not all(isinstance(one, int | float) for one in found):
        text = f"{path.stem}.json: suggested_tolerance_fp32 is {stated}; it must be numbers atol and rtol"
        raise BakeoffError(text)
    return found[0], found[1]


def _compare(name: str, found: Tensor | None, wanted: Tensor, atol: float, rtol: float) -> Output:
    tolerance = f"{atol:g} + {rtol:g}|b|"
    if found is None:
        return Output(name, "not returned", "", tolerance, None if name.startswith("aux.") else False)
    if found.shape != wanted.shape:
        return Output(name, f"{list(found.shape)}, not {list(wanted.shape)}", "", tolerance, passed=False)
    right = wanted.double()
    apart = (found.double() - right).abs()
    passed = bool((apart <= atol + rtol * right.abs()).all()) and bool(found.isfinite().all())
    worst, largest = (float(one.max()) if one.numel() else 0.0 for one in (apart, right.abs()))
    return Output(name, f"{worst:.2e}", f"{worst / largest if largest else worst:.2e}", tolerance, passed)
