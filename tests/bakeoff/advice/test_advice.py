"""Each rule fires on its numbers and on nothing else."""

from dataclasses import replace
from typing import Any

import pytest
from answers import present
from pipeline_records import MACHINE, TIMES_MS
from profile_records import NO_RECORDS, on_cpu, on_gpu, profiled, stored
from records import record

from bakeoff.advice.evidence import Advice, Evidence, FloorFact, PhaseFact, RivalFact, evidence_of
from bakeoff.advice.rules import RULES, advise
from bakeoff.record.schema import Record, Source
from bakeoff.record.store import Records, Stored
from bakeoff.trace.table import RankedRow

CALM = Evidence(
    unit="frame",
    unit_ms=100.0,
    frames=1,
    frame_rate=0.0,
    phases=(
        PhaseFact("denoise", 60.0, 59.0, 1.0, 400.0),
        PhaseFact("context", 14.0, 13.0, 0.5, 100.0),
        PhaseFact("audio", 9.0, 9.0, 0.0, 10.0),
    ),
    glue_ms=3.0,
    unattributed_ms=1.0,
    copied_mib=4.0,
    busy_ms=95.0,
)
"""A unit of which nothing is worth a word."""


def only(facts: Evidence) -> Advice:
    (found,) = advise(facts)
    return found


def phase(name: str, **changes: object) -> tuple[PhaseFact, ...]:
    return tuple(replace(one, **changes) if one.name == name else one for one in CALM.phases)  # type: ignore[arg-type]


CASES = {
    "launch-bound": (replace(CALM, phases=phase("denoise", busy_ms=20.0, host_wait_ms=38.0)), 38.0),
    "slow-kernel": (replace(CALM, ran=(RankedRow("vol2col_kernel<half>", "denoise", 8, 30.0, 1_000),)), 30.0),
    "better-variant": (
        replace(CALM, rivals=(RivalFact("wm", "eager/fp32", "aoti/fp32", 60.0, 24.0, ("a",)),)),
        36.0,
    ),
    "far-from-floor": (replace(CALM, floors=(FloorFact("wm.step", 60.0, 12.0, "traffic", "a"),)), 48.0),
    "copies": (replace(CALM, ran=(RankedRow("Memcpy DtoD", "copies", 8, 15.0, 1_000),)), 15.0),
    "sync-inside": (replace(CALM, waits=(RankedRow("cudaStreamSynchronize", "denoise", 3, 9.0, 1_000),)), 9.0),
    "glue": (replace(CALM, glue_ms=14.0), 15.0),
    "audio-window": (replace(CALM, own_gains=(("audio-window", "audio", 29.0, "of 30 ms", "decode less"),)), 29.0),
    "compiling": (replace(CALM, compiled="1 event of a compiler"), None),
    "trend": (replace(CALM, slope_ms=(1.0, 0.8, 1.2), steady_units=20), None),
    "too-slow": (replace(CALM, frame_rate=25.0), None),
    "vram": (replace(CALM, memory=(0.95, "95% of it")), None),
    "throttled": (replace(CALM, device_findings=(("throttled", "1,200 of 1,980 MHz for 30 %"),)), None),
    "contention": (replace(CALM, device_findings=(("contention", "20 % of the CPU"),)), None),
}


@pytest.mark.parametrize("code", CASES)
def test_a_rule_fires_on_its_numbers_with_the_most_it_can_gain(code: str) -> None:
    facts, gain = CASES[code]
    found = only(facts)
    assert found.code == code
    assert found.gain_ms == (None if gain is None else pytest.approx(gain))
    assert any(map(str.isdigit, found.evidence)), "nothing fires without a number"
    assert found.says


def test_every_rule_has_a_case() -> None:
    fired = {one.code for facts, _ in CASES.values() for one in advise(facts)}
    assert len(RULES) == len(fired) == len(CASES)


NEAR = {
    "launch-bound": replace(CALM, phases=phase("denoise", host_wait_ms=10.0)),
    "slow-kernel": replace(CALM, ran=(RankedRow("vol2col", "denoise", 8, 4.7, 1_000),)),
    "better-variant": replace(CALM, rivals=(RivalFact("wm", "eager/fp32", "aoti/fp32", 60.0, 56.0, ()),)),
    "far-from-floor": replace(CALM, floors=(FloorFact("wm.step", 60.0, 18.0, "traffic", "a"),)),
    "copies": replace(CALM, ran=(RankedRow("Memcpy DtoD", "copies", 8, 9.5, 1_000),)),
    "sync-inside": replace(CALM, waits=(RankedRow("cudaDeviceSynchronize", "unattributed", 1, 90.0, 1_000),)),
    "glue": replace(CALM, glue_ms=9.0),
    "trend": replace(CALM, slope_ms=(1.0, -0.1, 2.0), steady_units=20),
    "too-slow": replace(CALM, frame_rate=10.0),
    "vram": replace(CALM, memory=(0.9, "90% of it")),
}


