"""A loop with a mistake gives other values than the right one, in the places where the mistake is."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
import wrong_loops
from eager_loops import eager_runner, one_thread
from torch import Tensor

from bakeoff.models.pipelines import resolve_pipeline
from bakeoff.models.pipelines.owl import spec as owl
from bakeoff.models.pipelines.pipeline import Loop

UNITS = 2


@dataclass(frozen=True, slots=True)
class Case:
    mistake: str
    """Name of a pipeline in wrong_loops."""
    wrong: frozenset[str]
    """Values that differ after each unit that starts from the right state."""


CASES = (
    Case("TOY_NOT_SHIFTED", frozenset({"cache_k"})),
    Case("TOY_SHIFTED_BY_A_TOKEN", frozenset({"cache_k"})),
    Case("TOY_DECODES_THE_FRAME_BEFORE", frozenset({"video", "cache"})),
    Case("OWL_NOT_SHIFTED", frozenset({"cache_k.0"})),
    Case("OWL_SHIFTED_BY_A_TOKEN", frozenset({"cache_k.0"})),
    Case("OWL_STALE_LATENT", frozenset(f"cache_{kind}.{layer}" for kind in "kv" for layer in range(3))),
    Case("OWL_DECODES_THE_FRAME_BEFORE", frozenset({"image"})),
    Case("MATRIX_STALE_LATENT", frozenset({"self_k.0", "self_v.0", "self_k.2", "mouse_k.1"})),
    Case("MATRIX_DECODES_THE_BLOCK_BEFORE", frozenset({"video", "cache.00", "cache.31"})),
)


def _loop(pipeline: str) -> Loop:
    found = resolve_pipeline(pipeline)
    options = owl.Options(steps=2) if found.name == "owl" else found.options()
    return found.loop(found.preset("tiny"), options)


def _differing(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> set[str]:
    errors = {name: float((found[name] - one).norm() / one.norm()) for name, one in wanted.items()}
    return {name for name, error in errors.items() if error > 1e-3}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mistake)
def test_a_mistake_changes_what_it_is_about(case: Case) -> None:
    with one_thread():
        _compare(case)


def _compare(case: Case) -> None:
    right_loop = _loop(case.mistake.partition("_")[0].lower())
    wrong_loop = _loop(f"wrong_loops:{case.mistake}")
    assert wrong_loop.state == right_loop.state
    right, wrong = eager_runner(right_loop), eager_runner(wrong_loop)
    right.open()
    wrong.open()
    names = {*right_loop.state, *(output.name for output in right_loop.outputs)}
    for unit in range(UNITS):
        if unit:
            wrong.set_state(right.state(), unit)
        right.unit()
        wrong.unit()
        differing = _differing(wrong.values(names), right.values(names))
        assert case.wrong <= differing
        if "SHIFT" in case.mistake:
            assert differing == case.wrong


def test_every_mistake_is_tried() -> None:
    named = {name for name in vars(wrong_loops) if name.isupper() and "_" in name}
    assert named == {case.mistake for case in CASES}
