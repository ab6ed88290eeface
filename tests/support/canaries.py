"""Faulty backends, each with one fault; a sweep uses them as `canaries:SEGFAULT`. No torch at import."""

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from selftest_backends import faulty as more
from selftest_backends.faulty import changing, hang, leave_result, nan

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    BuildFunction,
    Call,
    DefaultOptions,
    Engine,
    ModuleEngine,
    NoOptions,
    Outputs,
    Prepared,
    Proof,
    Requirement,
    Unavailable,
    Unsupported,
)
from bakeoff.selftest import faulty
from bakeoff.selftest.faulty import BoundEngine, canary, doing, start_grandchild

if TYPE_CHECKING:
    from torch import Tensor, nn

AWAKE, ASLEEP = "CANARY_AWAKE", "CANARY_ASLEEP"
"""Environment variables with paths: SLEEPER sleeps until the first exists, and creates the second at its start."""
REMOVED = "CANARY_REMOVED"
"""Environment variable with a path: REMOVES_REFERENCES creates it, and removes nothing once it exists."""

_CALLS_BEFORE_TIMING = 12
"""At most, of all sets together: two each to check them, and a few on changed values."""


def _ask_torch_for_a_tebibyte() -> None:
    import torch

    torch.empty(1 << 40, dtype=torch.uint8)


def _fail() -> None:
    raise RuntimeError(f"no kernel in {Path(__file__)} for \udcff\nand a second line")


def _exit_3() -> None:
    print("giving up", flush=True)
    os._exit(3)


def _store(module: "nn.Module", inputs: Mapping[str, "Tensor"], _options: NoOptions, _context: BuildContext) -> Engine:
    outputs = module(*inputs.values())
    return ModuleEngine(lambda *_tensors: outputs)


def _remove_references() -> None:
    """As somebody else who clears the cache folder meanwhile, but at a known moment and once."""
    done = Path(os.environ[REMOVED])
    if not done.exists():
        done.touch()
        job = json.loads(Path("job.json").read_bytes())["job"]
        (Path(job["reference_folder"]) / "set0.safetensors").unlink()


def _kill_guard() -> None:
    start_grandchild()
    os.kill(os.getppid(), signal.SIGKILL)
    hang()


def _unavailable() -> None:
    raise Unavailable("libcanary.so is not installed; apt install canary")


def _unsupported() -> None:
    raise Unsupported("canaries have no convolutions; use a bird")


def _leave_pipe() -> None:
    os.mkfifo("result.json")
    os._exit(0)


def _speak_nonsense() -> None:
    events = int(sys.argv[1])
    for line in (b"\xff\xfe", b"{", b'{"phase":7}', b'{"phase":"build","detail":' + b"[" * 5000, b"[" * 50000):
        os.write(events, line + b"\n")


def _sleep() -> None:
    start_grandchild()
    Path(os.environ[ASLEEP]).touch()
    while not Path(os.environ[AWAKE]).exists():
        time.sleep(0.02)


