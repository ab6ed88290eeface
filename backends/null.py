"""Returns the outputs stored at build time, whatever the inputs; its time per call is the measurement's own overhead.

It is not in the table; a sweep runs it as `bakeoff.backends.null:BACKEND`. Its rows always fail parity, at the second
set of inputs.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bakeoff.backends.backend import Backend, BuildContext, Capability, Engine, ModuleEngine, NoOptions
from bakeoff.backends.graphs import TORCH

if TYPE_CHECKING:
    from torch import Tensor, nn


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext) -> Engine:
    outputs = module(*inputs.values())
    return ModuleEngine(lambda *_tensors: outputs)


BACKEND = Backend(
    name="null",
    summary="returns stored outputs; measures the overhead of the measurement",
    build=_build,
    capability=Capability(requires=(TORCH,)),
)
