"""The OWL loop on eager engines equals the same loop written here in plain torch, frame by frame."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice, pairwise

import pytest
import torch
from eager_loops import assert_equal, eager_runner, given, made_by, module
from mixes import loop_of
from torch import Tensor

from bakeoff.models.pipelines.owl import loop as owl
from bakeoff.models.pipelines.owl.spec import Options

FRAMES = 5
"""More than the 4 frames of the window, so that frames of the loop fall out of it."""
LAYERS, TOKENS, WINDOW = 3, 17, 5
PIXELS, AUDIO, BUTTONS = (16, 4, 4), 8, 11


@dataclass
class Branch:
    """One cache, with or without controls."""

    controlled: bool
    cache: list[Tensor]


def frames_of(
    levels: list[float], noise_prev: float, guidance: str, session: int, audio_window: int = WINDOW
) -> Iterator[dict[str, Tensor]]:
    """Section 1.2 of the description of the loop: what each frame must give. Batched guidance is computed here as two
    loops of batch 1, whose caches are joined for the comparison."""
    context, step, append = (module("wm", "tiny-decoded", f"{name}4") for name in ("context", "step", "append"))
    image, audio = module("image", "tiny", "decode"), module("audio", "tiny", f"decode{audio_window}")

    def noised(x: Tensor, noise: str, unit: int) -> Tensor:
        if not noise_prev:
            return x
        return (1 - noise_prev) * x + noise_prev * given(session, f"{noise}:{unit}", tuple(x.shape))

    past_audio = given(session, "history_audio:-1", (1, max(4, audio_window), AUDIO))
    x = noised(given(session, "history_x:-1", (1, 4, *PIXELS)), "history_noise_x", -1)
    a = noised(past_audio[:, -4:], "history_noise_a", -1)
    mouse, btn = given(session, "history_mouse:-1", (1, 4, 2)), given(session, "history_btn:-1", (1, 4, 11), "binary")
    t = torch.full((1, 4), noise_prev)
    branches = [Branch(True, list(context(x, a, t, mouse, btn)))]
    if guidance == "batched":
        branches.append(Branch(False, list(context(x, a, t, 0 * mouse, 0 * btn))))
    elif guidance == "shared":
        branches.append(Branch(False, branches[0].cache))
    heard = past_audio[:, -audio_window:]

    for unit in range(FRAMES):
        x, a = given(session, f"noise_x:{unit}", (1, 1, *PIXELS)), given(session, f"noise_a:{unit}", (1, 1, AUDIO))
        mouse = given(session, f"mouse:{unit}", (1, 1, 2))
        btn = given(session, f"btn:{unit}", (1, 1, BUTTONS), "binary")
        for level, after in pairwise(levels):
            found = [
                step(x, a, torch.tensor([[level]]), mouse * branch.controlled, btn * branch.controlled, *branch.cache)
                for branch in branches
            ]
            (v, va), (free_v, free_va) = found[0], found[-1]
            v, va = free_v + 1.3 * (v - free_v), free_va + 1.3 * (va - free_va)
            x, a = x - (level - after) * v, a - (level - after) * va
        noised_x, noised_a = noised(x, "context_noise_x", unit), noised(a, "context_noise_a", unit)
        t = torch.tensor([[noise_prev]])
        for branch in branches if guidance == "batched" else branches[:1]:
            new = append(noised_x, noised_a, t, mouse * branch.controlled, btn * branch.controlled, *branch.cache[:-2])
            branch.cache[:] = [
                torch.cat((old, one), 2)[:, :, -4 * TOKENS :] for old, one in zip(branch.cache, new, strict=True)
            ]
        heard = torch.cat((heard, a), 1)[:, -audio_window:]
        (picture,), (sound,) = image(x[:, 0] * 0.13), audio((heard * 0.17).transpose(1, 2))
        caches = [branch.cache for branch in (branches if guidance == "batched" else branches[:1])]
        names = [f"cache_{kind}.{layer}" for layer in range(LAYERS) for kind in "kv"]
        yield {
            "x": torch.cat([x] * len(caches)),
            "a": torch.cat([a] * len(caches)),
            "image": picture,
            "samples": sound[..., -30:],
            "sound": sound[..., -30:],
            "pixels": ((picture.clamp(-1, 1) + 1) * 127.5).floor(),
            "audio_window": (heard * 0.17).transpose(1, 2),
            **{name: torch.cat(parts) for name, parts in zip(names, zip(*caches, strict=True), strict=True)},
        }


THIRDS = [1, 2 / 3, 1 / 3, 0]


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        (Options(steps=3), THIRDS),
        (Options(steps=3, guidance="shared", noise_prev=0.0), THIRDS),
        (Options(steps=3, guidance="batched"), THIRDS),
        (Options(steps=2, sampler="euler3"), [1, 0.75, 0]),
        (Options(schedule="1:0.25:0", audio_window=8), [1, 0.25, 0]),
    ],
    ids=str,
)
def test_every_frame_equals_plain_torch(options: Options, levels: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    presented, present = [], owl._present
    monkeypatch.setattr(owl, "_present", lambda *made: presented.append(present(*made)))
    loop = loop_of("owl", **asdict(options))
    runner = eager_runner("owl", loop)
    for session, frames in enumerate((FRAMES, 1)):
        runner.open()
        window = options.audio_window or WINDOW
        wanted = frames_of(levels, options.noise_prev, options.guidance, session, window)
        for unit, reference in enumerate(islice(wanted, frames)):
            sample = runner.unit()
            assert (sample.session, sample.unit, sample.frames) == (session, unit, 1)
            pixels, sound = presented.pop()
            # a value at the border of two bytes may round to either
            assert (pixels.float() - reference.pop("pixels")).abs().max() <= 1
            assert pixels.dtype == torch.uint8
            assert_equal(made_by(runner) | {"sound": sound}, reference, f"session {session}, frame {unit}")
            assert {*loop.state, "x", "a", "image", "samples", "sound"} == set(reference)
