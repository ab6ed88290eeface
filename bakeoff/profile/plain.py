"""Conversion of values from a user's pipeline to plain scalars and text. Nothing here waits for a device or raises."""

import contextlib
import sys
from collections.abc import Mapping
from math import isfinite
from reprlib import Repr
from typing import Any

from bakeoff.models.types import Scalar

MOST_LETTERS = 1_024
MOST_KEYS = 64
_REPR = Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 200
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = _REPR.maxset = 20


def plain(value: object) -> tuple[Scalar, bool]:
    """Return the value as a scalar, and whether it is a valid one.

    Other values become their `repr` of bounded length, tensors a description. NaN and infinities become None and are
    not valid, nor is a value whose `repr` raises.
    """
    if value is None or isinstance(value, bool):
        return value, True
    if isinstance(value, int):
        return (int(value), True) if -(2**63) <= value < 2**63 else (hex(value)[:MOST_LETTERS], True)
    if isinstance(value, float):
        return (float(value), True) if isfinite(value) else (None, False)
    if isinstance(value, str):
        return text(value), True
    if hasattr(value, "shape") and hasattr(value, "dtype"):  # the values of a tensor may be on a device, or many
        return described(value), True
    try:
        return text(_REPR.repr(value)), True
    except Exception as error:  # noqa: BLE001  # whatever a __repr__ raises must not reach the pipeline
        return f"{type(value).__name__}: {error_text(error)}", False


def plain_data(data: Mapping[Any, object]) -> tuple[dict[str, Scalar], bool]:
    """Return a mapping's first 64 items with values as scalars, and whether all are valid and none was left out."""
    kept: dict[str, Scalar] = {}
    good = len(data) <= MOST_KEYS
    for key, value in list(data.items())[:MOST_KEYS]:
        name, _ = plain(key)
        kept[str(name)], is_good = plain(value)
        good = good and is_good
    return kept, good


def text(value: str) -> str:
    """Return the text cut to `MOST_LETTERS`, with characters that UTF-8 cannot encode replaced."""
    return value[:MOST_LETTERS].encode("utf-8", "replace").decode()


def described(tensor: Any) -> str:
    """Return a tensor's type, shape, dtype and device, without reading its values."""
    try:
        shape = ", ".join(str(size) for size in tensor.shape)
        return text(f"{type(tensor).__name__}[{shape}] {tensor.dtype} {getattr(tensor, 'device', '')}".strip())
    except Exception as error:  # noqa: BLE001  # as above
        return f"{type(tensor).__name__}: {error_text(error)}"


def error_text(error: BaseException) -> str:
    """Return an error as `ValueError: ...`, of bounded length."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001  # an exception whose text raises
        said = "(no text)"
    return text(f"{type(error).__name__}: {said}"[:500] if said else type(error).__name__)


def number(value: object) -> float | None:
    """Return the value as a finite number, or None. A tensor on a device gives None, because reading it would wait."""
    if type(value) is float:
        return value if isfinite(value) else None
    if isinstance(value, int | float):
        found = value
    else:
        device = getattr(value, "device", None)
        if device is not None and str(device) != "cpu":
            return None
        try:
            found = float(value)  # type: ignore[arg-type]  # whatever does not convert raises
        except Exception:  # noqa: BLE001  # as above
            return None
    try:
        return float(found) if isfinite(found) else None
    except OverflowError:
        return None


def whole(value: object) -> int | None:
    """Return the value as a whole number from 0 that fits into 64 bits, or None."""
    if type(value) is int:
        return value if 0 <= value < 2**63 else None
    found = number(value)
    return int(found) if found is not None and found >= 0 and found == int(found) and found < 2**63 else None


def say(text: str) -> None:
    """Print one line on stderr. Do nothing if there is no stderr or it cannot be written."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: it was closed
            print(f"bakeoff: {text}", file=sys.stderr)
