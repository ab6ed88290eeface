"""The streaming decoder against its golden file, its published keys and figures computed by hand."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from golden_files import config_from, read_golden
from golden_matrix_vae import replay
from torch import Tensor, nn

from bakeoff.export.loader import State, carry
from bakeoff.models.matrix_vae.network import RMSNorm, build
from bakeoff.models.matrix_vae.spec import SPEC, Config, stream, workload
from bakeoff.models.weights import randomize

FULL, CPU, TINY = (SPEC.preset(name).config for name in ("full", "cpu", "tiny"))
ODD = {
    "one stage": Config(8, (2,), 1, (), latent_height=2, latent_width=3),
    "two stages, no time": Config(4, (1, 3), 1, (False,), latent_height=4, latent_width=3),
    "late time": Config(6, (1, 2, 2), 3, (False, True), latent_height=3, latent_width=2),
    "five stages": Config(2, (1, 1, 2, 3, 5), 1, (True, False, True, True), latent_height=1, latent_width=2),
}


@pytest.fixture(autouse=True, scope="module")
def _without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


golden = cache(partial(read_golden, "matrix_game_vae_decoder_tiny"))


def drawn(config: Config, name: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    with torch.device("meta"):
        module = build(config, name)
    module.to_empty(device="cpu")
    randomize(module, 3)
    return module.to(dtype)


def inputs_of(config: Config, name: str, dtype: torch.dtype = torch.float32, batch: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    shapes = [tensor.shape for tensor in workload(config, name, batch).inputs]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def config_of(about: dict[str, Any]) -> Config:
    """The config of the golden file, with the size of its latents: 3x5, which is no preset's."""
    config: Config = config_from(Config, about["config"], "matrix-vae")
    height, width = about["latent_hw"]
    assert (height, width) == (3, 5)
    return replace(config, latent_height=height, latent_width=width)


def zero_state(config: Config, batch: int = 1) -> list[Tensor]:
    return [torch.zeros(tensor.shape) for tensor in workload(config, "prime", batch).inputs[1:]]


def close(found: Tensor, expected: Tensor, tolerance: float) -> bool:
    return found.shape == expected.shape and bool((found - expected).abs().max() <= tolerance)


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


# Against the golden file


@pytest.mark.parametrize("sizes", [(1,) * 9, (9,), (1, 4, 4), (2, 7)])
def test_any_chunking_gives_the_same_stream(sizes: tuple[int, ...]) -> None:
    about, weights, inputs, outputs = golden()
    clip = torch.cat([inputs[f"latent_chunk{number}"] for number in range(3)], 1)
    chunks = {f"latent_chunk{number}": chunk for number, chunk in enumerate(clip.split(sizes, 1))}
    found = replay(about, weights, chunks)
    video = torch.cat([found[f"video_chunk{number}"] for number in range(len(sizes))], 1)
    assert close(video, torch.cat([outputs[f"video_chunk{number}"] for number in range(3)], 1), 1e-4)
    assert close(found["video_full_unclamped"], outputs["video_full_unclamped"], 1e-4)
    for index in range(32):
        last = found[f"cache_after_chunk{len(sizes) - 1}.{index:02d}"]
        assert close(last, outputs[f"cache_after_chunk2.{index:02d}"], 1e-3)


def test_a_call_continues_from_stored_caches_and_only_from_those() -> None:
    about, weights, inputs, outputs = golden()
    config = config_of(about)
    steady = build(config, "steady3")
    steady.load_state_dict(weights)
    state = [outputs[f"cache_after_chunk0.{index:02d}"] for index in range(32)]
    video, *_ = steady(inputs["latent_chunk1"], *state)
    assert close(video, outputs["video_chunk1"], 1e-4)
    for stale in (zero_state(config), [outputs[f"cache_after_chunk2.{index:02d}"] for index in range(32)]):
        video, *_ = steady(inputs["latent_chunk1"], *stale)
        assert not close(video, outputs["video_chunk1"], 0.1)


def test_a_stream_of_blocks_follows_its_opening_and_gives_the_golden_chunks() -> None:
    """`prime` and `steady2` are the first block of three latent frames; state passes as the stream's carries say."""
    about, weights, inputs, outputs = golden()
    config = config_of(about)
    order = stream(config, "steady3")
    assert order is not None
    assert (order.opening, order.each) == (("prime", "steady2"), ("steady3",))
    first = {spec.name: torch.zeros(spec.shape) for spec in workload(config, "prime", 1).inputs}
    state: State = {("prime", name): first[name] for name in order.zeros}
    chunks = [inputs[f"latent_chunk{number}"] for number in range(3)]
    latents = (chunks[0][:, :1], chunks[0][:, 1:], *chunks[1:])
    videos = []
    for name, z in zip((*order.opening, *order.each, *order.each), latents, strict=True):
        module, asked = build(config, name), workload(config, name, 1)
        module.load_state_dict(weights)
        found = module(z, *(state[name, spec.name] for spec in asked.inputs[1:]))
        made = {spec.name: tensor for spec, tensor in zip(asked.outputs, found, strict=True)}
        videos.append(made["video"])
        carry(state, order.carries, name, made)
    for number, video in enumerate((torch.cat(videos[:2], 1), *videos[2:])):
        assert close(video, outputs[f"video_chunk{number}"], 1e-4), number
    for index in range(32):
        assert close(state["steady3", f"cache.{index:02d}"], outputs[f"cache_after_chunk2.{index:02d}"], 1e-3)


