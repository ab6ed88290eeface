"""torch's global flags that decide an exported program's precision: those it was verified under, and those now set."""

from collections.abc import Mapping

from bakeoff.models.types import Scalar


def verified_flags(device: str, dtype: str) -> dict[str, Scalar]:
    """Return the flags under which programs of torch's own operators are verified, for a device and a dtype.

    Names are those of a record's settings. Dtype tf32 allows TF32; fp32 forbids it in matrix products and in cuDNN's
    convolutions, although torch's default allows it in the latter.
    """
    short = dtype == "tf32"
    products: dict[str, Scalar] = {"float32_matmul_precision": "high" if short else "highest"}
    halves = ("bf16", "fp16") if dtype == "given" else (dtype,)
    reduced: dict[str, Scalar] = {f"{half}_reduced_precision_reduction": True for half in halves}
    if dtype in ("fp32", "tf32", "given"):
        products |= {"cudnn_allow_tf32": short} if device == "cuda" else {}
        return products | (reduced if dtype == "given" and device == "cuda" else {})
    return reduced if device == "cuda" else {}


def differing_flags(flags: Mapping[str, Scalar]) -> list[str]:
    """Return Python statements that set those of the flags which this process has set otherwise.

    Flags that this version does not know are ignored.
    """
    import torch

    matmul = torch.backends.cuda.matmul
    known: dict[str, tuple[Scalar, str]] = {
        "float32_matmul_precision": (
            torch.get_float32_matmul_precision(),
            "torch.set_float32_matmul_precision({!r})",
        ),
        "cudnn_allow_tf32": (torch.backends.cudnn.allow_tf32, "torch.backends.cudnn.allow_tf32 = {!r}"),
    }
    for dtype in ("bf16", "fp16"):
        name = f"allow_{dtype}_reduced_precision_reduction"
        known[name.removeprefix("allow_")] = (
            bool(getattr(matmul, name)),
            f"torch.backends.cuda.matmul.{name} = {{!r}}",
        )
    return [
        known[name][1].format(wanted) for name, wanted in flags.items() if name in known and known[name][0] != wanted
    ]
