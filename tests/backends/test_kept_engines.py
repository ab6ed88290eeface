"""A backend's engine is opened as an earlier build kept it, with the same outputs and proof, and else built."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="engines are opened by a worker")

import torch
from torch import Tensor
from toys import LIBRARY_WARNINGS, NEEDS_COMPILER, Toy, build_toy

from bakeoff.backends.backend import Proof

pytestmark = [LIBRARY_WARNINGS, NEEDS_COMPILER]


@dataclass(frozen=True)
class Kept:
    """A folder in which an engine was kept, and the build that did so."""

    folder: Path
    build: Callable[..., Toy]
    first: Toy


@pytest.fixture(scope="module", params=["aoti", "openvino", "onnxruntime", "onnxruntime[int8=true]"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    folder = tmp_path_factory.mktemp("kept")
    (folder / "cache").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
        build = partial(build_toy, f"world/{request.param}/fp32", folder)
        yield Kept(folder / "cache", build, build(engine="key"))


def outputs(toy: Toy) -> list[Tensor]:
    return [output.clone() for call in toy.built.calls for output in call()]


def proof(toy: Toy) -> Proof:
    """Without what tells where files came from."""
    found = toy.built.engine.prove()
    facts = {name: value for name, value in found.facts.items() if not name.endswith("from_cache")}
    return replace(found, facts=facts, artifact_bytes=None)


def test_an_opened_engine_is_the_one_that_was_built(kept: Kept) -> None:
    opened = kept.build(engine="key", opens=True)
    assert (kept.first.built.cost.cache != "stored", opened.built.cost.cache) == (True, "stored")
    assert all(map(torch.equal, outputs(kept.first), outputs(opened)))
    assert proof(opened) == proof(kept.first)
    assert not proof(opened).fell_back


CHANGES = [{"opens": False}, {"engine": ""}, {"engine": "other"}, {"seed": 1}, {"trace": True}]


@pytest.mark.parametrize("kept", ["openvino"], indirect=True)
@pytest.mark.parametrize("change", CHANGES)
def test_an_engine_is_built_where_anything_differs(kept: Kept, change: dict[str, Any]) -> None:
    assert kept.build(**({"engine": "key", "opens": True} | change)).built.cost.cache != "stored"


def test_an_engine_whose_files_are_damaged_is_built(kept: Kept) -> None:
    for pattern in ("*.pt2", "*.blob", "onnx-*/*.onnx"):
        for file in kept.folder.glob(pattern):
            file.write_bytes(file.read_bytes()[:100])
    again = kept.build(engine="key", opens=True)
    assert again.built.cost.cache != "stored"
    assert all(map(torch.equal, outputs(kept.first), outputs(again)))
