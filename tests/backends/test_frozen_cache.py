"""Frozen graphs in inductor's cache: a second process finds them, and no model ever gets code made for another."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="inductor is a part of torch")

import torch
from torch import nn
from toys import NEEDS_COMPILER

from bakeoff.backends import torch_internals
from bakeoff.backends.graphs import valued_hash
from bakeoff.backends.torch_internals import caches_frozen_graphs, frozen_graphs_cached

KNOWN = pytest.mark.skipif(not caches_frozen_graphs(), reason="another version of torch than the known one")
CHILD = Path(__file__).resolve().parents[1] / "support" / "frozen_builds.py"
BF16_ERROR = 0.01


def test_the_version_of_the_constraints_is_the_known_one() -> None:
    if torch.__version__.partition("+")[0] == torch_internals._FROZEN_GRAPHS_PIN[0]:
        assert caches_frozen_graphs()


def builds(folder: Path, *asked: str) -> list[dict[str, Any]]:
    """What a fresh process makes of `SEED:SIZE …`."""
    command = [sys.executable, "-P", str(CHILD), str(folder), *asked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


@KNOWN
@NEEDS_COMPILER
def test_a_fresh_process_loads_a_frozen_graph_only_for_the_same_weights(tmp_path: Path) -> None:
    """The second model differs in its weights alone, also in a scalar that inductor writes into the code."""
    cold, warm = (builds(tmp_path, "1:32", "2:32") for _ in range(2))
    assert [(one["hits"], one["miss"], one["bypass"]) for one in cold] == [(0, 1, 0)] * 2
    assert [(one["hits"], one["miss"], one["bypass"]) for one in warm] == [(1, 0, 0)] * 2
    assert [one["output"] for one in warm] == [one["output"] for one in cold]
    assert all(one["error"] < BF16_ERROR for one in (*cold, *warm))


def packed(rows: int = 16, dtype: torch.dtype = torch.float32, frozen: bool = True) -> torch.Tensor:
    made = torch.zeros(rows, 16, dtype=dtype).to_mkldnn()
    if frozen:
        made._is_frozen_param = True  # type: ignore[attr-defined]  # as torch/_inductor/freezing_utils.py does
    return made


def key(value: object) -> bytes:
    from torch._inductor.codecache import FxGraphCachePickler

    return FxGraphCachePickler(torch.fx.symbolic_trace(nn.Identity())).dumps(value)


def refusal(value: torch.Tensor) -> str:
    """Inductor's reason for not caching a graph with this constant; "" where it caches it."""
    from torch._inductor.codecache import BypassFxGraphCache, CacheabilityValidator

    reasons = []
    for ask in (CacheabilityValidator.check_tensor, key):
        try:
            ask(value)
        except BypassFxGraphCache as bypass:
            reasons.append(str(bypass))
    assert len(set(reasons)) <= 1
    return reasons[0] if reasons else ""


UPSTREAM = "mkldnn tensors unpickleable"


@KNOWN
class TestKeys:
    def test_packed_weights_are_known_by_shape_dtype_and_bytes(self) -> None:
        with frozen_graphs_cached("a"):
            keys = [key(one) for one in (packed(), packed(32), packed(dtype=torch.bfloat16))]
            assert len(set(keys)) == 3
            assert key(packed()) == keys[0]

    def test_packed_constants_that_are_no_weights_are_refused_as_before(self) -> None:
        with frozen_graphs_cached("a"):
            assert refusal(packed()) == ""
            assert refusal(packed(frozen=False)) == UPSTREAM

    def test_nothing_stays_changed(self) -> None:
        with pytest.raises(ZeroDivisionError), frozen_graphs_cached("a"):
            _ = 1 / 0
        assert refusal(packed()) == UPSTREAM
        assert torch.compiler.config.cache_key_tag == ""

    def test_the_tag_holds_the_values_the_instruction_set_and_the_users_own_tag(self) -> None:
        with torch.compiler.config.patch(cache_key_tag="mine"):
            with frozen_graphs_cached("values"):
                tag = torch.compiler.config.cache_key_tag.split()
            assert torch.compiler.config.cache_key_tag == "mine"
        assert tag[:2] == ["mine", "values"]
        assert " ".join(tag[2:]) == torch.backends.cpu.get_cpu_capability()


@pytest.mark.parametrize("pin", [("2.12.9", None), (None, "0" * 16)])
def test_an_unknown_version_of_torch_is_left_as_it_is(
    pin: tuple[str | None, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    version, files = torch_internals._FROZEN_GRAPHS_PIN
    monkeypatch.setattr(torch_internals, "_FROZEN_GRAPHS_PIN", (pin[0] or version, pin[1] or files))
    assert not caches_frozen_graphs()
    with frozen_graphs_cached("a"):
        assert torch.compiler.config.cache_key_tag == ""
        from torch._inductor.codecache import BypassFxGraphCache, FxGraphCachePickler

        with pytest.raises(BypassFxGraphCache):
            FxGraphCachePickler(torch.fx.symbolic_trace(nn.Identity()))._reduce_tensor(packed())


class Folding(nn.Module):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.factor = nn.Parameter(torch.randn(3, 3).bfloat16()), factor
        self.register_buffer("large", torch.tensor([2**53, 7]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.weight * self.factor) + self.large.sum()


def hashed(module: Folding) -> str:
    return valued_hash(torch.fx.symbolic_trace(module))


def test_the_hash_of_a_graph_with_its_values_tells_one_bit_apart() -> None:
    wanted = hashed(Folding())
    assert hashed(Folding()) == wanted
    assert hashed(Folding(3.0)) != wanted
    one_bit = Folding()
    one_bit.weight.data.view(torch.int16)[2, 2] ^= 1
    assert hashed(one_bit) != wanted
    large = Folding()
    large.large[0] += 1
    assert hashed(large) != wanted
