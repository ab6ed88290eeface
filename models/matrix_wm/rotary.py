"""Rotary embeddings without complex numbers: tables of cosines and sines, and the rotation of adjacent channels."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bakeoff.models.matrix_wm.spec import ACTION_PAIRS, FRAMES_PER_BLOCK, Config, require_frame

_THETA, _ACTION_THETA = 10000.0, 256.0


class Positions(NamedTuple):
    """The inputs of a pass that tell where in the stream its block is, in the order of `forward`, all fp32."""

    time_cos: Tensor
    """[3, time_pairs]: of each latent frame of the block."""
    time_sin: Tensor
    action_cos: Tensor
    """[3, 4], of the rotary embedding in action modules, which has frequencies of its own."""
    action_sin: Tensor


def positions(config: Config, first_latent_frame: int) -> Positions:
    """The tables of the block that begins with this latent frame, computed in fp64.

    Raises BakeoffError for a block beyond latent frame 1023, the last of the published rotary table.
    """
    require_frame(first_latent_frame)
    frames = np.arange(first_latent_frame, first_latent_frame + FRAMES_PER_BLOCK)
    time = np.outer(frames, frequencies(config.time_pairs, _THETA))
    action = np.outer(frames, frequencies(ACTION_PAIRS, _ACTION_THETA))
    return Positions(
        *(
            torch.tensor(table, dtype=torch.float32)
            for table in (np.cos(time), np.sin(time), np.cos(action), np.sin(action))
        )
    )


def frequencies(pairs: int, theta: float = _THETA) -> np.ndarray:
    """Angle of each pair at position 1, in radians: theta^(-i / pairs)."""
    found: np.ndarray = theta ** (-np.arange(pairs) / pairs)
    return found


def space_angles(config: Config) -> np.ndarray:
    """Angles [P, 2 space_pairs] of the tokens of a latent frame in row-major order: of the row, then of the column."""
    rows, columns = config.patches
    by_axis = frequencies(config.space_pairs)
    row, column = (axis.reshape(-1) for axis in np.mgrid[:rows, :columns])
    return np.concatenate([np.outer(row, by_axis), np.outer(column, by_axis)], axis=1)


def interleave(cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    """Tables [..., pairs] as [..., 2 pairs] for `rotate`: each cosine twice, each sine negated and as it is."""
    return torch.stack((cosines, cosines), -1).flatten(-2), torch.stack((-sines, sines), -1).flatten(-2)


def rotate(heads: Tensor, cosines: Tensor, signed_sines: Tensor) -> Tensor:
    """Rotate adjacent pairs of the first channels of [..., T, D], as many as the tables [..., T, C] have, in fp32.

    The pairs are swapped by slices and a stack, which every converter supports.
    """
    width = cosines.shape[-1]
    turned = heads[..., :width].to(torch.promote_types(heads.dtype, torch.float32))
    swapped = torch.stack((turned[..., 1::2], turned[..., 0::2]), -1).flatten(-2)
    turned = (turned * cosines + swapped * signed_sines).to(heads.dtype)
    return turned if width == heads.shape[-1] else torch.cat((turned, heads[..., width:]), -1)
