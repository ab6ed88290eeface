"""Matrix-Game-2's loop on eager engines equals the same loop written here in plain torch, block by block."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
import torch
from eager_loops import INPUT_SEED, assert_equal, eager_runner, given, made_by, module
from mixes import loop_of
from torch import Tensor

from bakeoff.models.matrix_vae.spec import SPEC as VAE
from bakeoff.models.pipelines.matrix import loop as matrix
from bakeoff.models.pipelines.matrix.spec import Options
from bakeoff.worker.pipeline.runner import Given

BLOCKS = 4
LAYERS, ACTION_LAYERS, TOKENS, TIME_PAIRS = 3, 2, 6, 6
HEIGHT, WIDTH = 4, 6
LATENTS = (1, 16, 3, HEIGHT, WIDTH)


def history_names(layers: int) -> list[str]:
    """Names of keys and values of the first layers, in the order of the world model's inputs."""
    kinds = [("self", "mouse", "keyboard") if layer < ACTION_LAYERS else ("self",) for layer in range(layers)]
    return [f"{kind}_{part}.{layer}" for layer in range(layers) for kind in kinds[layer] for part in "kv"]


def rows_of(session: int, name: str, first: int, width: int, kind: str) -> Tensor:
    """Rows 4 f - 12 to 4 f + 7 for the first latent frame f of a block; before row 0 is row 0."""
    numbers = [max(0, row) for row in range(4 * first - 12, 4 * first + 8)]
    return torch.cat([given(session, f"{name}:{row}", (1, 1, width), kind) for row in numbers], 1)  # type: ignore[arg-type]


