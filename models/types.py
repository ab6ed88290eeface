"""Types that every layer shares: what a variant runs in and on, and plain values that are stored as facts."""

from typing import Literal, get_args

Dtype = Literal["fp32", "tf32", "bf16", "fp16"]
Device = Literal["cpu", "cuda"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
DEVICES: tuple[Device, ...] = get_args(Device)

Scalar = str | int | float | bool | None