# Work


def test_state_of_the_full_preset() -> None:
    caches = workload(FULL, "steady1", 1).inputs[1:]
    assert [tensor.name for tensor in caches] == [f"cache.{index:02d}" for index in range(32)]
    assert sum(tensor.elements for tensor in caches) == 532_674_560
    assert {index: caches[index].shape for index in (0, 11, 12, 18, 19, 31)} == {
        0: (1, 16, 2, 44, 80),
        11: (1, 384, 2, 44, 80),
        12: (1, 192, 2, 88, 160),
        18: (1, 384, 2, 88, 160),
        19: (1, 192, 2, 176, 320),
        31: (1, 96, 2, 352, 640),
    }


# Workloads and configs


def test_frames_of_a_call() -> None:
    found = {name: workload(FULL, name, 1) for name in ("prime", "steady1", "steady3", "steady7")}
    assert [(one.frames_per_call, one.calls_per_frame) for one in found.values()] == [
        (1, None),
        (4, 1),
        (12, 1),
        (28, 1),
    ]
    assert found["steady3"].outputs[0].shape == (1, 12, 3, 352, 640)
    assert found["prime"].outputs[0].shape == (1, 1, 3, 352, 640)
    assert workload(ODD["five stages"], "steady2", 1).frames_per_call == 16
    assert workload(FULL, "steady3", 4).frames_per_call == 4 * 12
    assert set(SPEC.default_workloads["cuda"]) <= set(SPEC.workload_names(FULL))


@pytest.mark.parametrize(("name", "rest"), [("steady1", ()), ("steady2", ("steady1",)), ("steady7", ("steady6",))])
def test_a_stream_opens_with_one_block_of_as_many_latent_frames(name: str, rest: tuple[str, ...]) -> None:
    """The state of every call but the first is that of the call before it, complete."""
    order = stream(TINY, name)
    assert order is not None
    assert (order.opening, order.each) == (("prime", *rest), (name,))
    assert order.workloads == ("prime", *rest, name)
    caches = {spec.name for spec in workload(TINY, name, 1).inputs[1:]}
    assert len(caches) == 32
    assert set(order.zeros) == caches
    followed = zip(order.workloads, (*order.workloads[1:], name), strict=True)
    expected = sorted((source, cache, target, cache, None) for source, target in followed for cache in caches)
    assert sorted((one.workload, one.output, one.to, one.input, one.axis) for one in order.carries) == expected


@pytest.mark.parametrize("odd", ODD)
def test_odd_configs_stream_alike_in_one_pass_and_frame_by_frame(odd: str) -> None:
    config = ODD[odd]
    z, *state = inputs_of(config, "steady3", torch.float64)
    video, *caches = drawn(config, "steady3", torch.float64)(z, *state)
    single, frames = drawn(config, "steady1", torch.float64), []
    for latent in z.split(1, 1):
        frame, *state = single(latent, *state)
        frames.append(frame)
    assert close(torch.cat(frames, 1), video, 1e-9)
    assert all(close(one, other, 1e-9) for one, other in zip(state, caches, strict=True))


# Numbers


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("name", ["prime", "steady1"])
def test_error_against_fp64_is_that_of_rounding(name: str, dtype: torch.dtype, limit: float) -> None:
    exact = drawn(TINY, name).double()(*inputs_of(TINY, name, torch.float64))
    assert all(output.dtype == torch.float64 for output in exact)
    found = drawn(TINY, name, dtype)(*inputs_of(TINY, name, dtype))
    assert all(relative(one, other) < limit for one, other in zip(found, exact, strict=True))


def test_latent_statistics_keep_their_precision() -> None:
    half = drawn(TINY, "prime", torch.bfloat16)
    assert half.conv2.std().dtype == half.conv2.mean().dtype == torch.float32
    double = half.double()
    assert double.conv2.mean()[0] == torch.tensor(-0.7571, dtype=torch.float64)
    z = torch.randn(1, 2, 16, 3, 5, dtype=torch.float64)
    weight, bias = double.conv2.weight[:, :, 0, 0, 0], double.conv2.bias
    normal = z * double.conv2.std()[:, None, None] + double.conv2.mean()[:, None, None]
    expected = torch.einsum("oc,btchw->btohw", weight, normal) + bias[:, None, None]
    torch.testing.assert_close(double.conv2(z), expected)


def test_norm_takes_zeros_and_large_values_in_fp16() -> None:
    norm = RMSNorm(384, 3).half()
    nn.init.ones_(norm.gamma)
    assert (norm(torch.zeros(1, 384, 1, 1, dtype=torch.float16)) == 0).all()
    for value in (1e-3, 1, 6e4):
        found = norm(torch.full((1, 384, 1, 1), value, dtype=torch.float16))
        assert close(found, torch.ones_like(found), 5e-3)
