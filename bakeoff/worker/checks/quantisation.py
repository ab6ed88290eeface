"""Whether a quantised variant really is: layers must be named, and must take fewer bytes than before."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from torch import nn

from bakeoff.backends.backend import Prepared
from bakeoff.models.words import counted
from bakeoff.worker.checks.memory import stored_bytes


def check_quantisation(
    prepared: Prepared,
    quantised_by_build: Mapping[str, str],
    before_bytes: Mapping[str, int],
    after_bytes: Mapping[str, int],
) -> tuple[Prepared, str | None]:
    """`prepared` with the layers that did not shrink listed as skipped, and what ran instead of a quantised module.

    `before_bytes` and `after_bytes` are `layer_bytes` of the module before and after its preparation. The second value
    is None where something was quantised. A preparation that inserts nodes may leave the weights as they are until the
    build, so their size is not checked for it.
    """
    names = list(prepared.quantised)
    unchanged = layers_not_smaller(names, before_bytes, after_bytes) if prepared.shrinks_weights else []
    smaller = after_bytes[""] < before_bytes[""] and len(unchanged) < len(names)
    shrank = smaller or not prepared.shrinks_weights
    fallback = nothing_quantised(prepared.quantised, quantised_by_build, shrank)
    return mark_skipped(prepared, unchanged), fallback


def layer_bytes(module: nn.Module) -> dict[str, int]:
    """Stored bytes of each layer by its name; of the whole module by ""."""
    return {name: stored_bytes(part) for name, part in module.named_modules()}


def layers_not_smaller(
    names: Iterable[str], before_bytes: Mapping[str, int], after_bytes: Mapping[str, int]
) -> list[str]:
    """Those of the named layers that take as many bytes as before, or more; names of no layer are left out."""
    return [name for name in names if name in before_bytes and after_bytes.get(name, 0) >= before_bytes[name]]


def mark_skipped(prepared: Prepared, layers: Iterable[str]) -> Prepared:
    """The same preparation with some layers listed as skipped instead of quantised."""
    unchanged = list(layers)
    quantised = {name: how for name, how in prepared.quantised.items() if name not in unchanged}
    skipped = {**prepared.skipped, **dict.fromkeys(unchanged, "takes as many bytes as before")}
    return replace(prepared, quantised=quantised, skipped=skipped)


def nothing_quantised(prepared: Mapping[str, str], built: Mapping[str, str], shrank: bool) -> str | None:
    """What ran instead of a quantised module, as a noun phrase; None where something was quantised.

    A backend that prepares must name layers, and the module's weights must have become smaller; a backend that
    quantises in its own build must name nodes.
    """
    if not prepared and not built:
        return "the unquantised module: no layer was quantised"
    if prepared and not shrank:
        count = counted(len(prepared), "layer")
        return f"the unquantised module: {count} reported as quantised, but their weights take as many bytes as before"
    return None
