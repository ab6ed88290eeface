"""A method of a module as a module of its own, so that it can be compiled and measured like one."""

from typing import Any

from torch import nn


class MethodOf(nn.Module):
    """Calls one method of a module: `MethodOf(vae, "decode")(z)` is `vae.decode(z)`."""

    def __init__(self, module: nn.Module, method: str) -> None:
        super().__init__()
        self.module = module
        self.method = method

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.module, self.method)(*args, **kwargs)
