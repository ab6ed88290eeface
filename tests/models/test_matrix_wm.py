"""Matrix-Game-2's world model against its golden file, its published keys and figures."""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_files import read_golden
from golden_matrix_wm import read_config, replay
from golden_replay import replay_file
from plain_matrix_wm import golden_outputs
from safetensors.torch import save_file
from torch import Tensor

from bakeoff.models.checkpoint import load_checkpoint
from bakeoff.models.component import Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.matrix_wm import network
from bakeoff.models.matrix_wm.action import UnusedNorm, interleave, rotate, space_angles, windows
from bakeoff.models.matrix_wm.spec import (
    MAX_BLOCKS,
    SPEC,
    Config,
    action_rows,
    is_context,
    sigmas,
    timesteps,
    workload,
    workload_names,
)
from bakeoff.models.weights import randomize
from bakeoff.worker.work import count_work

UNIVERSAL, GTA_DRIVE, TEMPLERUN, CPU, TINY = (
    SPEC.preset(name).config for name in ("universal", "gta_drive", "templerun", "cpu", "tiny")
)
OPEN, FIRST, STEP, FIRST_CONTEXT, CONTEXT = NAMES = ("open", "denoise0", "denoise", "context0", "context")
ODD = {
    "window of 4": replace(TINY, window=4),
    "window of 5, wide heads": replace(TINY, window=5, n_heads=1, n_layers=2, action_layers=1),
    "no mouse": replace(TINY, mouse_dim=0, keyboard_dim=7, steps=(1000, 750, 500, 250)),
    "smallest": Config(6, 1, 2, 1, 1, 1, 2, 4, 2, 2, 2, 1, 1, 64, 2, 2, steps=(7,), flow_shift=1),
}


golden = cache(partial(read_golden, "matrix_game_wm_tiny"))


def own_weights() -> dict[str, Tensor]:
    """The golden file's weights under the component's own keys."""
    return {key.removeprefix("model."): tensor for key, tensor in golden()[1].items()}


def built(config: Config, name: str, dtype: torch.dtype = torch.float32) -> network.WorldModel:
    """As a worker builds: on meta, then random weights, then the cast."""
    with torch.device("meta"):
        module = network.build(config, name)
    assert isinstance(module, network.WorldModel)
    module.to_empty(device="cpu")
    randomize(module, 5, network.initial_std)
    return module.to(dtype).requires_grad_(False)


def drawn(stated: Workload, dtype: torch.dtype = torch.float32, seed: int = 3) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for one in stated.inputs:
        values = torch.rand(one.shape, generator=generator)
        if isinstance(one.draw, tuple):
            values = torch.tensor(one.draw)[torch.randint(0, len(one.draw), one.shape, generator=generator)]
        elif one.draw == "normal":
            values = torch.randn(one.shape, generator=generator)
        elif one.draw == "binary":
            values = values.round()
        tensors[one.name] = values.to(torch.promote_types(dtype, torch.float32) if one.keep_fp32 else dtype)
    return tensors


