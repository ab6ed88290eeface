"""The modules of Matrix-Game-2's world model, written with operators that every compiler converts.

Shapes: B batch, P tokens of a latent frame, H heads, D head width, d model width. Tokens are [B, 3, P, d] and what
modulates them is [B, 3, 1, d], so that it broadcasts without a copy. Parameter names and shapes are those of the
published checkpoints (tests/golden/keys); all workloads have all parameters, whether they read them or not.

Precision: timesteps, positions and rotations are fp32 whatever dtype the module is cast to, and fp64 after `.double()`.
The timestep's sinusoid, fp64 upstream, is computed here to the accuracy of fp32.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bakeoff.models.matrix_wm.action import (
    EPSILON,
    ActionInputs,
    ActionModule,
    RMSNorm,
    append,
    interleave,
    modulate,
    positions,
    rotate,
    space_angles,
)
from bakeoff.models.matrix_wm.spec import (
    CONDITION_CHANNELS,
    FRAMES_PER_BLOCK,
    LATENT_CHANNELS,
    PATCH,
    Config,
    is_context,
    workload,
)
from bakeoff.models.tables import FixedTable

__all__ = ["WorldModel", "build", "initial_std", "positions"]


def build(config: Config, workload_name: str, batch: int = 1) -> nn.Module:
    """Return the world model for one workload, in eval mode and fp32; forward takes the workload's inputs by position.

    Raises BakeoffError for an unknown workload or a batch below one; `batch` does not affect the module.
    """
    workload(config, workload_name, batch)
    return WorldModel(config, workload_name).eval()


def initial_std(name: str, _shape: tuple[int, ...]) -> float | None:
    """Return the standard deviation 0.5 for modulations, None for other parameters.

    A modulation is added to shifts, scales and gates of about 0.2. In preset `cpu` other values of the history's
    `self_v` change the flow of a denoising step by 16 % (relative L2), and by 8 % with modulations near zero.
    """
    return 0.5 if name.endswith("modulation") else None


class Shared(NamedTuple):
    """Tensors that all layers of a pass share."""

    modulation: Tensor
    """[B, 3, 6, d]: shift, scale and gate of self-attention, then of the feed-forward layers."""
    cosines: Tensor
    """[3 P, D], as `interleave` makes them."""
    signed_sines: Tensor
    actions: ActionInputs


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        dim = config.dim
        self.heads = config.n_heads
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.o = nn.Linear(dim, dim)
        self.norm_q = RMSNorm(dim)
        self.norm_k = RMSNorm(dim)

    def queries(self, u: Tensor) -> Tensor:
        """Return queries [B, H, T, D] of tokens [B, ..., d]; keys and values have the same shapes."""
        return self._split(self.norm_q(self.q(u)))

    def keys(self, u: Tensor) -> Tensor:
        return self._split(self.norm_k(self.k(u)))

    def values(self, u: Tensor) -> Tensor:
        return self._split(self.v(u))

    def attend(self, u: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the projected attention, in the shape of `u`, the tokens of the queries."""
        attended = functional.scaled_dot_product_attention(q, k, v)
        return self.o(attended.transpose(1, 2).reshape(u.shape))

    def _split(self, projected: Tensor) -> Tensor:
        return projected.reshape(projected.shape[0], -1, self.heads, projected.shape[-1] // self.heads).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, config: Config, has_actions: bool) -> None:
        super().__init__()
        dim = config.dim
        self.modulation = nn.Parameter(torch.zeros(1, 6, dim))
        self.self_attn = Attention(config)
        self.norm3 = nn.LayerNorm(dim, eps=EPSILON)
        self.cross_attn = Attention(config)
        self.action_model = ActionModule(config) if has_actions else None
        self.ffn = nn.Sequential(nn.Linear(dim, config.ffn_dim), nn.GELU("tanh"), nn.Linear(config.ffn_dim, dim))

    def forward(
        self, u: Tensor, shared: Shared, given: Mapping[str, Tensor], new: dict[str, Tensor], stops_at_keys: bool
    ) -> Tensor:
        """Return tokens u [B, 3, P, d] after this layer; with `stops_at_keys`, u itself.

        `given` has the layer's keys and values of the image and the history, by the workload's names without the layer.
        Keys and values of this block are put in `new` under the names of the history.
        """
        modulation = self.modulation[:, None] + shared.modulation
        shift, scale, gate, shift_ffn, scale_ffn, gate_ffn = modulation.chunk(6, 2)
        modulated = modulate(u, shift, scale)
        new["self_k"] = rotate(self.self_attn.keys(modulated), shared.cosines, shared.signed_sines)
        new["self_v"] = self.self_attn.values(modulated)
        if stops_at_keys:
            return u
        q = rotate(self.self_attn.queries(modulated), shared.cosines, shared.signed_sines)
        keys, values = (append(given, name, new[name]) for name in ("self_k", "self_v"))
        u = u + gate * self.self_attn.attend(u, q, keys, values)
        q = self.cross_attn.queries(self.norm3(u))
        u = u + self.cross_attn.attend(u, q, given["cross_k"], given["cross_v"])
        if self.action_model is not None:
            u = self.action_model(u, shared.actions, given, new)
        mapped: Tensor = self.ffn(modulate(u, shift_ffn, scale_ffn))
        return u + gate_ffn * mapped


class PatchEmbedding(nn.Module):
    """A convolution whose kernel and stride are (1, 2, 2), computed as one product."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        channels = LATENT_CHANNELS + CONDITION_CHANNELS
        self.weight = nn.Parameter(torch.zeros(config.dim, channels, 1, PATCH, PATCH))
        self.bias = nn.Parameter(torch.zeros(config.dim))

    def forward(self, latents: Tensor) -> Tensor:
        """Embed latents [B, C, 3, h, w] as tokens [B, 3, P, d]."""
        pictures = latents.transpose(1, 2).flatten(0, 1)
        patches = pictures.unflatten(-1, (-1, PATCH)).unflatten(-3, (-1, PATCH))  # [3 B, C, rows, 2, columns, 2]
        patches = patches.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        tokens = functional.linear(patches, self.weight.flatten(1), self.bias)
        return tokens.unflatten(0, (-1, FRAMES_PER_BLOCK))


class Head(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.patches = config.patches
        self.modulation = nn.Parameter(torch.zeros(1, 2, config.dim))
        self.head = nn.Linear(config.dim, LATENT_CHANNELS * PATCH**2)

    def forward(self, u: Tensor, time: Tensor) -> Tensor:
        """Map tokens [B, 3, P, d] and the embedded timestep [B, 3, d] to the flow [B, 16, 3, h, w]."""
        shift, scale = (self.modulation[:, None] + time[:, :, None]).chunk(2, 2)
        # a token's outputs are in the order row in the patch, column in the patch, channel
        pixels = self.head(modulate(u, shift, scale)).flatten(0, 1).unflatten(-1, (PATCH, PATCH, LATENT_CHANNELS))
        pictures = pixels.unflatten(1, self.patches).permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)
        return pictures.unflatten(0, (-1, FRAMES_PER_BLOCK)).transpose(1, 2).contiguous()


class ImageEmbedding(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        clip = config.clip_dim
        self.proj = nn.Sequential(
            nn.LayerNorm(clip), nn.Linear(clip, clip), nn.GELU(), nn.Linear(clip, config.dim), nn.LayerNorm(config.dim)
        )

    def forward(self, visual: Tensor) -> Tensor:
        return self.proj(visual)


class Sinusoid(nn.Module):
    """Cosines, then sines, of timesteps times frequencies, computed in fp32 with errors below 3e-7.

    Phases reach 1000 radians, which fp32 rounds by 3e-5. OpenVINO computes fp64 in fp32, and TensorRT has no fp64. So a
    phase is the sum of a large part that is exact, the timestep's whole number (10 bits) times the frequency's first
    14 bits, and of a rest below 1.1.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        frequencies = 10000.0 ** (-np.arange(half) / half)
        mantissas, exponents = np.frexp(frequencies)
        coarse = np.ldexp(np.round(mantissas * 2**14), exponents - 14)
        self.coarse = FixedTable(coarse)
        self.fine = FixedTable(frequencies - coarse)

    def forward(self, t: Tensor) -> Tensor:
        """Map timesteps [B, 3] to [B, 3, width]."""
        t = t[..., None]
        whole = t.floor()
        large, rest = whole * self.coarse(), (t - whole) * self.coarse() + t * self.fine()
        cosines = large.cos() * rest.cos() - large.sin() * rest.sin()
        sines = large.sin() * rest.cos() + large.cos() * rest.sin()
        return torch.cat((cosines, sines), -1)


class WorldModel(nn.Module):
    """The whole model; the branches of `forward` are fixed by the workload."""

    def __init__(self, config: Config, workload_name: str) -> None:
        super().__init__()
        dim = config.dim
        stated = workload(config, workload_name, 1)
        self.inputs = tuple(spec.name for spec in stated.inputs)
        self.outputs = tuple(spec.name for spec in stated.outputs)
        self.history = config.history
        self.opens = workload_name == "open"
        self.fills_history = is_context(workload_name)

        self.patch_embedding = PatchEmbedding(config)
        self.time_embedding = nn.Sequential(nn.Linear(config.freq_dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.time_projection = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))
        self.blocks = nn.ModuleList([Block(config, layer < config.action_layers) for layer in range(config.n_layers)])
        self.head = Head(config)
        self.img_emb = ImageEmbedding(config)

        self.sinusoid = Sinusoid(config.freq_dim)
        angles = space_angles(config)
        self.space_cosines = FixedTable(np.cos(angles))
        self.space_sines = FixedTable(np.sin(angles))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Compute the workload; inputs and outputs are in the order of `spec.workload`."""
        given = dict(zip(self.inputs, tensors, strict=True))
        if self.opens:
            return self._open(given["visual"])
        x = given["x"]
        time = self._embed_time(given["t"], x.dtype)
        shared = self._share(given, time)
        u = self.patch_embedding(torch.cat((x, given["cond"]), 1))
        found: dict[str, Tensor] = {}
        last = len(self.blocks) - 1
        for layer, block in enumerate(self.blocks):
            own = {name.partition(".")[0]: given[name] for name in self.inputs if name.endswith(f".{layer}")}
            new: dict[str, Tensor] = {}
            u = block(u, shared, own, new, self.fills_history and layer == last)
            found |= {f"{name}.{layer}": tensor for name, tensor in new.items()}
        if self.fills_history:
            return tuple(self._newest(found[name]) for name in self.outputs)
        return (self.head(u, time),)

    def _open(self, visual: Tensor) -> tuple[Tensor, ...]:
        context = self.img_emb(visual)
        found: list[Tensor] = []
        for block in self.blocks:
            assert isinstance(block, Block)
            found += (block.cross_attn.keys(context), block.cross_attn.values(context))
        return tuple(one.contiguous() for one in found)

    def _embed_time(self, t: Tensor, dtype: torch.dtype) -> Tensor:
        """Embed timesteps [B, 3] as [B, 3, d]."""
        return self.time_embedding(self.sinusoid(t).to(dtype))

    def _share(self, given: Mapping[str, Tensor], time: Tensor) -> Shared:
        cosines, sines = (
            _spread(given[f"time_{function}"], table())
            for function, table in (("cos", self.space_cosines), ("sin", self.space_sines))
        )
        actions = ActionInputs(
            given.get("mouse"), given["keyboard"], *interleave(given["action_cos"], given["action_sin"])
        )
        return Shared(self.time_projection(time).unflatten(-1, (6, -1)), *interleave(cosines, sines), actions)

    def _newest(self, rows: Tensor) -> Tensor:
        """Return the part of a block's keys or values [..., 3 * n, D] that the next block attends to."""
        kept = rows.shape[-2] // FRAMES_PER_BLOCK * self.history
        return rows[..., -kept:, :].contiguous()


def _spread(time: Tensor, space: Tensor) -> Tensor:
    """Combine a table of the frames [3, m] and one of a frame's tokens [P, n] into one of all tokens [3 P, m + n]."""
    frames, tokens = len(time), len(space)
    parts = (time[:, None].expand(-1, tokens, -1), space[None].expand(frames, -1, -1))
    return torch.cat(parts, -1).flatten(0, 1)
