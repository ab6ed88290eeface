"""Checks whether a model's outputs depend on earlier calls; if so, no compiler can be compared with it call by call.

Each call is compared with the same call of a copy of the module that was not called before. A cache that is kept for a
few calls, or until inputs have changed enough, shows only in some calls of a sequence with the same, slightly changed
and other inputs.
"""

import copy
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bakeoff.models.errors import BakeoffError
from bakeoff.models.weights import state_digest, why_unusable
from bakeoff.models.words import counted
from bakeoff.worker.reference.error import apart

_SECONDS = 30.0
_LEAST_CALLS = 2
_ORDER = "BACBBAAB"
"""Calls after a first one on the given inputs, A: B is other inputs, C is A slightly changed."""
_SAME = 1e-6
"""Relative L2 distance up to which outputs on the same inputs count as equal: threads may sum in another order."""
_OF_NOISE = 8
_ATTRIBUTE_BYTES = 64 << 20
"""Largest size of the tensors in a plain attribute that are digested."""
Inputs = tuple[Tensor, ...]
Outputs = tuple[Tensor, ...]


class Untouched:
    """A module before its first call: a copy that shares its parameters, and digests of what calls may change."""

    def __init__(self, module: nn.Module) -> None:
        self.module = copied(module)
        """The copy; None if the module cannot be copied."""
        self.state = dict(_state(module))

    def call(self, call: Callable[[nn.Module, Inputs], Outputs], inputs: Inputs) -> Outputs | None:
        """Return the outputs of a fresh copy that makes only this call; None if the module cannot be copied."""
        module = None if self.module is None else copied(self.module)
        return None if module is None else tuple(one.clone() for one in call(module, inputs))


def copied(module: nn.Module) -> nn.Module | None:
    """Return a copy of the module that shares its parameters; None if it cannot be copied."""
    shared = {id(one): one for one in module.parameters()}
    try:
        return copy.deepcopy(module, shared)
    except Exception:  # noqa: BLE001  # whatever an object of the user's raises that cannot be copied
        return None


def check_stateless(
    name: str,
    before: Untouched,
    call: Callable[[nn.Module, Inputs], Outputs],
    module: nn.Module,
    sets: Mapping[str, Inputs],
    noise: float,
) -> None:
    """Call the module on several inputs in turn, and compare its outputs with those of a copy that makes only one call.

    There are up to nine calls, at least three, as many as fit into 30 s. `sets` has the given inputs as A, others as B,
    and A slightly changed as C; `noise` is the relative L2 distance between two calls on A in a row. State that does
    not affect outputs, such as a counter, passes. Raises BakeoffError naming what calls change.
    """
    alone = {key: before.call(call, inputs) for key, inputs in sets.items()}
    until = time.monotonic() + _SECONDS
    for made, key in enumerate(f"A{_ORDER}"):
        if made > _LEAST_CALLS and time.monotonic() > until:
            return
        drawn = generators()
        outputs = tuple(one.clone() for one in call(module, sets[key]))
        wanted = alone[key]
        if wanted is None:
            alone[key] = outputs
            continue
        differs = max((apart(mine, theirs) for mine, theirs in zip(outputs, wanted, strict=True)), default=0.0)
        if differs > max(_SAME, _OF_NOISE * noise):
            if generators() != drawn:
                return  # random numbers, which are told apart from state elsewhere
            raise _refusal(name, module, before.state, differs, made)


def _refusal(name: str, module: nn.Module, before: Mapping[str, str], differs: float, calls: int) -> BakeoffError:
    now = dict(_state(module))
    changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    buffers = [key for key in changed if key in dict(module.named_buffers())]
    kept = (
        f"it keeps {', '.join(changed[:5])}" if changed else "it keeps something outside of its buffers and attributes"
    )
    text = (
        f"{name}: the model remembers: on the same inputs its outputs differ by {differs:.1e} (relative L2) after "
        f"{counted(calls, 'other call')}, since {kept} from call to call"
    )
    ways = "return it and take it as an input: bakeoff.Model(..., state={output: input})"
    if buffers:
        names = ", ".join(f'"{key}"' for key in buffers)
        ways += f"; or declare it: bakeoff.Model(..., buffers=({names},)) makes each an input and an output"
    return BakeoffError(f"{text}. {ways[0].upper()}{ways[1:]}", code="bad-user-code")


def _state(module: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield the path and the digest of each buffer and plain attribute of every layer."""
    for prefix, layer in module.named_modules():
        own = {key: one for key, one in vars(layer).items() if not key.startswith("_")}
        yield from state_of_values(layer._buffers, prefix, most_bytes=None)
        yield from state_of_values(own, prefix)


def state_of_values(
    values: Mapping[str, Any], prefix: str, most_bytes: int | None = _ATTRIBUTE_BYTES
) -> Iterator[tuple[str, str]]:
    """Yield each value's path with a digest of its tensors, or else with its text, length or type.

    Values whose tensors take more than `most_bytes` are left out; None means no limit.
    """
    for key, value in values.items():
        where = f"{prefix}.{key}" if prefix else key
        tensors = {str(index): one for index, one in enumerate(_tensors(value))}
        if most_bytes is not None and sum(one.nbytes for one in tensors.values()) > most_bytes:
            continue
        if tensors:
            yield where, state_digest(tensors)
        elif isinstance(value, bool | int | float | str):
            yield where, repr(value)
        elif isinstance(value, list | tuple | dict):
            yield where, f"{type(value).__name__} of {len(value)}"
        else:
            yield where, type(value).__name__


def _tensors(value: Any, depth: int = 3) -> Iterator[Tensor]:
    """Yield the usable, non-empty tensors in a value, and in lists, tuples and mappings up to `depth` levels deep."""
    if isinstance(value, Tensor):
        if not why_unusable(value) and value.numel():
            yield value
    elif depth and isinstance(value, Mapping | list | tuple):
        parts: Sequence[Any] = list(value.values()) if isinstance(value, Mapping) else list(value)
        for part in parts:
            yield from _tensors(part, depth - 1)


def generators() -> tuple[bytes, object, object]:
    """Return the states of the global random number generators of torch, Python and numpy."""
    kind, keys, *rest = np.random.get_state()
    of_torch = torch.get_rng_state().numpy().tobytes()
    if torch.cuda.is_initialized():
        of_torch += torch.cuda.get_rng_state().numpy().tobytes()
    return of_torch, random.getstate(), (kind, np.asarray(keys).tobytes(), *rest)