def called(module: network.WorldModel, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """The outputs by name, for inputs by name; further inputs are left out."""
    with torch.no_grad():
        return dict(zip(module.outputs, module(*(given[name] for name in module.inputs)), strict=True))


def error(found: Tensor, right: Tensor) -> float:
    return float((found.double() - right.double()).norm() / right.double().norm())


# Reference tensors


@pytest.fixture(scope="module")
def replayed() -> dict[str, Tensor]:
    about, weights, inputs, _ = golden()
    return replay(about, weights, inputs)


def test_golden_file_is_met(replayed: dict[str, Tensor]) -> None:
    about, _, _, outputs = golden()
    assert replayed.keys() == outputs.keys()
    assert {f"outputs.{key}" for key in outputs} <= about["tensors"].keys()
    assert len(outputs) == 3 * (3 + 3 + 1) + 2 * (3 + 2 + 2)
    for key, right in outputs.items():
        assert error(replayed[key], right) < 2e-6, key  # at most 6.2e-7 on the machine it was written on
        torch.testing.assert_close(replayed[key], right, rtol=0, atol=1e-4)


def test_plain_torch_meets_the_golden_file() -> None:
    about, weights, inputs, outputs = golden()
    found = golden_outputs(about["config"], weights, inputs)
    assert found.keys() == outputs.keys()
    for key, right in outputs.items():
        assert error(found[key], right) < 2e-6, key


@pytest.mark.parametrize("window", [4, 5])
def test_golden_file_of_a_shorter_window_is_met(window: int, tmp_path: Path) -> None:
    about, weights, inputs, outputs = golden()
    config = {**about["config"], "local_attn_size": window}
    right = golden_outputs(config, weights, inputs)
    assert error(right["flow_block2_step0"], outputs["flow_block2_step0"]) > 0.1
    assert right["self_kv.0.k"].shape == (1, 6 * window, 2, 32)
    groups = {"weights": weights, "inputs": inputs, "outputs": right}
    tensors = {f"{group}.{key}": one.contiguous() for group, part in groups.items() for key, one in part.items()}
    save_file(tensors, tmp_path / "own.safetensors")
    (tmp_path / "own.json").write_text(
        json.dumps({**about, "config": config, "suggested_tolerance_fp32": {"atol": 2e-5}})
    )
    replayed = replay_file(tmp_path / "own.safetensors")
    assert {one.name for one in replayed} == outputs.keys()
    assert all(one.passed for one in replayed)


@pytest.mark.parametrize(
    "key",
    [
        "blocks.0.modulation",
        "blocks.1.action_model.keyboard_embed.0.weight",
        "blocks.2.self_attn.norm_k.weight",
        "blocks.0.cross_attn.norm_q.weight",
        "head.modulation",
        "img_emb.proj.4.bias",
    ],
)
def test_golden_file_depends_on_its_weights(key: str) -> None:
    about, weights, inputs, outputs = golden()
    changed = {**weights, f"model.{key}": weights[f"model.{key}"] * 1.1 + 0.1}
    assert error(replay(about, changed, inputs)["flow_block0_step0"], outputs["flow_block0_step0"]) > 1e-4


def test_golden_file_ignores_the_query_and_key_norms_of_action_modules(replayed: dict[str, Tensor]) -> None:
    about, weights, inputs, _ = golden()
    unused = {key for key in weights if "attn_q_norm" in key or "attn_k_norm" in key}
    assert len(unused) == 4 * TINY.action_layers
    found = replay(about, {key: tensor + 3 * (key in unused) for key, tensor in weights.items()}, inputs)
    assert all(torch.equal(found[key], tensor) for key, tensor in replayed.items())


def test_tiny_is_the_config_of_the_golden_file() -> None:
    about, _, inputs, _ = golden()
    assert read_config(about["config"]) == TINY
    assert inputs["timesteps"].tolist() == pytest.approx(timesteps(TINY), rel=1e-6)


# Published keys and figures


def test_history_of_the_published_model_is_that_of_the_reference() -> None:
    cached = {one.name: one for one in workload(UNIVERSAL, CONTEXT, 1).outputs}
    assert cached["self_k.29"].shape == (1, 12, 3 * 880, 128)
    assert cached["mouse_v.14"].shape == (880, 16, 3, 64)
    assert cached["keyboard_k.14"].shape == (1, 16, 3, 64)
    assert not {"mouse_k.15", "keyboard_k.15", "self_k.30"} & cached.keys()
    assert sum(2 * one.elements for key, one in cached.items() if key.startswith("self")) == 973_209_600 // 2
    cross = workload(UNIVERSAL, OPEN, 1).outputs
    assert {one.shape for one in cross} == {(1, 12, 257, 128)}
    assert sum(2 * one.elements for one in cross) == 47_370_240
    assert workload(GTA_DRIVE, CONTEXT, 1).outputs[0].shape == (1, 12, 880, 128)
    assert not [one for one in workload(TEMPLERUN, STEP, 1).inputs if one.name.startswith("mouse")]


def test_names_and_their_order() -> None:
    block = ("x", "cond", "t", "mouse", "keyboard", "time_cos", "time_sin", "action_cos", "action_sin")
    cross = tuple(f"cross_{part}.{layer}" for layer in range(3) for part in "kv")
    history = (
        *("self_k.0", "self_v.0", "mouse_k.0", "mouse_v.0", "keyboard_k.0", "keyboard_v.0"),
        *("self_k.1", "self_v.1", "mouse_k.1", "mouse_v.1", "keyboard_k.1", "keyboard_v.1"),
        *("self_k.2", "self_v.2"),
    )
    expected = {
        OPEN: (("visual",), cross),
        FIRST: ((*block, *cross), ("flow",)),
        STEP: ((*block, *cross, *history), ("flow",)),
        FIRST_CONTEXT: ((*block, *cross[:-2]), history),
        CONTEXT: ((*block, *cross[:-2], *history[:-2]), history),
    }
    assert tuple(expected) == workload_names(TINY) == NAMES
    for name, (inputs, outputs) in expected.items():
        stated = workload(TINY, name, 2)
        assert tuple(one.name for one in stated.inputs) == inputs
        assert tuple(one.name for one in stated.outputs) == outputs
    stated = workload(TINY, STEP, 2)
    assert {one.name for one in stated.inputs if one.keep_fp32} == {"t", *block[-4:]}
    draws = {name: {one.name: one.draw for one in workload(TINY, name, 2).inputs}.get("t") for name in NAMES}
    denoising = timesteps(TINY)
    assert draws == {OPEN: None, FIRST: denoising, STEP: denoising, FIRST_CONTEXT: (0.0,), CONTEXT: (0.0,)}
    shapes = {one.name: one.shape for one in stated.inputs}
    assert (shapes["mouse"], shapes["keyboard"], shapes["t"]) == ((2, 20, 2), (2, 20, 4), (2, 3))
    assert (shapes["time_cos"], shapes["action_sin"]) == ((3, 6), (3, 4))
    assert {one.shape for one in workload(UNIVERSAL, STEP, 1).inputs if one.name.startswith("time_")} == {(3, 22)}
    given, made = stated.inputs, workload(TINY, CONTEXT, 2).outputs
    assert tuple(one for one in given if one.name in history) == made, "a context's outputs are a step's inputs"


def test_calls_of_a_block() -> None:
    for config, calls in ((UNIVERSAL, 4), (TEMPLERUN, 5)):
        assert [workload(config, name, 1).calls_per_frame for name in NAMES] == [None, None, calls, None, None]
    assert [workload(TINY, name, 1).frames_per_call for name in NAMES] == [1, 9, 12, 9, 12]


# The sampler, actions and positions


def test_noise_levels_are_the_published_ones() -> None:
    assert [round(t, 2) for t in timesteps(UNIVERSAL)] == [1000, 908.84, 713.98]
    assert [round(t, 2) for t in timesteps(TEMPLERUN)] == [1000, 937.5, 833.33, 625]
    assert sigmas(TEMPLERUN) == pytest.approx([1, 0.9375, 5 / 6, 0.625])
    assert sigmas(replace(TINY, flow_shift=1, steps=(250,))) == (0.25,)


def test_action_rows_are_the_twelve_before_each_latent_frame() -> None:
    assert action_rows(0) == (*(0,) * 12, *range(8))
    assert action_rows(3) == tuple(range(20))
    assert action_rows(30) == tuple(range(108, 128))
    rows = torch.tensor(action_rows(30)).view(1, 20, 1).double()
    assert windows(rows).tolist() == [[list(range(4 * frame - 12, 4 * frame)) for frame in (30, 31, 32)]]
    two = torch.arange(40).view(1, 20, 2)
    assert windows(two)[0, 1].tolist() == list(range(8, 32)), "row after row"


@pytest.mark.parametrize("first", [-1, 3 * MAX_BLOCKS - 2, 3 * MAX_BLOCKS, 10**9])
def test_a_block_beyond_the_rotary_table_is_refused(first: int) -> None:
    assert MAX_BLOCKS == 341
    assert network.positions(TINY, 3 * MAX_BLOCKS - 3).time_cos.shape == (3, 6)
    for ask in (lambda: network.positions(TINY, first), lambda: action_rows(first)):
        with pytest.raises(BakeoffError, match=f"latent frame {first}[.].* 0 to 1022") as caught:
            ask()
        assert caught.value.code == "bad-option"


def test_positions_are_absolute_and_precise() -> None:
    for first in (0, 6, 1020):
        found = network.positions(UNIVERSAL, first)
        assert [tuple(table.shape) for table in found] == [(3, 22), (3, 22), (3, 4), (3, 4)]
        assert {table.dtype for table in found} == {torch.float32}
        assert tuple(found._asdict()) == ("time_cos", "time_sin", "action_cos", "action_sin")
        for frame in range(3):
            time = (first + frame) * 10000.0 ** (-torch.arange(0, 44, 2).double() / 44)
            action = (first + frame) * 256.0 ** (-torch.arange(0, 8, 2).double() / 8)
            for table, exact in zip(found, (time.cos(), time.sin(), action.cos(), action.sin()), strict=True):
                torch.testing.assert_close(table[frame].double(), exact, rtol=0, atol=1e-7)


def test_tokens_are_rotated_by_frame_row_and_column() -> None:
    angles = torch.tensor(space_angles(UNIVERSAL))
    assert angles.shape == (22 * 40, 42)
    by_axis = 10000.0 ** (-torch.arange(0, 42, 2).double() / 42)
    torch.testing.assert_close(angles[7 * 40 + 13], torch.cat((7 * by_axis, 13 * by_axis)))


def test_rotation_turns_adjacent_pairs_and_leaves_the_rest() -> None:
    generator = torch.Generator().manual_seed(1)
    heads = torch.randn(2, 3, 10, generator=generator, dtype=torch.float64)
    angles = torch.rand(3, 2, generator=generator, dtype=torch.float64)
    turned = rotate(heads, *interleave(angles.cos(), angles.sin()))
    right = torch.view_as_real(
        torch.view_as_complex(heads[..., :4].unflatten(-1, (2, 2)).contiguous()) * torch.polar(angles * 0 + 1, angles)
    )
    torch.testing.assert_close(turned[..., :4], right.flatten(-2))
    assert torch.equal(turned[..., 4:], heads[..., 4:])


# Work


@pytest.mark.parametrize("config", [TINY, *ODD.values()], ids=["tiny", *ODD])
def test_weights_read_are_those_with_a_gradient(config: Config) -> None:
    for name in NAMES:
        stated = workload(config, name, 2)
        module = built(config, name, torch.float64).requires_grad_(True)
        given = drawn(stated, torch.float64)
        if name != OPEN:  # at t = 0 the sines of the timestep's embedding are zero, and so are these gradients
            given |= {"t": given["t"] + 0.5}
        results = module(*given.values())
        assert [result.shape for result in results] == [one.shape for one in stated.outputs]
        sum((result * torch.randn_like(result)).sum() for result in results).backward()
        gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
        read = sum(int(gradient.count_nonzero()) for gradient in gradients)
        # A context's last layer is read in whole, of which two of six vectors matter.
        unused = 4 * config.dim if is_context(name) else 0
        assert read == count_work(SPEC, config, stated, 2).weight_elements - unused, name


def test_gradients_are_not_zero() -> None:
    module = built(TINY, STEP, torch.float64).requires_grad_(True)
    (flow,) = module(*drawn(workload(TINY, STEP, 2), torch.float64).values())
    (flow * torch.randn_like(flow)).sum().backward()
    unread = {key for key, parameter in module.named_parameters() if parameter.grad is None}
    zero = {key for key, one in module.named_parameters() if one.grad is not None and not one.grad.count_nonzero()}
    assert not zero
    assert {key for key in unread if not key.startswith("img_emb.")} == {
        *(f"blocks.{layer}.cross_attn.{part}" for layer in range(3) for part in ("k.weight", "k.bias")),
        *(f"blocks.{layer}.cross_attn.{part}" for layer in range(3) for part in ("v.weight", "v.bias")),
        *(f"blocks.{layer}.cross_attn.norm_k.weight" for layer in range(3)),
        *(key for key in module.state_dict() if "attn_q_norm" in key or "attn_k_norm" in key),
    }
    assert sum(isinstance(part, UnusedNorm) for part in module.modules()) == 4 * TINY.action_layers


# What depends on what


def moves(source: str, result: str) -> bool:
    """Whether an input of a context pass has a say in an output."""
    at, end = (int(name.partition(".")[2] or -1) for name in (source, result))
    kind, part = result.partition(".")[0].split("_")
    if source in ("mouse", "action_cos", "action_sin", "keyboard") and end == 0:
        # In layer 0 each of them has a say where it enters: the keyboard's keys do not depend on the tokens.
        turned = part == "k" and kind != "self"
        return {"mouse": kind == "mouse", "keyboard": kind == "keyboard"}.get(source, turned)
    if kind == "keyboard":
        # Keys and values come from the action rows alone; keys are rotated too.
        return source == "keyboard" or (source.startswith("action_") and part == "k")
    if kind == "self":
        # Before attention to history and image of its own layer; keys are rotated.
        return part == "k" or end > 0 if source.startswith("time_") else at < end
    # Of the mouse: after self- and cross-attention of its own layer.
    return at < end or (at == end and source.startswith(("self_", "cross_")))


@pytest.mark.parametrize("name", [STEP, CONTEXT])
def test_every_input_moves_every_output_it_should(name: str) -> None:
    stated = workload(TINY, name, 2)
    module = built(TINY, name, torch.float64)
    inputs = {key: tensor.requires_grad_() for key, tensor in drawn(stated, torch.float64).items()}
    for one, result in zip(stated.outputs, module(*inputs.values()), strict=True):
        weighed = (result * torch.randn_like(result)).sum()
        gradients = torch.autograd.grad(weighed, list(inputs.values()), retain_graph=True, allow_unused=True)
        for source, gradient in zip(inputs, gradients, strict=True):
            moved = gradient is not None and bool((gradient != 0).any())
            assert moved == (one.name == "flow" or moves(source, one.name)), f"{source} and {one.name}"


@pytest.mark.parametrize("name", [FIRST, STEP])
def test_outputs_change_with_each_input_by_more_than_an_error(name: str) -> None:
    stated = workload(TINY, name, 1)
    module = built(TINY, name)
    inputs, others = drawn(stated), drawn(stated, seed=4)
    right = called(module, inputs)["flow"]
    for kind in {key.partition(".")[0] for key in inputs}:
        changed = {key: others[key] if key.partition(".")[0] == kind else tensor for key, tensor in inputs.items()}
        assert error(called(module, changed)["flow"], right) > 0.01, kind


# The history


def session(config: Config, blocks: int, dtype: torch.dtype = torch.float64) -> Iterator[tuple[dict, dict, dict]]:
    """For each block its inputs, the flow of a pass at t = 0 and the history that it leaves."""
    programs = {name: built(config, name, dtype) for name in NAMES}
    history: dict[str, Tensor] = {}
    image = called(programs[OPEN], drawn(workload(config, OPEN, 1), dtype))
    for block in range(blocks):
        suffix = "" if block else "0"
        given = drawn(workload(config, FIRST, 1), dtype, seed=block) | image | history
        given |= {"t": given["t"] * 0} | network.positions(config, 3 * block)._asdict()
        flow = called(programs[f"denoise{suffix}"], given)
        history = called(programs[f"context{suffix}"], given)
        yield given, flow, history


@pytest.mark.parametrize("config", [TINY, *list(ODD.values())[:3]], ids=["tiny", *list(ODD)[:3]])
def test_history_is_of_the_last_frames_of_a_denoising_pass(config: Config) -> None:
    """`context` computes what a denoising pass at t = 0 computes on its way, and keeps the newest frames."""
    module = built(config, STEP, torch.float64)
    seen: list[dict[str, Tensor]] = []
    for block in module.blocks:
        block.register_forward_hook(lambda _module, arguments, _result: seen.append(arguments[3]))
    *_, (given, flow, history) = session(config, 3)
    assert torch.equal(called(module, given)["flow"], flow["flow"])
    kept = config.window - 3
    for key, tensor in history.items():
        name, _, layer = key.partition(".")
        new = seen[int(layer)][name]
        frames = new.unflatten(-2, (3, -1))[..., -kept:, :, :].flatten(-3, -2)
        assert error(tensor, frames) < 1e-12, key


def test_keys_of_the_history_are_seen_at_their_own_distance() -> None:
    """Angles are absolute: what a block sees of its history depends on the distance in frames alone."""
    config = TINY
    module = built(config, STEP, torch.float64)
    fill = built(config, FIRST_CONTEXT, torch.float64)
    found = []
    for first in (0, 300, 600):
        given = drawn(workload(config, STEP, 1), torch.float64)
        given |= network.positions(config, first)._asdict()
        history = called(fill, given)
        found.append(called(module, given | history | network.positions(config, first + 3)._asdict())["flow"])
        if first == 0:  # the same history three frames further away
            far = called(module, given | history | network.positions(config, first + 6)._asdict())["flow"]
            assert error(far, found[0]) > 1e-3
    assert error(found[1], found[0]) < 1e-5  # the tables are fp32
    assert error(found[2], found[0]) < 1e-5


def test_frames_of_a_block_see_each_other() -> None:
    module = built(TINY, STEP, torch.float64)
    given = drawn(workload(TINY, STEP, 1), torch.float64)
    right = called(module, given)["flow"]
    changed = given["x"].clone()
    changed[:, :, 2] += 1
    found = called(module, given | {"x": changed})["flow"]
    assert all(error(found[:, :, frame], right[:, :, frame]) > 1e-4 for frame in range(3))


# Precision


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.float16, 4e-3), (torch.bfloat16, 0.025)])
def test_half_precision_keeps_timesteps_and_positions(name: str, dtype: torch.dtype, bound: float) -> None:
    stated = workload(TINY, name, 2)
    given = drawn(stated, torch.float64)
    if name != OPEN:
        given |= {key: table.double() for key, table in network.positions(TINY, 900)._asdict().items()}
    expected = called(built(TINY, name, torch.float64), given)
    module = built(TINY, name, dtype)
    cast = {one.name: given[one.name].to(torch.float32 if one.keep_fp32 else dtype) for one in stated.inputs}
    for key, result in called(module, cast).items():
        assert result.dtype == dtype
        assert error(result, expected[key]) < bound, key
    if dtype == torch.bfloat16 and name == STEP:  # what a timestep rounded to bf16 would cost
        found = called(module, cast | {"t": cast["t"].to(dtype).float()})["flow"]
        assert error(found, expected["flow"]) > 1.5 * error(called(module, cast)["flow"], expected["flow"])


