"""Types that every package uses: dtypes, devices, and the plain values that records store."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeVar, get_args

from bakeoff.models.errors import BakeoffError, meant

Dtype = Literal["fp32", "tf32", "bf16", "fp16", "given"]
"""`given`: every tensor keeps the dtype in which the user gave it, if there are several dtypes."""
Device = Literal["cpu", "cuda"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
_OF_TORCH: Mapping[str, Dtype] = {
    "float32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
}
BASELINE_DTYPES: tuple[Dtype, ...] = ("fp32", "given")
"""Dtypes of the eager row that is the baseline of speed-ups: the first of these that a table has."""
DEVICES: tuple[Device, ...] = get_args(Device)

Scalar = str | int | float | bool | None

T = TypeVar("T", bound=str)


def parse_dtype(name: str) -> Dtype:
    """Return the dtype of this name, which may be torch's (`bfloat16`, `half`). Raises BakeoffError for others."""
    return _one_of(_OF_TORCH.get(name, name), DTYPES, "dtype", _OF_TORCH)


def parse_device(name: str) -> Device:
    """Return the device of this name. Raises BakeoffError for a name that is not a device."""
    return _one_of(name, DEVICES, "device")


def _one_of(name: str, known: Sequence[T], what: str, also: Iterable[str] = ()) -> T:
    for value in known:
        if value == name:
            return value
    raise BakeoffError(
        f"no {what} '{name}'{meant(name, [*known, *also])}; known: {', '.join(known)}", code="unknown-name"
    )
