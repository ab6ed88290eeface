"""Returns outputs stored at build time, whatever the inputs: its time is what the harness itself costs a call.

Not in the table: a sweep reaches it as `bakeoff.backends.null:BACKEND` only, and its rows fail parity by construction
as soon as a second set of inputs is checked.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bakeoff.backends.backend import Backend, BuildContext, Capability, Engine, ModuleEngine, NoOptions
from bakeoff.backends.exported import TORCH

if TYPE_CHECKING:
    from torch import Tensor, nn


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext) -> Engine:
    outputs = module(*inputs.values())
    return ModuleEngine(lambda *_tensors: outputs)


BACKEND = Backend(
    name="null",
    summary="returns stored outputs; measures the harness",
    build=_build,
    capability=Capability(requires=(TORCH,)),
)
