"""Facts of the world model of Matrix-Game-2 (Skywork AI), without torch.

It is the image-to-video transformer of Wan 2.1, distilled by Self-Forcing into three or four denoising steps, with
attention to a player's mouse and keyboard in its first layers. A block is 3 latent frames, 12 video frames (9 in the
first block of a stream), and blocks follow each other: a block attends to the keys and values of the `window` - 3
latent frames before it.

Workloads. `open` makes the keys and values of the start image, once a session. `denoise` is one denoising step of a
block; its prediction is the flow, so that the clean latents are x - sigma * flow. `context` is a pass over the clean
latents at t = 0 and returns the history that the next block takes; it stops at the last layer's keys and values, since
no one uses its prediction. `denoise0` and `context0` are those of the first block, which has no history. All are pure
functions: a denoising step returns no keys, because each step of a block overwrites those of the one before.

Heads H, head width D, tokens P of a latent frame. `self_k.{layer}` are [B, H, frames * P, D], and in layers with
actions `mouse_k.{layer}` [B * P, action heads, frames, 64] and `keyboard_k.{layer}` [B, action heads, frames, 64],
oldest frame first. Keys are stored after the rotary embedding, whose angles depend on the absolute position of a frame.

Source: folder `Matrix-Game-2` of https://github.com/SkyworkAI/Matrix-Game (October 2025), `wan/modules/causal_model.py`
and `action_module.py`, `pipeline/causal_inference.py`.
"""

from dataclasses import dataclass
from typing import Literal

from bakeoff.models.component import (
    Carry,
    Component,
    Preset,
    Stream,
    TensorSpec,
    Workload,
)
from bakeoff.models.errors import BakeoffError, no_such

FRAMES_PER_BLOCK = 3
"""Latent frames that are denoised together."""
PATCH = 2
"""Height and width, in latent pixels, of the patch that one token stands for."""
LATENT_CHANNELS = 16
CONDITION_CHANNELS = 20
"""Four channels of a mask that is 1 in the first frame of a stream, and 16 of the encoded start image."""
ROWS_PER_FRAME = 4
"""Action rows of a latent frame: one for each of its video frames."""
ROWS_SEEN = 12
"""Action rows that a latent frame sees: those before its own."""
ACTION_ROWS = ROWS_SEEN + (FRAMES_PER_BLOCK - 1) * ROWS_PER_FRAME
ACTION_HEAD_DIM = 64
ACTION_PAIRS = 4
"""Rotated pairs among the channels of an action head; the other 56 channels are not rotated."""
MAX_BLOCKS = 341
"""Blocks of one session: the published rotary table has 1024 latent frames."""
TRAINING_STEPS = 1000
"""Number of noise levels in training; each step of the sampler is one of 1..1000."""
_SUMMARIES = {
    "open": "keys and values of the start image, once a session",
    "denoise0": "one denoising step of the first block, which has no history",
    "denoise": "one denoising step of a block of 3 latent frames against its history",
    "context0": "history for the second block, from the clean latents of the first",
    "context": "history for the next block, from the clean latents of this one",
}


@dataclass(frozen=True, slots=True)
class Config:
    dim: int
    n_heads: int
    n_layers: int
    ffn_dim: int
    action_layers: int
    """Number of layers, from the first, that have an action module; fewer than all."""
    keyboard_dim: int
    mouse_dim: Literal[0, 2] = 2
    """0: the model has no mouse input."""
    window: int = 6
    """Latent frames that a block attends to, its own included (`local_attn_size` upstream)."""
    clip_dim: int = 1280
    clip_tokens: int = 257
    freq_dim: int = 256
    """Width of the sinusoid of the timestep."""
    action_heads: int = 16
    action_hidden: int = 128
    """Width of an embedded row of keys."""
    action_img_hidden: int = 1024
    """Width of the mouse and keyboard attention: `action_heads` heads of 64."""
    latent_height: int = 44
    latent_width: int = 80
    steps: tuple[int, ...] = (1000, 666, 333)
    """The sampler's denoising steps, 1000 for pure noise."""
    flow_shift: float = 5.0

    def __post_init__(self) -> None:
        problem = ""  # what neither the network nor its number of parameters would show
        if not FRAMES_PER_BLOCK < self.window <= 2 * FRAMES_PER_BLOCK:
            problem = f"window is {self.window}; it must be 4, 5 or 6: one to three latent frames before a block"
        elif not self.steps or self.steps[0] > TRAINING_STEPS or self.steps != (*sorted({*self.steps}, reverse=True),):
            problem = f"steps is {self.steps!r}; they must decrease from at most {TRAINING_STEPS}"
        if problem:
            raise BakeoffError(f"matrix-wm config: {problem}", "bad-config")

    @property
    def head_dim(self) -> int:
        return self.dim // self.n_heads

    @property
    def history(self) -> int:
        """Number of latent frames before a block to which the block attends."""
        return self.window - FRAMES_PER_BLOCK

    @property
    def patches(self) -> tuple[int, int]:
        """Rows and columns of the tokens of a latent frame."""
        return self.latent_height // PATCH, self.latent_width // PATCH

    @property
    def tokens_per_frame(self) -> int:
        rows, columns = self.patches
        return rows * columns

    @property
    def space_pairs(self) -> int:
        """Rotated pairs of a head for the row; the column has as many."""
        return self.head_dim // 2 // 3

    @property
    def time_pairs(self) -> int:
        """Rotated pairs of a head for the frame."""
        return self.head_dim // 2 - 2 * self.space_pairs

    @property
    def action_kinds(self) -> tuple[str, ...]:
        return ("mouse", "keyboard") if self.mouse_dim else ("keyboard",)


