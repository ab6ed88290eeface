"""The three profiles that were published of Matrix-Game-2: their own figures give another conclusion than theirs."""

import pytest

from bakeoff.advice import advise
from bakeoff.advice.evidence import Evidence, OperationFact
from bakeoff.advice.published_tables import PublishedRun, solve
from bakeoff.models.errors import BakeoffError

ALL = PublishedRun(4, {"denoise": (1988.0, 0.9202), "vae_decode": (1178.0, 0.5454), "ctx_update": (637.559, 0.2951)})
DENOISE = PublishedRun(6, {"denoise": (2997.0, 2.6111)})
DENOISE_AND_DECODE = PublishedRun(6, {"denoise": (2961.0, 1.0363), "vae_decode": (1773.0, 0.6208)})
RUNS = (ALL, DENOISE, DENOISE_AND_DECODE)
SLOTS = {"denoise": "wm", "ctx_update": "wm", "vae_decode": "decoder"}
CONVOLUTION = OperationFact("aten::slow_conv_dilated3d", "vae_decode", 88, 975.228 / 4)


def facts() -> Evidence:
    phases = solve(RUNS, SLOTS)
    return Evidence(
        unit="block",
        unit_ms=sum(phase.ms for phase in phases),
        frames=12,
        frame_rate=25.0,
        phases=phases,
        glue_ms=0.0,
        copies_ms=0.0,
        unattributed_ms=0.0,
        copied_mib=0.0,
        busy_ms=sum(phase.busy_ms or 0.0 for phase in phases),
        kernels=(CONVOLUTION,),
    )


def test_the_printed_tables_give_the_kernels_of_each_phase() -> None:
    found = {phase.name: phase for phase in solve(RUNS, SLOTS)}
    busy = {name: phase.busy_ms for name, phase in found.items()}
    assert busy["denoise"] == pytest.approx(191.3, abs=0.1)
    assert busy["ctx_update"] == pytest.approx(63.9, abs=0.1)
    assert busy["vae_decode"] == pytest.approx(284.9, abs=0.1)
    shares = {name: 100 * (phase.busy_ms or 0.0) / phase.ms for name, phase in found.items()}
    assert shares == pytest.approx({"denoise": 38.5, "ctx_update": 40.1, "vae_decode": 96.7}, abs=0.2)


def test_a_pass_of_denoising_has_the_kernels_of_the_context_pass() -> None:
    """Three passes of the same network as one: a check of the solution that no table states."""
    found = {phase.name: phase.busy_ms or 0.0 for phase in solve(RUNS, SLOTS)}
    assert found["denoise"] / 3 == pytest.approx(found["ctx_update"], rel=0.005)


def test_the_advice_is_to_launch_faster_and_to_mend_the_convolution() -> None:
    found = advise(facts())
    assert [(one.code, one.where) for one in found[:3]] == [
        ("launch-bound", "denoise"),
        ("slow-kernel", "vae_decode"),
        ("launch-bound", "ctx_update"),
    ]
    gains = [one.gain_ms for one in found[:3]]
    assert gains == pytest.approx([305.7, 243.8, 95.5], abs=0.2)
    assert "slow_conv_dilated3d" in found[1].evidence


def test_the_decoder_is_not_launch_bound() -> None:
    assert not [one for one in advise(facts()) if (one.code, one.where) == ("launch-bound", "vae_decode")]


def test_tables_that_do_not_tell_phases_apart_are_refused() -> None:
    with pytest.raises(BakeoffError) as refused:
        solve((ALL, DENOISE), SLOTS)
    assert refused.value.code == "bad-trace"
