"""Description that a factory returns when it has more to say than a module and its inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bakeoff.models.errors import BakeoffError

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""
InputSets = Mapping[str, Sequence[Call]]
"""The calls of every named set of inputs."""


@dataclass(frozen=True, slots=True)
class Model:
    """A module with its inputs, and what cannot be found out by running it."""

    module: Any
    """A torch.nn.Module in the state that is to be measured: weights loaded, `eval()` called."""
    inputs: Any = None
    """A dict (keyword arguments), a tuple or list (positional ones), or one tensor. None where `sets` are given."""
    sets: Mapping[str, Any] = field(default_factory=dict)
    """Several named sets of inputs, each as `inputs` is; each becomes a workload."""
    more: Sequence[Any] = ()
    """Further calls' inputs, each as `inputs` is, with the same shapes: half of all calls are for judging, the rest for
    calibration. Where there is one call alone, others are drawn from its values."""
    state: Mapping[str, str] = field(default_factory=dict)
    """Output name to the name of the input that it becomes in the next call."""
    keep_fp32: tuple[str, ...] = ()
    """Inputs that half-precision variants get in fp32, such as a timestep that is the argument of a sine; and parts of
    the module that they leave in fp32, by name or path: `norm`, `blocks.0.table`. A name of both is the input's."""
    buffers: tuple[str, ...] = ()
    """Buffers that a call writes into, such as a cache: each becomes an input and an output, which the next call gets.
    """
    hold: tuple[str, ...] = ()
    """Inputs whose values no other set may change, such as positions or offsets. Those of other inputs are drawn again
    from the values that were given."""
    place: str = ""
    """Path of the module in your pipeline, such as `unet`, or of its method, such as `vae.decode`: `bakeoff.apply` puts
    an exported variant there."""
    tolerance_fp32: float | None = None
    """Relative L2 that an fp32 implementation may have; None: derived from eager's own error."""

    def calls(self, what: str) -> dict[str, list[Call]]:
        """The calls of each input set. Raises BakeoffError, about `what` gives them, where there are none, or a set is
        given in two ways."""
        problem = ""
        if self.sets and self.inputs is not None:
            problem = "both inputs and sets are given; give one of them"
        elif self.sets and self.more:
            problem = "both sets and more are given; give more with inputs alone"
        given = dict(self.sets) or {"call": self.inputs}
        if any(value is None for value in given.values()):
            problem = "no inputs are given; give what the module is called with, as in (module, {'x': tensor})"
        if problem:
            raise BakeoffError(f"{what}: {problem}", "bad-user-code")
        found = {str(name): [call_of(value)] for name, value in given.items()}
        if self.more:
            found["call"] += map(call_of, self.more)
        return found


def call_of(value: Any) -> Call:
    """Return the arguments of what a user gives as inputs."""
    if isinstance(value, Mapping):
        return (), {str(name): part for name, part in value.items()}
    return (tuple(value) if isinstance(value, tuple | list) else (value,)), {}
