"""The image decoder against its golden file, its published keys, its stated work and torch's own operators."""

from dataclasses import replace
from functools import partial

import decoders
import pytest
import torch
from decoders import decode, error
from golden_files import read_golden
from torch.nn import functional

from bakeoff.models.image.network import BicubicUp, GroupScale, bicubic_matrix
from bakeoff.models.image.spec import SPEC, Config

FULL, CPU, TINY = (SPEC.preset(name).config for name in ("128x", "cpu", "tiny"))


golden = partial(read_golden, "owl_image_decoder_tiny")
drawn = partial(decoders.drawn, SPEC)
latent = partial(decoders.latent, SPEC)
on_meta = partial(decoders.on_meta, SPEC)


def test_workload_states_the_published_shapes() -> None:
    stated = SPEC.workload(FULL, "decode", 1)
    assert [(one.name, one.shape, one.signal) for one in stated.inputs] == [("z", (1, 128, 4, 4), "")]
    assert [(one.name, one.shape, one.signal) for one in stated.outputs] == [("image", (1, 3, 360, 640), "picture")]
    assert SPEC.workload(CPU, "decode", 2).outputs[0].shape == (2, 3, 90, 160)
    assert (stated.frames_per_call, stated.calls_per_frame) == (1, 1)
    # 22.5 is rounded to even.
    assert TINY.picture_size == (22, 40)


@pytest.mark.parametrize(
    ("sample_size", "landscape"),
    [
        ((360, 640), True),
        ((1080, 1920), True),
        ((640, 360), False),
        ((357, 640), False),
        ((358, 640), True),
        ((362, 640), True),
        ((363, 640), False),
        ((256, 256), False),
    ],
)
def test_only_widescreen_pictures_are_resized(sample_size: tuple[int, int], landscape: bool) -> None:
    config = replace(TINY, sample_size=sample_size)
    assert config.landscape == landscape
    assert config.picture_size == ((22, 40) if landscape else (32, 32))
    keys = on_meta(config)[0].state_dict().keys()
    assert ("decoder.s_to_l.proj.weight" in keys) == landscape


@pytest.mark.parametrize(
    ("size_in", "size_out"), [(4, 8), (1, 2), (2, 4), (16, 32), (32, 22), (32, 40), (3, 4), (512, 360)]
)
def test_bicubic_matrices_are_torchs_resize(size_in: int, size_out: int) -> None:
    u = torch.randn(1, 2, size_in, size_in + 3, dtype=torch.float64)
    rows = torch.tensor(bicubic_matrix(size_in, size_out))
    columns = torch.tensor(bicubic_matrix(size_in + 3, size_out + 1))
    expected = functional.interpolate(u, size=(size_out, size_out + 1), mode="bicubic")
    torch.testing.assert_close(rows @ u @ columns.mT, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("size", [1, 4, 32])
def test_doubling_is_exact_in_fp32_and_almost_in_half_precision(size: int) -> None:
    u = torch.randn(2, 3, size, size)
    double = BicubicUp(size)
    torch.testing.assert_close(double(u), functional.interpolate(u, scale_factor=2, mode="bicubic"), rtol=0, atol=2e-6)
    taps = double.taps()
    assert torch.equal(taps.half().float(), taps)
    # At either edge the clamped samples' weights sum to 283 / 256, one bit more than bf16 holds.
    rounded = torch.where(taps == 283 / 256, 284 / 256, taps)
    assert torch.equal(taps.bfloat16().float(), rounded)


def test_group_scale_survives_a_large_mean_and_fp16s_range() -> None:
    scale = GroupScale(16, 1)
    far = 1000 + torch.randn(1, 16, 8, 8)
    assert error(scale(far), scale.double()(far.double())) < 1e-5
    large = (3000 * torch.randn(1, 16, 8, 8)).half()
    assert error(scale.half()(large), large.double() / large.double().std(correction=0)) < 1e-3


# fp16 is tried at the small preset only: its convolutions take twenty seconds on CPUs without fp16 units.
@pytest.mark.parametrize(
    ("config", "seed", "limits"),
    [
        *((TINY, seed, {torch.float32: 1e-5, torch.bfloat16: 0.02, torch.float16: 0.004}) for seed in range(3)),
        (CPU, 0, {torch.float32: 1e-5, torch.bfloat16: 0.02}),
    ],
    ids=["tiny0", "tiny1", "tiny2", "cpu"],
)
def test_pictures_are_of_unit_size_and_right(config: Config, seed: int, limits: dict[torch.dtype, float]) -> None:
    z = latent(config)
    expected = decode(drawn(config, seed).double(), z.double())
    for dtype, limit in limits.items():
        module = drawn(config, seed).to(dtype)
        found = decode(module, z.to(dtype))
        assert found.dtype == dtype
        assert error(found, expected) < limit
        assert 0.1 < float(found.double().square().mean().sqrt()) < 10
        assert {table.dtype for table in module.buffers()} == {torch.float32}
