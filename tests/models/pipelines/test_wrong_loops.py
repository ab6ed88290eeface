"""A loop with a mistake gives other values than the right one, in the places where the mistake is."""

from collections.abc import Mapping
from typing import Any

import pytest
from eager_loops import eager_runner, made_by
from mixes import loop_of
from torch import Tensor

UNITS = 2
CASES = {
    "TOY_NOT_SHIFTED": {"cache_k"},
    "TOY_SHIFTED_BY_A_TOKEN": {"cache_k"},
    "TOY_STALE_LATENT": {"x", "video", "cache_k", "cache_v", "cache"},
    "TOY_DECODES_THE_FRAME_BEFORE": {"video", "cache"},
    "OWL_NOT_SHIFTED": {"cache_k.0"},
    "OWL_SHIFTED_BY_A_TOKEN": {"cache_k.0"},
    "OWL_STALE_LATENT": {f"cache_{kind}.{layer}" for kind in "kv" for layer in range(3)},
    "OWL_DECODES_THE_FRAME_BEFORE": {"image"},
    "MATRIX_STALE_LATENT": {f"history/{name}" for name in ("self_k.0", "self_v.0", "self_k.2", "mouse_k.1")},
    "MATRIX_DECODES_THE_BLOCK_BEFORE": {"video", "cache.00", "cache.31"},
}
"""Of each mistake, values that differ after each unit that starts from the right state."""


def _differing(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> set[str]:
    errors = {name: float((found[name] - one).norm() / one.norm()) for name, one in wanted.items()}
    return {name for name, error in errors.items() if error > 1e-3}


@pytest.mark.parametrize("mistake", CASES)
def test_a_mistake_changes_what_it_is_about(mistake: str) -> None:
    name = mistake.partition("_")[0].lower()
    options: dict[str, Any] = {"steps": 2} if name == "owl" else {}
    reference = "toy_loops:Toy" if name == "toy" else name
    loop = loop_of(reference, **options)
    right, wrong = eager_runner(reference, loop), eager_runner(f"wrong_loops:{mistake}", loop)
    right.open()
    wrong.open()
    for unit in range(UNITS):
        if unit:
            wrong.set_state(right.state(), unit)
        right.unit()
        wrong.unit()
        differing = _differing(made_by(wrong), made_by(right))
        assert differing >= CASES[mistake]
        if "MATRIX" not in mistake:
            assert differing == CASES[mistake]
