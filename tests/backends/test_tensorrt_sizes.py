"""The TensorRT backends for a range of sizes, with a fake of torch_tensorrt that follows its source code."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch_tensorrt converts torch's graphs")

import torch
from fake_torch_tensorrt import Fake, Input, pinned
from torch import Tensor, nn
from toys import LIBRARY_WARNINGS

from bakeoff.backends.backend import BuildContext, Unsupported
from bakeoff.backends.backend import Engine as Built
from bakeoff.backends.torch_tensorrt import ahead_of_time, jit
from bakeoff.models.component import DynamicAxis

pytestmark = LIBRARY_WARNINGS
BOTH = (jit, ahead_of_time)
SIZES = (DynamicAxis("x", 0, "x.0", 3, 4, 8), DynamicAxis("scale", 0, "x.0", 3, 4, 8))


class Network(nn.Module):
    """Two outputs, of which one has another size than the inputs along an axis, and a view by the size."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.narrow = nn.Linear(16, 16), nn.Conv1d(16, 16, 3, stride=2, padding=1)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        x, scale = tensors
        rows = x.shape[0]
        scaled = self.layer(x).relu().view(rows * 2, 8).view(rows, 16) * scale.unsqueeze(-1)
        return scaled, self.narrow(x.transpose(0, 1).unsqueeze(0))


class Plain(nn.Module):
    """No operator asks for the size."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor, scale: Tensor) -> tuple[Tensor]:
        return (self.layer(x) * scale.unsqueeze(-1),)


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    torch._dynamo.reset()


@pytest.fixture
def fake() -> Iterator[Fake]:
    with pinned() as library:
        yield library


@torch.inference_mode()
def inputs(rows: int) -> dict[str, Tensor]:
    """In inference mode, as a worker makes them: other tensors would be another graph for torch.compile."""
    return {"x": torch.randn(rows, 16), "scale": torch.rand(rows)}


def build(backend: Any, folder: Path, module: nn.Module, sizes: tuple[DynamicAxis, ...] = SIZES, **given: Any) -> Built:
    cache = folder / "cache"
    context = BuildContext("", "cpu", "fp32", 1, folder, cache, lambda _seed: {}, sizes=sizes)
    example = inputs(sizes[0].usual)
    with torch.inference_mode():
        engine: Built = backend.BACKEND.build(module, example, backend.Options(**given), context)
    return engine


def call(engine: Built, given: dict[str, Tensor]) -> tuple[Tensor, ...]:
    with torch.inference_mode():
        return tuple(engine.bind(given)())


@pytest.fixture(params=[Network, Plain])
def network(request: pytest.FixtureRequest) -> nn.Module:
    module: nn.Module = request.param()
    return module.eval().requires_grad_(False)


@pytest.mark.parametrize("backend", BOTH)
def test_one_engine_gives_eagers_outputs_at_every_size(
    fake: Fake, backend: Any, network: nn.Module, tmp_path: Path
) -> None:
    engine = build(backend, tmp_path, network)
    before, count = len(fake.ran), len(fake.engines)
    for rows in (4, 3, 5, 6, 8, 4):
        given = inputs(rows)
        for found, wanted in zip(call(engine, given), network(*given.values()), strict=True):
            torch.testing.assert_close(found, wanted)
    assert (len(fake.ran) - before, len(fake.engines) - count) == (6, 0)
    assert len(fake.asked) == 1
    proof = engine.prove()
    assert (proof.fell_back, proof.graphs, proof.facts["engines"]) == ("", 1, 1)


def test_the_library_is_given_the_profile_that_it_documents(fake: Fake, tmp_path: Path) -> None:
    build(ahead_of_time, tmp_path, Plain().eval().requires_grad_(False))
    (asked,) = fake.asked
    assert asked["arg_inputs"] == (
        Input((3, 16), (4, 16), (8, 16), torch.float32),
        Input((3,), (4,), (8,), torch.float32),
    )


def test_a_version_that_finds_no_range_is_refused(tmp_path: Path) -> None:
    with (
        pinned("2.11.0") as fake,
        pytest.raises(Unsupported, match=r"2\.11\.0 finds no range of sizes under torch.compile; use tensorrt-aot"),
    ):
        build(jit, tmp_path, Plain())
    assert fake.asked == []