def sigmas(config: Config) -> tuple[float, ...]:
    """Return the noise level of each denoising step: x = (1 - sigma) * clean + sigma * noise."""
    shift = config.flow_shift
    return tuple(shift * s / (1 + (shift - 1) * s) for s in (step / TRAINING_STEPS for step in config.steps))


def timesteps(config: Config) -> tuple[float, ...]:
    """Return `t` of each denoising step: 1000, 908.84 and 713.98 for the published steps. A context pass has 0."""
    return tuple(TRAINING_STEPS * sigma for sigma in sigmas(config))


def action_rows(first_latent_frame: int) -> tuple[int, ...]:
    """Return the numbers of a block's 20 action rows, from 12 rows before its first frame; negative ones become 0.

    Row n is the action of video frame n. The newest row that a latent frame f sees is 4 f - 1. Raises BakeoffError for
    a negative frame.
    """
    require_frame(first_latent_frame)
    first = ROWS_PER_FRAME * first_latent_frame - ROWS_SEEN
    return tuple(max(row, 0) for row in range(first, first + ACTION_ROWS))


def require_frame(first_latent_frame: int) -> None:
    """Raise BakeoffError unless a block that begins with this latent frame is within the rotary table."""
    limit = MAX_BLOCKS * FRAMES_PER_BLOCK
    if not 0 <= first_latent_frame <= limit - FRAMES_PER_BLOCK:
        raise BakeoffError(
            f"matrix-wm: a block cannot begin with latent frame {first_latent_frame}. A session has the latent frames "
            f"0 to {limit - 1}, {MAX_BLOCKS} blocks of {FRAMES_PER_BLOCK}; open a new one",
            code="bad-option",
        )


def workload_names(_config: Config) -> tuple[str, ...]:
    return tuple(_SUMMARIES)


def is_first(name: str) -> bool:
    """Return whether a workload is of the first block, which has no history."""
    return name.endswith("0")


def is_context(name: str) -> bool:
    """Return whether a workload returns a history and stops at the last layer's keys and values."""
    return name.startswith("context")


def workload(config: Config, name: str, batch: int) -> Workload:
    """Return the workload of this name. Raises BakeoffError for an unknown name."""
    if name not in _SUMMARIES:
        raise no_such("matrix-wm", "workload", name, _SUMMARIES)
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    if name == "open":
        inputs = (TensorSpec("visual", (batch, config.clip_tokens, config.clip_dim)),)
        outputs = _cross(config, batch, config.n_layers)
    else:
        # The layer that stops at its keys and values computes no attention.
        attending = config.n_layers - is_context(name)
        drawn_timesteps = (0.0,) if is_context(name) else timesteps(config)
        inputs = (*_block(config, batch, drawn_timesteps), *_cross(config, batch, attending))
        if not is_first(name):
            inputs += _history(config, batch, attending)
        outputs = _history(config, batch, config.n_layers) if is_context(name) else (_latents("flow", config, batch),)
    return Workload(
        name,
        _SUMMARIES[name],
        inputs,
        outputs,
        # The causal decoder makes one video frame of the first latent frame of a stream, and four of any other.
        frames_per_call=1 if name == "open" else ROWS_PER_FRAME * FRAMES_PER_BLOCK - 3 * is_first(name),
        calls_per_frame=len(config.steps) + 1 if name == "denoise" else None,
    )


def stream(config: Config, name: str) -> Stream | None:
    """Return the stream of `denoise`; None for the other workloads, which are parts of it.

    `open` gives the keys and values of the image to every later call. For each block `denoise` is called once for each
    step, then `context` makes the history of the next block; the first block has programs of its own.
    """
    if name != "denoise":
        return None
    carries = []
    for source in ("open", "context0", "context"):
        made = [spec.name for spec in workload(config, source, 1).outputs]
        for taker in ("denoise0", "context0", "denoise", "context"):
            taken = {spec.name for spec in workload(config, taker, 1).inputs}
            carries += [Carry(source, value, taker, value) for value in made if value in taken]
    return Stream(("denoise", "context"), tuple(carries), opening=("open", "denoise0", "context0"))


