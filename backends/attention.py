"""Chooses one of torch's kernels for `scaled_dot_product_attention`, for the build and for all calls.

The module is not changed: torch's other attention kernels are switched off for the whole process, and a module that the
chosen kernel cannot compute is refused. The names of operators and kernels show which kernel ran, because a compiler is
not bound by the choice: inductor may recognise products and a softmax as attention and call a fused kernel again
(torch/_inductor/fx_passes/fuse_attention.py), and its cache key does not include the choice, so a graph that was
compiled for one kernel may be loaded for another.

`fa3` and `fa4` are FlashAttention 3 (Hopper) and 4 (Hopper and Blackwell), which torch calls in place of its own flash
kernel once activated (torch/nn/attention/__init__.py, activate_flash_attention_impl; 2.13). Their packages are not
torch's, and no card has run them here. Other functions, such as xformers and SageAttention, a module must call itself.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    DefaultOptions,
    Prepared,
    Suite,
    Unsupported,
)
from bakeoff.backends.graphs import TORCH
from bakeoff.backends.torch_internals import profile_every_thread

if TYPE_CHECKING:
    from torch import Tensor, nn

Kind = Literal["math", "flash", "efficient", "cudnn", "fa3", "fa4"]

_SETTINGS: Mapping[Kind, str] = {
    "flash": "flash_sdp",
    "efficient": "memory_efficient_sdp",
    "cudnn": "cudnn_sdp",
    "math": "math_sdp",
    "fa3": "flash_sdp",
    "fa4": "flash_sdp",
}
"""Name of each kernel's setting in records."""
_PACKAGES: Mapping[Kind, tuple[str, str]] = {
    "fa3": ("flash_attn_interface", "build the folder hopper of Dao-AILab/flash-attention"),
    "fa4": ("flash_attn", "pip install flash-attn-4"),
}
"""The package of each kernel that is not torch's (torch/nn/attention/_fa3.py and _fa4.py, 2.13), and how to get it."""
_OF_TORCH = "pytorch_flash"
"""Namespace of torch's own flash kernel, FlashAttention 2, in the names of CUDA kernels."""
_NAMES: Mapping[Kind, tuple[str, ...]] = {
    "cudnn": ("cudnn_attention", "native_sdpa"),
    "efficient": ("efficient_attention", "fmha_cutlass"),
    "flash": ("flash_attention", "flash_fwd", "flashattn"),
}
"""Parts of the names of each fused kernel's operators and CUDA kernels, in the order in which they are searched:
`cudnn_generated_fort_native_sdpa_sm90_flash_fprop…` is cuDNN's. `math` is products and a softmax, which have no name of
their own."""
_ON_CPU: tuple[Kind, ...] = ("math", "flash")
_NO_KERNEL = ("No available kernel", "No viable backend", "SDPA forward unsupported")
"""Parts of torch's errors if no enabled kernel can compute a call (aten/src/ATen/native/transformers/sdp_utils_cpp.cpp,
cuda/sdp_utils.cpp and attention.cpp; 2.11 to 2.13; nn/attention/_fa3.py and _fa4.py, 2.13)."""


_OF_OTHERS = ("not used because:", "has been runtime disabled")
"""Parts of torch's warnings that are no reason: headings, and one for each kernel that is switched off."""


@dataclass(frozen=True, slots=True)
class Options:
    kind: Kind = "flash"
    """`math` is plain products and a softmax; all but it and `flash` exist on CUDA only."""


def _prepare(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, _context: BuildContext) -> Prepared:
    before = _enabled()
    own = options.kind.upper() if options.kind in _PACKAGES else ""
    _enable(dict.fromkeys(_SETTINGS.values(), False) | {_SETTINGS[options.kind]: True, FLASH: own})
    try:
        calls = _count_calls(module, inputs, options.kind)
    except BaseException:
        _enable(before)
        raise
    return Prepared(
        module,
        facts={"attention": options.kind, "attention_calls": calls},
        settings=_enabled(),
        ran_instead=(partial(_ran_instead, options.kind),),
    )


def _count_calls(module: "nn.Module", inputs: "Mapping[str, Tensor]", kind: Kind) -> int:
    """Count torch's attention calls in one call of the module.

    Raises Unsupported if there are none, or if the kernel `kind` cannot compute one.
    """
    with warnings.catch_warnings(record=True) as said, profile_every_thread() as recorded:
        warnings.simplefilter("always")
        try:
            module(*inputs.values())
        except RuntimeError as error:
            if not any(text in str(error) for text in _NO_KERNEL):
                raise
            texts = (str(entry.message).partition(" (Triggered internally")[0].strip() for entry in said)
            why = "; ".join(text for text in texts if not any(other in text for other in _OF_OTHERS))
            raise Unsupported(f"torch has no {kind} attention for this component: {why or error}") from error
    calls = sum(event.name == "aten::scaled_dot_product_attention" for event in recorded.function_events)
    if not calls:
        raise Unsupported("this workload never calls torch's scaled_dot_product_attention; leave attention out")
    return calls


