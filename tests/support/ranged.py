"""Four small parts of networks whose kernels engines replace by wrong ones that are right on the given inputs."""

from dataclasses import dataclass

from bakeoff.models.component import Component, Preset, TensorSpec, Workload

WIDTH, WIDE, ROWS = 32, 512, 8
WORKLOADS = ("attend", "norm", "gate", "linear", "bounded")


@dataclass(frozen=True, slots=True)
class Config:
    pass


def workload(_config: Config, name: str, batch: int) -> Workload:
    width = WIDE if name == "norm" else WIDTH
    inputs = (TensorSpec("x", (batch, ROWS, width)),)
    return Workload(name, f"one {name}", inputs, (TensorSpec("y", (batch, ROWS, WIDTH)),))


SPEC = Component(
    name="ranged",
    summary="attention, a norm, a gate and a linear layer",
    credit="a test",
    presets=(Preset("tiny", Config(), 3 * WIDTH**2),),
    default_preset={"cpu": "tiny"},
    default_workloads={"cpu": ("attend",)},
    workload_names=lambda _config: WORKLOADS,
    workload=workload,
    tolerance_fp32=1e-4,
    network="ranged_network",
    layers=("linear",),
)
