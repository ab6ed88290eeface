"""Engines that would win a race without computing, or spoil their rivals' times: each is found out in the race."""

import pytest
from lab import Recorder, marked_folder, plan_of

from bakeoff.machine import paths
from bakeoff.record.verdict import verdict_of
from bakeoff.sweeps.compare import compare

pytestmark = pytest.mark.timeout(600)

FOUND = {
    "STILL_025": "memoised",
    "RACES_BY_CONTENT": "memoised",
    "RACES_BY_BINDING": "parity_failed",
    "ALL_SETS": "memoised",
    "LEAKS": "leak",
    "SLOW_CLOCK": "clock-span",
    "DISTURBS": "not-idle",
    "eager": "ok",
}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("STILL_025", "LEAKS"),
        ("RACES_BY_CONTENT", "ALL_SETS"),
        ("RACES_BY_BINDING", "SLOW_CLOCK"),
        ("DISTURBS", "eager"),
    ],
)
def test_a_side_that_does_not_compute_leaves_no_verdict(one: str, other: str, tmp_path: object) -> None:
    names = [name if name == "eager" else f"racers:{name}" for name in (one, other)]
    progress = Recorder()
    with marked_folder(tmp_path):  # type: ignore[arg-type]
        found = compare(plan_of(*names, final_s=3.0), paths.runs_folder(), "", progress, seed=5).record
    assert verdict_of(found) is None
    for name, side in zip((one, other), found.sides, strict=True):
        made = side.measurement
        codes = [finding.code for finding in made.findings]
        assert FOUND[name] in (made.status, *codes), (name, made.status, made.reason, codes)
        assert made.window_checks is not None
        assert made.window_checks.changed >= 1, "inputs change within the race"
    assert {entry.pair for entry in found.rounds} == {0}, "no more pairs are measured"
