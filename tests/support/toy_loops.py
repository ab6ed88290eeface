"""Two small loops, `toy_loops:Toy`: one of toy programs, and one whose phases have known lengths.

Preset `tiny`: a frame is denoised by `world` in two steps against a window of 4 frames, which it then enters, and
decoded by `stream`, whose cache goes from call to call. Preset `spin` calls no program: its phases a, b and c keep the
host busy for 5, 3 and 2 ms, with 0.5 ms of glue after a and after b. Tokens T, channels C of the world's state.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import OPENING, BuiltIn, Pipeline
from bakeoff.models.pipelines.tensors import pixels
from bakeoff.models.toy.spec import SPEC

SPINS = (("a", 5.0), ("", 0.5), ("b", 3.0), ("", 0.5), ("c", 2.0))
"""Phase ("" for glue) and milliseconds of each part of preset `spin`."""


@dataclass(frozen=True, slots=True)
class Options:
    steps: int = 2
    """Denoising steps of a frame."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise BakeoffError(f"toy: steps is {self.steps}; it must be at least 1", code="bad-option")


class Toy(Pipeline):
    """The loops. Their state: two windows of the world, the cache of the stream, and noise levels."""

    summary = "a small loop with a window, a cache and glue; no figure means anything"
    credit = "this project"
    rate = 60.0
    filling = 6  # more than the 4 frames of the window, so that a runner that counts them differently is seen
    Options = Options
    presets = {"tiny": "toy", "spin": "busy waits of known length"}
    signals = {"video": "picture"}

    def modules(self) -> dict[str, BuiltIn]:
        if self.preset == "spin":
            return {}
        return {"world": BuiltIn("toy", self.preset), "stream": BuiltIn("toy", self.preset)}

    def sizes(self) -> dict[str, int]:
        return {} if self.preset == "spin" else {"steps": self.options.steps}

    def given(self, unit: int, draw: Any) -> dict[str, Tensor]:
        if self.preset == "spin":
            return {}
        config = SPEC.preset(self.preset).config
        shapes = {
            f"{name}.{one.name}": one.shape
            for name in ("world", "stream")
            for one in SPEC.workload(config, name, 1).inputs
        }
        if unit != OPENING:
            return {"noise": draw("noise", shapes["world.x"], slot="world")}
        return {
            "cache_k": draw.zeros(shapes["world.cache_k"], slot="world"),
            "cache_v": draw.zeros(shapes["world.cache_v"], slot="world"),
            "cache": draw.zeros(shapes["stream.cache.00"], slot="stream"),
        }

    def start(self, given: dict[str, Tensor], run: Any) -> dict[str, Any]:
        if self.preset == "spin":
            return {}
        like, steps = given["cache_k"], self.options.steps
        dtype = torch.promote_types(like.dtype, torch.float32)
        levels = [torch.full((1, 1), 1 - step / steps, dtype=dtype, device=like.device) for step in range(steps)]
        return {**given, "t": levels}

    def step(self, state: dict[str, Any], given: dict[str, Tensor], run: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.preset == "spin":
            for phase, milliseconds in SPINS:
                if phase:
                    with run.phase(phase):
                        _spin(milliseconds)
                else:
                    _spin(milliseconds)
            return state, {}
        x, steps = given["noise"], self.options.steps
        keys, values = state["cache_k"], state["cache_v"]
        for step in range(steps):
            with run.phase("denoise"):
                velocity = run.world.world(x=x, t=state["t"][step], cache_k=keys, cache_v=values)["velocity"]
            x = x - velocity * (1 / steps)
        keys, values = run.slide(keys, x, axis=1), run.slide(values, x, axis=1)
        z = _latent(x)
        with run.phase("decode"):
            found = run.stream.stream(**{"z": z, "cache.00": state["cache"]})
        with run.phase("present"):
            pixels(found["video"])
        after = {"cache_k": keys, "cache_v": values, "cache": found["cache.00"], "t": state["t"]}
        return after, {"x": x, "video": found["video"]}


class Drift(Toy):
    """Preset `tiny` with a scene that drifts evenly within a session, denoised in one step without its past."""

    filling = 0

    def given(self, unit: int, draw: Any) -> dict[str, Tensor]:
        if unit == OPENING:
            return super().given(unit, draw)
        shape = SPEC.workload(SPEC.preset(self.preset).config, "world", 1).inputs[0].shape
        scene, drift = (draw.session(name, shape, slot="world") for name in ("scene", "drift"))
        return {"noise": scene + 0.0015 * unit * drift}

    def step(self, state: dict[str, Any], given: dict[str, Tensor], run: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        x = given["noise"]
        caches = {name: state[name] for name in ("cache_k", "cache_v")}
        x = x - 0.05 * run.world.world(x=x, t=state["t"][0], **caches)["velocity"]
        found = run.stream.stream(**{"z": _latent(x), "cache.00": state["cache"]})
        return {**state, "cache": found["cache.00"]}, {"x": x, "video": found["video"]}


def _latent(x: Tensor) -> Tensor:
    """Return x [1, T, C] as a latent frame [1, 1, C, T, T] with equal columns."""
    column = x.transpose(1, 2)[:, None, :, :, None]
    return column.expand(*column.shape[:-1], x.shape[1]).contiguous()


def _spin(milliseconds: float) -> None:
    """Keep the host busy for this many milliseconds."""
    end = time.perf_counter_ns() + round(milliseconds * 1e6)
    while time.perf_counter_ns() < end:
        pass
