"""Lists the versions and hardware with known upstream problems that affect measurements."""

from collections.abc import Collection, Mapping

from packaging.version import Version

from bakeoff.machine.host import has_native_bf16
from bakeoff.models.component import Layer


def known_issues(
    versions: Mapping[str, str], device: str, dtypes: Collection[str], layers: Collection[Layer] | None = None
) -> list[str]:
    """Return a sentence for each known problem that affects variants of these dtypes on `device`.

    Without `layers`, problems of all layers are returned.
    """
    found: list[str] = []
    cudnn = versions.get("nvidia-cudnn-cu13") or versions.get("nvidia-cudnn-cu12", "")
    half = {"bf16", "fp16"} & set(dtypes)
    if (
        device == "cuda"
        and half
        and (layers is None or "conv3d" in layers)
        and cudnn
        and (9, 8) <= _release(cudnn) < (9, 15)
    ):
        found.append(
            f"cuDNN {cudnn}: half-precision conv3d in contiguous layout falls to slow_conv_dilated3d "
            "(pytorch#166122, #166643); install nvidia-cudnn >= 9.15"
        )
    on_cpu = device == "cpu" and "bf16" in dtypes
    if on_cpu and (layers is None or "conv2d" in layers) and _release(versions.get("torch", "0")) == (2, 13):
        found.append("torch 2.13 has a known bf16 conv2d problem on CPUs (pytorch#183815); compare with fp32")
    if on_cpu and not has_native_bf16():
        found.append("this CPU has no bf16 instructions: bf16 is emulated, and its times do not apply to other CPUs")
    return found


def _release(version: str) -> tuple[int, int]:
    """Return the major and minor number of a version."""
    parsed = Version(version)
    return parsed.major, parsed.minor
