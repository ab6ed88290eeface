"""Values and sentences at the border of somebody's pipeline. Nothing here waits for a device or raises."""

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
    """Return the value as a scalar, and whether it is a good one.

    What is no scalar becomes its `repr`, of bounded length; NaN and infinities become None and are no good ones.
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
    """All values of a mapping as scalars, at most 64, and whether all are good ones."""
    kept: dict[str, Scalar] = {}
    good = len(data) <= MOST_KEYS
    for key, value in list(data.items())[:MOST_KEYS]:
        name, _ = plain(key)
        kept[str(name)], is_good = plain(value)
        good = good and is_good
    return kept, good


def text(value: str) -> str:
    """Text of bounded length that can be encoded."""
    return value[:MOST_LETTERS].encode("utf-8", "replace").decode()


def described(tensor: Any) -> str:
    """A tensor's type, shape, dtype and device, without reading its values."""
    try:
        shape = ", ".join(str(size) for size in tensor.shape)
        return text(f"{type(tensor).__name__}[{shape}] {tensor.dtype} {getattr(tensor, 'device', '')}".strip())
    except Exception as error:  # noqa: BLE001  # as above
        return f"{type(tensor).__name__}: {error_text(error)}"


def error_text(error: BaseException) -> str:
    """`ValueError: ...`, of bounded length."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001  # an exception whose text raises
        said = "(no text)"
    return text(f"{type(error).__name__}: {said}"[:500] if said else type(error).__name__)


def number(value: object) -> float | None:
    """A finite number, or None for what is none and for tensors of a device, which must not be waited for."""
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
    """A whole number that is not negative, or None."""
    if type(value) is int:
        return value if 0 <= value < 2**63 else None
    found = number(value)
    return int(found) if found is not None and found >= 0 and found == int(found) and found < 2**63 else None


def say(text: str) -> None:
    """Print one line. A process without stderr, or whose log is on a full disk, goes on without it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: it was closed
            print(f"bakeoff: {text}", file=sys.stderr)
