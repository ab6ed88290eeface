"""Run the image decoder on a golden file's weights and inputs."""

from collections.abc import Mapping
from typing import Any

import torch
from golden_files import capture_outputs, config_from, load_weights, require_inputs
from torch import Tensor, nn

from bakeoff.models.image.network import ImageDecoder
from bakeoff.models.image.spec import Config, workload


def replay(about: Mapping[str, Any], weights: dict[str, Tensor], inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The picture, and under `aux.*` outputs of inner modules.

    Those are the starter's before its input is added, both branches of each up stage before their sum, the landscape
    resize's and the last norm's. Raises BakeoffError when config, weights and inputs do not fit each other.
    """
    config = config_from(Config, about["config"], "image")
    z = inputs.get("z")
    batch = 1 if z is None or z.ndim == 0 else max(1, z.shape[0])
    stated = workload(config, "decode", batch)
    require_inputs("image", stated.inputs, inputs)
    model = ImageDecoder(config).eval()
    load_weights("image", model, weights)

    decoder = model.decoder
    watched: dict[str, nn.Module] = {
        "aux.starter": decoder.starter,
        "aux.landscape": decoder.s_to_l,
        "aux.norm_out": decoder.norm_out,
    }
    for stage, (block, shortcut) in enumerate(zip(decoder.blocks, decoder.shortcuts, strict=True)):
        watched |= {f"aux.block.{stage}": block, f"aux.shortcut.{stage}": shortcut}
    inside = capture_outputs(watched)
    with torch.no_grad():
        (image,) = model(inputs["z"])
    return {"image": image} | inside
