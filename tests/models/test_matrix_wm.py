"""Matrix-Game-2's world model against its golden file, its published keys and figures."""

import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_files import read_golden
from golden_replay import replay_file
from plain_matrix_wm import golden_outputs
from safetensors.torch import save_file
from torch import Tensor

from bakeoff.models.component import Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.matrix_wm import network
from bakeoff.models.matrix_wm.action import space_angles, windows
from bakeoff.models.matrix_wm.spec import (
    MAX_BLOCKS,
    SPEC,
    Config,
    action_rows,
    sigmas,
    timesteps,
    workload,
)
from bakeoff.models.weights import randomize

UNIVERSAL, GTA_DRIVE, TEMPLERUN, CPU, TINY = (
    SPEC.preset(name).config for name in ("universal", "gta_drive", "templerun", "cpu", "tiny")
)
OPEN, FIRST, STEP, FIRST_CONTEXT, CONTEXT = NAMES = ("open", "denoise0", "denoise", "context0", "context")


golden = cache(partial(read_golden, "matrix_game_wm_tiny"))


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