FLASH = "flash_attention"
"""Name of the setting in records; absent where torch's flash kernel is its own."""


def flash_implementation() -> str:
    """Return the implementation that torch calls in place of its own flash kernel; "": none."""
    from torch.nn import attention

    active = getattr(attention, "current_flash_attention_impl", None)  # absent in older versions
    return (active() if active else None) or ""


def use_flash_implementation(name: str) -> None:
    """Have torch call this implementation of flash attention in this process; "": its own.

    Raises Unsupported if the package is not what this version of torch expects, or if torch has none of the name.
    """
    from torch.nn import attention

    if name == flash_implementation():
        return
    if not name:
        attention.restore_flash_attention_impl()
        return
    try:
        attention.activate_flash_attention_impl(name)
    except (AttributeError, ImportError, RuntimeError, ValueError) as error:
        raise Unsupported(f"torch cannot activate {name}: {error}; use kind=flash") from error


def _enabled() -> dict[str, str | int | float | bool]:
    from torch.backends import cuda

    own = flash_implementation()
    return {
        **({FLASH: own} if own else {}),
        "flash_sdp": cuda.flash_sdp_enabled(),
        "memory_efficient_sdp": cuda.mem_efficient_sdp_enabled(),
        "cudnn_sdp": cuda.cudnn_sdp_enabled(),
        "math_sdp": cuda.math_sdp_enabled(),
    }


def _enable(settings: Mapping[str, str | int | float | bool]) -> None:
    """Switch torch's attention kernels on or off. The settings also apply on a CPU, which has the kernels flash and
    math."""
    from torch.backends import cuda

    use_flash_implementation(str(settings.get(FLASH, "")))
    cuda.enable_flash_sdp(bool(settings["flash_sdp"]))
    cuda.enable_mem_efficient_sdp(bool(settings["memory_efficient_sdp"]))
    cuda.enable_cudnn_sdp(bool(settings["cudnn_sdp"]))
    cuda.enable_math_sdp(bool(settings["math_sdp"]))


def _ran_instead(kind: Kind, names: frozenset[str], complete: bool) -> str:
    """Return what computed attention instead of `kind`, by the names of what ran; "" if nothing shows a substitute."""
    found = {name: fused for name in sorted(names) if (fused := _fused_kind(name)) is not None}
    family = "flash" if kind in _PACKAGES else kind
    others = (name for name, fused in found.items() if fused != family or (kind != family and _OF_TORCH in name))
    other = next(others, None)
    if other is not None:
        return f"{found[other]} attention: {other} ran, and {kind} was requested"
    if kind != "math" and complete and not found:
        return f"attention without a fused kernel: no kernel of {kind} attention ran"
    return ""


def _fused_kind(name: str) -> Kind | None:
    lower = name.lower()
    return next((kind for kind, parts in _NAMES.items() if any(part in lower for part in parts)), None)


def _missing(options: Options, _device: str) -> str | None:
    module, install = _PACKAGES.get(options.kind, ("torch", ""))
    return None if find_spec(module) else f"{module} is not installed; {install}"


def _unsupported(options: Options, device: str, _dtype: str) -> str | None:
    if device == "cpu" and options.kind not in _ON_CPU:
        return f"torch has no {options.kind} attention on a CPU; use kind={' or kind='.join(_ON_CPU)}"
    return None


def _unsupported_builder(_options: Options, builder: Backend) -> str | None:
    if builder.own_attention:
        return f"{builder.name} computes attention with kernels of its own, whatever torch is told; leave attention out"
    return None


_ON_CUDA: Mapping[Kind, Suite] = {
    "flash": "default",
    "cudnn": "default",
    "efficient": "full",
    "math": "full",
    "fa3": "full",
    "fa4": "full",
}
"""The suite of each kind. Which of flash and cuDNN is faster differs by card: cuDNN's takes 1/1.7 to 1/2.3 of the time
on Hopper, 1.2 times as long on an A100 (huggingface/transformers#48163)."""

BACKEND = Backend(
    name="attention",
    summary="one attention kernel for build and calls: math, flash, efficient, cudnn, fa3 or fa4",
    prepare=_prepare,
    options=Options,
    defaults=(
        *(
            DefaultOptions(
                Options(kind),
                devices=("cuda",),
                dtypes=("bf16",),
                then="inductor[mode=reduce-overhead,freezing]",
                suite=suite,
                layers=("attention",),
            )
            for kind, suite in _ON_CUDA.items()
        ),
        *(
            DefaultOptions(
                Options(kind), devices=("cpu",), dtypes=("bf16",), then="inductor", suite="full", layers=("attention",)
            )
            for kind in _ON_CPU
        ),
    ),
    requires=(TORCH,),
    missing=_missing,
    unsupported_options=_unsupported,
    unsupported_builder=_unsupported_builder,
    unsupported_sizes=None,
    checks="by the names of the operators or kernels that a call ran, the chosen attention ran and no other",
    weight_copies=0.0,
    overlaps=True,
)
