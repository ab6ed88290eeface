"""What backends share that quantise linear layers with torchao: choosing the layers, and reporting those left out."""

import contextlib
import io
import logging
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import Prepared, Requirement, Unsupported
from bakeoff.backends.exported import INSTALL

if TYPE_CHECKING:
    from torch import nn

TORCHAO = Requirement("torchao", INSTALL)
LEAST_ELEMENTS = 1 << 16
"""A smaller weight costs less to read than its activations cost to quantise."""


def negative_least(least: int) -> str | None:
    """Why `least` is no number of elements; None if it is one."""
    return None if least >= 0 else f"least={least} is negative; give 0 or more elements"


def quantise_linear(module: "nn.Module", config: Any, how: str, layers: str, least: int) -> Prepared:
    """Let torchao quantise each linear layer with `layers` in its name and `least` elements in its weight.

    Changes the module in place. Raises Unsupported when no layer qualifies.
    """
    chosen, skipped = choose(module, layers, least)
    if not chosen:
        raise Unsupported(_nothing(module, layers, least))
    with quiet():
        from torchao.quantization import quantize_

        quantize_(module, config, filter_fn=lambda _layer, name: name in chosen)
    return Prepared(module, dict.fromkeys(chosen, how), skipped)


def _nothing(module: "nn.Module", layers: str, least: int) -> str:
    """Why no layer qualifies, and what to ask for instead."""
    from torch import nn

    sizes = {name: part.weight.numel() for name, part in module.named_modules() if isinstance(part, nn.Linear)}
    named = [size for name, size in sizes.items() if layers in name]
    if not sizes:
        return "no nn.Linear layers to quantise (torchao supports no others); use int8-static for convolutions"
    if not named:
        return f"no linear layer has '{layers}' in its name; there is {_some(sizes)}"
    return f"its largest linear layer has {max(named)} elements, fewer than {least}; write least={max(named)} or less"


def _some(names: Collection[str], shown: int = 6) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(list(names)[:shown]) + more


def choose(module: "nn.Module", layers: str, least: int) -> tuple[dict[str, "nn.Linear"], dict[str, str]]:
    """The linear layers to quantise by name, and those left with the reason."""
    from torch import nn

    chosen: dict[str, nn.Linear] = {}
    skipped: dict[str, str] = {}
    for name, layer in module.named_modules():
        if not isinstance(layer, nn.Linear):
            continue
        if layers not in name:
            skipped[name] = f"'{layers}' is not in its name"
        elif layer.weight.numel() < least:
            skipped[name] = f"{layer.weight.numel()} elements, fewer than {least}"
        else:
            chosen[name] = layer
    return chosen, skipped


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress what torchao prints on import about CUDA libraries that do not load on a CPU."""
    logging.getLogger("torchao").setLevel(logging.ERROR)
    with contextlib.redirect_stderr(io.StringIO()):
        yield