@pytest.mark.parametrize("code", NEAR)
def test_no_rule_fires_just_below_its_limit(code: str) -> None:
    assert code not in {one.code for one in advise(NEAR[code])}


def test_a_power_limit_and_growing_memory_have_advice_of_their_own() -> None:
    for code, word in (("power-cap", "power limit"), ("memory-grows", "free what")):
        found = only(replace(CALM, device_findings=((code, "1 of 2"),)))
        assert (found.code, word in found.says) == (code, True)


def test_units_that_became_slower_on_a_disturbed_machine_are_not_said_to_leak() -> None:
    slower = replace(CALM, slope_ms=(1.0, 0.8, 1.2), steady_units=20)
    assert "memory" in only(slower).says
    disturbed = replace(slower, device_findings=(("contention", "20 % of the CPU"),))
    (trend,) = [one for one in advise(disturbed) if one.code == "trend"]
    assert trend.evidence.endswith("20 % of the CPU")
    assert "memory" not in trend.says


def test_the_largest_gain_comes_first_and_what_has_none_last() -> None:
    facts = replace(
        CALM,
        phases=phase("denoise", host_wait_ms=20.0),
        glue_ms=29.0,
        memory=(0.99, "99% of it"),
        rivals=(RivalFact("wm", "eager/fp32", "aoti/fp32", 60.0, 35.0, ("a",)),),
    )
    assert [one.code for one in advise(facts)] == ["glue", "better-variant", "launch-bound", "vram"]
    assert [one.strength for one in advise(facts)] == ["strong"] * 4


def test_evidence_of_a_record_is_what_its_table_says() -> None:
    facts = present(evidence_of(stored(profiled(on_gpu())), NO_RECORDS))
    by_name = {one.name: one for one in facts.phases}
    assert by_name["denoise"].busy_ms == pytest.approx(20.0)
    assert by_name["denoise"].host_wait_ms == pytest.approx((by_name["denoise"].ms - 20.0) * 70 / 80)
    assert by_name["denoise"].launches == 10
    assert (facts.frames, facts.steady_units) == (1, 20)
    assert facts.slope_ms is not None
    assert facts.slope_ms[0] == pytest.approx(0.1)
    codes = [one.code for one in advise(facts)]
    assert codes[:2] == ["launch-bound", "slow-kernel"]
    assert "sync-inside" in codes


def test_on_a_cpu_no_one_waits_for_launches() -> None:
    facts = present(evidence_of(stored(profiled(on_cpu())), NO_RECORDS))
    product = facts.ran[0]
    (denoise,) = [one for one in facts.phases if one.name == "denoise"]
    assert product.ms == pytest.approx(80.0 * denoise.ms / (2 * TIMES_MS["denoise"])), "traced, it took twice as long"
    assert "launch-bound" not in {one.code for one in advise(facts)}


SOURCE = Source("component", (), "instrument")


def rivals(*others: Record) -> list[tuple[str, str]]:
    """The slots and the better variants of a run of eager whose `step29` is predicted by a record of `step`."""
    made = profiled(on_cpu())
    wm, image = made.measurement.programs
    wm = replace(wm, variant=replace(wm.variant, workload="step29"), source=SOURCE, part="own")
    kept = replace(made.measurement, programs=(wm, image))
    calls = {**made.calls, "wm.step29": made.calls["wm.step"]}
    own = Stored("own", of_step("eager", 30.0))
    known = Records((own, *(Stored(f"other-{number}", other) for number, other in enumerate(others))), (), ())
    facts = present(evidence_of(stored(replace(made, measurement=kept, calls=calls, machine=MACHINE)), known))
    return [(one.slot, one.rival) for one in facts.rivals]


def of_step(backend: str, ms: float, **changes: Any) -> Record:
    base = record(backend, [ms, ms * 1.001, ms * 0.999] * 10)
    variant = replace(base.variant, component="wm", preset="200m", workload="step")
    return replace(replace(base, variant=variant, machine=MACHINE, source=SOURCE), **changes)


def test_a_better_variant_is_one_of_the_same_program_code_libraries_and_weights() -> None:
    assert rivals(of_step("aoti", 10.0)) == [("wm", "aoti/fp32")]
    assert rivals(of_step("aoti", 29.9)) == [], "not by more than 2 %"
    assert rivals(of_step("aoti", 10.0, versions={"torch": "2.12.0"})) == []
    assert rivals(of_step("aoti", 10.0, weight_seed=1)) == []
    assert rivals(of_step("aoti", 10.0, quantisation="dynamic")) == [], "of another class of precision"
    assert rivals(of_step("aoti", 10.0, source=replace(SOURCE, instrument="other"))) == []
