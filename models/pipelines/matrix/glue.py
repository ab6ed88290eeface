"""Arithmetic between the programs of Matrix-Game-2's loop, and the inputs of its blocks.

A block's latents are [1, 16, 3, h, w] in the world model and [1, frames, 16, h, w] in the decoder.
"""

from typing import Protocol

import torch
from torch import Tensor

from bakeoff.models.component import Draw
from bakeoff.models.matrix_wm.network import positions
from bakeoff.models.matrix_wm.spec import FRAMES_PER_BLOCK, Config, action_rows

CONDITION_FRAMES = 12
"""Latent frames of the image condition that are drawn; every later frame has the last one's. The encoder's answer to a
picture that is followed by zeros stays the same once the picture has left its receptive field."""
MASK_CHANNELS = 4


class DrawFunction(Protocol):
    """A drawn fp32 tensor that depends on the seed, the session and these arguments alone."""

    def __call__(self, key: str, shape: tuple[int, ...], kind: Draw = "normal") -> Tensor: ...


def condition(_session: int, unit: int, draw: DrawFunction, shape: tuple[int, ...]) -> Tensor:
    """The condition of a block [1, 20, 3, h, w]: a mask that is 1 in the first frame of a stream, and the image's
    latents."""
    batch, channels, frames, height, width = shape
    found = []
    for frame in range(FRAMES_PER_BLOCK * unit, FRAMES_PER_BLOCK * unit + frames):
        mask = torch.full((batch, MASK_CHANNELS, 1, height, width), float(frame == 0))
        key = f"cond:{min(frame, CONDITION_FRAMES - 1)}"
        found.append(torch.cat((mask, draw(key, (batch, channels - MASK_CHANNELS, 1, height, width))), 1))
    return torch.cat(found, 2)


def actions(_session: int, unit: int, draw: DrawFunction, name: str, width: int, kind: Draw) -> Tensor:
    """The action rows that a block sees, [1, 20, width]. Each row is drawn by its number, since blocks share rows."""
    rows = action_rows(FRAMES_PER_BLOCK * unit)
    return torch.cat([draw(f"{name}:{row}", (1, 1, width), kind) for row in rows], 1)


def position(_session: int, unit: int, _draw: DrawFunction, name: str, config: Config) -> Tensor:
    """One of the tables of where in the stream the block is: `time_cos`, `time_sin`, `action_cos` or `action_sin`."""
    found: Tensor = getattr(positions(config, FRAMES_PER_BLOCK * unit), name)
    return found


def zeros(_session: int, _unit: int, _draw: DrawFunction, shape: tuple[int, ...]) -> Tensor:
    """The decoder's caches before the first frame."""
    return torch.zeros(shape)


def timesteps(like: Tensor, frames: float, *values: float) -> tuple[Tensor, ...]:
    """Inputs `t` [1, frames], one for each value, at least fp32, on the device of `like`."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return tuple(torch.full((1, int(frames)), value, dtype=dtype, device=like.device) for value in values)


def clean(x: Tensor, flow: Tensor, sigma: float) -> Tensor:
    """The clean latents that a flow predicts, x - sigma * flow: computed in fp64, in the dtype of x.

    `_convert_flow_pred_to_x0` of upstream's `utils/wan_wrapper.py`.
    """
    return (x.double() - sigma * flow.double()).to(x.dtype)


def renoise(latents: Tensor, noise: Tensor, sigma: float) -> Tensor:
    """Clean latents at noise level sigma: mixed in at least fp32, in the dtype of the latents.

    `add_noise` of upstream's `utils/scheduler.py`.
    """
    wide = torch.promote_types(latents.dtype, torch.float32)
    return ((1 - sigma) * latents.to(wide) + sigma * noise.to(wide)).to(latents.dtype)


def hand_over(latents: Tensor) -> Tensor:
    """[1, 16, frames, h, w] to [1, frames, 16, h, w], contiguous."""
    return latents.transpose(1, 2).contiguous()


def first_and_rest(latents: Tensor) -> tuple[Tensor, Tensor]:
    """The first latent frame of a stream [1, 1, 16, h, w], and the other two of its block [1, 2, 16, h, w]."""
    frames = hand_over(latents)
    return frames[:, :1].contiguous(), frames[:, 1:].contiguous()


def join(first: Tensor, rest: Tensor) -> Tensor:
    """Video [1, 1, 3, H, W] and [1, 8, 3, H, W] to [1, 9, 3, H, W]."""
    return torch.cat((first, rest), 1)


def present(video: Tensor) -> Tensor:
    """Video in -1 to 1 as bytes on the host."""
    return video.add(1).mul_(127.5).clamp_(0, 255).to(torch.uint8).cpu()
