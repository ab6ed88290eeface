"""Run the world model on a golden file's weights and inputs."""

from collections.abc import Mapping
from typing import Any

import torch
from golden_files import capture_outputs, config_from, load_weights, require_inputs
from torch import Tensor

from bakeoff.models.errors import BakeoffError
from bakeoff.models.wm.network import WorldModel
from bakeoff.models.wm.spec import Config, read_window, workload


def replay(about: Mapping[str, Any], weights: dict[str, Tensor], inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The outputs of a golden file: of a whole sequence, a single frame or a cached step.

    `aux.*` are outputs of inner modules. Inputs named `ctx_*` are the context of a step. From them a whole-sequence
    call computes `ctx_video` and `ctx_audio`, and a cache-filling call `cache_k.N` and `cache_v.N`. Raises BakeoffError
    when config, weights and inputs do not fit each other.
    """
    config = config_from(Config, about["config"], "wm")
    cache = inputs.get("cache_k.0")
    if cache is not None:
        if cache.ndim != 4:
            text = f"wm golden: input cache_k.0 has shape {list(cache.shape)}; it must be [batch, heads, tokens, width]"
            raise BakeoffError(text, code="bad-input")
        name = f"step{cache.shape[2] // config.tokens_per_frame}"
    else:
        name = f"full{_size(inputs)[1]}"
    own = {key: tensor for key, tensor in inputs.items() if not key.startswith("ctx_")}
    outputs, inside = _run(config, name, weights, own)
    found = outputs | inside
    context = {key.removeprefix("ctx_"): tensor for key, tensor in inputs.items() if key.startswith("ctx_")}
    if context:
        frames = _size(context)[1]
        whole, _ = _run(config, f"full{frames}", weights, context)
        filled, _ = _run(config, f"context{frames}", weights, context)
        found |= {f"ctx_{key}": tensor for key, tensor in whole.items()} | filled
    return found


def _size(inputs: dict[str, Tensor]) -> tuple[int, int]:
    """Batch and frames."""
    if "x" not in inputs or inputs["x"].ndim != 5:
        raise BakeoffError(
            "wm golden: input x is missing or not of shape [batch, frames, channels, side, side]", code="bad-input"
        )
    return inputs["x"].shape[0], inputs["x"].shape[1]


def _run(
    config: Config, name: str, weights: dict[str, Tensor], inputs: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Outputs by name, and outputs of inner modules by the names that golden files give them."""
    stated = workload(config, name, _size(inputs)[0])
    model = WorldModel(config, read_window(config, name)).eval()
    require_inputs("wm", stated.inputs, inputs)
    load_weights("wm", model, weights)
    watched = {"control": model.control_embed, "timestep": model.t_embed, "aux.tokens": model.pos_enc}
    watched |= {f"aux.block.{index}": block for index, block in enumerate(model.transformer.blocks)}
    inside = capture_outputs(watched)
    with torch.no_grad():
        results = model(*(inputs[one.name] for one in stated.inputs))
    inside["aux.cond"] = inside.pop("control") + inside.pop("timestep")
    # tokens [B, N, M, d] are a sequence [B, N * M, d] in golden files
    sequences = {key: tensor.flatten(1, 2) if tensor.ndim == 4 else tensor for key, tensor in inside.items()}
    return {one.name: result for one, result in zip(stated.outputs, results, strict=True)}, sequences
