"""Matrix-Game-2's world model once more, in plain torch and fp64, as upstream computes it: with complex rotations, and
with caches that each pass writes in place and that roll when a block does not fit.

It takes the config, weights and inputs of a golden file and shares no code with `bakeoff.models.matrix_wm`.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Tensors = dict[str, Tensor]


class RollingCache:
    """Keys or values [B, size, H, D] of the newest positions; `end` counts all positions of the stream."""

    def __init__(self, size: int) -> None:
        self.size, self.stored, self.end = size, 0, 0
        self.rows = torch.zeros(0)

    def write(self, new: Tensor, end: int) -> Tensor:
        """Write [B, n, H, D], whose last position is `end` - 1, over what a pass before has written there, or behind it
        after the oldest positions have made room. Returns all that is stored."""
        if not self.stored:
            self.rows = new.new_zeros(len(new), self.size, *new.shape[2:])
        added = end - self.end
        evicted = max(0, self.stored + added - self.size)
        self.rows[:, : self.stored - evicted] = self.rows[:, evicted : self.stored].clone()
        self.stored, self.end = self.stored + added - evicted, end
        self.rows[:, self.stored - new.shape[1] : self.stored] = new
        return self.rows[:, : self.stored]


def angles(positions: Tensor, channels: int, theta: float) -> Tensor:
    """[n] to [n, channels / 2] radians."""
    return torch.outer(positions.double(), theta ** (-torch.arange(0, channels, 2).double() / channels))


def turn(heads: Tensor, radians: Tensor) -> Tensor:
    """Rotate the first channels of [B, n, H, D], as adjacent pairs, by [n, pairs]."""
    width = 2 * radians.shape[-1]
    pairs = torch.view_as_complex(heads[..., :width].unflatten(-1, (-1, 2)).contiguous())
    turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(radians), radians)[:, None]).flatten(-2)
    return torch.cat((turned, heads[..., width:]), -1)


def rms(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Of [B, n, H, D] and [B, m, H, D] (or one batch for all) to [B, n, H * D]."""
    k, v = (one.expand(len(q), -1, -1, -1) for one in (k, v))
    weights = (torch.einsum("bnhd,bmhd->bhnm", q, k) / q.shape[-1] ** 0.5).softmax(-1)
    return torch.einsum("bhnm,bmhd->bnhd", weights, v).flatten(2)


