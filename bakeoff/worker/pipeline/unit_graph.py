"""Runs a steady unit as one CUDA graph: its calls, and glue and copies between them, are captured once and replayed.

A graph reads and writes fixed addresses and runs no code of the host (PyTorch 2.13, CUDA semantics, CUDA Graphs). So
what a unit is given and its state are copied into buffers before each replay, and the graph ends with copies of the new
state into those of the old one. A copy to the host waits for the device: it is made after the replay. No card has run
this yet.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bakeoff.backends.backend import ModuleEngine, Outputs, Unsupported
from bakeoff.backends.capture import capture
from bakeoff.backends.torch_internals import copier, intercept_dispatch, storage_id
from bakeoff.models.pipelines.schedule import ONE_GRAPH
from bakeoff.worker.pipeline.account import Account
from bakeoff.worker.pipeline.clocks import HostClock
from bakeoff.worker.pipeline.feeder import Feeder
from bakeoff.worker.pipeline.lanes import Later, values_of


class UnitGraph:
    """A loop's `step` as a graph, which the first call captures, with copies to the host put off."""

    def __init__(
        self, step: Callable[..., Any], feeder: Feeder, account: Account, device: str, flat: Callable[..., Any]
    ) -> None:
        """Take the step, and a function that returns the leaves of a tree by their paths."""
        self._step, self._feeder, self._account, self._device, self._flat = step, feeder, account, device, flat
        self.added_bytes = 0
        """Bytes of the device that the graph and its buffers take."""
        self._held: dict[str, Any] = {}
        """Buffer of each tensor of the state and of what a unit is given, and each plain value, by its path."""
        self._to_host: list[tuple[Any, Tensor]] = []
        """What was copied to the host, and the device's value."""
        self._made: Any = ()
        """State and outputs after each replay."""
        self._replay: Any = None

    def step(self, state: Any, given: Any, run: Any) -> Any:
        """Run a unit, as `Pipeline.step` does; what it returns is valid until the next one.

        Raises Unsupported, with the reason, for a unit that cannot be captured, or that is not as the captured one.
        """
        account = self._account
        if self._replay is None:
            with account.timed_by(lambda _own, segments: HostClock(segments)):
                self._capture(state, given, run)
        new = self._new({"given": given} if state is self._made[0] else {"given": given, "state": state})
        copier(self._held, new)()
        account.copied_bytes += sum(value.nbytes for value in new.values())
        account.clock.mark(account.copies)
        self._replay()
        account.clock.mark(account.graph)
        for later, value in self._to_host:
            later.value.copy_(value)
        account.clock.mark(account.copies)
        self._feeder.forget()
        return self._made

    def _capture(self, state: Any, given: Any, run: Any) -> None:
        """Capture a unit that begins with copies of these values."""
        torch.cuda.empty_cache()
        reserved, windows = torch.cuda.memory_reserved(), [*map(id, self._feeder.windows.values())]
        held, form = pytree.tree_flatten((state, given))
        held = [one.clone() if isinstance(one, Tensor) and id(one) not in windows else one for one in held]
        state, given = pytree.tree_unflatten(held, form)
        self._held = self._flat({"given": given, "state": state})
        buffers = {path: one for path, one in self._held.items() if isinstance(one, Tensor)}
        before, own = {path: one.clone() for path, one in buffers.items()}, {*map(storage_id, buffers.values())}

        def apart(value: Any) -> Any:  # the new state overwrites the old one, which this may be a part of
            return value.clone() if isinstance(value, Tensor) and storage_id(value) in own else value

        def unit(*_: Tensor) -> Outputs:
            self._feeder.forget()
            self._to_host.clear()
            with intercept_dispatch(self._dispatched):
                after, outputs = self._step(*pytree.tree_unflatten(held, form), run)
            outputs, new = pytree.tree_map(apart, (values_of(dict(outputs)), self._new({"state": after})))
            copier(self._held, new)()
            self._made = state, outputs
            return tuple(outputs.values())

        self._replay = capture(ModuleEngine(unit), buffers).bind(buffers)
        copier(buffers, before)()  # windows were shifted as often as the unit ran
        before.clear()
        torch.cuda.empty_cache()
        self.added_bytes = torch.cuda.memory_reserved() - reserved

    def _new(self, tree: Any) -> dict[str, Tensor]:
        """Return the tensors that do not lie in their buffers, by path. Raises Unsupported for those of the host, and
        for values that are not as in the captured unit."""
        new = {}
        for path, leaf in self._flat(tree).items():
            held = self._held.get(path)
            if isinstance(leaf, Tensor) and leaf.device.type == self._device and type(leaf) is not Later:
                if leaf is not held:
                    new[path] = leaf
            elif isinstance(leaf, Tensor) or leaf != held:
                text = f"has {path} as {held!r:.40} and then as {leaf!r:.40}"
                raise self.refusal(f"{text}; let it be a tensor of the device")
        return new

    def refusal(self, what: str) -> Unsupported:
        return Unsupported(f"{ONE_GRAPH}: a graph cannot hold the unit, since the loop {what}")

    def operator(self, func: Any, *_: Any) -> Any:
        raise self.refusal(f"computes with what it copied to the host ({func})")

    def _dispatched(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        aten = torch.ops.aten
        if func is aten._local_scalar_dense.default:
            raise self.refusal("reads a value on the host")
        if func is not aten._to_copy.default or named.get("device") != torch.device("cpu"):
            return func(*args, **named)
        value = func(*args, **{**named, "device": args[0].device, "non_blocking": False})
        later = Later(self, (value.shape, value.stride(), 0, value.dtype, named["device"]))  # type: ignore[arg-type]
        later.value = torch.empty_like(value, device="cpu")
        self._to_host.append((later, value))
        return later
