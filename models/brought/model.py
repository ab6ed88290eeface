"""`Model`, which a user's factory returns to state more than a module and its inputs."""

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
    """A dict (keyword arguments), a tuple or list (positional ones), or one tensor. None if `sets` are given."""
    sets: Mapping[str, Any] = field(default_factory=dict)
    """Several named sets of inputs, each as `inputs` is; each becomes a workload."""
    more: Sequence[Any] = ()
    """Inputs of further calls, each as `inputs` is, with the same shapes. Half of all calls are for judging, the others
    for calibration. If there is only one call, more are drawn from its values."""
    state: Mapping[str, str] = field(default_factory=dict)
    """Name of the input that an output becomes in the next call, by the output's name."""
    keep_fp32: tuple[str, ...] = ()
    """Inputs that half-precision variants get in fp32, such as a timestep that is the argument of a sine; and parts of
    the module that they leave in fp32, by name or path: `norm`, `blocks.0.table`. A name of both means the
    input."""
    buffers: tuple[str, ...] = ()
    """Buffers that a call writes into, such as a cache: each becomes an input and an output, which the next call gets.
    """
    hold: tuple[str, ...] = ()
    """Inputs that keep their given values in all drawn sets and regimes, such as positions or offsets. Values of other
    inputs are drawn anew from the given ones."""
    place: str = ""
    """Path of the module in your pipeline, such as `unet`, or of its method, such as `vae.decode`: `bakeoff.apply` puts
    an exported variant there."""
    tolerance_fp32: float | None = None
    """Relative L2 that an fp32 implementation may have; None: derived from eager's own error."""

    def calls(self, what: str) -> dict[str, list[Call]]:
        """Return the calls of each input set.

        Raises BakeoffError, with a message that begins with `what`, if there are none or they are given in two ways.
        """
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
    """Return a user's inputs (a mapping, a sequence or one value) as positional and keyword arguments."""
    if isinstance(value, Mapping):
        return (), {str(name): part for name, part in value.items()}
    return (tuple(value) if isinstance(value, tuple | list) else (value,)), {}
