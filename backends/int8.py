"""torchao int8 for linear layers: weights with a scale per output channel, activations at run time or not at all.

Prepares a module that another backend compiles; without a compiler it runs slower than the original module. Layers
whose inputs have too few rows for this torch's integer product are skipped, by name. On CUDA, torch 2.11 refuses inputs
of 16 rows or fewer (pytorch#178469 lifts that). On a CPU, torch 2.13 leaves the result unwritten, without an error, if
the input's only row has stride 0 (pytorch#195066), as inductor makes it on CPUs with AMX.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    DefaultOptions,
    Prepared,
    Suite,
)
from bakeoff.backends.graphs import TORCH
from bakeoff.backends.quantization import LEAST_ELEMENTS, TORCHAO, negative_least, quantise_linear, quiet
from bakeoff.backends.torch_internals import int8_product
from bakeoff.models.component import Quantisation
from bakeoff.models.types import Device
from bakeoff.models.words import counted

if TYPE_CHECKING:
    from torch import Tensor, nn

_MOST_REFUSED_ROWS = 16
_ROWS_REFUSED = "needs to be greater than 16"
"""Part of torch 2.11's error for an input with too few rows (aten/src/ATen/native/cuda/Blas.cpp, _int_mm_out_cuda)."""

_TRIED = 32
"""Number of columns of the input with which a product is tried."""


@dataclass(frozen=True, slots=True)
class Options:
    kind: Literal["dynamic", "weight-only"] = "dynamic"
    """`dynamic` also quantises activations at run time."""
    layers: str = ""
    """Text that a layer's name must contain; empty: every layer."""
    least: int = LEAST_ELEMENTS
    """Weights with fewer elements are not quantised."""


def _prepare(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Prepared:
    with quiet():
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig

    config = Int8WeightOnlyConfig() if options.kind == "weight-only" else Int8DynamicActivationInt8WeightConfig()
    refused = _refused(module, inputs, context.device) if options.kind == "dynamic" else {}
    prepared = quantise_linear(module, config, f"int8 {options.kind}", options.layers, options.least, refused)
    if options.kind == "weight-only":
        for name in prepared.quantised:
            module.get_submodule(name).register_forward_pre_hook(_make_contiguous)
    return prepared


def _refused(module: "nn.Module", inputs: "Mapping[str, Tensor]", device: str) -> dict[str, str]:
    """Return the layers whose inputs have too few rows for the device's integer product, each with the reason to skip
    it."""
    if device == "cuda" and _refuses_few_rows(inputs):
        most, why = _MOST_REFUSED_ROWS, f"this torch multiplies int8 only with more than {_MOST_REFUSED_ROWS}"
    elif device == "cpu" and _leaves_one_row_unwritten():
        most, why = 1, "this torch leaves the int8 product of one row unwritten in compiled programs (pytorch#195066)"
    else:
        return {}
    fewest = _fewest_rows(module, inputs)
    return {name: f"its input has {counted(rows, 'row')}, and {why}" for name, rows in fewest.items() if rows <= most}


def _refuses_few_rows(inputs: "Mapping[str, Tensor]") -> bool:
    """Return whether the device's integer product refuses an input of one row."""
    import torch

    device = next(iter(inputs.values())).device
    row, square = (torch.zeros(rows, _TRIED, dtype=torch.int8, device=device) for rows in (1, _TRIED))
    try:
        int8_product(row, square)
    except RuntimeError as error:
        if _ROWS_REFUSED not in str(error):
            raise
        return True
    return False


def _leaves_one_row_unwritten() -> bool:
    """Return whether this CPU's integer product skips an input of one row with stride 0, tried with ones."""
    import torch

    row = torch.ones(1, _TRIED, dtype=torch.int8).as_strided((1, _TRIED), (0, 1))
    square, found = torch.ones(_TRIED, _TRIED, dtype=torch.int8), torch.zeros(1, _TRIED, dtype=torch.int32)
    int8_product(row, square, found)
    return not bool((found == _TRIED).all())


def _fewest_rows(module: "nn.Module", inputs: "Mapping[str, Tensor]") -> dict[str, int]:
    """Return the smallest number of rows in an input of each linear layer, found by calling the module once.

    Calls of `functional.linear` with a part of a layer's weight count too.
    """
    from torch import nn
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    layers = {
        part.weight.untyped_storage().data_ptr(): name
        for name, part in module.named_modules()
        if isinstance(part, nn.Linear)
    }
    fewest: dict[str, int] = {}

    class CountRows(TorchFunctionMode):
        def __torch_function__(
            self,
            function: Callable[..., object],
            _types: object,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> object:
            if function is functional.linear:
                values, weight = args[:2]
                name = layers.get(weight.untyped_storage().data_ptr())
                if name is not None:
                    rows = values.numel() // values.shape[-1]
                    fewest[name] = min(rows, fewest.get(name, rows))
            return function(*args, **(kwargs or {}))

    with CountRows():
        module(*inputs.values())
    return fewest


def _make_contiguous(_layer: "nn.Module", inputs: "tuple[Tensor, ...]") -> "tuple[Tensor, ...]":
    """Return contiguous copies of transposed inputs: the int8 product on a CPU (aten::_weight_int8pack_mm) refuses
    these."""
    return tuple(tensor.contiguous() for tensor in inputs)


def _unsupported(options: Options, _device: str, _dtype: str) -> str | None:
    return negative_least(options.least)


def _quantises(options: Options) -> Quantisation:
    return options.kind


_CAPTURED = "inductor[mode=reduce-overhead]"
_DEFAULTS: tuple[tuple[Device, Options, str, Suite], ...] = (
    ("cpu", Options(), "inductor", "default"),
    ("cuda", Options(), _CAPTURED, "default"),
    ("cpu", Options(), "aoti", "full"),
    ("cpu", Options(kind="weight-only"), "inductor", "full"),
    ("cuda", Options(), "inductor", "full"),
    ("cuda", Options(), "aoti", "full"),
    ("cuda", Options(kind="weight-only"), _CAPTURED, "full"),
)
"""Default options with the backend that builds. On CUDA with graphs, as in fp8: a call of one or two milliseconds takes
longer to launch than to compute."""

BACKEND = Backend(
    name="int8",
    summary="torchao int8 for linear layers, dynamic or weights only; another backend compiles",
    prepare=_prepare,
    options=Options,
    defaults=(
        *(
            DefaultOptions(options, devices=(device,), dtypes=("bf16",), then=then, suite=suite, layers=("linear",))
            for device, options, then, suite in _DEFAULTS
        ),
    ),
    requires=(TORCH, TORCHAO),
    dtypes=("fp32", "bf16"),
    unsupported_options=_unsupported,
    unsupported_sizes=None,
    checks="torchao replaced the weights of at least one layer, and the weights take fewer bytes than before",
    quantises=_quantises,
    weight_copies=2.0,
    overlaps=True,
)
