"""Backends with one fault each, as real compilers have them, and helpers to write such backends.

The status that each must get is in bakeoff.selftest.expected. Most run the module eagerly and declare it with
`runs_eagerly`, because eager execution is not the fault under test. torch is imported in workers only.
"""

import ctypes
import itertools
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    BuildFunction,
    Call,
    Engine,
    Evidence,
    ModuleEngine,
    NoOptions,
    Outputs,
    Proof,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

Inputs = Mapping[str, "Tensor"]


@dataclass(slots=True)
class BoundEngine(Engine):
    """An engine whose work begins at `bind`."""

    binder: Callable[[Inputs], Call]
    proof: Callable[[], Proof] = Proof
    counters: Callable[[], Mapping[str, int]] = dict
    closer: Callable[[], None] = field(default=lambda: None)

    def bind(self, inputs: Inputs) -> Call:
        return self.binder(inputs)

    def activity(self) -> Mapping[str, int]:
        return self.counters()

    def prove(self) -> Proof:
        return self.proof()

    def close(self) -> None:
        self.closer()


def canary(name: str, summary: str, build: BuildFunction, runs_eagerly: bool = True, **more: Any) -> Backend:
    """Make a backend of the selftest; it declares that it runs the module eagerly unless `runs_eagerly` is False."""
    return Backend(name, summary, build, evidence=Evidence(runs_eagerly=runs_eagerly), **more)


