"""A module whose output does not have the shape in its spec."""

from torch import Tensor, nn

from bakeoff.models.toy.network import Toy
from bakeoff.models.toy.spec import Config


class Misshapen(Toy):
    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(output[..., 1:] for output in super().forward(*tensors))


def build(config: Config, workload: str, _batch: int = 1) -> nn.Module:
    return Misshapen(config, workload).eval()
