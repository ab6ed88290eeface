"""Backends that lie or die, each in one way; a sweep reaches them as `canaries:SEGFAULT`. No torch at import."""

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    BuildFunction,
    Engine,
    ModuleEngine,
    NoOptions,
    Outputs,
    Proof,
    Requirement,
    Unavailable,
    Unsupported,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

AWAKE, ASLEEP = "CANARY_AWAKE", "CANARY_ASLEEP"
"""Variables that name files: SLEEPER sleeps while the first does not exist, and makes the second when it begins."""


def _doing(action: Callable[[], object]) -> BuildFunction:
    """A build that does something first and is eager then."""

    def build(
        module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
    ) -> Engine:
        action()
        return ModuleEngine(module)

    return build


def _changing(change: Callable[[Outputs], Outputs], counters: Callable[[], Mapping[str, int]] = dict) -> BuildFunction:
    """A build whose engine gives eager's outputs, changed."""

    def build(
        module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
    ) -> Engine:
        return ModuleEngine(lambda *tensors: change(module(*tensors)), counters=counters)

    return build


def _hang() -> None:
    while True:
        time.sleep(60)


def _hang_in_c() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.PyDLL(None).pause()  # with the interpreter's lock


def _fill_memory() -> None:
    kept = []
    while True:
        kept.append(bytes(1 << 30))  # asked for, never touched


def _ask_torch_for_a_tebibyte() -> None:
    import torch

    torch.empty(1 << 40, dtype=torch.uint8)


def _fail() -> None:
    raise RuntimeError(f"no kernel in {Path(__file__)} for \udcff\nand a second line")


def _exit_3() -> None:
    print("giving up", flush=True)
    os._exit(3)


def _kill_guard() -> None:
    _start_grandchild()
    os.kill(os.getppid(), signal.SIGKILL)
    _hang()


def _unavailable() -> None:
    raise Unavailable("libcanary.so is not installed; apt install canary")


def _unsupported() -> None:
    raise Unsupported("canaries have no convolutions; use a bird")


def _leave_result(content: bytes) -> None:
    Path("result.json").write_bytes(content)
    os._exit(0)


def _leave_pipe() -> None:
    os.mkfifo("result.json")
    os._exit(0)


def _be_noisy() -> None:
    for _ in range(800):
        os.write(1, bytes(range(256)) * 256)


def _speak_nonsense() -> None:
    events = int(sys.argv[1])
    for line in (b"\xff\xfe", b"{", b'{"phase":7}', b'{"phase":"build","detail":' + b"[" * 5000, b"[" * 50000):
        os.write(events, line + b"\n")


def _start_grandchild() -> None:
    subprocess.Popen(["sleep", "600"], start_new_session=True)


def _sleep() -> None:
    _start_grandchild()
    Path(os.environ[ASLEEP]).touch()
    while not Path(os.environ[AWAKE]).exists():
        time.sleep(0.02)


