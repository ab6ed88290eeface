"""Loops of three small modules with one planted dependency each, `planted_loops:NAME`: what may overlap depends on it.

A latent is denoised in three steps against a memory, which a context pass makes anew from it, and decoded.
"""

from typing import Any

import torch
from torch import Tensor, nn
from toy_loops import Toy

from bakeoff import Pipeline


class Scales(nn.Module):
    """x [n, 4] and a memory [n, 4] to [n, 4]."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        made = torch.rand((4, 4), generator=torch.Generator().manual_seed(seed))
        self.weight = nn.Parameter(made)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        return torch.tanh(x @ self.weight + memory)


class Remembers(Scales):
    past: Any = 0.0

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        self.past = super().forward(x, memory) + self.past
        return torch.as_tensor(self.past).clone()


class GivesItsInput(Scales):
    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        return x[:2]


class Free(Pipeline):
    """The decoder reads the latent alone, and keeps a cache of its own."""

    decoder: type[nn.Module] = Scales

    def modules(self) -> dict[str, Any]:
        return {"denoiser": Scales(0), "context": Scales(1), "decoder": self.decoder(2)}

    def given(self, unit: int, draw: Any) -> dict[str, Tensor]:
        return {"noise": draw("noise", (3, 4))}

    def start(self, given: dict[str, Tensor], run: Any) -> Any:
        return {"memory": torch.zeros_like(given["noise"]), "cache": torch.ones_like(given["noise"])}

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        x, memory = given["noise"], state["memory"]
        for step in range(3):
            with run.phase("denoise", step=step):
                x = x - run.denoiser(x, memory) / 3
        with run.phase("context"):
            memory = 0.5 * run.context(x, memory)
        with run.phase("decode"):
            image = self.decoded(state, x, memory, run)
        with run.phase("present"):
            shown = image.add(1).mul_(127.5).clamp_(0, 255).to(torch.uint8)
        return {"memory": self.kept(memory, image), "cache": image}, {"image": image, "shown": shown.float(), "x": x}

    def decoded(self, state: Any, x: Tensor, memory: Tensor, run: Any) -> Tensor:
        found: Tensor = run.decoder(x, state["cache"])
        return found

    def kept(self, memory: Tensor, image: Tensor) -> Tensor:
        return memory


class ReadsWhatContextWrites(Free):
    """Planted: the decoder reads the memory that the context pass of its own unit makes."""

    def decoded(self, state: Any, x: Tensor, memory: Tensor, run: Any) -> Tensor:
        found: Tensor = run.decoder(x, memory)
        return found


class FeedsBack(Free):
    """Planted: the next unit's memory has a part of the picture."""

    def kept(self, memory: Tensor, image: Tensor) -> Tensor:
        return memory + 0.1 * image


class KeepsItElsewhere(Free):
    """Planted: the decoder's module remembers."""

    decoder = Remembers


class GivesMemoryBack(Free):
    """Planted: the decoder's output is memory of its input."""

    decoder = GivesItsInput

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        return state, {"image": run.decoder(run.denoiser(given["noise"], state["memory"]), state["cache"])}


class Draws(Free):
    """Planted: both lanes would draw from one generator."""

    def decoded(self, state: Any, x: Tensor, memory: Tensor, run: Any) -> Tensor:
        return super().decoded(state, x + 0.1 * torch.randn_like(x), memory, run)


class ReadsOnTheHost(Toy):
    """Planted: the state depends on a number that is read from the video, which no tensor shows."""

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        after, outputs = super().step(state, given, run)
        return {**after, "t": after["t"] if outputs["video"].mean().item() > -10 else []}, outputs


class WritesIntoItsOwn(Toy):
    """Planted: the video is copied into a tensor that the loop made."""

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        after, outputs = super().step(state, given, run)
        return after, {**outputs, "video": torch.zeros(outputs["video"].shape).copy_(outputs["video"])}


class CountsOnTheHost(Toy):
    """Planted: a unit is given its number as a plain value."""

    def given(self, unit: int, draw: Any) -> dict[str, Any]:
        return {**super().given(unit, draw), "unit": max(unit, 0)}


class CopiesToTheHost(Toy):
    """The video goes to the host as bytes; what was copied there is an output too."""

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        after, outputs = super().step(state, given, run)
        shown = torch.ops.aten._to_copy.default(outputs["video"] * 2, device=torch.device("cpu"))
        return after, {**outputs, "shown": shown}


class ComputesOnTheHost(CopiesToTheHost):
    """Planted: what was copied to the host goes on there."""

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Tensor]]:
        after, outputs = super().step(state, given, run)
        return after, {**outputs, "shown": outputs["shown"] + 1}
