"""What owl's own loop could gain fires on its numbers and on nothing else."""

import pytest

from bakeoff.models.pipelines import own_gains
from bakeoff.models.pipelines.owl.advice import gains

CALM = {"denoise": (4, 60.0), "context": (1, 14.0), "audio": (1, 9.0)}
SIZES, CONFIG = {"audio window": 30}, {"n_layers": 4}


def found(
    phases: dict[str, tuple[int | None, float]],
    sizes: dict[str, int] = SIZES,
    config: dict[str, int] = CONFIG,
) -> dict[str, float]:
    return {code: gain_ms for code, _, gain_ms, _, _ in gains("frame", 100.0, {**CALM, **phases}, sizes, config)}


def test_a_window_that_is_decoded_for_its_last_latent() -> None:
    assert found({"audio": (1, 30.0)}) == {"audio-window": pytest.approx(29.0)}
    assert found({"audio": (1, 30.0)}, {"audio window": 1}) == {}
    assert found({"audio": (1, 10.0)}) == {}


def test_a_context_pass_that_computes_what_nothing_uses() -> None:
    assert found({"context": (1, 20.0)}) == {"context-head": pytest.approx(5.0)}
    assert found({"context": (1, 14.9)}) == {}
    assert found({"context": (1, 20.0)}, config={}) == {}
    assert found({"context": (None, 20.0)}) == {}


def test_a_loop_of_a_user_has_no_such_rules() -> None:
    assert own_gains("owl") is gains
    assert own_gains("matrix") is gains, "its context pass is the same"
    assert own_gains("mine.py:Loop") is own_gains("os") is None
