"""One backend a check, with a fault that real compilers have, and correct ones; and helpers to write such backends.

The status that each must get is in bakeoff.selftest.expected. Most run the module eagerly and declare it with
`runs_eagerly`, because eager execution is not the fault under test. torch is imported in workers only.
"""

import ctypes
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    BuildFunction,
    Call,
    Engine,
    ModuleEngine,
    NoOptions,
    Outputs,
    Prepared,
    Proof,
)
from bakeoff.backends.graphs import export, operators

if TYPE_CHECKING:
    from torch import Tensor, nn

Inputs = Mapping[str, "Tensor"]
Tensors = tuple["Tensor", ...]
Compute = Callable[..., Outputs]
Shorten = Callable[[Compute, Tensors], Call]
"""Makes a call that sometimes does less, of a function that computes the module and of the bound tensors."""
_PADDED_SHARE = 0.4
_IDLE_S = 0.01
_FIRST_CALLS = 4
_HOT_CALLS = 8


@dataclass(slots=True)
class BoundEngine(Engine):
    """An engine whose work begins at `bind`."""

    binder: Callable[[Inputs], Call]
    closer: Callable[[], None] = field(default=lambda: None)

    def bind(self, inputs: Inputs) -> Call:
        return self.binder(inputs)

    def close(self) -> None:
        self.closer()


def canary(name: str, summary: str, build: BuildFunction, runs_eagerly: bool = True, **more: Any) -> Backend:
    """Make a backend of the selftest; it declares that it runs the module eagerly unless `runs_eagerly` is False."""
    return Backend(name, summary, build, runs_eagerly=runs_eagerly, **more)