class PlainWorldModel:
    def __init__(self, config: Mapping[str, Any], weights: Tensors, visual: Tensor) -> None:
        self.config, self.action = config, config["action_config"]
        self.w = {key.removeprefix("model."): tensor.double() for key, tensor in weights.items()}
        self.rows, self.columns = (size // 2 for size in config["latent_hw"])
        self.tokens = self.rows * self.columns
        self.caches: dict[str, RollingCache] = {}
        context = self.norm(visual.double(), "img_emb.proj.0")
        context = self.linear(functional.gelu(self.linear(context, "img_emb.proj.1")), "img_emb.proj.3")
        self.context = self.norm(context, "img_emb.proj.4")

    def linear(self, x: Tensor, name: str) -> Tensor:
        return functional.linear(x, self.w[f"{name}.weight"], self.w.get(f"{name}.bias"))

    def norm(self, x: Tensor, name: str, eps: float = 1e-5) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], self.w[f"{name}.weight"], self.w[f"{name}.bias"], eps)

    def heads(self, x: Tensor, count: int) -> Tensor:
        return x.unflatten(-1, (count, -1))

    def cached(self, name: str, new: Tensor, first: int) -> Tensor:
        per_frame = new.shape[1] // 3
        cache = self.caches.setdefault(name, RollingCache(self.config["local_attn_size"] * per_frame))
        return cache.write(new, (first + 3) * per_frame)

    def flow(self, x: Tensor, cond: Tensor, t: float, actions: Tensors, first: int) -> Tensor:
        """The flow of a block's latents [1, 16, 3, h, w]; `actions` has all rows of the stream."""
        u = functional.conv3d(
            torch.cat((x, cond), 1), self.w["patch_embedding.weight"], self.w["patch_embedding.bias"], (1, 2, 2)
        )
        u = u.flatten(2).transpose(1, 2)
        half = self.config["freq_dim"] // 2
        phases = t * 10000.0 ** (-torch.arange(half).double() / half)
        embedded = self.linear(torch.cat((phases.cos(), phases.sin())), "time_embedding.0")
        embedded = self.linear(functional.silu(embedded), "time_embedding.2")
        modulation = self.linear(functional.silu(embedded), "time_projection.1").view(6, -1)
        for layer in range(self.config["num_layers"]):
            u = self.block(u, layer, modulation, actions, first)
        shift, scale = self.w["head.modulation"][0] + embedded
        u = self.linear(functional.layer_norm(u, u.shape[-1:], eps=1e-6) * (1 + scale) + shift, "head.head")
        pixels = u.view(3, self.rows, self.columns, 2, 2, 16)
        return torch.einsum("fhwpqc->cfhpwq", pixels).reshape(1, 16, 3, 2 * self.rows, 2 * self.columns)

    def block(self, u: Tensor, layer: int, modulation: Tensor, actions: Tensors, first: int) -> Tensor:
        name, count = f"blocks.{layer}", self.config["num_heads"]
        m = self.w[f"{name}.modulation"][0] + modulation
        normed = functional.layer_norm(u, u.shape[-1:], eps=1e-6) * (1 + m[1]) + m[0]
        radians = self.token_angles(u.shape[-1] // count, first)
        q, k = (turn(self.heads(self.gained(normed, f"{name}.self_attn", part), count), radians) for part in ("q", "k"))
        v = self.heads(self.linear(normed, f"{name}.self_attn.v"), count)
        k, v = self.cached(f"self_kv.{layer}.k", k, first), self.cached(f"self_kv.{layer}.v", v, first)
        u = u + m[2] * self.linear(attend(q, k, v), f"{name}.self_attn.o")
        q = self.heads(self.gained(self.norm(u, f"{name}.norm3", 1e-6), f"{name}.cross_attn", "q"), count)
        k = self.heads(self.gained(self.context, f"{name}.cross_attn", "k"), count)
        v = self.heads(self.linear(self.context, f"{name}.cross_attn.v"), count)
        u = u + self.linear(attend(q, k, v), f"{name}.cross_attn.o")
        if layer in self.action["blocks"]:
            u = u + self.mouse(u, layer, actions["mouse"], first)
            u = u + self.keyboard(u, layer, actions["keyboard"], first)
        normed = functional.layer_norm(u, u.shape[-1:], eps=1e-6) * (1 + m[4]) + m[3]
        return u + m[5] * self.linear(
            functional.gelu(self.linear(normed, f"{name}.ffn.0"), approximate="tanh"), f"{name}.ffn.2"
        )

    def gained(self, x: Tensor, name: str, part: str) -> Tensor:
        return rms(self.linear(x, f"{name}.{part}")) * self.w[f"{name}.norm_{part}.weight"]

    def token_angles(self, width: int, first: int) -> Tensor:
        space = 2 * (width // 6)
        frames, rows, columns = torch.meshgrid(
            torch.arange(first, first + 3), torch.arange(self.rows), torch.arange(self.columns), indexing="ij"
        )
        parts = ((frames, width - 2 * space), (rows, space), (columns, space))
        return torch.cat([angles(index.flatten(), channels, 1e4) for index, channels in parts], -1)

    def seen(self, rows: Tensor, first: int) -> Tensor:
        """[1, n, C] to [3, 12 * C]: the twelve rows before each frame's own."""
        frames = [[max(row, 0) for row in range(4 * f - 12, 4 * f)] for f in range(first, first + 3)]
        return torch.stack([rows[0, one].flatten() for one in frames])

    def mouse(self, u: Tensor, layer: int, rows: Tensor, first: int) -> Tensor:
        name, radians = f"blocks.{layer}.action_model", angles(torch.arange(first, first + 3), 8, 256.0)
        by_token = u.view(3, self.tokens, -1).transpose(0, 1)
        x = torch.cat((by_token, self.seen(rows, first).expand(self.tokens, -1, -1)), -1)
        x = functional.gelu(self.linear(x, f"{name}.mouse_mlp.0"), approximate="tanh")
        x = self.norm(self.linear(x, f"{name}.mouse_mlp.2"), f"{name}.mouse_mlp.3")
        q, k, v = (self.heads(one, self.action["heads_num"]) for one in self.linear(x, f"{name}.t_qkv").chunk(3, -1))
        k = self.cached(f"mouse_kv.{layer}.k", turn(rms(k), radians), first)
        v = self.cached(f"mouse_kv.{layer}.v", v, first)
        attended = self.linear(attend(turn(rms(q), radians), k, v), f"{name}.proj_mouse")
        return attended.transpose(0, 1).reshape(u.shape)

    def keyboard(self, u: Tensor, layer: int, rows: Tensor, first: int) -> Tensor:
        name, radians = f"blocks.{layer}.action_model", angles(torch.arange(first, first + 3), 8, 256.0)
        pressed = functional.silu(self.linear(rows, f"{name}.keyboard_embed.0"))
        pressed = self.seen(self.linear(pressed, f"{name}.keyboard_embed.2"), first)[None]
        k, v = (
            self.heads(one, self.action["heads_num"])
            for one in self.linear(pressed, f"{name}.keyboard_attn_kv").chunk(2, -1)
        )
        k = self.cached(f"keyboard_kv.{layer}.k", turn(rms(k), radians), first)
        v = self.cached(f"keyboard_kv.{layer}.v", v, first)
        by_token = u.view(3, self.tokens, -1).transpose(0, 1)
        q = self.heads(self.linear(by_token, f"{name}.mouse_attn_q"), self.action["heads_num"])
        attended = self.linear(attend(turn(rms(q), radians), k, v), f"{name}.proj_keyboard")
        return attended.transpose(0, 1).reshape(u.shape)


def golden_outputs(config: Mapping[str, Any], weights: Tensors, inputs: Tensors) -> Tensors:
    """The outputs of a golden file of one stream (batch 1), in fp32."""
    model = PlainWorldModel(config, weights, inputs["visual_context"])
    actions = {kind: inputs[f"{kind}_cond"].double() for kind in ("mouse", "keyboard")}
    found: Tensors = {}
    for block in range(inputs["noise"].shape[2] // 3):
        frames = slice(3 * block, 3 * block + 3)
        cond = inputs["cond_concat"][:, :, frames].double()
        x = clean = inputs["noise"][:, :, frames].double()
        for step, t in enumerate(inputs["timesteps"].double().tolist()):
            if step:
                x = (1 - t / 1000) * clean + t / 1000 * inputs["renoise"][block, step - 1]
            flow = model.flow(x, cond, t, actions, 3 * block)
            clean = x - t / 1000 * flow
            found |= {f"flow_block{block}_step{step}": flow, f"x0_block{block}_step{step}": clean}
        found[f"flow_block{block}_context"] = model.flow(clean, cond, 0.0, actions, 3 * block)
    found |= {name: cache.rows for name, cache in model.caches.items()}
    return {name: tensor.float() for name, tensor in found.items()}