def angles(first: int, pairs: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of a block's three frames, [3, pairs]."""
    table = np.arange(first, first + 3)[:, None] * theta ** (-np.arange(pairs) / pairs)
    return torch.tensor(np.cos(table)).float(), torch.tensor(np.sin(table)).float()


def blocks_of(steps: list[int], session: int) -> Iterator[dict[str, Tensor]]:
    """Section 1.1 of the description of the loop: what each block must give.

    The history is cut from all keys and values of the session, as upstream's rolling buffer does, and the decoder takes
    one latent frame at a time.
    """
    wm = {name: module("matrix-wm", "tiny", name) for name in ("open", "denoise0", "context0", "denoise", "context")}
    decoder = {name: module("matrix-vae", "tiny", name) for name in ("prime", "steady1")}
    sigmas = [5 * s / (1 + 4 * s) for s in (step / 1000 for step in steps)]
    cross = list(wm["open"](given(session, "visual:-1", (1, 5, 32))))
    cache_shapes = [spec.shape for spec in VAE.workload(VAE.preset("tiny").config, "prime", 1).inputs[1:]]
    past: dict[str, Tensor] = {}
    vae_cache: list[Tensor] = []
    for block in range(BLOCKS):
        first, suffix = 3 * block, "" if block else "0"
        cond = torch.zeros(1, 20, 3, HEIGHT, WIDTH)
        for frame in range(3):
            cond[:, :4, frame] = float(first + frame == 0)
            key = f"cond:{min(first + frame, 11)}"
            cond[:, 4:, frame] = given(session, key, (1, 16, 1, HEIGHT, WIDTH))[:, :, 0]
        controls = (
            rows_of(session, "mouse", first, 2, "normal"),
            rows_of(session, "keyboard", first, 4, "binary"),
            *angles(first, TIME_PAIRS, 10000.0),
            *angles(first, 4, 256.0),
        )

        def history(layers: int, now: int = block) -> list[Tensor]:
            if not now:
                return []
            # of all frames so far the last three: tokens of the self-attention, frames of the actions
            return [
                past[name][..., -3 * (TOKENS if name.startswith("self") else 1) :, :] for name in history_names(layers)
            ]

        x = given(session, f"noise:{block}", LATENTS)
        for index, sigma in enumerate(sigmas):
            t = torch.full((1, 3), 1000 * sigma)
            (flow,) = wm[f"denoise{suffix}"](x, cond, t, *controls, *cross, *history(LAYERS))
            x0 = (x.double() - sigma * flow.double()).float()
            if index + 1 < len(sigmas):
                noise = given(session, f"noise.{index + 1}:{block}", LATENTS)
                x = (1 - sigmas[index + 1]) * x0 + sigmas[index + 1] * noise
        new = wm[f"context{suffix}"](x0, cond, torch.zeros(1, 3), *controls, *cross[:-2], *history(LAYERS - 1))
        for name, rows in zip(history_names(LAYERS), new, strict=True):
            past[name] = torch.cat((past[name], rows), -2) if block else rows

        video = []
        for frame in range(3):
            z = x0[:, :, frame][:, None]
            if not vae_cache:
                shown, *vae_cache = decoder["prime"](z, *(torch.zeros(shape) for shape in cache_shapes))
            else:
                shown, *vae_cache = decoder["steady1"](z, *vae_cache)
            video.append(shown)
        pictures = torch.cat(video, 1)
        yield {
            "x0": x0,
            "video": pictures,
            "pixels": ((pictures.clamp(-1, 1) + 1) * 127.5).floor(),
            **{f"history/{name}": rows for name, rows in zip(history_names(LAYERS), new, strict=True)},
            **{f"cache.{index:02d}": cache for index, cache in enumerate(vae_cache)},
        }


@pytest.mark.parametrize(
    ("options", "steps"),
    [({}, [1000, 666, 333]), ({"steps": 4}, [1000, 750, 500, 250])],
    ids=("three passes", "four passes"),
)
def test_every_block_equals_plain_torch(
    options: dict[str, int], steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    presented, present = [], matrix.pixels
    monkeypatch.setattr(matrix, "pixels", lambda video: presented.append(present(video)))
    loop, shown = loop_of("matrix", **options), 0
    runner = eager_runner("matrix", loop)
    for session, blocks in enumerate((BLOCKS, 2)):
        runner.open()
        for block, reference in enumerate(islice(blocks_of(steps, session), blocks)):
            sample = runner.unit()
            shown += sample.frames
            found, pixels = made_by(runner), presented.pop()
            assert sample.frames == found["video"].shape[1] == (12 if block else 9)
            # a value at the border of two bytes may round to either
            assert (pixels.float() - reference.pop("pixels")).abs().max() <= 1
            assert pixels.dtype == torch.uint8
            assert_equal(found, reference, f"session {session}, block {block}")
            assert {*loop.state, "x0", "video"} == set(reference)
    assert shown == 12 * BLOCKS - 3 + 12 * 2 - 3


def given_in(block: int, preset: str = "tiny") -> dict[str, Tensor]:
    found: dict[str, Tensor] = matrix.Matrix(preset, Options()).given(
        block, Given(INPUT_SEED, {"wm": "fp32", "decoder": "fp32"}, "cpu", 0, block)
    )
    return found


def test_neighbouring_blocks_share_action_rows_and_conditions() -> None:
    blocks = [given_in(block) for block in range(6)]
    before, after = (blocks[block]["mouse"] for block in (1, 2))
    assert torch.equal(before[:, 12:], after[:, :8])
    assert not torch.equal(before, after)
    first = blocks[0]["mouse"]
    assert torch.equal(first[:, :13], first[:, :1].expand(1, 13, 2))
    conditions = [block["cond"] for block in blocks]
    assert [float(one[:, :4].sum()) for one in conditions] == [4 * 4 * 6, 0, 0, 0, 0, 0]
    # frame 11 is the last one that is drawn
    assert torch.equal(conditions[3][:, :, 2], conditions[4][:, :, 0])
    assert torch.equal(conditions[4], conditions[5])
    assert not torch.equal(conditions[2], conditions[3])


def test_clean_latents_are_computed_in_fp64_and_mixed_in_fp32() -> None:
    x, flow, noise = (given(0, name, LATENTS).bfloat16() for name in ("x", "flow", "noise"))
    x0 = matrix._clean(x, flow, 0.9)
    assert x0.dtype == torch.bfloat16
    assert torch.equal(x0, (x.double() - 0.9 * flow.double()).bfloat16())
    assert torch.equal(matrix._renoised(x0, noise, 0.7), (0.3 * x0.float() + 0.7 * noise.float()).bfloat16())
