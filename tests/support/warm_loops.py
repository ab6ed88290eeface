"""Loops whose calls are not alike in all units: `warm_loops:Toggling`, whose noise level changes in unit 20, and
`warm_loops:Filling`, whose cache is full after six units."""

from typing import Any, ClassVar

import torch

from bakeoff.models.pipelines.pipeline import OPENING, BuiltIn, Pipeline
from bakeoff.models.toy.spec import SPEC, Config

TOGGLED = 20
_TOKENS = 11
"""That enter the cache in a unit; six times as many are more than the 64 that it holds."""


class _Level(Pipeline):
    """Noise levels above 2, which no sample has, and below 3."""

    summary = "one toy"
    credit = "this project"
    rate = 24.0
    presets: ClassVar = {"tiny": "toy"}
    fills = False

    def modules(self) -> dict[str, BuiltIn]:
        return {"world": BuiltIn("toy", "tiny")}

    def given(self, unit: int, draw: Any) -> dict[str, Any]:
        specs = {one.name: one for one in SPEC.workload(Config(), "world", 1).inputs}
        if unit != OPENING:
            late = unit >= TOGGLED and not self.fills
            level = torch.full(specs["t"].shape, 2.75 if late else 2.25)
            return {"x": draw("x", specs["x"].shape, slot="world"), "t": draw.value(level)}
        cache = {name: specs[name].shape for name in ("cache_k", "cache_v")}
        fill = draw.zeros if self.fills else lambda shape, slot: draw("cache", shape, slot=slot)
        return {name: fill(shape, slot="world") for name, shape in cache.items()}

    def start(self, given: Any, run: Any) -> Any:
        return given

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Any]]:
        x = run.world.world(**given, **state)["velocity"]
        if self.fills:
            state = {name: run.slide(window, x[:, :_TOKENS], axis=1) for name, window in state.items()}
        return state, {"x": x}


class Toggling(_Level):
    pass


class Filling(_Level):
    fills = True
    filling = 6
