"""Run the streaming decoder on a golden file's weights and latents, chunk by chunk from the start of a stream."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from golden_files import config_from, load_weights
from torch import Tensor

from bakeoff.models.errors import BakeoffError
from bakeoff.models.matrix_vae.network import StreamingDecoder
from bakeoff.models.matrix_vae.spec import Config, workload

_CHUNK = re.compile(r"latent_chunk([0-9]+)")


def replay(about: Mapping[str, Any], weights: dict[str, Tensor], inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """`video_chunkN`, `cache_after_chunkN.II` for every chunk N, and `video_full_unclamped`.

    Inputs `latent_chunkN` [B, n, 16, h, w] are consecutive chunks of one stream, of any lengths. Raises BakeoffError
    when config, weights and inputs do not fit each other.
    """
    config = config_from(Config, about["config"], "matrix-vae")
    chunks = _chunks(config, inputs)
    batch, _, _, height, width = chunks[0].shape
    config = replace(config, latent_height=height, latent_width=width)
    first, later = StreamingDecoder(config, first=True).eval(), StreamingDecoder(config, first=False).eval()

    unclamped: list[Tensor] = []
    for model in (first, later):
        load_weights("matrix-vae", model, weights)
        model.decoder.register_forward_hook(lambda _module, _args, video: unclamped.append(video))

    state = [torch.zeros(cache.shape, dtype=chunks[0].dtype) for cache in workload(config, "prime", batch).inputs[1:]]
    found: dict[str, Tensor] = {}
    with torch.no_grad():
        for number, chunk in enumerate(chunks):
            steps = [(later, chunk)] if number else [(first, chunk[:, :1]), (later, chunk[:, 1:])]
            video = []
            for model, latents in steps:
                if latents.shape[1]:
                    part, *state = model(latents, *state)
                    video.append(part)
            found[f"video_chunk{number}"] = torch.cat(video, 1)
            found |= {f"cache_after_chunk{number}.{index:02d}": cache for index, cache in enumerate(state)}
    found["video_full_unclamped"] = torch.cat(unclamped, 1)
    return found


def _chunks(config: Config, inputs: dict[str, Tensor]) -> list[Tensor]:
    numbers = sorted(int(match[1]) for match in map(_CHUNK.fullmatch, inputs) if match)
    if not numbers or numbers != list(range(len(numbers))):
        raise BakeoffError(
            f"matrix-vae golden: inputs are {', '.join(sorted(inputs))}; they must be latent_chunk0, 1, 2, ...",
            code="bad-input",
        )
    chunks = [inputs[f"latent_chunk{number}"] for number in numbers]
    for number, chunk in enumerate(chunks):
        expected = [*chunks[0].shape[:1], "n", config.z_dim, *chunks[0].shape[3:]]
        if chunk.ndim != 5 or not chunk.shape[1] or [*chunk.shape[:1], "n", *chunk.shape[2:]] != expected:
            raise BakeoffError(
                f"matrix-vae golden: latent_chunk{number} has shape {list(chunk.shape)}; it must be {expected}",
                code="bad-input",
            )
    return chunks
