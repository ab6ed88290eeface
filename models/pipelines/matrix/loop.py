"""Matrix-Game-2's loop.

A block's latents are [1, 16, 3, h, w] in the world model, and [1, frames, 16, h, w] in the decoder.
"""

from typing import Any

import torch
from torch import Tensor

from bakeoff.models.component import Workload
from bakeoff.models.matrix_vae.spec import SPEC as VAE
from bakeoff.models.matrix_wm.network import positions
from bakeoff.models.matrix_wm.spec import (
    FRAMES_PER_BLOCK,
    ROWS_PER_FRAME,
    action_rows,
    sigmas,
    timesteps,
)
from bakeoff.models.matrix_wm.spec import SPEC as WM
from bakeoff.models.pipelines.matrix import spec
from bakeoff.models.pipelines.matrix.spec import schedule
from bakeoff.models.pipelines.pipeline import OPENING, BuiltIn
from bakeoff.models.pipelines.tensors import pixels, wide

State = dict[str, Any]
CONDITION_FRAMES = 12
"""Number of latent frames whose image condition is drawn; later frames repeat the last one's. The encoder's output for
a picture followed by zeros stays the same once the picture has left its receptive field."""
MASK_CHANNELS = 4
POSITIONS = ("time_cos", "time_sin", "action_cos", "action_sin")


class Matrix(spec.Matrix):
    """The loop. Its state: keys and values of the history and of the picture, the decoder's caches, and timesteps."""

    def __init__(self, preset: str, options: spec.Options) -> None:
        super().__init__(preset, options)
        self.vae_preset = preset if preset in ("cpu", "tiny") else "full"
        self.config = schedule(WM.preset(preset).config, options.steps)
        programs = ("denoise0", "context0", "denoise", "context")
        self.inputs = {name: tuple(one.name for one in self._wm(name).inputs) for name in programs}

    def modules(self) -> dict[str, BuiltIn]:
        return {"wm": BuiltIn("matrix-wm", self.preset), "decoder": BuiltIn("matrix-vae", self.vae_preset)}

    def sizes(self) -> dict[str, int]:
        return {"steps": len(self.config.steps), "window": self.config.window}

    def frames(self, unit: int) -> int:
        return ROWS_PER_FRAME * FRAMES_PER_BLOCK - (3 if unit == 0 else 0)

    def given(self, unit: int, draw: Any) -> State:
        if unit == OPENING:
            (visual,) = self._wm("open").inputs
            prime = VAE.workload(VAE.preset(self.vae_preset).config, "prime", 1)
            caches = {one.name: draw.zeros(one.shape, slot="decoder") for one in prime.inputs if _is_cache(one.name)}
            return {"visual": draw("visual", visual.shape, slot="wm"), **caches}
        inputs = {one.name: one for one in self._wm("denoise").inputs}
        names = ("noise", *(f"noise.{step}" for step in range(1, len(self.config.steps))))
        found = {name: draw(name, inputs["x"].shape, slot="wm") for name in names}
        found["cond"] = _condition(unit, draw, inputs["cond"].shape)
        for name in ("mouse", "keyboard"):
            if name in inputs:
                # Each row is drawn by its number, since blocks share rows.
                rows, one = action_rows(FRAMES_PER_BLOCK * unit), inputs[name]
                drawn = [draw.session(f"{name}:{row}", (1, 1, one.shape[-1]), one.draw, slot="wm") for row in rows]
                found[name] = torch.cat(drawn, 1)
        where = positions(self.config, FRAMES_PER_BLOCK * unit)
        return found | {name: draw.value(getattr(where, name)) for name in POSITIONS}

    def start(self, given: State, run: Any) -> State:
        visual = given["visual"]
        with run.phase("open"):
            cross = run.wm.open(visual=visual)
        dtype = torch.promote_types(visual.dtype, torch.float32)
        levels = (*timesteps(self.config), 0.0)
        t = [torch.full((1, FRAMES_PER_BLOCK), value, dtype=dtype, device=visual.device) for value in levels]
        return {"cross": cross, "history": {}, "t": t} | {name: given[name] for name in given if _is_cache(name)}

    def step(self, state: State, given: State, run: Any) -> tuple[State, State]:
        first = not state["history"]  # block 0 has no history
        caches = {name: value for name, value in state.items() if _is_cache(name)}
        known = {**state["cross"], **state["history"], **given}
        x0 = self._denoised(known, state["t"], run, "denoise0" if first else "denoise")
        with run.phase("context"):
            program = "context0" if first else "context"
            history = getattr(run.wm, program)(**self._inputs(program, known, x0, state["t"][-1]))
        with run.phase("decode"):
            frames = x0.transpose(1, 2).contiguous()
            if first:  # its first latent frame gives one video frame instead of four
                primed = run.decoder.prime(z=frames[:, :1].contiguous(), **caches)
                opening = primed.pop("video")
                decoded = run.decoder.steady2(z=frames[:, 1:].contiguous(), **primed)
                video = torch.cat((opening, decoded.pop("video")), 1)
            else:
                decoded = run.decoder.steady3(z=frames, **caches)
                video = decoded.pop("video")
        with run.phase("present"):
            pixels(video)
        return {"cross": state["cross"], "history": history, "t": state["t"], **decoded}, {"x0": x0, "video": video}

    def _denoised(self, known: State, t: list[Tensor], run: Any, program: str) -> Tensor:
        """Return the clean latents of a block, denoised in passes with noise added in between."""
        x = x0 = known["noise"]
        for step, (sigma, timestep) in enumerate(zip(sigmas(self.config), timesteps(self.config), strict=True)):
            with run.phase("denoise", step=step, timestep=round(timestep, 2)):
                if step:
                    x = _renoised(x0, known[f"noise.{step}"], sigma)
                flow = getattr(run.wm, program)(**self._inputs(program, known, x, t[step]))["flow"]
                x0 = _clean(x, flow, sigma)
        return x0

    def _inputs(self, program: str, known: State, x: Tensor, t: Tensor) -> dict[str, Tensor]:
        values = {**known, "x": x, "t": t}
        return {name: values[name] for name in self.inputs[program]}

    def _wm(self, program: str) -> Workload:
        return WM.workload(self.config, program, 1)