def _lag_behind(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Engine:
    calls = itertools.count(1)
    previous: list[Outputs] = []

    def call(*tensors: "Tensor") -> Outputs:
        outputs: Outputs = module(*tensors)
        late = next(calls) > 20  # long after the check, for any number of input sets
        previous.append(outputs)
        before = previous.pop(0) if len(previous) > 1 else outputs
        return before if late else outputs

    return ModuleEngine(call)


def _out_of_memory_when_bound_again(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Engine:
    numbers = itertools.count(1)
    called = [0]

    def bind(inputs: "Mapping[str, Tensor]") -> Call:
        if called[0] > _CALLS_BEFORE_TIMING:
            _ask_torch_for_a_tebibyte()

        def call() -> Outputs:
            called[0] = next(numbers)
            outputs: Outputs = module(*inputs.values())
            return outputs

        return call

    return BoundEngine(bind)


def _object_when_asked(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Engine:
    return ModuleEngine(module, _unsupported)  # type: ignore[arg-type]


def _moving() -> Callable[[], Mapping[str, int]]:
    counter = itertools.count()
    return lambda: {"compiles": next(counter)}


def _prepare(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Prepared:
    import torch

    torch.backends.cuda.enable_flash_sdp(False)
    return Prepared(module, facts={"layers_prepared": 3}, settings={"flash_sdp": False})


# These end the worker or the build.
SEGFAULT = faulty.SEGFAULT
HANG = more.HANG
HANG_C = faulty.HANG_C
HOST_OOM = faulty.HOST_OOM
TORCH_OOM = canary("torch-oom", "asks torch for a tebibyte", doing(_ask_torch_for_a_tebibyte))
RAISES_AT_BUILD = canary("raises-at-build", "raises, with a path and a lone surrogate", doing(_fail))
EXITS_SILENTLY = more.EXITS_SILENTLY
EXITS_3 = canary("exits-3", "exits with 3", doing(_exit_3))
KILLED = more.KILLED
HOSTILE_RESULT = more.HOSTILE_RESULT
DEEP_RESULT = canary(
    "deep-result", "leaves JSON of great depth", doing(lambda: leave_result(b'{"value":' + b"[" * 100_000))
)
PIPE_RESULT = canary("pipe-result", "leaves a pipe that nobody writes to", doing(_leave_pipe))
UNAVAILABLE = canary("unavailable", "finds out while building", doing(_unavailable))
UNSUPPORTED = canary("unsupported", "finds out while building", doing(_unsupported))
KILLS_GUARD = canary("kills-guard", "kills its guard", doing(_kill_guard))
REMOVES_REFERENCES = canary("removes-references", "removes a file of the references", doing(_remove_references))
SLEEPER = canary("sleeper", "sleeps until a file is there", doing(_sleep))

# These are refused before a worker starts.
MISSING_LIBRARY = Backend(
    "missing-library",
    "needs what nobody has",
    doing(hang),
    requires=(Requirement("no_such_module_anywhere", "pip install no-such-thing"),),
    dtypes=("bf16",),
)
BF16_ONLY = Backend(
    "bf16-only",
    "does one dtype",
    doing(hang),
    dtypes=("bf16",),
)

# These give wrong numbers or no numbers.
RAISES_AT_CALL = more.RAISES_AT_CALL
OOM_WHEN_CHECKED = canary(
    "oom-when-checked", "is out of memory when it is bound after the timing", _out_of_memory_when_bound_again
)
RAISES_AT_PROOF = canary("raises-at-proof", "raises when asked what it did", _object_when_asked)
NAN = more.NAN
WRONG_SHAPE = more.WRONG_SHAPE
EXTRA_OUTPUT = canary("extra-output", "gives one too many", changing(lambda outputs: (*outputs, outputs[0])))
CACHED_OUTPUT = more.CACHED_OUTPUT
STORED = canary("stored", "returns the outputs of its build, whatever the inputs", _store, runs_eagerly=False)
STALE = canary("stale", "falls one call behind after a while", _lag_behind)
HALF_PRECISION = more.HALF_PRECISION
SILENT_EAGER = faulty.SILENT_EAGER
RECOMPILES = canary("recompiles", "never stops compiling", changing(lambda outputs: outputs, _moving()))

# These are unusual but correct.
GRANDCHILD = faulty.GRANDCHILD
NOISY = more.NOISY
NONSENSE = canary("nonsense", "writes nonsense to the descriptor for events", doing(_speak_nonsense))
WANDERS = canary("wanders", "changes the working folder", doing(lambda: os.chdir("/")))
PREPARES = Backend("prepares", "prepares and builds nothing", prepare=_prepare)


class _Replaying(Engine):
    """Imitates a captured CUDA graph: calls read the bound tensors in place, or copy them into buffers of their own."""

    def __init__(self, module: "nn.Module", copies: bool) -> None:
        self._module, self._copies = module, copies

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        import torch

        tensors = tuple(inputs.values())
        buffers = tuple(tensor.clone() for tensor in tensors) if self._copies else tensors

        def call() -> Outputs:
            if self._copies:
                for buffer, tensor in zip(buffers, tensors, strict=True):
                    buffer.copy_(tensor)
            with torch.no_grad():
                return tuple(self._module(*buffers))

        return call

    def captures(self) -> bool:
        return not self._copies

    def copies_inputs(self) -> bool:
        return self._copies


def _replaying(copies: bool) -> BuildFunction:
    def build(
        module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
    ) -> Engine:
        return _Replaying(module, copies)

    return build


REPLAYS = canary("replays", "replays what it captured for fixed buffers", _replaying(copies=False))
REPLAYS_COPIES = canary("replays-copies", "copies its inputs before it replays", _replaying(copies=True))


def _hash(module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, context: BuildContext) -> Engine:
    for _ in range(2):
        with context.untimed():
            time.sleep(0.1)
    return ModuleEngine(module)


HASHES = canary("hashes", "spends a fifth of a second on the instrument's own work", _hash)


BURNT_S = 0.3
"""CPU seconds, of each of the two in `_burn`."""


def _burn(module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, context: BuildContext) -> Engine:
    """Computes in a process that it starts, and as long in a pause that does not count."""
    code = f"import time\nwhile time.process_time() < {BURNT_S}: pass"
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
    with context.untimed():
        until = time.process_time() + BURNT_S
        while time.process_time() < until:
            pass
    return ModuleEngine(module)


BURNS = canary("burns", "computes in a process of its own and in an untimed pause", _burn)


@dataclass(frozen=True, slots=True)
class Repeats:
    """How many times each call runs the module, for calls whose times have a known ratio."""

    times: int = 1


def _repeat(module: "nn.Module", _inputs: "Mapping[str, Tensor]", options: Repeats, _context: BuildContext) -> Engine:
    times = options.times

    def call(*tensors: "Tensor") -> Outputs:
        for _ in range(times - 1):
            module(*tensors)
        outputs: Outputs = module(*tensors)
        return outputs

    return ModuleEngine(call)


REPEATS = canary(
    "repeats", "runs the module several times a call", _repeat, options=Repeats, defaults=(DefaultOptions(Repeats()),)
)

# Two different backends with the same name.
FALSE_EAGER = canary("eager", "is named like another", doing(hang))
OTHER_NAN = canary("nan", "is named like another of the same user", changing(nan))
OWN_BASELINE = canary("own-baseline", "claims that speed-ups are against it", doing(hang), baseline=True)


# These keep caches of their own, in every place that they find by themselves.
def _hide_cache(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Engine:
    """An engine that states in which places an earlier build had left something."""
    places = {
        "home": Path.home() / ".canary",
        "xdg": Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "canary",
        "inductor": Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / "canary",
        "tmp": Path(tempfile.gettempdir()) / "canary",
    }
    found = [name for name, path in places.items() if path.exists()]
    for path in places.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return ModuleEngine(module, lambda: Proof(facts={"found": " ".join(found)}))


HIDES_CACHE = canary("hides-cache", "keeps caches that it does not state", _hide_cache)
STATES_CACHE = canary("states-cache", "keeps caches and says so", _hide_cache, caches=True)
