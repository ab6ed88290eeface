"""The world model against reference tensors, published keys and figures."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from golden_files import read_golden
from golden_wm import replay
from torch import Tensor

from bakeoff.models.component import Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.weights import randomize
from bakeoff.models.wm import network
from bakeoff.models.wm.spec import SPEC, Config, stream, workload, workload_names

TINY: Config = SPEC.preset("tiny").config
UVIT = replace(TINY, backbone="uvit", n_layers=5, n_frames=4)
KINDS = ("single", "step", "context", "append", "full")


def golden(name: str) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    return read_golden(f"owl_wm_{name}_tiny")


def built(config: Config, name: str, dtype: torch.dtype = torch.float32, batch: int = 1) -> network.WorldModel:
    """As a worker builds: on meta, then random weights, then the cast."""
    with torch.device("meta"):
        module = network.build(config, name, batch)
    assert isinstance(module, network.WorldModel)
    module.to_empty(device="cpu")
    randomize(module, 5, network.initial_std)
    return module.to(dtype).requires_grad_(False)


def drawn(stated: Workload, dtype: torch.dtype = torch.float32, seed: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for one in stated.inputs:
        values = torch.rand(one.shape, generator=generator)
        if one.draw == "normal":
            values = torch.randn(one.shape, generator=generator)
        elif one.draw == "binary":
            values = values.round()
        tensors.append(values.to(torch.promote_types(dtype, torch.float32) if one.keep_fp32 else dtype))
    return tensors


def named(stated: Workload, results: tuple[Tensor, ...]) -> dict[str, Tensor]:
    return {one.name: result for one, result in zip(stated.outputs, results, strict=True)}


def error(found: Tensor, right: Tensor) -> float:
    return float((found.double() - right.double()).norm() / right.double().norm())


# Reference tensors


def test_context_workload_fills_the_cache_of_the_step_file() -> None:
    about, weights, inputs, _ = golden("step")
    stated = workload(TINY, "context", 2)
    module = network.build(TINY, "context", 2)
    module.load_state_dict(weights)
    with torch.no_grad():
        found = named(stated, module(*(inputs[f"ctx_{one.name}"] for one in stated.inputs)))
    assert found.keys() == {key for key in inputs if key.startswith("cache_")}
    for key, tensor in found.items():
        torch.testing.assert_close(tensor, inputs[key], **about["suggested_tolerance_fp32"])
    replayed = replay(about, weights, inputs)
    assert all(torch.equal(replayed[key], tensor) for key, tensor in found.items())


# Published keys and figures


def test_calls_for_a_frame_count_the_denoising_steps_and_the_context_pass() -> None:
    for preset, calls in (("1b", 21), ("200m", 11)):
        config = SPEC.preset(preset).config
        assert [workload(config, name, 1).calls_per_frame for name in KINDS] == [calls, calls, None, None, None]
    assert [workload(TINY, name, 2).frames_per_call for name in ("step", "context3", "full")] == [1, 3, 5]


# What depends on what


def layer_of(name: str) -> int | None:
    """The layer of a block's weight or of a key or value; None for what is common to all."""
    parts = name.removeprefix("transformer.blocks.").split(".")
    digits = [part for part in parts if part.isdigit()]
    return None if "skip_projs" in parts or not digits else int(digits[0])


def moves(source: str, result: str) -> bool:
    """Whether an input or a weight has a say in an output."""
    if source.startswith(("proj_out.", "audio_proj_out.")):
        return source.startswith("audio_") == (result == "audio") and result in ("video", "audio")
    at = layer_of(source)
    if result in ("video", "audio") or at is None:
        return True
    # A layer's keys and values come before its attention, its own query map and its cache.
    end = layer_of(result)
    assert end is not None
    own: tuple[str, ...] = ("adaln1.fc.weight", "adaln1.fc.bias", "attn.qkv.weight", "attn.qkv.bias")
    own += ("attn.qk_norm.k_norm.gain",) if "_k." in result else ()
    return at < end or (at == end and source.endswith(own))


