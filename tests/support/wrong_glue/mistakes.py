"""What wrong loops do between calls."""

from torch import Tensor


def last_entry(rows: Tensor, axis: float) -> Tensor:
    """The last of the rows along an axis."""
    return rows.narrow(int(axis), rows.shape[int(axis)] - 1, 1)


def same(value: Tensor) -> Tensor:
    """The value itself, under another name."""
    return value