def _latents(name: str, config: Config, batch: int, channels: int = LATENT_CHANNELS) -> TensorSpec:
    return TensorSpec(name, (batch, channels, FRAMES_PER_BLOCK, config.latent_height, config.latent_width))


def _block(config: Config, batch: int, drawn_timesteps: tuple[float, ...]) -> tuple[TensorSpec, ...]:
    """Return the inputs of a pass over a block.

    `t` is drawn from the timesteps of a rollout, since a variant that is right for small timesteps only would pass a
    check with t below 1.
    """
    mouse = (TensorSpec("mouse", (batch, ACTION_ROWS, config.mouse_dim)),) if config.mouse_dim else ()
    return (
        _latents("x", config, batch),
        _latents("cond", config, batch, CONDITION_CHANNELS),
        TensorSpec("t", (batch, FRAMES_PER_BLOCK), drawn_timesteps, keep_fp32=True),
        *mouse,
        TensorSpec("keyboard", (batch, ACTION_ROWS, config.keyboard_dim), "binary"),
        *(
            TensorSpec(f"{axis}_{function}", (FRAMES_PER_BLOCK, pairs), "uniform", keep_fp32=True)
            for axis, pairs in (("time", config.time_pairs), ("action", ACTION_PAIRS))
            for function in ("cos", "sin")
        ),
    )


def _cross(config: Config, batch: int, layers: int) -> tuple[TensorSpec, ...]:
    shape = (batch, config.n_heads, config.clip_tokens, config.head_dim)
    return tuple(TensorSpec(f"cross_{part}.{layer}", shape) for layer in range(layers) for part in ("k", "v"))


def _history(config: Config, batch: int, layers: int) -> tuple[TensorSpec, ...]:
    """Return keys and values of `layers` layers: of self-attention, then of mouse and keyboard if a layer has them."""
    tokens = config.tokens_per_frame
    shapes = {
        "self": (batch, config.n_heads, config.history * tokens, config.head_dim),
        "mouse": (batch * tokens, config.action_heads, config.history, ACTION_HEAD_DIM),
        "keyboard": (batch, config.action_heads, config.history, ACTION_HEAD_DIM),
    }
    return tuple(
        TensorSpec(f"{kind}_{part}.{layer}", shapes[kind])
        for layer in range(layers)
        for kind in ("self", *(config.action_kinds if layer < config.action_layers else ()))
        for part in ("k", "v")
    )


_UNIVERSAL = Config(
    dim=1536, n_heads=12, n_layers=30, ffn_dim=8960, action_layers=15, keyboard_dim=4, mouse_dim=2, window=6
)
_GTA_DRIVE = Config(
    dim=1536, n_heads=12, n_layers=30, ffn_dim=8960, action_layers=15, keyboard_dim=2, mouse_dim=2, window=4
)
_TEMPLERUN = Config(
    dim=1536,
    n_heads=12,
    n_layers=30,
    ffn_dim=8960,
    action_layers=15,
    keyboard_dim=7,
    mouse_dim=0,
    window=6,
    steps=(1000, 750, 500, 250),
)
_REDUCED = Config(
    dim=256,
    n_heads=4,
    n_layers=6,
    ffn_dim=1024,
    action_layers=3,
    keyboard_dim=4,
    action_heads=4,
    action_hidden=64,
    action_img_hidden=256,
    latent_height=6,
    latent_width=10,
)
_TINY = Config(
    dim=64,
    n_heads=2,
    n_layers=3,
    ffn_dim=160,
    action_layers=2,
    keyboard_dim=4,
    clip_dim=32,
    clip_tokens=5,
    freq_dim=32,
    action_heads=2,
    action_hidden=16,
    action_img_hidden=128,
    latent_height=4,
    latent_width=6,
)

SPEC = Component(
    name="matrix-wm",
    summary="world model: a diffusion transformer over blocks of 3 latent frames and actions, with a KV cache",
    credit="Matrix-Game-2, Skywork AI; Self-Forcing; Wan 2.1",
    presets=(
        Preset("universal", _UNIVERSAL, 1_619_242_304),
        Preset("gta_drive", _GTA_DRIVE, 1_619_238_464),
        Preset("templerun", _TEMPLERUN, 1_508_715_584),
        Preset("cpu", _REDUCED, 11_669_184, "reduced: dim 256, 6 layers, latents 6x10"),
        Preset("tiny", _TINY, 515_712, "reduced: dim 64, 3 layers, latents 4x6"),
    ),
    default_preset={"cpu": "cpu", "cuda": "universal"},
    default_workloads={"cpu": ("denoise",), "cuda": ("denoise",)},
    workload_names=workload_names,
    workload=workload,
    stream=stream,
    tolerance_fp32=1e-4,
    network="bakeoff.models.matrix_wm.network",
    layers=("linear", "attention"),
    checkpoint_strip=("ema_model.", "module.", "model."),
)
