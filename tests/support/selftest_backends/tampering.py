"""Backends that change what they are checked against: references, their own result.

Nothing stops code in the measured process from doing so; what the parent can check by itself bounds it.
"""

import atexit
import json
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.backend import BuildContext, Engine, NoOptions
from bakeoff.selftest.faulty import Inputs, canary, doing
from selftest_backends.faulty import HALF_PRECISION

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


# Fault: when the process exits, the samples in the result are divided by three.
def _edit_result() -> None:
    path = Path("result.json")
    answer = json.loads(path.read_bytes())
    clock = answer["value"]["measurement"]["latency"]
    clock["samples_ns"] = [sample // 3 for sample in clock["samples_ns"]]
    path.write_text(json.dumps(answer))


EDITS_RESULT = canary(
    "edits-result", "edits its result when the process exits", doing(lambda: atexit.register(_edit_result))
)