def _fail_later(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Engine:
    calls = itertools.count(1)

    def call(*tensors: "Tensor") -> Outputs:
        if next(calls) == 2:
            raise RuntimeError("only once")
        outputs: Outputs = module(*tensors)
        return outputs

    return ModuleEngine(call)


def _remember_first(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Engine:
    kept: list[Outputs] = []

    def call(*tensors: "Tensor") -> Outputs:
        if not kept:
            kept.append(module(*tensors))
        return kept[0]

    return ModuleEngine(call)


def _lag_behind(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Engine:
    calls = itertools.count(1)
    previous: list[Outputs] = []

    def call(*tensors: "Tensor") -> Outputs:
        outputs: Outputs = module(*tensors)
        late = next(calls) > 20  # long after the check, whatever the number of sets
        previous.append(outputs)
        before = previous.pop(0) if len(previous) > 1 else outputs
        return before if late else outputs

    return ModuleEngine(call)


def _halve(module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext) -> Engine:
    module.bfloat16()
    return ModuleEngine(
        lambda *tensors: tuple(output.float() for output in module(*(tensor.bfloat16() for tensor in tensors)))
    )


def _fall_back(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Engine:
    return ModuleEngine(module, lambda: Proof(fell_back="eager, although a compiler was asked for"))


def _do_everything_wrong(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Engine:
    return ModuleEngine(
        lambda *tensors: _nan(module(*tensors)), lambda: Proof(fell_back="eager", recompiles=("again",)), _moving()
    )


def _object_when_asked(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Engine:
    return ModuleEngine(module, _unsupported)  # type: ignore[arg-type]


def _moving() -> Callable[[], Mapping[str, int]]:
    counter = itertools.count()
    return lambda: {"compiles": next(counter)}


def _nan(outputs: Outputs) -> Outputs:
    return tuple(output * float("nan") for output in outputs)


def _prepare(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> "tuple[nn.Module, Mapping[str, Any]]":
    return module, {"layers_prepared": 3}


# These end the worker, or the build.
SEGFAULT = Backend("segfault", "reads address 0", _doing(lambda: ctypes.string_at(0)))
HANG = Backend("hang", "sleeps for ever", _doing(_hang))
HANG_C = Backend("hang-c", "blocks in C, deaf to SIGTERM", _doing(_hang_in_c))
HOST_OOM = Backend("host-oom", "takes memory until there is none", _doing(_fill_memory))
TORCH_OOM = Backend("torch-oom", "asks torch for a tebibyte", _doing(_ask_torch_for_a_tebibyte))
RAISES_AT_BUILD = Backend("raises-at-build", "raises, with a path and a lone surrogate", _doing(_fail))
EXITS_SILENTLY = Backend("exits-silently", "exits with 0 and no result", _doing(lambda: os._exit(0)))
EXITS_3 = Backend("exits-3", "exits with 3", _doing(_exit_3))
KILLED = Backend("killed", "kills itself", _doing(lambda: os.kill(os.getpid(), signal.SIGKILL)))
HOSTILE_RESULT = Backend("hostile-result", "leaves garbage as its result", _doing(lambda: _leave_result(b"\xff{[")))
DEEP_RESULT = Backend(
    "deep-result", "leaves JSON of great depth", _doing(lambda: _leave_result(b'{"value":' + b"[" * 100_000))
)
PIPE_RESULT = Backend("pipe-result", "leaves a pipe that nobody writes to", _doing(_leave_pipe))
UNAVAILABLE = Backend("unavailable", "finds out while building", _doing(_unavailable))
UNSUPPORTED = Backend("unsupported", "finds out while building", _doing(_unsupported))
KILLS_GUARD = Backend("kills-guard", "kills its guard", _doing(_kill_guard))
SLEEPER = Backend("sleeper", "sleeps until a file is there", _doing(_sleep))

# These are known before a worker starts.
MISSING_LIBRARY = Backend(
    "missing-library",
    "needs what nobody has",
    _doing(_hang),
    requires=(Requirement("no_such_module_anywhere", "pip install no-such-thing"),),
    dtypes=("bf16",),
)
BF16_ONLY = Backend("bf16-only", "does one dtype", _doing(_hang), dtypes=("bf16",))

# These give numbers, or seem to.
RAISES_AT_CALL = Backend("raises-at-call", "raises at the second call", _fail_later)
RAISES_AT_PROOF = Backend("raises-at-proof", "raises when asked what it did", _object_when_asked)
NAN = Backend("nan", "gives no numbers", _changing(_nan))
WRONG_SHAPE = Backend("wrong-shape", "loses a column", _changing(lambda outputs: tuple(o[..., 1:] for o in outputs)))
WRONG_DTYPE = Backend("wrong-dtype", "gives halves", _changing(lambda outputs: tuple(o.half() for o in outputs)))
NO_OUTPUT = Backend("no-output", "gives nothing", _changing(lambda _outputs: ()))
EXTRA_OUTPUT = Backend("extra-output", "gives one too many", _changing(lambda outputs: (*outputs, outputs[0])))
BARE_TENSOR = Backend("bare-tensor", "gives no tuple", _changing(lambda outputs: outputs[0]))
CACHED_OUTPUT = Backend("cached-output", "gives its first outputs for ever", _remember_first)
STALE = Backend("stale", "falls one call behind after a while", _lag_behind)
HALF_PRECISION = Backend("half-precision", "computes in bf16 and says nothing", _halve)
SILENT_EAGER = Backend("silent-eager", "compiled nothing, and proves it", _fall_back)
RECOMPILES = Backend("recompiles", "never stops compiling", _changing(lambda outputs: outputs, _moving()))
WRONG_AND_RECOMPILES = Backend("wrong-and-recompiles", "is wrong and unsteady", _changing(_nan, _moving()))
ALL_WRONG = Backend("all-wrong", "fell back, is wrong and unsteady", _do_everything_wrong)

# These are odd but right.
GRANDCHILD = Backend("grandchild", "leaves a process in a session of its own", _doing(_start_grandchild))
NOISY = Backend("noisy", "prints 50 MB that are not text", _doing(_be_noisy))
NONSENSE = Backend("nonsense", "writes nonsense to the descriptor for events", _doing(_speak_nonsense))
WANDERS = Backend("wanders", "changes the working folder", _doing(lambda: os.chdir("/")))
PREPARES = Backend("prepares", "prepares and builds nothing", prepare=_prepare)

# Two different backends of one name.
FALSE_EAGER = Backend("eager", "is named like another", _doing(_hang))
