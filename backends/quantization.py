"""Helpers for backends that quantise linear layers with torchao: choosing layers, and the reasons for skipped ones."""

import contextlib
import io
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import Prepared, Requirement, Unsupported
from bakeoff.backends.graphs import INSTALL
from bakeoff.backends.torch_internals import read_inductor_settings
from bakeoff.models.words import counted, some_of

if TYPE_CHECKING:
    from torch import nn

TORCHAO = Requirement("torchao", INSTALL)
_NAMED = 6
"""Number of layers that a message lists."""
LEAST_ELEMENTS = 1 << 16
"""Default for `least`: reading a smaller weight takes less time than quantising the layer's activations."""


def negative_least(least: int) -> str | None:
    """Return why `least` is not a valid number of elements; None if it is."""
    return None if least >= 0 else f"least={least} is negative; give 0 or more elements"


def quantise_linear(
    module: "nn.Module", config: Any, how: str, layers: str, least: int, refused: Mapping[str, str] | None = None
) -> Prepared:
    """Quantise, with torchao, each linear layer with `layers` in its name and at least `least` elements in its weight.

    `config` is torchao's; `how` describes it in records. `refused` maps layers that torchao's kernels cannot compute to
    the reasons. Changes the module in place. Raises Unsupported if no layer qualifies. torchao also changes inductor's
    settings for the whole process, which `Prepared.settings` lists.
    """
    chosen, skipped = choose(module, layers, least)
    if not chosen:
        raise Unsupported(_why_none(module, layers, least))
    left_out = {name: reason for name, reason in (refused or {}).items() if name in chosen}
    if len(left_out) == len(chosen):
        reasons = "; ".join(dict.fromkeys(left_out.values()))
        raise Unsupported(f"no linear layer can be quantised: {some_of(left_out, _NAMED)}: {reasons}")
    chosen, skipped = {name: chosen[name] for name in chosen if name not in left_out}, {**skipped, **left_out}
    with quiet():
        from torchao.quantization import quantize_

        quantize_(module, config, filter_fn=lambda _layer, name: name in chosen)
    return Prepared(module, dict.fromkeys(chosen, how), skipped, settings=read_inductor_settings())


def _why_none(module: "nn.Module", layers: str, least: int) -> str:
    """Return why no layer qualifies, and what to request instead."""
    from torch import nn

    sizes = {name: part.weight.numel() for name, part in module.named_modules() if isinstance(part, nn.Linear)}
    named = [size for name, size in sizes.items() if layers in name]
    if not sizes:
        return "no nn.Linear layers to quantise (torchao supports no others); use int8-static for convolutions"
    if not named:
        return f"no linear layer has '{layers}' in its name; the linear layers are {some_of(sizes, _NAMED)}"
    most = counted(max(named), "element")
    return f"the largest linear layer has {most}, fewer than {least}; use least={max(named)} or less"


def choose(module: "nn.Module", layers: str, least: int) -> tuple[dict[str, "nn.Linear"], dict[str, str]]:
    """Return the linear layers to quantise, by name, and the reason for each linear layer that is skipped."""
    from torch import nn

    chosen: dict[str, nn.Linear] = {}
    skipped: dict[str, str] = {}
    for name, layer in module.named_modules():
        if not isinstance(layer, nn.Linear):
            continue
        if layers not in name:
            skipped[name] = f"'{layers}' is not in its name"
        elif layer.weight.numel() < least:
            skipped[name] = f"{counted(layer.weight.numel(), 'element')}, fewer than {least}"
        else:
            chosen[name] = layer
    return chosen, skipped


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress torchao's messages on import about CUDA libraries that do not load on a CPU host."""
    logging.getLogger("torchao").setLevel(logging.ERROR)
    with contextlib.redirect_stderr(io.StringIO()):
        yield
