"""The facts of Matrix-Game-2's loop, without torch: a block of 3 latent frames, 12 video frames, in a unit.

A session opens with the keys and values of the start image. A block is denoised in 3 or 4 passes with noise added in
between, one more pass over the clean latents makes the history that the next block attends to, and the decoder turns
them into video. Block 0 has no history, and its first latent frame gives one video frame instead of four. A session
ends with the position table, after block 340. The image's condition and tokens are drawn, since encoder and CLIP are
not part of the loop: the times are valid and the pictures are noise.

Source: folder `Matrix-Game-2` of https://github.com/SkyworkAI/Matrix-Game (October 2025),
`pipeline/causal_inference.py`, `utils/wan_wrapper.py`, `utils/scheduler.py`.
"""

from dataclasses import dataclass, replace

from bakeoff.models.errors import BakeoffError
from bakeoff.models.matrix_wm.spec import MAX_BLOCKS, TRAINING_STEPS, Config
from bakeoff.models.pipelines.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Options:
    steps: int = 0
    """Denoising passes of a block, evenly spread over the 1000 training steps; 0: the preset's, 3 or 4."""

    def __post_init__(self) -> None:
        if not 0 <= self.steps <= TRAINING_STEPS:
            raise BakeoffError(
                f"matrix: steps is {self.steps}; it must be from 1 to {TRAINING_STEPS}, or 0 for the preset's",
                code="bad-option",
            )


def schedule(config: Config, steps: int) -> Config:
    """Return the config with this number of denoising passes; 0 leaves it as it is.

    The published schedules, 1000, 666, 333 and 1000, 750, 500, 250, are those of 3 and 4.
    """
    if not steps:
        return config
    return replace(config, steps=tuple(TRAINING_STEPS * (steps - step) // steps for step in range(steps)))


class Matrix(Pipeline):
    """The facts of the loop; loop.py has its code."""

    summary = "interactive video world model: a block of 3 latent frames is denoised, remembered and decoded"
    credit = "Matrix-Game-2, Skywork AI; Self-Forcing; Wan 2.1"
    unit_name = "block"
    rate = 25.0
    max_units = MAX_BLOCKS
    filling = 2  # the history is full after one block, and holds frames of steady blocks alone after two
    Options = Options
    presets = {
        "universal": "",
        "gta_drive": "",
        "templerun": "",
        "cpu": "reduced: latents 6x10",
        "tiny": "reduced: latents 4x6",
    }
    default_preset = {"cpu": "cpu", "cuda": "universal"}
    signals = {"video": "picture"}
    code = "bakeoff.models.pipelines.matrix.loop:Matrix"
