"""Backends that change what they are checked against: references, the lab's clock, their own result.

Nothing stops code in the measured process from doing so; what the parent can check by itself bounds it.
"""

import atexit
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.backend import BuildContext, Engine, ModuleEngine, NoOptions
from bakeoff.selftest.faulty import HALF_PRECISION, Inputs, canary, doing

if TYPE_CHECKING:
    from torch import nn


# Fault: computes in half precision, and writes a larger error of eager into the references, which allows that. Later
# rows of the same dtype would be checked against that limit too.
def _rewrite_limits(module: "nn.Module", inputs: Inputs, options: NoOptions, context: BuildContext) -> Engine:
    job = json.loads(Path("job.json").read_bytes())["job"]
    path = Path(job.get("measure", job)["reference_folder"]) / f"eager-{context.dtype}.json"
    eager = json.loads(path.read_bytes())
    eager["noise"] = dict.fromkeys(eager["noise"], 10.0)
    path.write_text(json.dumps(eager))
    assert HALF_PRECISION.build is not None
    return HALF_PRECISION.build(module, inputs, options, context)


REWRITES_LIMITS = canary("rewrites-limits", "writes larger limits into the references", _rewrite_limits)


# Fault: the function that the lab times calls with is replaced by one that runs at a third of the speed.
def _slow_down_clock(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    clock = sys.modules["bakeoff.worker.clocks.clock"]
    original: Callable[[], int] = clock.now_ns
    clock.now_ns = lambda: original() // 3  # type: ignore[attr-defined]
    return ModuleEngine(module)


# Fault: when the process exits, the samples in the result are divided by three.
def _edit_result() -> None:
    path = Path("result.json")
    answer = json.loads(path.read_bytes())
    clock = answer["value"]["measurement"]["latency"]
    clock["samples_ns"] = [sample // 3 for sample in clock["samples_ns"]]
    path.write_text(json.dumps(answer))


# Fault: tells the parent a hash of a result of its own, before the lab does.
def _seal_itself() -> None:
    os.write(int(sys.argv[1]), json.dumps({"phase": "", "seal": "0" * 64}).encode() + b"\n")


SLOWS_CLOCK = canary("slows-clock", "replaces the lab's clock by a slower one", _slow_down_clock)
EDITS_RESULT = canary(
    "edits-result", "edits its result when the process exits", doing(lambda: atexit.register(_edit_result))
)
SEALS_ITSELF = canary("seals-itself", "states a hash of a result of its own", doing(_seal_itself))
