"""Attention of latent frames to mouse movements and keys: the action module of Matrix-Game-2's first layers.

Shapes: B batch, F frames attended to, P tokens of a latent frame, H action heads of 64 channels, d model width. A
latent frame sees the 12 action rows before its own. Attention is over frames alone: of the mouse for each token by
itself, of the keyboard for all tokens with the same keys and values.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bakeoff.models.matrix_wm.spec import (
    ACTION_HEAD_DIM,
    ACTION_PAIRS,
    FRAMES_PER_BLOCK,
    ROWS_PER_FRAME,
    ROWS_SEEN,
    Config,
    require_frame,
)


class ActionInputs(NamedTuple):
    """Tensors that all action modules of a pass share."""

    mouse: Tensor | None
    """[B, 20, 2]"""
    keyboard: Tensor
    """[B, 20, keys]"""
    cosines: Tensor
    """[3, 8], as `interleave` makes them."""
    signed_sines: Tensor


def windows(rows: Tensor) -> Tensor:
    """Return the 12 rows that each latent frame of a block sees, one after the other: [B, 20, C] to [B, 3, 12 * C]."""
    starts = range(0, FRAMES_PER_BLOCK * ROWS_PER_FRAME, ROWS_PER_FRAME)
    return torch.stack([rows[:, start : start + ROWS_SEEN].flatten(1) for start in starts], 1)


def append(history: Mapping[str, Tensor], name: str, new: Tensor) -> Tensor:
    """Return `history[name]`, if present, followed by the block's `new` keys or values, along F of [..., F, D]."""
    return torch.cat((history[name], new), -2) if name in history else new


class UnusedNorm(nn.Module):
    """Gains that a checkpoint has and no call reads: upstream normalises queries and keys without them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(ACTION_HEAD_DIM))


class ActionModule(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        dim, width, hidden = config.dim, config.action_img_hidden, config.action_hidden
        self.heads = config.action_heads
        if config.mouse_dim:
            self.mouse_mlp = nn.Sequential(
                nn.Linear(dim + ROWS_SEEN * config.mouse_dim, width),
                nn.GELU("tanh"),
                nn.Linear(width, width),
                nn.LayerNorm(width),
            )
            self.t_qkv = nn.Linear(width, 3 * width, bias=False)
            self.img_attn_q_norm = UnusedNorm()
            self.img_attn_k_norm = UnusedNorm()
            self.proj_mouse = nn.Linear(width, dim, bias=False)
        self.keyboard_embed = nn.Sequential(
            nn.Linear(config.keyboard_dim, hidden), nn.SiLU(), nn.Linear(hidden, hidden)
        )
        self.mouse_attn_q = nn.Linear(dim, width, bias=False)  # the keyboard's queries, in spite of the name
        self.keyboard_attn_kv = nn.Linear(ROWS_SEEN * hidden, 2 * width, bias=False)
        self.key_attn_q_norm = UnusedNorm()
        self.key_attn_k_norm = UnusedNorm()
        self.proj_keyboard = nn.Linear(width, dim, bias=False)

    def forward(
        self, u: Tensor, actions: ActionInputs, history: Mapping[str, Tensor], new: dict[str, Tensor]
    ) -> Tensor:
        """Return tokens u [B, 3, P, d] with the attention to mouse and keyboard added.

        The block's keys and values are put in `new` under the names of the history.
        """
        if actions.mouse is not None:
            u = u + self._attend_mouse(u, actions.mouse, actions, history, new)
        return u + self._attend_keyboard(u, actions, history, new)

    def _attend_mouse(
        self, u: Tensor, mouse: Tensor, actions: ActionInputs, history: Mapping[str, Tensor], new: dict[str, Tensor]
    ) -> Tensor:
        moves = windows(mouse)[:, :, None].expand(-1, -1, u.shape[2], -1)
        mixed = self.t_qkv(self.mouse_mlp(torch.cat((u, moves), -1)))
        # [B, 3, P, 3 * H * 64] to three of [B * P, H, 3, 64]
        by_token = mixed.unflatten(-1, (3, self.heads, ACTION_HEAD_DIM)).permute(3, 0, 2, 4, 1, 5).flatten(1, 2)
        q, k, v = by_token.unbind(0)
        q = rotate(normalize_rms(q), actions.cosines, actions.signed_sines)
        new["mouse_k"] = rotate(normalize_rms(k), actions.cosines, actions.signed_sines)
        new["mouse_v"] = v
        keys, values = (append(history, name, new[name]) for name in ("mouse_k", "mouse_v"))
        attended = functional.scaled_dot_product_attention(q, keys, values)
        by_frame = attended.unflatten(0, (u.shape[0], u.shape[2])).permute(0, 3, 1, 2, 4).flatten(3)
        return self.proj_mouse(by_frame)

    def _attend_keyboard(
        self, u: Tensor, actions: ActionInputs, history: Mapping[str, Tensor], new: dict[str, Tensor]
    ) -> Tensor:
        pressed = self.keyboard_attn_kv(windows(self.keyboard_embed(actions.keyboard)))
        k, v = pressed.unflatten(-1, (2, self.heads, ACTION_HEAD_DIM)).permute(2, 0, 3, 1, 4).unbind(0)
        new["keyboard_k"] = rotate(normalize_rms(k), actions.cosines, actions.signed_sines)
        new["keyboard_v"] = v
        keys, values = (append(history, name, new[name]) for name in ("keyboard_k", "keyboard_v"))
        # Queries are [B, H, 3, P, 64] while they are rotated: a table's row is of a frame.
        q = self.mouse_attn_q(u).unflatten(-1, (self.heads, ACTION_HEAD_DIM)).permute(0, 3, 1, 2, 4)
        q = rotate(normalize_rms(q), actions.cosines[:, None], actions.signed_sines[:, None]).flatten(2, 3)
        attended = functional.scaled_dot_product_attention(q, keys, values)
        by_frame = attended.transpose(1, 2).flatten(2).view(*u.shape[:3], -1)
        return self.proj_keyboard(by_frame)


EPSILON = 1e-6


def normalize_rms(u: Tensor) -> Tensor:
    """Divide by the root mean square over the last axis."""
    full = u.to(torch.promote_types(u.dtype, torch.float32))
    return (full * torch.rsqrt((full * full).mean(-1, keepdim=True) + EPSILON)).to(u.dtype)


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, u: Tensor) -> Tensor:
        return normalize_rms(u) * self.weight


def modulate(u: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Apply a layer norm without learned gains, then each frame's scale and shift."""
    return functional.layer_norm(u, u.shape[-1:], eps=EPSILON) * (1 + scale) + shift


