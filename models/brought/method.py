"""Modules around a user's module: one of its methods, or its own buffers as inputs and outputs."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.func import functional_call

from bakeoff.models.brought.model import InputSets
from bakeoff.models.errors import BakeoffError


class MethodOf(nn.Module):
    """Calls one method of a module: `MethodOf(vae, "decode")(z)` is `vae.decode(z)`."""

    def __init__(self, module: nn.Module, method: str) -> None:
        super().__init__()
        self.module = module
        self.method = method

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.module, self.method)(*args, **kwargs)


class WithBuffers(nn.Module):
    """Calls a module on buffers that are arguments, by their names, and returns what they are afterwards too.

    What a call writes into a buffer goes into a copy of the argument. Beside a dict of results each has an entry of its
    name; any other result becomes a pair with their dict.
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
    """The module with the named buffers as arguments, the calls with their present values, and the state with them.

    Raises BakeoffError where there is no such buffer, or a call puts another tensor in its place instead of writing
    into it.
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
