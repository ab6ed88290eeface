"""Run the world model on a golden file's weights and inputs: a session of several blocks, from its opening."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from golden_files import config_from, load_weights, require_inputs
from torch import Tensor

from bakeoff.models.component import TensorSpec
from bakeoff.models.errors import BakeoffError
from bakeoff.models.matrix_wm.action import positions
from bakeoff.models.matrix_wm.network import WorldModel
from bakeoff.models.matrix_wm.spec import (
    CONDITION_CHANNELS,
    FRAMES_PER_BLOCK,
    LATENT_CHANNELS,
    ROWS_PER_FRAME,
    TRAINING_STEPS,
    Config,
    action_rows,
    workload,
    workload_names,
)

Tensors = dict[str, Tensor]

_PREFIX = "model."
_FIXED = {
    "in_dim": LATENT_CHANNELS + CONDITION_CHANNELS,
    "out_dim": LATENT_CHANNELS,
    "eps": 1e-6,
    "sink_size": 0,
    "num_frame_per_block": FRAMES_PER_BLOCK,
    "context_noise": 0,
    "action_config.enable_keyboard": True,
    "action_config.qk_norm": True,
    "action_config.qkv_bias": False,
    "action_config.rope_dim_list": [8, 28, 28],
    "action_config.rope_theta": 256,
    "action_config.vae_time_compression_ratio": ROWS_PER_FRAME,
    "action_config.windows_size": 3,
}
"""Settings of upstream's config that this network does not vary."""


def replay(about: Mapping[str, Any], weights: Tensors, inputs: Tensors) -> Tensors:
    """`flow_blockB_stepS`, `x0_blockB_stepS` and `flow_blockB_context` of every block, and the caches at the end.

    The caches hold the frames of the last block's window. The file's config has upstream's names, and its weights the
    prefix `model.`. Raises BakeoffError when config, weights and inputs do not fit each other.
    """
    config = read_config(about["config"])
    stripped = {key.removeprefix(_PREFIX): tensor for key, tensor in weights.items()}
    programs = {name: _load(config, name, stripped) for name in workload_names(config)}
    blocks = _count_blocks(config, inputs)
    image = _call(config, programs, "open", {"visual": inputs["visual_context"]})
    history: Tensors = {}
    before: Tensors = {}
    found: Tensors = {}
    for block in range(blocks):
        suffix = "" if block else "0"
        given = {**image, **history, **_block_inputs(config, inputs, block)}
        x, clean = given["x"], given["x"]
        for step, t in enumerate(inputs["timesteps"]):
            if step:
                sigma = float(t) / TRAINING_STEPS
                x = (1 - sigma) * clean + sigma * inputs["renoise"][block, step - 1]
            flow = _call(config, programs, f"denoise{suffix}", {**given, "x": x, "t": _times(x, t)})["flow"]
            clean = (x.double() - float(t) / TRAINING_STEPS * flow.double()).to(x.dtype)
            found[f"flow_block{block}_step{step}"] = flow
            found[f"x0_block{block}_step{step}"] = clean
        given |= {"x": clean, "t": _times(clean, torch.zeros(()))}
        found[f"flow_block{block}_context"] = _call(config, programs, f"denoise{suffix}", given)["flow"]
        before, history = history, _call(config, programs, f"context{suffix}", given)
    # With a window of 6 a context pass returns all frames of its block.
    whole, context = replace(config, window=2 * FRAMES_PER_BLOCK), f"context{suffix}"
    for name, newest in _call(whole, {context: _load(whole, context, stripped)}, context, given).items():
        kind, _, layer = name.partition(".")
        rows = torch.cat((before[name], newest), -2) if before else newest
        found[f"{kind[:-2]}_kv.{layer}.{kind[-1]}"] = rows.transpose(1, 2)
    return found


