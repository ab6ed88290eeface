"""The audio decoder against its golden file, its published keys, its stated work and its parts spelt plainly."""

from dataclasses import replace
from functools import partial

import decoders
import pytest
import torch
from decoders import decode, error
from golden_files import config_from, read_golden
from torch import Tensor, nn
from torch.nn import functional

from bakeoff.models.audio.network import TimeRMS, UpStage, build
from bakeoff.models.audio.spec import SPEC, Config

FULL, CPU, TINY = (SPEC.preset(name).config for name in ("cod", "cpu", "tiny"))


golden = partial(read_golden, "owl_audio_decoder_tiny")
drawn = partial(decoders.drawn, SPEC)
latents = partial(decoders.latent, SPEC)


def test_workload_states_the_published_shapes() -> None:
    stated = SPEC.workload(FULL, "decode", 1)
    assert [(one.name, one.shape, one.signal) for one in stated.inputs] == [("z", (1, 64, 120), "")]
    assert [(one.name, one.shape, one.signal) for one in stated.outputs] == [("audio", (1, 2, 88_200), "audio")]
    assert SPEC.workload(CPU, "decode", 2).outputs[0].shape == (2, 2, 7350)
    assert (stated.frames_per_call, stated.calls_per_frame) == (1, 1)
    assert "keeps the last frame's 735" in stated.summary
    assert replace(CPU, latents=120) == FULL
    # The starter's stride is stored and unused.
    assert replace(FULL, strides=(3, 5, 7, 7, 4)).samples_per_latent == FULL.samples_per_latent == 735


@pytest.mark.parametrize("latents", [1, 7, 30, 60])
def test_windows_of_any_length_are_workloads(latents: int) -> None:
    """`decode30` is `decode` of the config with 30 latents; a call still delivers one frame."""
    for config in (FULL, TINY):
        name, batch = f"decode{latents}", 2
        stated, same = (
            SPEC.workload(config, name, batch),
            SPEC.workload(replace(config, latents=latents), "decode", batch),
        )
        assert stated == replace(same, name=name)
        assert stated.inputs[0].shape == (batch, config.latent_channels, latents)
        assert stated.outputs[0].shape == (batch, config.channels, latents * config.samples_per_latent)
        assert (stated.frames_per_call, stated.calls_per_frame) == (batch, 1)
        assert f"a window of {latents} latents" in stated.summary
    assert SPEC.workload_names(FULL) == ("decode",)


def test_a_window_gives_the_golden_waveform_whatever_the_preset_s_length() -> None:
    about, weights, inputs, outputs = golden()
    config = replace(config_from(Config, about["config"], "audio"), latents=4)
    module = build(config, f"decode{inputs['z'].shape[2]}")
    module.load_state_dict(weights)
    torch.testing.assert_close(decode(module, inputs["z"]), outputs["audio"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("stride", [1, 2, 3, 7])
@pytest.mark.parametrize("samples", [1, 5])
def test_up_stages_pad_one_sample_less_on_the_left(stride: int, samples: int) -> None:
    stage = UpStage(16, 8, stride).double()
    inside: list[Tensor] = []
    stage.act.register_forward_pre_hook(lambda _module, args: inside.append(args[0]))
    nn.init.normal_(stage.proj.weight)
    u = torch.randn(2, 16, 1, samples, dtype=torch.float64)
    stage(u)
    padded = functional.pad(u[:, :, 0].repeat_interleave(stride, -1), (stride - 1, stride))
    torch.testing.assert_close(inside[0][:, :, 0], functional.conv1d(padded, stage.proj.weight))


def test_time_rms_survives_fp16s_range() -> None:
    u = (3000 * torch.randn(1, 2, 1, 50)).half()
    expected = u.double() / u.double().square().mean(-1, keepdim=True).sqrt()
    assert error(TimeRMS(2).half()(u), expected) < 1e-3


# Half precision is tried at the small preset only: its convolutions take many seconds on CPUs without units for it.
@pytest.mark.parametrize(
    ("config", "seed", "limits"),
    [
        *((TINY, seed, {torch.float32: 3e-5, torch.bfloat16: 0.1, torch.float16: 0.02}) for seed in range(2)),
        (CPU, 0, {torch.float32: 3e-5}),
    ],
    ids=["tiny0", "tiny1", "cpu"],
)
def test_waveforms_are_audible_and_right(config: Config, seed: int, limits: dict[torch.dtype, float]) -> None:
    z = latents(config)
    expected = decode(drawn(config, seed).double(), z.double())
    for dtype, limit in limits.items():
        found = decode(drawn(config, seed).to(dtype), z.to(dtype))
        assert found.dtype == dtype
        assert error(found, expected) < limit
        assert 0.1 < float(found.double().square().mean().sqrt()) < 0.9
        assert float((found.abs() > 0.99).double().mean()) < 0.03