def _is_cache(name: str) -> bool:
    return name.startswith("cache.")


def _condition(unit: int, draw: Any, shape: tuple[int, ...]) -> Tensor:
    """Return a block's condition [1, 20, 3, h, w]: a mask, 1 in a stream's first frame, and the image's latents."""
    batch, channels, frames, height, width = shape
    found = []
    for frame in range(FRAMES_PER_BLOCK * unit, FRAMES_PER_BLOCK * unit + frames):
        key = f"cond:{min(frame, CONDITION_FRAMES - 1)}"
        latents = draw.session(key, (batch, channels - MASK_CHANNELS, 1, height, width), slot="wm")
        mask = latents.new_full((batch, MASK_CHANNELS, 1, height, width), float(frame == 0))
        found.append(torch.cat((mask, latents), 1))
    return torch.cat(found, 2)


def _clean(x: Tensor, flow: Tensor, sigma: float) -> Tensor:
    """Return the clean latents x - sigma * flow that a flow predicts, computed in fp64, in the dtype of x.

    As `_convert_flow_pred_to_x0` of upstream's `utils/wan_wrapper.py`.
    """
    return (x.double() - sigma * flow.double()).to(x.dtype)


def _renoised(latents: Tensor, noise: Tensor, sigma: float) -> Tensor:
    """Return clean latents noised to level sigma, mixed in at least fp32, in the dtype of the latents.

    As `add_noise` of upstream's `utils/scheduler.py`.
    """
    return ((1 - sigma) * wide(latents) + sigma * wide(noise)).to(latents.dtype)
