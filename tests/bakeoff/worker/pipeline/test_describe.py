"""Descriptions of loops: what their first units do, and what makes a loop none."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="loops are described by running them")

import torch
import toy_loops as toy
from mixes import loop_of

from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines import pipeline_names, resolve_pipeline
from bakeoff.models.pipelines.pipeline import Loop, Slot, Unit
from bakeoff.process.jobs import DescribeLoopJob
from bakeoff.worker.pipeline.describe import describe_loop
from bakeoff.worker.pipeline.parity import calls_of_first

OWL_PHASES = ("denoise", "context", "image", "audio", "present")
MATRIX_WM = ("open", "denoise0", "context0", "denoise", "context")
MATRIX_PHASES = ("denoise", "context", "decode", "present")


def programs(loop: Loop) -> dict[str, list[str]]:
    """Of each slot."""
    found: dict[str, list[str]] = {slot.name: [] for slot in loop.slots}
    for one in loop.programs:
        found[one.slot].append(one.program)
    return found


def called(unit: Unit) -> list[str]:
    return [f"{call.phase}: {call.slot}.{call.program}" for call in unit.calls]


@pytest.mark.parametrize(
    ("preset", "components", "frames", "layers", "steps"),
    [
        ("1b", ("1b", "128x", "cod"), 59, 25, 20),
        ("200m", ("200m", "cpu", "cpu"), 29, 13, 10),
        ("tiny", ("tiny-decoded", "tiny", "tiny"), 4, 3, 20),
    ],
)
def test_an_owl_frame(preset: str, components: tuple[str, ...], frames: int, layers: int, steps: int) -> None:
    loop = loop_of("owl", preset)
    wm, audio = [f"{name}{frames}" for name in ("context", "step", "append")], f"decode{frames + 1}"
    assert tuple(loop.presets.values()) == components
    assert programs(loop) == {"wm": wm, "image": ["decode"], "audio": [audio]}
    assert called(loop.opened) == [f"open: wm.{wm[0]}"]
    assert loop.opening == ()
    decoded = ["image: image.decode", f"audio: audio.{audio}"]
    assert called(loop.steady) == [f"denoise: wm.{wm[1]}"] * steps + [f"context: wm.{wm[2]}", *decoded]
    levels = [round(1 - step / steps, 4) for step in range(steps)]
    assert [call.about for call in loop.steady.calls] == [
        *({"step": step, "timestep": level} for step, level in enumerate(levels)),
        *({},) * 3,
    ]
    assert (loop.steady.phases, loop.steady.frames, loop.rate) == (OWL_PHASES, 1, 60.0)
    assert (loop.filling, loop.max_units) == (0, None)
    assert loop.sizes == {"steps": steps, "window": frames + 1, "audio window": frames + 1}
    caches = [f"cache_{kind}.{layer}" for layer in range(layers) for kind in "kv"]
    assert loop.state == dict.fromkeys([*caches, "audio_window"], ("wm",))
    readers = dict(loop.windows)
    assert readers.pop("audio_window") == (("audio", audio, "z"),)
    last = f".{layers - 1}"  # the append stops at its keys and values
    assert readers == {
        name: tuple(("wm", one, name) for one in wm[1:] if one == wm[1] or not name.endswith(last)) for name in caches
    }
    assert loop.carried == {}
    assert loop.outputs == {"x": ("wm",), "a": ("wm",), "image": ("image", "wm"), "samples": ("audio", "wm")}
    assert loop.signals == {"image": "picture", "samples": "audio"}


@pytest.mark.parametrize(
    ("options", "batch", "steps", "audio", "sizes"),
    [
        ({"guidance": "batched", "steps": 2}, 2, 2, "decode5", (2, 5, 5)),
        ({"guidance": "shared", "steps": 2}, 1, 4, "decode5", (2, 5, 5)),
        ({"schedule": "1:0.25:0", "audio_window": 8}, 1, 2, "decode8", (2, 5, 8)),
    ],
    ids=str,
)
def test_options_of_owl(options: dict[str, Any], batch: int, steps: int, audio: str, sizes: tuple[int, ...]) -> None:
    loop = loop_of("owl", **options)
    assert {one.slot: loop.slot(one.slot).batch for one in loop.programs} == {"wm": batch, "image": 1, "audio": 1}
    assert loop.calls() == {("wm", "step4"): steps, ("wm", "append4"): 1, ("image", "decode"): 1, ("audio", audio): 1}
    assert tuple(loop.sizes.values()) == sizes
    assert loop.changed == options
    assert loop.options == {
        "steps": 0,
        "sampler": "uniform",
        "schedule": "",
        "noise_prev": 0.2,
        "guidance": "off",
        "guidance_scale": 1.3,
        "audio_window": 0,
        **options,
    }


@pytest.mark.parametrize(
    ("preset", "decoder", "timesteps", "window", "state"),
    [
        ("universal", "full", [1000.0, 908.84, 713.98], 6, 120),
        ("gta_drive", "full", [1000.0, 908.84, 713.98], 4, 120),
        ("templerun", "full", [1000.0, 937.5, 833.33, 625.0], 6, 90),
        ("cpu", "cpu", [1000.0, 908.84, 713.98], 6, 24),
        ("tiny", "tiny", [1000.0, 908.84, 713.98], 6, 14),
    ],
)
def test_a_matrix_block(preset: str, decoder: str, timesteps: list[float], window: int, state: int) -> None:
    loop = loop_of("matrix", preset)
    assert loop.presets == {"wm": preset, "decoder": decoder}
    assert programs(loop) == {"wm": list(MATRIX_WM), "decoder": ["prime", "steady2", "steady3"]}
    assert called(loop.opened) == ["open: wm.open"]
    (first,) = loop.opening
    steps = len(timesteps)
    assert called(first) == [
        *["denoise: wm.denoise0"] * steps,
        "context: wm.context0",
        "decode: decoder.prime",
        "decode: decoder.steady2",
    ]
    assert called(loop.steady) == [*["denoise: wm.denoise"] * steps, "context: wm.context", "decode: decoder.steady3"]
    for unit in (first, loop.steady):
        assert [call.about for call in unit.calls[:steps]] == [
            {"step": step, "timestep": timestep} for step, timestep in enumerate(timesteps)
        ]
        assert unit.phases == MATRIX_PHASES
    for blocks in (1, 2, 10, 50, 341):
        assert sum(loop.of(block).frames for block in range(blocks)) == 12 * blocks - 3
    assert (loop.filling, loop.max_units, loop.rate) == (2, 341, 25.0)
    assert loop.sizes == {"steps": steps, "window": window}
    history = [path for path in loop.state if path.startswith("history/")]
    caches = [f"cache.{index:02d}" for index in range(32)]
    assert len(history) == state
    assert loop.state == dict.fromkeys(history, ("wm",)) | dict.fromkeys(caches, ("decoder", "wm"))
    assert list(loop.carried) == ["wm.context", "decoder.steady3"]
    # the last layer's keys and values are made for the denoising passes alone
    last = max(int(path.rpartition(".")[2]) for path in history)
    own = [path.removeprefix("history/") for path in history if not path.endswith(f".{last}")]
    assert loop.carried["wm.context"] == {name: name for name in own}
    assert loop.carried["decoder.steady3"] == {name: name for name in caches}
    assert loop.windows == {}
    assert loop.outputs == {"x0": ("wm",), "video": ("decoder", "wm")}
    assert loop.signals == {"video": "picture"}


def test_a_toy_frame() -> None:
    loop = loop_of("toy_loops:Toy", steps="3")
    assert loop.slots == (Slot("world", "toy", "tiny"), Slot("stream", "toy", "tiny"))
    assert (loop.opened, loop.opening) == (Unit((), ()), ())
    assert called(loop.steady) == ["denoise: world.world"] * 3 + ["decode: stream.stream"]
    assert loop.phase_calls() == {"denoise": 3, "decode": 1, "present": 0}
    assert (loop.filling, loop.max_units, loop.rate, loop.sizes) == (6, None, 60.0, {"steps": 3})
    assert (loop.options, loop.changed) == ({"steps": 3}, {"steps": 3})
    assert loop.state == {"cache_k": ("world",), "cache_v": ("world",), "cache": ("stream", "world")}
    assert loop.windows == {name: (("world", "world", name),) for name in ("cache_k", "cache_v")}
    assert loop.carried == {"stream.stream": {"cache.00": "cache.00"}}
    assert loop.outputs == {"x": ("world",), "video": ("stream", "world")}
    assert calls_of_first(loop, 2) == {("world", "world"): 6, ("stream", "stream"): 2}


def test_every_preset_has_its_facts_without_torch() -> None:
    for name in pipeline_names():
        facts = resolve_pipeline(name)
        assert facts.name == name
        for preset, label in facts.presets.items():
            found = loop_of(name, preset)
            assert (found.name, found.preset, found.label, found.unit) == (name, preset, label, facts.unit_name)
        assert set(facts.default_preset.values()) <= set(facts.presets)


def described(patch: pytest.MonkeyPatch, **methods: Any) -> Loop:
    """The toy loop with other methods."""
    for name, method in methods.items():
        patch.setattr(toy.Toy, name, method)
    return describe_loop(DescribeLoopJob("toy_loops:Toy", "tiny", {}, "cpu", 1, 0, ""), lambda *_: None)


def test_the_time_between_programs_is_that_of_units_whose_engines_compute_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = toy.Toy.step

    def slow(self: Any, state: Any, given: Any, run: Any) -> Any:
        made = step(self, state, given, run)
        toy._spin(2.0)
        return made

    found = described(monkeypatch, step=slow).between_ns
    assert found.keys() == {"passed", "bound"}
    assert all(ns >= 2_000_000 for ns in found.values())


def test_a_loop_that_recorded_outputs_break_has_no_time_between(monkeypatch: pytest.MonkeyPatch) -> None:
    step = toy.Toy.step

    def wants_values(self: Any, state: Any, given: Any, run: Any) -> Any:
        after, outputs = step(self, state, given, run)
        if type(outputs["x"]) is torch.Tensor and not outputs["video"].any():
            raise ValueError("an empty picture")
        return after, outputs

    assert described(monkeypatch, step=wants_values).between_ns == {}


Call = Callable[[Any, dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda run, _: run.sound.sound(), "run.sound is called; modules() has world, stream"),
        (lambda run, _: run.world.sleep(), "toy has no workload 'sleep'"),
        (lambda run, z: run.stream.stream(z=z), "stream.stream takes z, cache.00; it is called with z"),
        (
            lambda run, z: run.stream.stream(z, z),
            "stream.stream takes cache.00 of shape [1, 32, 2, 16, 16]; it is called with [1, 1, 32, 16, 16]",
        ),
        (
            lambda run, _: run.slide(torch.zeros(1, 64, 32), torch.zeros(1, 16, 33), axis=1),
            "a window of shape [1, 64, 32] cannot take [1, 16, 33] along axis 1",
        ),
        (lambda *_: 3.0, "pipeline toy: the output x is a float; give a tensor"),
    ],
)
def test_each_mistake_is_one_error(call: Call, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(_self: Any, state: Any, _given: Any, run: Any) -> Any:
        return state, {"x": call(run, torch.zeros(1, 1, 32, 16, 16))}

    with pytest.raises(BakeoffError) as refused:
        described(monkeypatch, step=step)
    assert said in str(refused.value)
