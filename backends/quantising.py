"""What back ends share that quantise a module's linear layers with torchao: choosing them, and telling the story."""

import contextlib
import io
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import Prepared, Requirement, Unsupported

if TYPE_CHECKING:
    from torch import nn

TORCHAO = Requirement("torchao", "pip install 'bakeoff[cpu]' or 'bakeoff[gpu]'")
LEAST_ELEMENTS = 1 << 16
"""A smaller weight costs less to read than its activations cost to quantise."""


def quantise_linear(module: "nn.Module", config: Any, how: str, layers: str, least: int) -> Prepared:
    """Let torchao quantise each linear layer with `layers` in its name and `least` elements in its weight.

    Changes the module in place. Raises Unsupported when no layer qualifies.
    """
    chosen, skipped = choose(module, layers, least)
    if not chosen:
        kinds = sorted({type(part).__name__ for part in module.modules() if hasattr(part, "weight")})
        raise Unsupported(
            f"none of its layers can be quantised: torchao takes linear layers, of {least} elements at least and with "
            f"'{layers}' in their names; this one has {len(skipped)} others, and {', '.join(kinds) or 'no layer'}; "
            "for convolutions take int8-static"
        )
    with quiet():
        from torchao.quantization import quantize_

        quantize_(module, config, filter_fn=lambda _layer, name: name in chosen)
    return Prepared(module, dict.fromkeys(chosen, how), skipped)


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
    """torchao tells on import which of its CUDA libraries do not load on a CPU, which is no news."""
    logging.getLogger("torchao").setLevel(logging.ERROR)
    with contextlib.redirect_stderr(io.StringIO()):
        yield
