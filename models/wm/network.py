"""The modules of the world model of owl-wms (Wayfarer Labs), written with operators that every compiler converts.

Shapes: B batch, N frames computed, M tokens a frame, T tokens of a sequence, H heads, D head width, d model width.
Activations are [B, N, M, d], conditions [B, N, d], so that modulation broadcasts without a copy. Parameter names and
shapes are those of the published checkpoints (tests/golden/keys).

Precision: the noise level, the mouse and every phase are fp32 whatever dtype the module is cast to, and fp64 after
`.double()`. Sines and cosines are rounded to the dtype of `x`.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bakeoff.models.errors import BakeoffError
from bakeoff.models.tables import FixedTable
from bakeoff.models.wm.spec import Config, Window, read_window, workload


def build(config: Config, workload_name: str, batch: int = 1) -> nn.Module:
    """Return the world model for one workload, in eval mode and fp32; forward takes the workload's inputs by position.

    Raises BakeoffError for an unknown workload or a batch below one; `batch` does not affect the module.
    """
    workload(config, workload_name, batch)
    return WorldModel(config, read_window(config, workload_name)).eval()


def initial_std(name: str, _shape: tuple[int, ...]) -> float | None:
    """Return standard deviation 1 for the position table (embeddings, without a fan_in); None for other parameters."""
    return 1.0 if name == "pos_enc.p" else None


def sinusoid_frequencies(width: int) -> np.ndarray:
    """Return the `width` / 2 frequencies of a sinusoid, in radians per unit: log-spaced from 1000 to 1000 / 300."""
    half = width // 2
    return 1000.0 * np.exp(-np.arange(half) * np.log(300.0) / (half - 1))


def rotary_frequencies(head_dim: int) -> np.ndarray:
    """Return the D/8 frequencies of one rotary axis in radians per unit, evenly spaced from pi to 128 pi."""
    return np.pi * np.linspace(1.0, 128.0, head_dim // 8)


def rotary_tables(config: Config, frames: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and signed sines [frames * M, D/2] of a window; each angle occurs in two adjacent channels.

    The first half of a row is the frame's angles, the second half the token's. Positions are not integers: they are
    evenly spaced from -1 to 1, or -1 on an axis with one position. So a frame has different angles in a longer window.
    """
    tokens = config.tokens_per_frame
    frequencies = rotary_frequencies(config.head_dim)
    by_frame = np.linspace(-1.0, 1.0, frames)[:, None, None] * frequencies
    by_token = np.linspace(-1.0, 1.0, tokens)[None, :, None] * frequencies
    shape = (frames, tokens, len(frequencies))
    angles = np.concatenate([np.broadcast_to(by_frame, shape), np.broadcast_to(by_token, shape)], axis=-1)
    angles = np.repeat(angles.reshape(frames * tokens, -1), 2, axis=-1)
    signs = np.tile([-1.0, 1.0], angles.shape[-1] // 2)
    return np.cos(angles), signs * np.sin(angles)


def rotate(heads: Tensor, cosines: Tensor, signed_sines: Tensor) -> Tensor:
    """Rotate adjacent pairs of the first D/2 channels of [..., T, D]; the other channels are unchanged.

    The pairs are swapped by slices and a stack: this takes half the time of rotating even and odd channels separately
    (CPU, bf16), needs no product with a permutation matrix, and every converter supports it.
    """
    rotated, unchanged = heads.chunk(2, -1)
    swapped = torch.stack((rotated[..., 1::2], rotated[..., 0::2]), -1).flatten(-2)
    return torch.cat((rotated * cosines + swapped * signed_sines, unchanged), -1)


class SharedInputs(NamedTuple):
    """Inputs of a call that are the same for all blocks."""

    condition: Tensor
    """silu of the conditioning vectors [B, N, d]: the input of every modulation."""
    cosines: Tensor
    """Rotary table [T, D/2] of the keys that are rotated in this call; the last rows are those of the new frames."""
    sines: Tensor
    """Signed sines, in the same layout as `cosines`."""
    mask: Tensor | None
    """Added to the attention scores [T, T]: minus infinity if the key's frame is later than the query's."""


class MLP(nn.Module):
    def __init__(self, inputs: int, middle: int, outputs: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, middle)
        self.fc2 = nn.Linear(middle, outputs)

    def forward(self, u: Tensor) -> Tensor:
        return self.fc2(functional.silu(self.fc1(u)))


class Sinusoid(nn.Module):
    """All sines, then all cosines, of a scalar times `width` / 2 fixed frequencies."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.frequencies = FixedTable(sinusoid_frequencies(width))

    def forward(self, scalar: Tensor, dtype: torch.dtype) -> Tensor:
        phases = scalar[..., None] * self.frequencies()
        return torch.cat((phases.sin(), phases.cos()), -1).to(dtype)


class TimestepEmbedding(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.sinusoid = Sinusoid(config.timestep_dim)
        self.mlp = MLP(config.timestep_dim, 4 * config.d_model, config.d_model)

    def forward(self, t: Tensor, dtype: torch.dtype) -> Tensor:
        return self.mlp(self.sinusoid(t, dtype))


class MouseEmbedding(nn.Module):
    """Embedding of a mouse motion m: of the direction of sign(m) log(1 + |m|), and of a sinusoid of its length."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        control = config.control_dim
        self.angle_proj = nn.Linear(2, control // 2, bias=False)
        self.sinusoid = Sinusoid(control // 2)
        self.mlp = MLP(control, 4 * control, config.d_model)

    def forward(self, mouse: Tensor, dtype: torch.dtype) -> Tensor:
        motion = mouse.sign() * mouse.abs().log1p()
        radius = (motion * motion).sum(-1).sqrt()
        # cos and sin of the direction without atan2; (1, 0) where there is no motion.
        still = (radius == 0).to(motion.dtype)
        across, down = (motion / (radius + still)[..., None]).unbind(-1)
        direction = torch.stack((across + still, down), -1).to(dtype)
        return self.mlp(torch.cat((self.angle_proj(direction), self.sinusoid(radius, dtype)), -1))


class ButtonEmbedding(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.proj = MLP(config.n_buttons, 4 * config.control_dim, config.d_model)

    def forward(self, btn: Tensor) -> Tensor:
        return self.proj(2 * btn - 1)


class ControlEmbedding(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.mouse = MouseEmbedding(config)
        self.button = ButtonEmbedding(config)

    def forward(self, mouse: Tensor, btn: Tensor, dtype: torch.dtype) -> Tensor:
        return self.mouse(mouse, dtype) + self.button(btn)


class PositionTable(nn.Module):
    """One vector for each token of the window; a shorter sequence uses the last rows."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.zeros(config.n_frames * config.tokens_per_frame, config.d_model))

    def forward(self, tokens: Tensor) -> Tensor:
        rows = tokens.shape[1] * tokens.shape[2]
        return tokens + self.p[-rows:].view(tokens.shape[1:])


class AdaLN(nn.Module):
    """Layer norm without learned weights; scale and shift are computed from each frame's condition."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, 2 * width)

    def forward(self, u: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.fc(condition)[:, :, None].chunk(2, -1)
        return functional.layer_norm(u, u.shape[-1:], eps=1e-5) * (1 + scale) + shift


class Gate(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc_c = nn.Linear(width, width)

    def forward(self, u: Tensor, condition: Tensor) -> Tensor:
        return self.fc_c(condition)[:, :, None] * u


class RMSGain(nn.Module):
    """Root-mean-square norm over a head; the mean is fp32 or better, its reciprocal root is rounded to u's dtype."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(head_dim))

    def forward(self, u: Tensor) -> Tensor:
        full = u.to(torch.promote_types(u.dtype, torch.float32))
        return u * torch.rsqrt((full * full).mean(-1, keepdim=True) + 1e-6).to(u.dtype) * (1 + self.gain)


class QKNorm(nn.Module):
    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.q_norm = RMSGain(head_dim)
        self.k_norm = RMSGain(head_dim)

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.q_norm(q), self.k_norm(k)


class Rope(nn.Module):
    """The rotary frequencies that a checkpoint stores in each layer: checked when loaded, and not used in a call."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        frequencies = rotary_frequencies(head_dim)
        self.pos_emb = FixedTable(frequencies, persistent=True, name="freqs")
        check = partial(_check_frequencies, frequencies)
        self.pos_emb.register_load_state_dict_pre_hook(check)  # type: ignore[no-untyped-call]


def _check_frequencies(
    frequencies: np.ndarray, table: nn.Module, state_dict: dict[str, Any], prefix: str, *_rest: Any
) -> None:
    """Load hook: refuse a checkpoint made with other frequencies, and replace rounded frequencies by exact ones.

    Frequencies are equal if they agree within 1e-5 (relative) with the exact ones, or with these rounded to bf16 or
    fp16. Raises BakeoffError if they differ.
    """
    key = f"{prefix}freqs"
    found = state_dict.get(key)
    if found is None or found.shape != frequencies.shape or found.is_meta:
        return  # load_state_dict reports it
    expected = torch.tensor(frequencies, device=found.device)
    stored = found.to(torch.float64)
    rounded = (expected, expected.to(torch.bfloat16), expected.to(torch.float16))
    if not any(torch.allclose(stored, variant.to(torch.float64), rtol=1e-5, atol=0.0) for variant in rounded):
        raise BakeoffError(
            f"{key} of the checkpoint is from {stored[0]:.6g} to {stored[-1]:.6g}, but this model's frequencies are "
            f"evenly spaced from {frequencies[0]:.6g} to {frequencies[-1]:.6g}; use a checkpoint with these",
            code="bad-checkpoint",
        )
    state_dict[key] = expected.to(table.get_buffer("freqs").dtype)


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.d_model
        self.heads = config.n_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.qk_norm = QKNorm(config.head_dim)
        self.rope = Rope(config.head_dim)
        self.out = nn.Linear(width, width)

    def forward(self, u: Tensor, shared: SharedInputs, cache: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Compute attention of u [B, N, M, d] to itself and to `cache`: keys and values [B, H, C * M, D], or nothing.

        Return the result [B, N, M, d], and the keys (before rotation) and values of the new frames [B, H, N * M, D].
        """
        q, k, v = self._split(self.qkv(u), 3)
        q, k = self.qk_norm(q, k)
        rows = q.shape[-2]
        q = rotate(q, shared.cosines[-rows:], shared.sines[-rows:])
        keys = rotate(torch.cat((cache[0], k), -2) if cache else k, shared.cosines, shared.sines)
        values = torch.cat((cache[1], v), -2) if cache else v
        attended = functional.scaled_dot_product_attention(q, keys, values, attn_mask=shared.mask)
        return self.out(attended.transpose(1, 2).reshape(u.shape)), k, v

    def keys_values(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys (before rotation) and values of u, [B, H, N * M, D]; queries are not computed."""
        width = u.shape[-1]
        k, v = self._split(functional.linear(u, self.qkv.weight[width:], self.qkv.bias[width:]), 2)
        return self.qk_norm.k_norm(k), v

    def _split(self, projected: Tensor, parts: int) -> tuple[Tensor, ...]:
        """Split [B, N, M, parts * d] into `parts` tensors [B, H, N * M, D]."""
        by_head = projected.unflatten(-1, (parts, self.heads, -1)).flatten(1, 2)
        return by_head.permute(2, 0, 3, 1, 4).unbind(0)


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.d_model
        self.adaln1 = AdaLN(width)
        self.attn = Attention(config)
        self.gate1 = Gate(width)
        self.adaln2 = AdaLN(width)
        self.mlp = MLP(width, 4 * width, width)
        self.gate2 = Gate(width)

    def forward(
        self, u: Tensor, shared: SharedInputs, cache: Sequence[Tensor], stops_at_keys: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the block's output (u itself with `stops_at_keys`), and the new frames' keys and values."""
        modulated = self.adaln1(u, shared.condition)
        if stops_at_keys:
            return u, *self.attn.keys_values(modulated)
        attended, k, v = self.attn(modulated, shared, cache)
        u = u + self.gate1(attended, shared.condition)
        u = u + self.gate2(self.mlp(self.adaln2(u, shared.condition)), shared.condition)
        return u, k, v


class Transformer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.d_model
        self.skips = config.skips_used
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.n_layers)])
        self.skip_projs = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(config.skips_stored)])

    def forward(
        self, u: Tensor, shared: SharedInputs, cache: Sequence[Tensor], fills_cache: bool
    ) -> tuple[Tensor, ...]:
        """Return the last block's output in a tuple; with `fills_cache`, k and v of each layer instead.

        To fill a cache, the last block computes its keys and values only.
        """
        last = len(self.blocks) - 1
        skipped: list[Tensor] = []
        keys_values: list[Tensor] = []
        for index, block in enumerate(self.blocks):
            skip = index - (last + 1 - self.skips)
            if skip >= 0:
                u = self.skip_projs[skip](torch.cat((u, skipped.pop()), -1))
            u, k, v = block(u, shared, cache[2 * index : 2 * index + 2], fills_cache and index == last)
            if fills_cache:
                keys_values += (k, v)
            if index < self.skips:
                skipped.append(u)
        return tuple(tensor.contiguous() for tensor in keys_values) if fills_cache else (u,)


class Head(nn.Module):
    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.norm = AdaLN(width)
        self.proj = nn.Linear(width, outputs)

    def forward(self, u: Tensor, condition: Tensor) -> Tensor:
        return self.proj(functional.silu(self.norm(u, condition)))


class WorldModel(nn.Module):
    """The whole model; tables and branches of `forward` are fixed by the window of one workload."""

    def __init__(self, config: Config, window: Window) -> None:
        super().__init__()
        width = config.d_model
        self.window = window
        self.control_embed = ControlEmbedding(config)
        self.t_embed = TimestepEmbedding(config)
        self.proj_in = nn.Linear(config.channels, width, bias=False)
        self.audio_proj_in = nn.Linear(config.audio_channels, width, bias=False)
        self.pos_enc = PositionTable(config)
        self.transformer = Transformer(config)
        self.proj_out = Head(width, config.channels)
        self.audio_proj_out = Head(width, config.audio_channels)

        cosines, sines = rotary_tables(config, window.frames)
        self.rotary_cosines = FixedTable(cosines)
        self.rotary_sines = FixedTable(sines)
        self.mask = None
        if config.causal and window.new > 1:
            frame = np.arange(window.new * config.tokens_per_frame) // config.tokens_per_frame
            self.mask = FixedTable(np.where(frame[None, :] > frame[:, None], -np.inf, 0.0))

    def forward(
        self, x: Tensor, audio: Tensor, t: Tensor, mouse: Tensor, btn: Tensor, *cache: Tensor
    ) -> tuple[Tensor, ...]:
        """Compute the workload, in its order of inputs and outputs; `cache` is k and v of layer 0, of layer 1, ..."""
        dtype = x.dtype
        condition = functional.silu(self.control_embed(mouse, btn, dtype) + self.t_embed(t, dtype))
        video_tokens = self.proj_in(x.flatten(3).transpose(2, 3))
        audio_tokens = self.audio_proj_in(audio)[:, :, None]
        tokens = self.pos_enc(torch.cat((video_tokens, audio_tokens), 2))
        shared = SharedInputs(
            condition,
            self.rotary_cosines().to(dtype),
            self.rotary_sines().to(dtype),
            None if self.mask is None else self.mask().to(dtype),
        )
        results: tuple[Tensor, ...] = self.transformer(tokens, shared, cache, self.window.fills_cache)
        if self.window.fills_cache:
            return results
        (u,) = results
        video = self.proj_out(u[:, :, :-1], condition).transpose(2, 3).reshape(x.shape)
        return video, self.audio_proj_out(u[:, :, -1:], condition)[:, :, 0]


def adapt_config(config: Config, keys: Collection[str]) -> Config:
    """Return `config` with the backbone of a checkpoint with these keys: `uvit` if there are long skips, else `dit`."""
    skips = any(key.startswith("transformer.skip_projs.") for key in keys)
    return replace(config, backbone="uvit" if skips else "dit")