def test_double_module_is_double_throughout() -> None:
    module = built(TINY, STEP, torch.float64)
    given = drawn(workload(TINY, STEP, 1), torch.float64)
    right = called(module, given)["flow"]
    for key in ("t", "time_cos", "action_sin", "mouse"):
        found = called(module, given | {key: given[key] + 1e-12})["flow"]
        assert 1e-15 < error(found, right) < 1e-9, key


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_sinusoid_of_a_timestep_is_exact(dtype: torch.dtype) -> None:
    sinusoid = network.Sinusoid(256).to(dtype)
    drawn_t = 1000 * torch.rand(1000, generator=torch.Generator().manual_seed(1))
    t = torch.cat((torch.tensor((*timesteps(UNIVERSAL), *timesteps(TEMPLERUN), 0.0, 999.99994)), drawn_t))
    phases = t.double()[:, None] * 10000.0 ** (-torch.arange(128).double() / 128)
    found = sinusoid(t.to(torch.promote_types(dtype, torch.float32)))
    worst = float((found.double() - torch.cat((phases.cos(), phases.sin()), -1)).abs().max())
    assert worst < (1e-12 if dtype == torch.float64 else 3e-7)  # products rounded to fp32 are 6e-5 away


def test_norms_do_not_overflow_in_fp16() -> None:
    module = built(TINY, STEP, torch.float16)
    given = drawn(workload(TINY, STEP, 1), torch.float16)
    for block in module.blocks:
        block.self_attn.k.weight *= 200  # keys of about 200, whose squares are beyond 65504
    assert bool(called(module, given)["flow"].isfinite().all())


