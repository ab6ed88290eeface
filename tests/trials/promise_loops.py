"""Two loops of `promises.py`: `Mixed` calls three networks of 0.1 to 5 ms, `Windows` two that read a sliding window."""

from typing import Any

import torch
from torch import Tensor, nn

from bakeoff import Pipeline


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(8, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 4, 1)
        )

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        found: Tensor = self.layers(torch.cat((x, memory), 1))
        return found


class Block(nn.Module):
    """Attention over a window, and two linear layers."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, window: Tensor) -> Tensor:
        heads = [each.unflatten(-1, (4, -1)).transpose(1, 2) for each in (self.query(x), window, window)]
        found = nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(-2)
        x = x + self.out(found)
        made: Tensor = x + self.down(nn.functional.gelu(self.up(x)))
        return made


class Mixed(Pipeline):
    name = "mixed"
    rate = 30.0
    filling = 2

    def modules(self) -> dict[str, Any]:
        torch.manual_seed(0)
        decoder = nn.Sequential(nn.Conv2d(4, 48, 3, padding=1), nn.SiLU(), nn.ConvTranspose2d(48, 3, 4, 2, 1))
        small = nn.Sequential(nn.Linear(64, 256), nn.SiLU(), nn.Linear(256, 4))
        return {"denoiser": Denoiser().eval(), "decoder": decoder.eval(), "control": small.eval()}

    def given(self, _unit: int, draw: Any) -> dict[str, Tensor]:
        return {"noise": draw("noise", (1, 4, 48, 48)), "action": draw("action", (1, 64))}

    def start(self, given: dict[str, Tensor], _run: Any) -> dict[str, Tensor]:
        return {"memory": torch.zeros_like(given["noise"])}

    def step(self, state: dict[str, Tensor], given: dict[str, Tensor], run: Any) -> Any:
        with run.phase("control"):
            x = given["noise"] + run.control(given["action"])[..., None, None]
        with run.phase("denoise"):
            for _ in range(3):
                x = x - run.denoiser(x, state["memory"]) / 3
        with run.phase("decode"):
            picture = run.decoder(x)
        return {"memory": 0.9 * state["memory"] + 0.1 * x}, {"picture": picture}


class Windows(Pipeline):
    name = "windows"
    rate = 30.0
    filling = 8

    def modules(self) -> dict[str, Any]:
        torch.manual_seed(0)
        head = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 64))
        return {"block": Block().eval(), "head": head.eval()}

    def given(self, unit: int, draw: Any) -> dict[str, Tensor]:
        if unit < 0:
            return {"window": draw.zeros((1, 256, 128))}
        return {"x": draw("x", (1, 32, 128))}

    def start(self, given: dict[str, Tensor], _run: Any) -> dict[str, Tensor]:
        return {"window": given["window"]}

    def step(self, state: dict[str, Tensor], given: dict[str, Tensor], run: Any) -> Any:
        x = given["x"]
        for _ in range(4):
            x = x + 0.25 * run.block(x, state["window"])
        return {"window": run.slide(state["window"], x, axis=1)}, {"out": run.head(x)}
