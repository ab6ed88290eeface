"""Types that every package uses: dtypes, devices, and the plain values that records store."""

from collections.abc import Sequence
from typing import Literal, TypeVar, get_args

from bakeoff.models.errors import BakeoffError

Dtype = Literal["fp32", "tf32", "bf16", "fp16", "given"]
"""`given`: every tensor in the dtype that its user gave it, where these are several."""
Device = Literal["cpu", "cuda"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
BASELINE_DTYPES: tuple[Dtype, ...] = ("fp32", "given")
"""Of the eager row that speed-ups are stated over: the first of these that a table has."""
DEVICES: tuple[Device, ...] = get_args(Device)

Scalar = str | int | float | bool | None

T = TypeVar("T", bound=str)


def parse_dtype(name: str) -> Dtype:
    """Raises BakeoffError for a name that is not a dtype."""
    return _one_of(name, DTYPES, "dtype")


def parse_device(name: str) -> Device:
    """Raises BakeoffError for a name that is not a device."""
    return _one_of(name, DEVICES, "device")


def _one_of(name: str, known: Sequence[T], what: str) -> T:
    for value in known:
        if value == name:
            return value
    raise BakeoffError(f"no {what} '{name}'; known: {', '.join(known)}", code="unknown-name")
