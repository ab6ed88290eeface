"""Runs some programs of a loop in a second lane, beside the rest of a unit: a thread, on CUDA with a stream of its own.

What such a program returns is `Later`, a tensor that has no values yet. Operators on it are put off to the lane too, in
their order, so a loop needs no change; one that needs values within the unit is refused. What the lane is given is
copied as it is put off, since the loop may overwrite it.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bakeoff.backends.backend import Unsupported
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.models.pipelines.schedule import BEHIND, Schedule, put_off
from bakeoff.trace.timeline import Segment
from bakeoff.worker.pipeline.account import Account
from bakeoff.worker.pipeline.clocks import UNATTRIBUTED

T = TypeVar("T")
Order = Literal["sequential", "alone", "beside"]
"""How a unit runs its lanes: each call at once; what is put off after the rest of its unit; or beside the rest."""


class Later(Tensor):
    """A tensor that the second lane computes later."""

    lane: "Lane"
    value: Tensor | None

    @staticmethod
    def __new__(cls, lane: "Lane", form: "tuple[Any, ...]") -> "Later":
        shape, strides, offset, dtype, device = form
        made: Later = Tensor._make_wrapper_subclass(
            cls, shape, strides=strides, storage_offset=offset, dtype=dtype, device=device
        )
        made.lane, made.value = lane, None
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # as torch's own wrappers

    @classmethod
    def __torch_dispatch__(cls, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        leaves, spec = pytree.tree_flatten((args, kwargs or {}))
        lane = next(leaf.lane for leaf in leaves if isinstance(leaf, Later))
        return lane.operator(func, leaves, spec)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Later({list(self.shape)}, {self.dtype})"

    def _has_no_values(self, *_args: Any, **_kwargs: Any) -> Any:
        raise self.lane.refusal("reads values of what it returns on the host")

    numpy = tolist = __array__ = _has_no_values


def value_of(leaf: Any) -> Any:
    """Return a tensor with values; anything but a `Later` is returned as it is."""
    if not isinstance(leaf, Later):
        return leaf
    if leaf.value is None:
        raise RuntimeError("a tensor of the second lane is read before it was computed")  # an error of the lab
    return leaf.value


def values_of(tree: T) -> T:
    """Return a tree of tensors with the values of those that came later."""
    found: T = pytree.tree_map(value_of, tree)
    return found


class Lane:
    """The second lane of a loop. It owns its programs: they are built, called and closed in its thread."""

    def __init__(self, loop: Loop, schedule: Schedule, device: str) -> None:
        self.schedule, self.programs = schedule, put_off(loop, schedule.name)
        self.behind = schedule.name == BEHIND
        """Whether what a unit puts off runs in the next unit; otherwise as soon as it is put off."""
        self.order: Order = "beside"
        self.at_once = False
        """Whether the present unit runs each call at once, as in a sequential one."""
        self.account = Account(loop, device, idle=True)
        self.main: Account | None = None
        """The account of the rest of a unit."""
        self.held: Callable[[Tensor], Tensor] = Tensor.clone
        """Makes the copy of a value that the lane is given; set by a feeder."""
        self.reading: list[Tensor] = []
        """Windows that it may read or shift before the next wait."""
        self._kept = [0, 0]
        """Bytes of copies: the most of a unit, and those of the present one."""
        self._queue: list[tuple[Callable[[], object], int]] = []
        self._sent: list[Future[None]] = []
        self._forms: dict[Hashable, tuple[Any, list[Any]]] = {}
        """What an operator or program returned: the structure, and the form of each tensor, or the place of the
        argument that it is."""
        self._stream = torch.cuda.Stream() if device == "cuda" else None
        self._thread = ThreadPoolExecutor(1, "lane", self._enter)

    def _enter(self) -> None:
        torch.set_grad_enabled(False)
        torch.get_num_threads()  # else the first operator sets the number of the whole process
        torch.set_num_threads(self.schedule.threads[1])  # of this thread alone: OpenMP keeps a number for each
        if self._stream is not None:
            torch.cuda.set_stream(self._stream)

    def settle_threads(self) -> None:
        """Set the lane's number of threads again, which builds have changed."""
        self.do(self._enter)

    def do(self, action: Callable[[], T]) -> T:
        """Return `action()`, called in the lane's thread while this one waits."""

        def run() -> T:
            try:
                return action()
            finally:
                if self._stream is not None:
                    self._stream.synchronize()

        return self._thread.submit(run).result()

    def start(self, action: Callable[[], T]) -> "Future[T]":
        """Call `action()` in the lane's thread, beside this one."""
        return self._thread.submit(action)

    def close(self) -> None:
        self._thread.shutdown()

    def keep(self, copy: Tensor) -> None:
        """Let the memory of a tensor that the lane is given not be used again before the lane has read it."""
        self._kept[-1] += copy.nbytes
        if self._stream is not None:
            copy.record_stream(self._stream)

    def most_bytes(self) -> int:
        """Return the most bytes of copies at a time: of a unit, and of the next one if the lane runs behind."""
        return max(self._kept) * (2 if self.behind else 1)

    def refusal(self, what: str) -> Unsupported:
        names = ", ".join(sorted(map(str, self.programs)))
        text = f"the loop {what} within the unit, so {names} cannot be put off"
        return Unsupported(f"{self.schedule.name}: {text}")

    def begin(self, at_once: bool) -> None:
        """Begin a unit; what the unit before has put off begins too."""
        self.at_once = at_once or self.order == "sequential"
        self.account.begin()
        self._kept = [max(self._kept), 0]
        self._send()

    def later(self, key: Hashable, compute: Callable[[], Any], segment: int, leaves: Sequence[Any] = ()) -> Any:
        """Put `compute` off and return what it will return; its time is the segment's.

        What is not yet known to return is computed at once. `leaves` are the arguments, which it may return.
        """
        known = self._forms.get(key)
        if known is None or self.at_once:
            found = list[Any]()
            self._queue.append((lambda: found.append(compute()), segment))
            self.flush()
            if self.at_once:
                return found[0]
            flat, spec = pytree.tree_flatten(found[0])
            if not all(isinstance(one, Tensor) for one in flat):
                raise self.refusal("reads values of what it returns on the host")
            self._forms[key] = known = spec, [self._form(one, leaves) for one in flat]
            made = self._made(known[1], leaves)
            _fill(made, flat)
            return pytree.tree_unflatten(made, spec)
        made = self._made(known[1], leaves)
        self._queue.append((lambda: _fill(made, pytree.tree_leaves(compute())), segment))
        if not self.behind:
            self.flush() if self.order == "alone" else self._send()
        return pytree.tree_unflatten(made, known[0])

    @staticmethod
    def _form(value: Tensor, leaves: Sequence[Any]) -> Any:
        same = (place for place, leaf in enumerate(leaves) if isinstance(leaf, Later) and leaf.value is value)
        return next(same, _form_of(value))

    def _made(self, forms: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
        return [leaves[form] if isinstance(form, int) else Later(self, form) for form in forms]

    def operator(self, func: Any, leaves: Sequence[Any], spec: Any) -> Any:
        """Put an operator off that has one of the lane's tensors among its arguments, which are `leaves`."""
        assert self.main is not None
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        for place, argument in enumerate(func._schema.arguments):
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            is_written = argument.alias_info is not None and argument.alias_info.is_write
            if is_written and isinstance(given, Tensor) and not isinstance(given, Later):
                raise self.refusal(f"writes what it returns into a tensor of its own ({func})")
        plain = [leaf for leaf in leaves if isinstance(leaf, Tensor) and not isinstance(leaf, Later)]
        held = {id(leaf): self.held(leaf) for leaf in plain}

        def compute() -> Any:
            now, named = pytree.tree_unflatten([value_of(held.get(id(leaf), leaf)) for leaf in leaves], spec)
            return func(*now, **named)

        key = func, *kwargs, *map(_told_by, leaves)
        return self.later(key, compute, self.main.between, leaves)

    def flush(self) -> None:
        """Let the lane compute what was put off so far, and wait for it."""
        self._send()
        self.wait()

    def wait(self) -> None:
        """Wait until the lane has done what it was sent; raises what that raised."""
        main = self.main
        if main is not None:
            main.mark_between()
        (sent, self._sent), self.reading = (self._sent, []), []
        for one in sent:
            one.result()
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
        if main is not None:
            main.clock.mark(main.idle)

    def _send(self) -> None:
        queue, self._queue = self._queue, []
        event = None
        if self._stream is not None:
            event = torch.cuda.Event()
            event.record()  # what the lane is given is computed by then
        if queue:
            self._sent.append(self._thread.submit(self._run, queue, event))

    def _run(self, queue: "Sequence[tuple[Callable[[], object], int]]", event: Any) -> None:
        clock = self.account.clock
        if event is not None and self._stream is not None:
            self._stream.wait_event(event)
        clock.mark(self.account.idle)
        for compute, segment in queue:
            compute()
            clock.mark(segment)

    def end(self, wall_ns: int) -> tuple[Mapping[Segment, int], int]:
        """End the unit, which took `wall_ns`: return the lane's segments, which add up to that, and when within the
        unit the lane was done."""
        _, ns = self.account.clock.end()
        ns[UNATTRIBUTED], waited_ns = 0, ns[UNATTRIBUTED]
        ns[self.account.idle] += wall_ns - sum(ns)
        return dict(zip(self.account.segments, ns, strict=True)), max(0, wall_ns - waited_ns)


def _told_by(leaf: Any) -> Hashable:
    """Return what of an argument decides the form of an operator's results: of a float only that it is one."""
    told: Hashable = _form_of(leaf) if isinstance(leaf, Tensor) else float if isinstance(leaf, float) else leaf
    return told


def _form_of(tensor: Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device


def _fill(made: Sequence[Any], values: Sequence[Any]) -> None:
    for one, value in zip(made, values, strict=True):
        if one.value is not value:
            if _form_of(value) != _form_of(one):
                raise RuntimeError(f"put off as {_form_of(one)}, computed as {_form_of(value)}")  # an error of the lab
            one.value = value