@pytest.mark.parametrize("name", KINDS)
def test_every_input_and_weight_moves_every_output_it_should(name: str) -> None:
    stated = workload(TINY, name, 2)
    module = built(TINY, name, torch.float64, 2).requires_grad_(True)
    inputs = [tensor.requires_grad_() for tensor in drawn(stated, torch.float64)]
    sources = dict(zip((f"inputs.{one.name}" for one in stated.inputs), inputs, strict=True))
    sources |= dict(module.named_parameters())
    for one, result in zip(stated.outputs, module(*inputs), strict=True):
        weighed = (result * torch.randn_like(result)).sum()
        gradients = torch.autograd.grad(weighed, list(sources.values()), retain_graph=True, allow_unused=True)
        for source, gradient in zip(sources, gradients, strict=True):
            moved = gradient is not None and bool((gradient != 0).any())
            assert moved == moves(source.removeprefix("inputs."), one.name), f"{source} and {one.name}"


# Cache and window


def test_step_on_its_context_is_the_last_frame_of_the_whole_where_layers_cannot_mix_it() -> None:
    # With one layer, keys and values depend on nothing but their own frame, if frames share their positions' vectors.
    config = replace(TINY, n_layers=1)
    modules = {name: built(config, name, torch.float64) for name in ("full3", "context2", "step2", "append2")}
    for module in modules.values():
        module.pos_enc.p.zero_()
    sequence = drawn(workload(config, "full3", 2), torch.float64)
    newest = [tensor[:, 2:] for tensor in sequence]
    cache = modules["context2"](*(tensor[:, :2] for tensor in sequence))
    for result, whole in zip(modules["step2"](*newest, *cache), modules["full3"](*sequence), strict=True):
        assert error(result, whole[:, 2:]) < 1e-12
        assert error(result, whole[:, 1:2]) > 0.1


@pytest.mark.parametrize("config", [TINY, UVIT], ids=["dit", "uvit"])
def test_append_returns_the_keys_and_values_of_a_step(config: Config) -> None:
    inputs = drawn(workload(config, "step", 2), torch.float64)
    step = built(config, "step", torch.float64)
    seen: list[Tensor] = []
    for block in step.transformer.blocks:
        block.register_forward_hook(lambda _module, _inputs, result: seen.extend(result[1:]))
    step(*inputs)
    stated = workload(config, "append", 2)
    appended = built(config, "append", torch.float64)(*inputs[: len(stated.inputs)])
    assert len(inputs) - len(stated.inputs) == 2  # the last layer's cache has no say
    for result, right in zip(appended, seen, strict=True):
        assert error(result, right) < 1e-12


def test_causal_frames_do_not_see_later_ones() -> None:
    config = replace(TINY, causal=True)
    stated = workload(config, "full", 1)
    for setting, seen in ((config, False), (TINY, True)):
        module = built(setting, "full", torch.float64)
        inputs = drawn(stated, torch.float64)
        before = module(*inputs)
        for tensor in inputs:
            tensor[:, 3] = tensor[:, 3] + 0.5
        for new, was in zip(module(*inputs), before, strict=True):
            assert [error(new[:, frame], was[:, frame]) > 1e-9 for frame in range(5)] == [seen, seen, seen, True, True]


# Precision


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-4), (torch.float16, 4e-3), (torch.bfloat16, 0.025)])
@pytest.mark.parametrize("config", [TINY, UVIT], ids=["dit", "uvit"])
def test_half_precision_keeps_its_phases(config: Config, dtype: torch.dtype, bound: float) -> None:
    stated = workload(config, "step", 2)
    expected = built(config, "step", torch.float64)(*drawn(stated, torch.float64))
    module = built(config, "step", dtype)
    inputs = drawn(stated)
    kept = [tensor if one.keep_fp32 else tensor.to(dtype) for one, tensor in zip(stated.inputs, inputs, strict=True)]
    for result, reference in zip(module(*kept), expected, strict=True):
        assert error(result, reference) < bound
    if dtype == torch.bfloat16:  # what a noise level and a motion rounded to bf16 would cost
        rounded = [tensor.to(dtype).to(torch.float32) if tensor.dtype == torch.float32 else tensor for tensor in kept]
        assert error(module(*rounded)[0], expected[0]) > 1.5 * bound


