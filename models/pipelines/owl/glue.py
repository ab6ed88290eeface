"""Arithmetic between the programs of the OWL loop. B is the batch of the world model, 2 with batched guidance."""

import torch
from torch import Tensor


def levels(like: Tensor, batch: float, *values: float) -> tuple[Tensor, ...]:
    """Inputs `t` [B, 1] of the world model, one for each noise level, at least fp32, on the device of `like`."""
    return tuple(frame_levels(like, batch, 1, value) for value in values)


def frame_levels(like: Tensor, batch: float, frames: float, value: float) -> Tensor:
    """Input `t` [B, F]: the same noise level for all frames, at least fp32, on the device of `like`."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return torch.full((int(batch), int(frames)), value, dtype=dtype, device=like.device)


def renoise(x: Tensor, audio: Tensor, noise_x: Tensor, noise_audio: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Latents x [B, F, C, S, S] and audio [B, F, A] at a noise level; `zlerp` upstream."""
    return x * (1 - level) + noise_x * level, audio * (1 - level) + noise_audio * level


def last_frames(audio: Tensor, frames: float) -> Tensor:
    """The newest audio latents: [B, H, A] to [B, frames, A]."""
    return audio[:, -int(frames) :]


def twice(x: Tensor, audio: Tensor, mouse: Tensor, btn: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs of batch 1 as a batch of 2 whose second half has no mouse and no buttons."""
    return (
        torch.cat((x, x)),
        torch.cat((audio, audio)),
        torch.cat((mouse, torch.zeros_like(mouse))),
        torch.cat((btn, torch.zeros_like(btn))),
    )


def zeros(_session: int, _unit: int, _draw: object, shape: tuple[int, ...]) -> Tensor:
    """Mouse and buttons of calls without controls."""
    return torch.zeros(shape)


def keep(video: Tensor, audio: Tensor) -> tuple[Tensor, Tensor]:
    """Copies of a prediction, which the next call of its program would overwrite."""
    return video.clone(), audio.clone()


def guide(video: Tensor, audio: Tensor, free_video: Tensor, free_audio: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Guidance: u + scale * (c - u), with c the prediction under controls and u the free one."""
    return free_video + scale * (video - free_video), free_audio + scale * (audio - free_audio)


def guide_halves(video: Tensor, audio: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Guidance of a batch of 2, whose second half is without controls, to a batch of 1."""
    return guide(video[:1], audio[:1], video[1:], audio[1:], scale)


def euler(x: Tensor, audio: Tensor, video_v: Tensor, audio_v: Tensor, dt: float) -> tuple[Tensor, Tensor]:
    """A step of the sampler, in the dtype of the world model; velocities of batch 1 serve both halves of a batch."""
    return x - dt * video_v, audio - dt * audio_v


def image_latent(x: Tensor, scale: float) -> Tensor:
    """The video latent of the frame [B, 1, C, S, S] as the input of the image decoder [1, C, S, S]."""
    return _wide(x[:1, 0]) * scale


def audio_latents(audio: Tensor, scale: float) -> Tensor:
    """Audio latents [B, n, A] as inputs of the audio decoder [1, A, n]."""
    return (_wide(audio[:1]) * scale).transpose(1, 2)


def newest(audio: Tensor, samples: float) -> Tensor:
    """The samples of the newest latent: [1, 2, n * samples] to [1, 2, samples]."""
    return audio[..., -int(samples) :]


def present(image: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    """A picture [1, 3, H, W] in -1 to 1 as bytes on the host, and its samples there as fp32."""
    pixels = _wide(image).add(1).mul_(127.5).clamp_(0, 255).to(torch.uint8)
    return pixels.cpu(), samples.to("cpu", torch.float32)


def _wide(values: Tensor) -> Tensor:
    """At least fp32, so that a hand-over rounds once: to the dtype of the next program."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
