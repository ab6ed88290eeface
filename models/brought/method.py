"""Wrappers of a user's module: one calls another method of it, one takes and returns its buffers."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.func import functional_call

from bakeoff.models.brought.model import InputSets
from bakeoff.models.errors import BakeoffError


class MethodOf(nn.Module):
    """A module that calls one method of another: `MethodOf(vae, "decode")(z)` is `vae.decode(z)`."""

    def __init__(self, module: nn.Module, method: str) -> None:
        super().__init__()
        self.module = module
        self.method = method

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.module, self.method)(*args, **kwargs)


class WithBuffers(nn.Module):
    """A module that calls another with buffers from keyword arguments, and also returns the buffers after the call.

    The call writes into copies of the arguments. If the result is a dict, each buffer becomes an entry of it by name;
    any other result becomes the pair (result, dict of buffers).
    """

    def __init__(self, module: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.module = module
        self.names = tuple(names)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        buffers = {name: kwargs.pop(name).clone() for name in self.names}
        result = functional_call(self.module, buffers, args, kwargs)
        return {**result, **buffers} if isinstance(result, dict) else (result, buffers)


def with_buffers(
    module: nn.Module, names: Sequence[str], sets: InputSets, state: Mapping[str, str]
) -> tuple[nn.Module, InputSets, dict[str, str]]:
    """Return the module with the named buffers as arguments, and its calls and state extended by these buffers.

    Each call gets the buffers' present values. Raises BakeoffError if a buffer does not exist, or if a call replaces it
    by another tensor instead of writing into it.
    """
    if not names:
        return module, sets, dict(state)
    values = dict(module.named_buffers())
    unknown = [name for name in names if name not in values]
    if unknown:
        text = f"buffers: there is no '{unknown[0]}'; there are {', '.join(values) or 'none'}"
        raise BakeoffError(text, "bad-user-code")
    before = {name: values[name].clone() for name in names}
    args, kwargs = next(iter(sets.values()))[0]
    result = module(*args, **kwargs)
    replaced = [name for name in names if dict(module.named_buffers()).get(name) is not values[name]]
    if replaced:
        text = f"buffers: a call puts another tensor in the place of {replaced[0]}; write into it, as copy_ does"
        raise BakeoffError(text, "bad-user-code")
    for name in names:
        values[name].copy_(before[name])
    paths = {name: name if isinstance(result, dict) else f"output.1.{name}" for name in names}
    calls = {key: [(args, {**kwargs, **before}) for args, kwargs in given] for key, given in sets.items()}
    return WithBuffers(module, names), calls, {**state, **{path: name for name, path in paths.items()}}