_THETA, _ACTION_THETA = 10000.0, 256.0


class Positions(NamedTuple):
    """Inputs of a pass that encode its block's position in the stream, in the order of `forward`, all fp32."""

    time_cos: Tensor
    """[3, time_pairs], one row for each latent frame of the block."""
    time_sin: Tensor
    action_cos: Tensor
    """[3, 4], of the rotary embedding in action modules, which has frequencies of its own."""
    action_sin: Tensor


def positions(config: Config, first_latent_frame: int) -> Positions:
    """Return the tables of the block that begins with this latent frame, computed in fp64.

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
    """Return the angle of each pair at position 1, in radians: theta^(-i / pairs)."""
    return theta ** (-np.arange(pairs) / pairs)


def space_angles(config: Config) -> np.ndarray:
    """Return the angles [P, 2 space_pairs] of a latent frame's tokens, in row-major order: row, then column angles."""
    rows, columns = config.patches
    by_axis = frequencies(config.space_pairs)
    row, column = (axis.reshape(-1) for axis in np.mgrid[:rows, :columns])
    return np.concatenate([np.outer(row, by_axis), np.outer(column, by_axis)], axis=1)


def interleave(cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    """Return tables [..., pairs] as [..., 2 pairs] for `rotate`: each cosine twice; each sine negated, then as is."""
    return torch.stack((cosines, cosines), -1).flatten(-2), torch.stack((-sines, sines), -1).flatten(-2)


def rotate(heads: Tensor, cosines: Tensor, signed_sines: Tensor) -> Tensor:
    """Rotate adjacent pairs of the first C channels of [..., T, D] by tables [..., T, C], in fp32 or better.

    The pairs are swapped by slices and a stack, which every converter supports.
    """
    width = cosines.shape[-1]
    turned = heads[..., :width].to(torch.promote_types(heads.dtype, torch.float32))
    swapped = torch.stack((turned[..., 1::2], turned[..., 0::2]), -1).flatten(-2)
    turned = (turned * cosines + swapped * signed_sines).to(heads.dtype)
    return turned if width == heads.shape[-1] else torch.cat((turned, heads[..., width:]), -1)