# Checkpoints


def test_checkpoint_with_the_wrapper_s_prefix_loads(tmp_path: Path, replayed: dict[str, Tensor]) -> None:
    about, weights, inputs, _ = golden()
    path = tmp_path / "tiny.pt"
    torch.save(weights, path)
    assert all(key.startswith("model.") for key in weights)
    module = built(TINY, FIRST)
    load_checkpoint(path, module, SPEC)
    assert all(torch.equal(module.state_dict()[key], tensor) for key, tensor in own_weights().items())
    again = replay(about, {f"model.{key}": tensor for key, tensor in module.state_dict().items()}, inputs)
    assert all(torch.equal(again[key], tensor) for key, tensor in replayed.items())


def test_checkpoint_of_a_model_without_mouse_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny.pt"
    torch.save(built(ODD["no mouse"], FIRST).state_dict(), path)
    with pytest.raises(BakeoffError, match=r"matrix-wm.*mouse_mlp") as caught:
        load_checkpoint(path, built(TINY, FIRST), SPEC)
    assert caught.value.code == "bad-checkpoint"


# Configs and names


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"window": 3}, "window is 3"),
        ({"window": 7}, "window is 7"),
        ({"steps": ()}, "steps is"),
        ({"steps": (333, 666)}, "steps is"),
        ({"steps": (500, 500)}, "steps is"),
        ({"steps": (1001, 500)}, "steps is .* 1000"),
    ],
)
def test_bad_config_is_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BakeoffError, match=named) as caught:
        replace(TINY, **change)
    assert caught.value.code == "bad-config"