def read_config(stated: Mapping[str, Any]) -> Config:
    """Our config for one with upstream's names. Raises BakeoffError for a missing field or an unsupported value."""

    def field(path: str) -> Any:
        value: Any = stated
        for name in path.split("."):
            if not isinstance(value, Mapping) or name not in value:
                raise BakeoffError(f"matrix-wm golden: the config has no {path}", code="bad-config")
            value = value[name]
        return value

    for path, expected in _FIXED.items():
        if field(path) != expected:
            raise BakeoffError(f"matrix-wm golden: {path} is {field(path)}; it must be {expected}", code="bad-config")
    layers, size = field("action_config.blocks"), field("latent_hw")
    if not isinstance(layers, list) or layers != list(range(len(layers))):
        text = f"matrix-wm golden: action_config.blocks is {layers}; it must be the first layers, 0, 1, ..."
        raise BakeoffError(text, code="bad-config")
    if not isinstance(size, list) or len(size) != 2:
        raise BakeoffError(f"matrix-wm golden: latent_hw is {size}; it must be height and width", code="bad-config")
    values = {
        "dim": field("dim"),
        "n_heads": field("num_heads"),
        "n_layers": field("num_layers"),
        "ffn_dim": field("ffn_dim"),
        "action_layers": len(layers),
        "keyboard_dim": field("action_config.keyboard_dim_in"),
        "mouse_dim": field("action_config.mouse_dim_in") if field("action_config.enable_mouse") else 0,
        "window": field("local_attn_size"),
        "clip_dim": field("clip_dim"),
        "clip_tokens": field("context_tokens"),
        "freq_dim": field("freq_dim"),
        "action_heads": field("action_config.heads_num"),
        "action_hidden": field("action_config.hidden_size"),
        "action_img_hidden": field("action_config.keyboard_hidden_dim"),
        "latent_height": size[0],
        "latent_width": size[1],
        "steps": field("denoising_step_list"),
        "flow_shift": field("timestep_shift"),
    }
    config: Config = config_from(Config, values, "matrix-wm")
    return config


def _load(config: Config, name: str, weights: Tensors) -> WorldModel:
    program = WorldModel(config, name).eval()
    load_weights("matrix-wm", program, weights)
    return program


def _count_blocks(config: Config, inputs: Tensors) -> int:
    """Blocks of the file's session; raises BakeoffError unless its inputs are those of that many blocks."""
    frames = inputs["noise"].shape[2] if "noise" in inputs and inputs["noise"].ndim == 5 else 0
    blocks, rest = divmod(frames, FRAMES_PER_BLOCK)
    if rest or not blocks:
        text = "matrix-wm golden: input noise is missing or not of shape [batch, 16, 3 * blocks, height, width]"
        raise BakeoffError(text, code="bad-input")
    batch, size = inputs["noise"].shape[0], (config.latent_height, config.latent_width)
    rows = ROWS_PER_FRAME * (frames - 1) + 1
    expected = {
        "noise": (batch, LATENT_CHANNELS, frames, *size),
        "renoise": (blocks, len(config.steps) - 1, batch, LATENT_CHANNELS, FRAMES_PER_BLOCK, *size),
        "cond_concat": (batch, CONDITION_CHANNELS, frames, *size),
        "timesteps": (len(config.steps),),
        "visual_context": (batch, config.clip_tokens, config.clip_dim),
        "keyboard_cond": (batch, rows, config.keyboard_dim),
    }
    if config.mouse_dim:
        expected["mouse_cond"] = (batch, rows, config.mouse_dim)
    require_inputs("matrix-wm", tuple(TensorSpec(name, shape) for name, shape in expected.items()), inputs)
    return blocks


def _block_inputs(config: Config, inputs: Tensors, block: int) -> Tensors:
    """The inputs of a block's first pass, without the timestep."""
    first = FRAMES_PER_BLOCK * block
    frames, rows = slice(first, first + FRAMES_PER_BLOCK), list(action_rows(first))
    found = {"x": inputs["noise"][:, :, frames], "cond": inputs["cond_concat"][:, :, frames]}
    found |= {kind: inputs[f"{kind}_cond"][:, rows] for kind in config.action_kinds}
    return found | positions(config, first)._asdict()


def _times(x: Tensor, t: Tensor) -> Tensor:
    return t.expand(len(x), FRAMES_PER_BLOCK)


def _call(config: Config, programs: Mapping[str, WorldModel], name: str, given: Tensors) -> Tensors:
    stated = workload(config, name, len(next(iter(given.values()))))
    with torch.no_grad():
        results = programs[name](*(given[spec.name] for spec in stated.inputs))
    return {spec.name: result for spec, result in zip(stated.outputs, results, strict=True)}