def test_double_module_is_double_throughout() -> None:
    # Phases of a thousand radians in fp32 would leave 1e-5; the same weights, so nothing else differs.
    stated = workload(TINY, "step", 1)
    inputs = drawn(stated, torch.float64)
    module = built(TINY, "step", torch.float64)
    before = module(*inputs)
    moved = [tensor + 1e-12 if one.keep_fp32 else tensor for one, tensor in zip(stated.inputs, inputs, strict=True)]
    for new, was in zip(module(*moved), before, strict=True):
        assert 1e-13 < error(new, was) < 1e-7
        assert new.dtype == torch.float64


# Rotary frequencies of a checkpoint


def test_stored_frequencies_are_neither_trained_nor_cast() -> None:
    module = built(TINY, "step", torch.bfloat16)
    stored = {key: tensor for key, tensor in module.state_dict().items() if key.endswith("freqs")}
    assert len(stored) == TINY.n_layers
    assert not any(key.endswith("freqs") for key, _ in module.named_parameters())
    for tensor in stored.values():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, torch.pi * torch.tensor([1.0, 128.0]))


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounded_frequencies_are_accepted_and_replaced(dtype: torch.dtype, assign: bool) -> None:
    _, weights, _, _ = golden("step")
    rounded = {key: tensor.to(dtype) for key, tensor in weights.items()}
    with torch.device("meta" if assign else "cpu"):
        module = network.build(TINY, "step")
    module.load_state_dict(rounded, assign=assign)
    found = module.state_dict()["transformer.blocks.1.attn.rope.pos_emb.freqs"]
    torch.testing.assert_close(found, torch.pi * torch.tensor([1.0, 128.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("factor", [1.02, 0.5, float("nan")])
def test_other_frequencies_are_refused(dtype: torch.dtype, factor: float) -> None:
    about, weights, inputs, _ = golden("step")
    key = "transformer.blocks.2.attn.rope.pos_emb.freqs"
    wrong = {**weights, key: (weights[key] * factor).to(dtype)}
    with pytest.raises(BakeoffError, match=r"blocks\.2\S*freqs .* 3\.14159 to 402\.124") as caught:
        network.build(TINY, "step").load_state_dict(wrong)
    assert caught.value.code == "bad-checkpoint"
    with pytest.raises(BakeoffError, match=r"blocks\.2\S*freqs"):
        replay(about, wrong, inputs)


# Configs and names


def test_window_of_one_frame_has_no_context() -> None:
    config = replace(TINY, n_frames=1)
    assert workload_names(config) == ("single", "full")
    with pytest.raises(BakeoffError, match="'step'") as caught:
        workload(config, "step", 1)
    assert caught.value.code == "unknown-name"


@pytest.mark.parametrize("number", ["", "3"])
def test_a_stream_opens_with_the_context_of_its_window(number: str) -> None:
    step, context, append = (f"{kind}{number}" for kind in ("step", "context", "append"))
    order = stream(TINY, step)
    assert order is not None
    assert (order.opening, order.each, order.zeros) == ((context,), (step, append), ())
    for name in order.each:
        taken = {spec.name for spec in workload(TINY, name, 1).inputs if spec.name.startswith("cache_")}
        assert {one.input for one in order.carries if (one.workload, one.to) == (context, name)} == taken
        assert {one.input for one in order.carries if (one.workload, one.to) == (append, name)} == taken
    assert all(stream(TINY, name) is None for name in ("single", "context", "append", "full"))
