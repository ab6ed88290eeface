"""Constant tables inside a module that keep full precision when the module is cast to half."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn


class FixedTable(nn.Module):
    """A constant array, kept in fp32 (fp64 after `.double()`) whatever else the module is cast to.

    `.to(bfloat16)` casts every buffer, and bf16 cannot represent phases of hundreds of radians: a bf16 world model
    differs from fp32 by 3 % (relative RMS) with bf16 rotary tables, and by 1 % with fp32 ones. The values are kept as
    float64 and written again after each cast or move, so that a module built on the meta device and moved with
    `to_empty` has correct tables too. The buffer is called `name`, and is in the state dict only if `persistent`.
    """

    values: Tensor

    def __init__(self, values: np.ndarray, persistent: bool = False, name: str = "values") -> None:
        super().__init__()
        self._source = np.asarray(values, dtype=np.float64)
        self._name = name
        self.register_buffer(name, torch.tensor(self._source, dtype=torch.float32), persistent=persistent)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "FixedTable":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        current = getattr(self, self._name)
        dtype = torch.float64 if current.dtype == torch.float64 else torch.float32
        table = current.to(dtype) if current.is_meta else torch.tensor(self._source, dtype=dtype, device=current.device)
        setattr(self, self._name, table)
        return self

    def forward(self) -> Tensor:
        return getattr(self, self._name)
