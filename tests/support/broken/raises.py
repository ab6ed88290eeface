"""A module whose forward raises."""

from torch import Tensor, nn

from bakeoff.models.toy.network import Toy
from bakeoff.models.toy.spec import Config


class Raises(Toy):
    def forward(self, *_tensors: Tensor) -> tuple[Tensor, ...]:
        raise RuntimeError("this component never worked")


def build(config: Config, workload: str, _batch: int = 1) -> nn.Module:
    return Raises(config, workload).eval()