def doing(action: Callable[[], object]) -> BuildFunction:
    """Return a build function that calls `action`, then returns an eager engine."""

    def build(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
        action()
        return ModuleEngine(module)

    return build


def each_call(change: Callable[[int, Outputs], Outputs]) -> BuildFunction:
    """Return a build function whose engine returns what `change` makes of a call's number, from 1, and eager's
    outputs."""

    def build(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
        numbers = itertools.count(1)
        return ModuleEngine(lambda *tensors: change(next(numbers), module(*tensors)))

    return build


# These end the worker or the build, or leave something behind.


def _hang_in_c() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.PyDLL(None).pause()  # holds the interpreter's lock


def _fill_memory() -> None:
    kept = []
    while True:
        kept.append(bytes(1 << 30))  # pages stay untouched: the worker's memory limit is reached before the host's


# Fault: tells the parent a hash of a result of its own, before the lab does.
def _seal_itself() -> None:
    os.write(int(sys.argv[1]), json.dumps({"phase": "", "seal": "0" * 64}).encode() + b"\n")


def start_grandchild() -> None:
    subprocess.Popen(["sleep", "600"], start_new_session=True)


SEGFAULT = canary("segfault", "reads address 0", doing(lambda: ctypes.string_at(0)))
HANG_C = canary("hang-c", "blocks in C and ignores SIGTERM", doing(_hang_in_c))
HOST_OOM = canary("host-oom", "allocates memory until there is none", doing(_fill_memory))
SEALS_ITSELF = canary("seals-itself", "states a hash of a result of its own", doing(_seal_itself))
GRANDCHILD = canary("grandchild", "leaves a process running, in its own session", doing(start_grandchild))


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


def _nan_in_fortieth_call(number: int, outputs: Outputs) -> Outputs:
    return tuple(output * float("nan") for output in outputs) if number == 40 else outputs


def _fall_back_silently(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    try:
        raise RuntimeError("no kernel for this operator")
    except RuntimeError:
        return ModuleEngine(module)


# Fault: the compiler fails, and the decomposed graph runs operator by operator: neither `linear` nor `conv2d` appears.
# Seen in: partitioners that reject every node (torch-tensorrt and OpenVINO's torch.compile backend run the rest of the
# lowered graph through PyTorch), torch.compile(backend="aot_eager_decomp_partition").
def _run_decomposed(module: "nn.Module", inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    program = export(module, inputs).run_decompositions()
    run = program.module()
    proof = Proof(graphs=1, graph_breaks=0, operators_inside=operators(program.graph))
    return ModuleEngine(lambda *tensors: tuple(run(*tensors)), lambda: proof)


# Fault: the layer's weights were not changed. `world` is the only layer that the toy's workload of that name uses.
# Seen in: torchao's quantize_, which returns without a warning where its filter matches nothing or it does not know the
# modules; a count of the requested layers is then wrong.
def _claim_layers(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Prepared:
    return Prepared(module, {"world": "int8 dynamic"})


def _recompile(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    torch._dynamo.config.cache_size_limit = 1 << 20
    numbers = itertools.count()

    def guarded(number: int, *tensors: "Tensor") -> Outputs:
        return tuple(output + 0 * number for output in module(*tensors))

    compiled = torch.compile(guarded, backend="eager", dynamic=False)
    return ModuleEngine(lambda *tensors: compiled(next(numbers) // 16, *tensors))


# Fault: from its fifth call on it uses another number of threads than the record states.
# Seen in: runtimes that set OpenMP's thread number for the whole process when their pool starts, at a later call. A
# check after the build or the first call finds the number unchanged.
def _change_threads(number: int, outputs: Outputs) -> Outputs:
    import torch

    if number == 5:
        torch.set_num_threads(1 if torch.get_num_threads() > 1 else 2)
    return outputs


# Fault: the function that the lab times calls with is replaced by one that runs at a third of the speed.
def _slow_down_clock() -> None:
    clock: Any = sys.modules["bakeoff.worker.clocks.clock"]
    original: Callable[[], int] = clock.now_ns
    clock.now_ns = lambda: original() // 3


def _slow_down(number: int, outputs: Outputs) -> Outputs:
    until = time.perf_counter_ns() + 4_000 * number
    while time.perf_counter_ns() < until:
        pass
    return outputs


_KEPT: list[bytearray] = []


def _leak(_number: int, outputs: Outputs) -> Outputs:
    _KEPT.append(bytearray(b"x") * (1 << 18))
    return outputs


RETURNS_EARLY = canary("returns-early", "returns before the work is done", _compute_later)
NAN_AT_40 = canary("nan-at-40", "returns NaN in its fortieth call only", each_call(_nan_in_fortieth_call))
SILENT_EAGER = canary(
    "silent-eager", "catches its compiler's error and runs eager", _fall_back_silently, runs_eagerly=False
)
DECOMPOSED_EAGER = Backend("decomposed-eager", "runs a decomposed graph operator by operator", _run_decomposed)
CLAIMS_LAYERS = Backend(
    "claims-layers",
    "lists layers that were not changed",
    prepare=_claim_layers,
    dtypes=("fp32",),
    quantises="dynamic",
)
RECOMPILES = canary("recompiles", "compiles again every sixteenth call", _recompile)
THREADS_DRIFT = canary("threads-drift", "changes the number of threads at its fifth call", each_call(_change_threads))
SLOWS_CLOCK = canary("slows-clock", "replaces the lab's clock by a slower one", doing(_slow_down_clock))
DRIFTS = canary("drifts", "takes longer with each call", each_call(_slow_down))
LEAKS = canary("leaks", "allocates 256 KiB a call and keeps it", each_call(_leak))


# These do less once they are hot: they compute when they are new, idle or changed, as checks often find them. A busy
# wait pads them to a believable share of the time of a call, so that no floor shows it.


def shortened(shorten: Shorten, padded_share: float = _PADDED_SHARE) -> BuildFunction:
    """Return a build function whose calls are those of `shorten`, and take at least this share of the usual time."""

    def build(module: "nn.Module", inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
        def compute(*tensors: "Tensor") -> Outputs:
            import torch

            with torch.no_grad():
                return tuple(module(*tensors))

        wait_s = padded_share * _typical_s(compute, tuple(inputs.values()))

        def bind(inputs: Inputs) -> Call:
            shorter = shorten(compute, tuple(inputs.values()))

            def call() -> Outputs:
                until = time.perf_counter() + wait_s
                outputs = shorter()
                while time.perf_counter() < until:
                    pass
                return outputs

            return call

        return BoundEngine(bind)

    return build


def _typical_s(compute: Compute, tensors: Tensors) -> float:
    samples = []
    for _ in range(50):
        started = time.perf_counter()
        compute(*tensors)
        samples.append(time.perf_counter() - started)
    return median(samples[10:])


class Idle:
    """Finds out whether a call is one of the first of its binding, or comes after an idle gap."""

    def __init__(self) -> None:
        self._calls, self._ended = 0, 0.0

    def looks_watched(self) -> bool:
        self._calls += 1
        return self._calls <= _FIRST_CALLS or time.perf_counter() - self._ended > _IDLE_S

    def end(self) -> None:
        self._ended = time.perf_counter()


# Fault: after eight calls without a new version of an input the outputs count as constants.
# Seen in: tiered compilers that fold what did not change (guards on `_version`). A write through torch moves the
# version and is computed, so every output is right; only the time is not that of a computation.
def memoise_when_hot(compute: Compute, tensors: Tensors) -> Call:
    stored: list[Outputs] = []
    state: list[Any] = [None, 0]

    def call() -> Outputs:
        versions = [tensor._version for tensor in tensors]
        state[:] = [versions, state[1] + 1 if versions == state[0] else 1]
        if state[1] <= _HOT_CALLS or not stored:
            stored[:] = [compute(*tensors)]
        return tuple(output.clone() for output in stored[0])

    return call


# Fault: fp32 in the first calls and after an idle gap, bf16 while it is hot.
# Seen in: runtimes that switch to a faster kernel under load, or when autotuning has ended.
def round_when_hot(compute: Compute, tensors: Tensors) -> Call:
    idle = Idle()

    def call() -> Outputs:
        import torch

        if idle.looks_watched():
            outputs = compute(*tensors)
        else:
            with torch.no_grad(), torch.autocast(tensors[0].device.type, dtype=torch.bfloat16):
                outputs = tuple(output.float() for output in compute(*tensors))
        idle.end()
        return outputs

    return call


TIERED_MEMO_PADDED = canary("tiered-memo-padded", "stores results of hot inputs, padded", shortened(memoise_when_hot))
GAP_PRECISION_PADDED = canary("gap-precision-padded", "computes in bf16 when hot, padded", shortened(round_when_hot))


# This one is correct.
PLAIN_EAGER = canary("plain-eager", "eager under another name", doing(lambda: None))
