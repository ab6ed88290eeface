"""What owl's own loop could gain fires on its numbers and on nothing else."""

import pytest

from bakeoff.models.pipelines import own_gains
from bakeoff.models.pipelines.owl.advice import gains


@pytest.mark.parametrize(("audio_ms", "window", "gain_ms"), [(30.0, 30, [29.0]), (30.0, 1, []), (10.0, 30, [])])
def test_a_window_that_is_decoded_for_its_last_latent(audio_ms: float, window: int, gain_ms: list[float]) -> None:
    found = list(gains("frame", 100.0, {"denoise": 60.0, "audio": audio_ms}, {"audio window": window}))
    assert [(one[0], one[2]) for one in found] == [("audio-window", pytest.approx(gain)) for gain in gain_ms]


def test_a_loop_of_a_user_has_no_such_rules() -> None:
    assert own_gains("owl") is gains
    assert own_gains("matrix") is own_gains("mine.py:Loop") is own_gains("os") is None