def doing(action: Callable[[], object]) -> BuildFunction:
    """Return a build function that calls `action`, then returns an eager engine."""

    def build(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
        action()
        return ModuleEngine(module)

    return build


def changing(change: Callable[[Outputs], Outputs], counters: Callable[[], Mapping[str, int]] = dict) -> BuildFunction:
    """Return a build function whose engine returns eager's outputs after `change`."""

    def build(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
        return ModuleEngine(lambda *tensors: change(module(*tensors)), counters=counters)

    return build


def counting(act: Callable[[int], object], before: bool = False) -> BuildFunction:
    """Return a build function whose engine calls `act` with the call's number, from 1, after or `before` the module."""

    def build(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
        numbers = itertools.count(1)

        def call(*tensors: "Tensor") -> Outputs:
            number = next(numbers)
            if before:
                act(number)
            outputs: Outputs = module(*tensors)
            if not before:
                act(number)
            return outputs

        return ModuleEngine(call)

    return build


def nan(outputs: Outputs) -> Outputs:
    return tuple(output * float("nan") for output in outputs)


# These end the worker or the build.


def hang() -> None:
    while True:
        time.sleep(60)


def hang_in_c() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.PyDLL(None).pause()  # holds the interpreter's lock


def _fill_memory() -> None:
    kept = []
    while True:
        kept.append(bytes(1 << 30))  # pages stay untouched: the worker's memory limit is reached before the host's


def _fail() -> None:
    raise RuntimeError("no kernel for this operator")


def _fail_once(number: int) -> None:
    if number == 2:
        raise RuntimeError("only once")


def leave_result(content: bytes) -> None:
    Path("result.json").write_bytes(content)
    os._exit(0)


def _print_much() -> None:
    for _ in range(64):
        os.write(1, bytes(range(256)) * 4096)  # a MiB, most of it not UTF-8


def start_grandchild() -> None:
    subprocess.Popen(["sleep", "600"], start_new_session=True)


SEGFAULT = canary("segfault", "reads address 0", doing(lambda: ctypes.string_at(0)))
KILLED = canary(
    "killed",
    "is killed, as for lack of memory",
    doing(lambda: os.kill(os.getpid(), signal.SIGKILL)),
)
EXITS_SILENTLY = canary("exits-silently", "exits with 0 and no result", doing(lambda: os._exit(0)))
PARTIAL_RESULT = canary(
    "partial-result", "writes half a result", doing(lambda: leave_result(b'{"value":{"status":"ok"'))
)
HOSTILE_RESULT = canary("hostile-result", "writes a result that is not JSON", doing(lambda: leave_result(b"\xff{[")))
HANG = canary("hang", "sleeps for ever", doing(hang))
HANG_C = canary("hang-c", "blocks in C and ignores SIGTERM", doing(hang_in_c))
HOST_OOM = canary("host-oom", "allocates memory until there is none", doing(_fill_memory))
RAISES_AT_BUILD = canary("raises-at-build", "raises while it builds", doing(_fail))
RAISES_AT_CALL = canary("raises-at-call", "raises at its second call", counting(_fail_once, before=True))
GRANDCHILD = canary("grandchild", "leaves a process running, in its own session", doing(start_grandchild))
NOISY = canary("noisy", "prints 64 MiB that are not text", doing(_print_much))


# These give numbers that are wrong or not comparable.


# Fault: the call only starts a thread, which computes afterwards into a static buffer that the caller already has.
# Seen in: runtimes that replay into static outputs without synchronising and skip a replay while one is pending. Only
# the first call of a set waits. The buffer then holds correct values from earlier calls, so comparing values alone
# finds nothing, and the latency is that of the start alone.
def _compute_later(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
    threads: list[threading.Thread] = []

    def work() -> None:
        while (job := jobs.get()) is not None:
            job()

    def bind(inputs: Inputs) -> Call:
        import torch

        tensors, pending = tuple(inputs.values()), threading.Event()
        static: list[Tensor] = []

        def replay() -> None:
            with torch.inference_mode():
                for buffer, output in zip(static, module(*tensors), strict=True):
                    buffer.copy_(output)
            pending.clear()

        def call() -> Outputs:
            if not static:
                with torch.no_grad():
                    static.extend(output.clone() for output in module(*tensors))
                if not threads:
                    threads.append(threading.Thread(target=work, daemon=True))
                    threads[0].start()
            elif not pending.is_set():
                pending.set()
                jobs.put(replay)
            return tuple(static)

        return call

    def close() -> None:
        jobs.put(None)
        for thread in threads:
            thread.join()

    return BoundEngine(bind, closer=close)


def _compute_in_bf16(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    module.bfloat16()
    return ModuleEngine(
        lambda *tensors: tuple(output.float() for output in module(*(tensor.bfloat16() for tensor in tensors)))
    )


# Fault: complex weights are cast to a real dtype, which drops their imaginary parts.
# Seen in: torch.nn.Module.to(dtype), with no more than a warning (pytorch#46374).
def _drop_imaginary(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    for owner in module.modules():
        for name, buffer in owner.named_buffers(recurse=False):
            if buffer.is_complex():
                setattr(owner, name, buffer.real.contiguous())
    return ModuleEngine(module)


def _store_by_address(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    kept: dict[int, Outputs] = {}

    def call(*tensors: "Tensor") -> Outputs:
        address = tensors[0].data_ptr()
        if address not in kept:
            kept[address] = module(*tensors)
        return tuple(output.clone() for output in kept[address])

    return ModuleEngine(call)


def _nan_in_fortieth_call(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    numbers = itertools.count(1)

    def call(*tensors: "Tensor") -> Outputs:
        outputs: Outputs = module(*tensors)
        return nan(outputs) if next(numbers) == 40 else outputs

    return ModuleEngine(call)


def _fall_back_silently(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    try:
        _fail()
    except RuntimeError:
        return ModuleEngine(module)
    raise AssertionError("the compiler of this canary always fails")


def _compile_nothing(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    return ModuleEngine(torch.compile(module, backend=lambda graph, _example: graph.forward, fullgraph=True))


def _recompile(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    torch._dynamo.config.cache_size_limit = 1 << 20
    numbers = itertools.count()

    def guarded(number: int, *tensors: "Tensor") -> Outputs:
        return tuple(output + 0 * number for output in module(*tensors))

    compiled = torch.compile(guarded, backend="eager", dynamic=False)
    return ModuleEngine(lambda *tensors: compiled(next(numbers) // 16, *tensors))


def _slow_down(number: int) -> None:
    until = time.perf_counter_ns() + 4_000 * number
    while time.perf_counter_ns() < until:
        pass


def _leak(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    kept: list[bytearray] = []

    def call(*tensors: "Tensor") -> Outputs:
        kept.append(bytearray(b"x") * (1 << 18))
        outputs: Outputs = module(*tensors)
        return outputs

    return ModuleEngine(call)


RETURNS_EARLY = canary("returns-early", "returns before the work is done", _compute_later)
HALF_PRECISION = canary("half-precision", "computes in bf16 instead of fp32", _compute_in_bf16)
DROPS_IMAGINARY = canary("drops-imaginary", "casts complex weights to real ones", _drop_imaginary)
CACHED_OUTPUT = canary("cached-output", "stores outputs by the address of the first input", _store_by_address)
NAN = canary("nan", "returns NaN", changing(nan))
NAN_AT_40 = canary("nan-at-40", "returns NaN in its fortieth call only", _nan_in_fortieth_call)
WRONG_SHAPE = canary("wrong-shape", "drops a column", changing(lambda outputs: tuple(o[..., 1:] for o in outputs)))
SILENT_EAGER = canary(
    "silent-eager", "catches its compiler's error and runs eager", _fall_back_silently, runs_eagerly=False
)
UNCHANGED_GRAPH = canary(
    "unchanged-graph", "captures a graph and returns it unchanged", _compile_nothing, runs_eagerly=False
)
RECOMPILES = canary("recompiles", "compiles again every sixteenth call", _recompile, runs_eagerly=True)
DRIFTS = canary("drifts", "takes longer with each call", counting(_slow_down))
LEAKS = canary("leaks", "allocates 256 KiB a call and keeps it", _leak)


# This one is correct.
PLAIN_EAGER = canary("plain-eager", "eager under another name", doing(lambda: None))
