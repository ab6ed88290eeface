"""The OWL world model's loop: a frame is denoised against the cache, appended to it, and decoded with its sound.

B is the batch of the world model, 2 with batched guidance; F the frames of its window; C, S channels and side of a
frame's latents; A those of its audio.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from bakeoff.models import resolve_component
from bakeoff.models.pipelines.owl import spec
from bakeoff.models.pipelines.owl.spec import AUDIO_SCALE, COMPONENTS, IMAGE_SCALE, noise_levels
from bakeoff.models.pipelines.pipeline import OPENING, BuiltIn
from bakeoff.models.pipelines.tensors import pixels, wide

State = dict[str, Tensor]
Latents = tuple[Tensor, Tensor]
"""Latents of frames: video [B, F, C, S, S] and audio [B, F, A]."""


class Owl(spec.Owl):
    """The loop. Its state: keys and values of the last F - 1 frames, the window of audio latents, and noise levels."""

    def __init__(self, preset: str, options: spec.Options) -> None:
        super().__init__(preset, options)
        presets = COMPONENTS[preset]
        self.wm: Any = resolve_component("wm").preset(presets["wm"]).config
        self.audio: Any = resolve_component("audio").preset(presets["audio"]).config
        self.levels = noise_levels(options, self.wm.denoising_steps)
        self.cached = self.wm.n_frames - 1
        self.audio_window = options.audio_window or self.wm.n_frames
        self.batch = 2 if options.guidance == "batched" else 1

    def modules(self) -> dict[str, BuiltIn]:
        presets = COMPONENTS[self.preset]
        return {
            "wm": BuiltIn("wm", presets["wm"], self.batch),
            "image": BuiltIn("image", presets["image"]),
            "audio": BuiltIn("audio", presets["audio"]),
        }

    def sizes(self) -> dict[str, int]:
        return {"steps": len(self.levels) - 1, "window": self.wm.n_frames, "audio window": self.audio_window}

    def given(self, unit: int, draw: Any) -> State:
        wm, frames = self.wm, self.cached if unit == OPENING else 1
        heard = max(self.cached, self.audio_window) if unit == OPENING else 1
        x = (1, frames, wm.channels, wm.sample_size, wm.sample_size)
        names = (
            ("history_x", "history_audio", "history_mouse", "history_btn", "history_noise_x", "history_noise_a")
            if unit == OPENING
            else ("noise_x", "noise_a", "mouse", "btn", "context_noise_x", "context_noise_a")
        )
        found = {
            "x": draw(names[0], x, slot="wm"),
            "audio": draw(names[1], (1, heard, wm.audio_channels), slot="wm"),
            "mouse": draw(names[2], (1, frames, 2)),
            "btn": draw(names[3], (1, frames, wm.n_buttons), "binary", slot="wm"),
        }
        if self.options.noise_prev:
            found["x_noise"] = draw(names[4], x, slot="wm")
            found["audio_noise"] = draw(names[5], (1, frames, wm.audio_channels), slot="wm")
        return found

    def start(self, given: State, run: Any) -> dict[str, Any]:
        x, heard = given["x"], given["audio"]
        latents = self._noised((x, heard[:, -self.cached :]), given)
        mouse, btn = given["mouse"], given["btn"]
        t = _level(x, self.batch, self.cached, self.options.noise_prev)
        with run.phase("open"):
            call = getattr(run.wm, f"context{self.cached}")
            cache = call(**_frame(*self._doubled(*latents, mouse, btn), t))
        return {
            **cache,
            "audio_window": _audio_latents(heard[:, -self.audio_window :]),
            "t": [_level(x, self.batch, 1, level) for level in (*self.levels[:-1], self.options.noise_prev)],
        }

    def step(self, state: dict[str, Any], given: State, run: Any) -> tuple[dict[str, Any], State]:
        cache = {name: value for name, value in state.items() if name.startswith("cache_")}
        x, a, mouse, btn = self._doubled(given["x"], given["audio"], given["mouse"], given["btn"])
        for step, (level, after) in enumerate(pairwise(self.levels)):
            with run.phase("denoise", step=step, timestep=round(level, 4)):
                video, audio = self._velocity(run, _frame(x, a, mouse, btn, state["t"][step]) | cache)
                x, a = x - (level - after) * video, a - (level - after) * audio
        with run.phase("context"):
            inputs = _frame(*self._noised((x, a), given), mouse, btn, state["t"][-1])
            last = f".{self.wm.n_layers - 1}"  # this layer stops at its keys and values
            inputs |= {name: value for name, value in cache.items() if not name.endswith(last)}
            new = getattr(run.wm, f"append{self.cached}")(**inputs)
        after_it = {name: run.slide(cache[name], new[name.replace("cache_", "new_")], axis=2) for name in cache}
        with run.phase("image"):
            image = run.image.decode(z=wide(x[:1, 0]) * IMAGE_SCALE)["image"]
        window = run.slide(state["audio_window"], _audio_latents(a), axis=2)
        with run.phase("audio"):
            samples = getattr(run.audio, f"decode{self.audio_window}")(z=window)["audio"]
            samples = samples[..., -self.audio.samples_per_latent :]
        with run.phase("present"):
            _present(image, samples)
        return {**after_it, "audio_window": window, "t": state["t"]}, {
            "x": x,
            "a": a,
            "image": image,
            "samples": samples,
        }

    def _velocity(self, run: Any, inputs: State) -> Latents:
        """Return the step's velocity; with guidance u + scale * (c - u): c predicted with controls, u without."""
        call, scale = getattr(run.wm, f"step{self.cached}"), self.options.guidance_scale
        found = call(**inputs)
        video, audio = found["video"], found["audio"]
        if self.options.guidance == "batched":
            return _guided((video[:1], audio[:1]), (video[1:], audio[1:]), scale)
        if self.options.guidance == "shared":
            controlled = video.clone(), audio.clone()  # the next call may overwrite them
            free = {name: torch.zeros_like(inputs[name]) for name in ("mouse", "btn")}
            found = call(**inputs | free)
            return _guided(controlled, (found["video"], found["audio"]), scale)
        return video, audio

    def _noised(self, latents: Latents, noise: Any) -> Latents:
        """Return the latents at the noise level of the cache (`zlerp` upstream)."""
        level, (x, audio) = self.options.noise_prev, latents
        if not level:
            return latents
        return x * (1 - level) + noise["x_noise"] * level, audio * (1 - level) + noise["audio_noise"] * level

    def _doubled(self, x: Tensor, audio: Tensor, mouse: Tensor, btn: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Double the inputs for batched guidance: a batch of 2 whose second half has no mouse and no buttons."""
        if self.batch == 1:
            return x, audio, mouse, btn
        free = torch.cat((mouse, torch.zeros_like(mouse))), torch.cat((btn, torch.zeros_like(btn)))
        return torch.cat((x, x)), torch.cat((audio, audio)), *free


def _level(like: Tensor, batch: int, frames: int, level: float) -> Tensor:
    """Return input `t` [B, F]: the same noise level for all frames, at least fp32, on the device of `like`."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return torch.full((batch, frames), level, dtype=dtype, device=like.device)


def _frame(x: Tensor, audio: Tensor, mouse: Tensor, btn: Tensor, t: Tensor) -> State:
    return {"x": x, "audio": audio, "t": t, "mouse": mouse, "btn": btn}


def _guided(controlled: Latents, free: Latents, scale: float) -> Latents:
    (video, audio), (free_video, free_audio) = controlled, free
    return free_video + scale * (video - free_video), free_audio + scale * (audio - free_audio)


def _audio_latents(audio: Tensor) -> Tensor:
    """Return audio latents [B, n, A] as inputs of the audio decoder [1, A, n]."""
    return (wide(audio[:1]) * AUDIO_SCALE).transpose(1, 2)


def _present(image: Tensor, samples: Tensor) -> Latents:
    """Return a picture [1, 3, H, W] in -1 to 1 as bytes, and the samples as fp32, both on the host."""
    return pixels(image), samples.to("cpu", torch.float32)
