"""Run the audio decoder on a golden file's weights and inputs."""

from collections.abc import Mapping
from typing import Any

import torch
from golden_files import capture_outputs, config_from, load_weights, require_inputs
from torch import Tensor, nn

from bakeoff.models.audio.network import AudioDecoder
from bakeoff.models.audio.spec import Config, workload
from bakeoff.models.errors import BakeoffError


def replay(about: Mapping[str, Any], weights: dict[str, Tensor], inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The waveform, and under `aux.*` the outputs of the first convolution, the starter and each up stage.

    The number of latents is that of z unless the file's config states it. Raises BakeoffError when config, weights and
    inputs do not fit each other.
    """
    z = inputs.get("z")
    if z is None or z.ndim != 3 or not z.numel():
        found = "is missing" if z is None else f"has shape {list(z.shape)}"
        raise BakeoffError(
            f"audio golden: input z {found}; it must be [batch, latent channels, latents]", code="bad-input"
        )
    config = config_from(Config, {"latents": z.shape[2], **about["config"]}, "audio")
    stated = workload(config, "decode", z.shape[0])
    require_inputs("audio", stated.inputs, inputs)
    model = AudioDecoder(config).eval()
    load_weights("audio", model, weights)

    decoder = model.decoder
    watched: dict[str, nn.Module] = {"aux.conv_in": decoder.conv_in, "aux.starter": decoder.starter}
    watched |= {f"aux.block.{stage}": block for stage, block in enumerate(decoder.blocks)}
    inside = capture_outputs(watched)
    with torch.no_grad():
        (audio,) = model(z)
    rows = {name: signal[:, :, 0] for name, signal in inside.items()}
    return {"audio": audio} | rows
