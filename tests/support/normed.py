"""A component as a user brings one: batch normalisation, buffers that nothing fills on the meta device, own outputs."""

from dataclasses import dataclass

from bakeoff.models.component import Component, Preset, TensorSpec, Workload

WIDTH, SIDE, DEPTH = 8, 8, 3


@dataclass(frozen=True, slots=True)
class Config:
    scale: float = 1.0
    """What the part of the output that depends on the input is multiplied by."""


def workload(_config: Config, name: str, batch: int) -> Workload:
    inputs = (TensorSpec("x", (batch, 3, SIDE, SIDE)),)
    outputs = (TensorSpec("y", (batch, WIDTH)),)
    return Workload(name, "classifies", inputs, outputs)


PARAMETERS = 27 * WIDTH + (DEPTH - 1) * 9 * WIDTH**2 + DEPTH * 2 * WIDTH + WIDTH


SPEC = Component(
    name="normed",
    summary="convolutions with batch normalisation, positions from a buffer",
    credit="a test",
    presets=(Preset("plain", Config(), PARAMETERS), Preset("deaf", Config(1e-7), PARAMETERS)),
    default_preset={"cpu": "plain"},
    default_workloads={"cpu": ("classify",)},
    workload_names=lambda _config: ("classify",),
    workload=workload,
    tolerance_fp32=1e-4,
    network="normed_network",
    layers=("conv2d",),
)
