"""Peak rates of known GPUs from their datasheets, at boost clock and without sparsity."""

from collections.abc import Mapping
from dataclasses import dataclass

from bakeoff.machine.host import Host


@dataclass(frozen=True, slots=True)
class Datasheet:
    """Peak rates of a GPU: bytes a second, and FLOP a second for each dtype.

    `flops` is the highest rate of a dtype for any dtype of accumulation.
    """

    name: str
    """The device's name in NVML; one with more words is another product (a laptop's GPU, an MIG instance)."""
    bytes_per_s: float
    flops: Mapping[str, float]
    source: str


def _tera(fp32: float, tf32: float, bf16: float, fp16: float) -> dict[str, float]:
    rates = {"fp32": fp32, "tf32": tf32, "bf16": bf16, "fp16": fp16}
    return {dtype: rate * 1e12 for dtype, rate in rates.items()}


_HOPPER = _tera(67, 494.7, 989.5, 989.5)
_SHEETS = (
    Datasheet("NVIDIA H200", 4.8e12, _HOPPER, "NVIDIA H200 Tensor Core GPU datasheet (SXM), halved where sparse"),
    Datasheet("NVIDIA H100 80GB HBM3", 3.35e12, _HOPPER, "NVIDIA H100 Tensor Core GPU datasheet (SXM)"),
    Datasheet("NVIDIA H100 PCIe", 2.0e12, _tera(51, 378, 756, 756), "NVIDIA H100 Tensor Core GPU datasheet (PCIe)"),
    Datasheet("NVIDIA A100-SXM4-80GB", 2.039e12, _tera(19.5, 156, 312, 312), "NVIDIA A100 80GB datasheet (SXM)"),
    Datasheet("NVIDIA A100 80GB PCIe", 1.935e12, _tera(19.5, 156, 312, 312), "NVIDIA A100 80GB datasheet (PCIe)"),
    Datasheet("NVIDIA A100-SXM4-40GB", 1.555e12, _tera(19.5, 156, 312, 312), "NVIDIA A100 40GB datasheet"),
    Datasheet("NVIDIA A100-PCIE-40GB", 1.555e12, _tera(19.5, 156, 312, 312), "NVIDIA A100 40GB datasheet"),
    Datasheet("NVIDIA L40S", 0.864e12, _tera(91.6, 183, 362.05, 362.05), "NVIDIA L40S datasheet"),
    Datasheet("NVIDIA L4", 0.3e12, _tera(30.3, 60, 121, 121), "NVIDIA L4 datasheet, halved where sparse"),
    Datasheet(
        "NVIDIA GeForce RTX 4090",
        1.008e12,
        _tera(82.6, 82.6, 165.2, 330.3),
        "NVIDIA Ada GPU architecture whitepaper, appendix A (fp16 with fp16 accumulation)",
    ),
    Datasheet(
        "NVIDIA GeForce RTX 5090",
        1.792e12,
        _tera(104.8, 104.8, 209.5, 419.0),
        "NVIDIA RTX Blackwell GPU architecture whitepaper, appendix A (fp16 with fp16 accumulation)",
    ),
)


def find_datasheet(host: Host, device: str) -> Datasheet | None:
    """The datasheet of the host's first GPU; None on a CPU and for a GPU that is not in the table."""
    if device != "cuda" or not host.gpus:
        return None
    name = str(host.gpus[0]["name"])
    return next((sheet for sheet in _SHEETS if sheet.name == name), None)
