"""Which records predict a mix, and which mix they call the best."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lab import Recorder, describe_here
from program_records import COMPILED, COMPONENT, EAGER, INSTRUMENT, PICTURE, QUANTISED, of_backend, own
from records import measurement, record

from bakeoff.machine import host
from bakeoff.machine.identity import this_machine
from bakeoff.mix import SlotChoice
from bakeoff.models import resolve_component
from bakeoff.models.pipelines.pipeline import Key, Slot
from bakeoff.pipeline.forecast import forecasts, promised
from bakeoff.pipeline.parts import same_program
from bakeoff.pipeline.plan import PipelinePlan, estimate, make_pipeline_plan, no_records
from bakeoff.pipeline.request import PipelineRequest
from bakeoff.plan.request import Request
from bakeoff.record.forecast import BETWEEN
from bakeoff.record.schema import Record, Samples, Source
from bakeoff.record.store import Stored, save
from bakeoff.report.pages.plan import of_pipeline
from bakeoff.report.render import terminal
from bakeoff.variant import BackendUse


@pytest.fixture(autouse=True)
def _described(monkeypatch: pytest.MonkeyPatch) -> None:
    describe_here(monkeypatch)


def plan(folder: Path, records: Sequence[Record], *mixes: str) -> PipelinePlan:
    for number, entry in enumerate(records):
        save(folder / "runs", replace(entry, created=f"2026-01-02T03:04:{number:02}.000000Z"))
    request = PipelineRequest("loops:Small", mixes=mixes, device="cpu", threads=1)
    return make_pipeline_plan(request, folder / "runs", Recorder())


def wm_of(made: PipelinePlan, role: str) -> str:
    (mix,) = [mix for mix in made.mixes if mix.role == role]
    return str(mix.mix.slots[0])


def test_the_fastest_ok_records_of_this_machine_and_code_are_the_best(tmp_path: Path) -> None:
    records = [own(EAGER, 3.0), own(COMPILED, 1.0), own(PICTURE, 2.0)]
    made = plan(tmp_path, records)
    assert [mix.role for mix in made.mixes] == ["eager", "best"]
    assert str(made.mixes[1].mix) == "small:tiny/wm=inductor[freezing]/bf16,image=eager/fp32@cpu"
    eager, best = estimate(made, tmp_path / "runs")["mixes"]
    assert (eager["promised_ms"], best["promised_ms"]) == (8.0, 4.0)
    assert best["seconds_from"] == "parts"
    assert list(best["parts"]) == ["wm.world", "image.picture"]
    assert "promised 4.000 ms" in terminal.render(of_pipeline(estimate(made, tmp_path / "runs")))


@pytest.mark.parametrize(
    "other",
    [
        {"threads": 2},
        {"batch": 2},
        {"weight_seed": 1},
        {"config": {"width": 64, "length": 16}},
        {"checkpoint": "w.safetensors, sha256 0123456789ab"},
        {"versions": {**host.read_versions(), "torch": "1.0"}},
        {"machine": replace(this_machine("cpu"), machine_class="another")},
        {"machine": replace(this_machine("cpu"), machine_class="")},
        {"machine": replace(this_machine("cpu"), id="another")},
        {"source": Source("other", (), INSTRUMENT)},
        {"source": Source(COMPONENT, (), "other")},
        {"source": Source(COMPONENT, (replace(of_backend("inductor"), hash="x"),), INSTRUMENT)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_record_of_something_else_does_not_count(other: dict[str, Any], tmp_path: Path) -> None:
    made = plan(tmp_path, [own(EAGER, 3.0), own(COMPILED, 1.0, **other), own(PICTURE, 2.0)], "best", COMPILED_SLOT)
    assert wm_of(made, "best") == "wm=eager/fp32"
    assert ("wm", "world") not in made.mixes[1].parts


COMPILED_SLOT = "wm=inductor[freezing]/bf16"


def test_records_of_one_other_host_of_the_class_count_where_this_one_has_none(tmp_path: Path) -> None:
    """Of the one that measured last: rows of two hosts are never ranked."""
    first, last = (replace(this_machine("cpu"), id=name) for name in ("first", "last"))
    records = [own(EAGER, 3.0, machine=last), own(COMPILED, 1.0, machine=first), own(PICTURE, 2.0, machine=last)]
    made = plan(tmp_path, records, "best", COMPILED_SLOT)
    assert wm_of(made, "best") == "wm=eager/fp32"
    assert ("wm", "world") not in made.mixes[1].parts


def test_the_version_of_this_project_alone_does_not_matter(tmp_path: Path) -> None:
    versions = {**host.read_versions(), "bakeoff": "0.0.1"}
    made = plan(tmp_path, [own(EAGER, 3.0), own(COMPILED, 1.0, versions=versions), own(PICTURE, 2.0)], "best")
    assert wm_of(made, "best") == COMPILED_SLOT


def test_an_unstable_record_does_not_replace_an_ok_one_but_a_failure_does(tmp_path: Path) -> None:
    records = [own(EAGER, 3.0), own(COMPILED, 1.0), own(PICTURE, 2.0)]
    made = plan(tmp_path, [*records, own(COMPILED, 9.0, "unstable")], "best")
    assert wm_of(made, "best") == COMPILED_SLOT
    made = plan(tmp_path / "other", [*records, own(COMPILED, 1.0, "parity_failed")], "best")
    assert wm_of(made, "best") == "wm=eager/fp32"


def test_best_full_has_no_quantised_slots(tmp_path: Path) -> None:
    records = [own(EAGER, 3.0), own(QUANTISED, 1.0, quantisation="dynamic"), own(PICTURE, 2.0)]
    made = plan(tmp_path, records, "best", "best-full")
    assert wm_of(made, "best") == "wm=int8+inductor/bf16"
    assert wm_of(made, "best-full") == "wm=eager/fp32"


def test_a_slot_without_records_is_named(tmp_path: Path) -> None:
    made = plan(tmp_path, [own(EAGER, 3.0)])
    assert [mix.role for mix in made.mixes] == ["eager"]
    assert made.notes[0].endswith(
        "for image; run: bakeoff sweep toy --preset tiny --workload picture --device cpu --threads 1"
    )


def test_one_module_that_lacks_records_is_swept_by_itself_and_all_together() -> None:
    def of(slot: str) -> dict[str, Any]:
        request = Request(f"/cache/mine.{slot}", presets=("live",), device="cpu")
        return {"call": SimpleNamespace(request=request, component=SimpleNamespace(name=f"mine.{slot}"))}

    slots = [Slot(name, f"/cache/mine.{name}", "live", users=True) for name in ("denoiser", "decoder")]
    loop = SimpleNamespace(typed="mine.py:Loop", slots=slots)
    made: Any = SimpleNamespace(loop=loop, of=of, parts_of=lambda _slot: {})
    one = "for decoder; run: bakeoff sweep mine.decoder --preset live --workload call --device cpu"
    assert no_records(made, {"decoder": ()}).endswith(one)
    every = no_records(made, {"denoiser": (), "decoder": ()})
    assert every.endswith("for denoiser, decoder; run: bakeoff sweep mine.py:Loop")


def test_a_mix_that_no_record_predicts_says_once_what_is_there_and_what_to_sweep(tmp_path: Path) -> None:
    made = plan(tmp_path, [own(EAGER, 3.0, "unstable"), own(PICTURE, 2.0)], "eager", "image=eager/bf16")
    (note,) = made.notes
    assert note.startswith("no promise of a unit's time: no ok records of this machine and code for wm, image")
    assert "(unstable ones do not count); run: bakeoff sweep toy --preset tiny --workload world" in note


class TestChoices:
    """Two ways, `eager` and `inductor`, of filling one slot with several programs."""

    def test_calls_weigh_the_programs(self) -> None:
        parts = {"step": {"eager": 10.0, "inductor": 11.0}, "append": {"eager": 30.0, "inductor": 5.0}}
        assert found(parts, step=2, append=1) == {"eager": 50.0, "inductor": 27.0}
        assert found(parts, step=40, append=1) == {"eager": 430.0, "inductor": 445.0}

    def test_a_choice_has_a_record_of_each_program_that_any_choice_has_one_of(self) -> None:
        parts = {"step": {"eager": 10.0, "inductor": 11.0}, "append": {"inductor": 5.0}}
        assert found(parts, step=20, append=1) == {"inductor": 225.0}
        assert found({"step": {"eager": 10.0}, "append": {}}, step=20, append=1) == {"eager": 200.0}

    def test_a_mix_is_promised_only_if_each_of_its_calls_has_a_record(self) -> None:
        assert promised(made({"step": {"eager": 10.0}, "append": {}}, step=2, append=1), [way("eager")]) is None
        assert promised(made({"step": {"eager": 10.0}}, step=2), [way("inductor")]) is None
        whole = promised(made({"step": {"eager": 10.0}, "append": {"eager": 5.0}}, step=2, append=1), [way("eager")])
        assert whole is not None
        assert (whole.ms, whole.parts_ms, whole.interval) == (25.0, {"wm": 25.0}, (25 / 1.1, 25 * 1.1))

    def test_a_choice_that_failed_in_any_program_is_none(self) -> None:
        plan = made({"step": {"eager": 10.0, "inductor": 11.0}, "prime": {"inductor": 1.0}}, step=20)
        crashed = Stored("x", record(made=measurement(status="crashed")))
        plan.parts_of("wm")["prime"][way("eager")] = crashed
        assert [*forecasts(plan, "wm")] == [way("inductor")]

    def test_means_are_promised_and_the_time_between_programs_by_how_engines_are_fed(self) -> None:
        plan = made({"step": {"eager": 0.0, "openvino": 0.0}}, step=2)
        for name in ("eager", "openvino"):
            plan.parts_of("wm")["step"][way(name)] = Stored("x", record(samples_ms=[1.0, 1.0, 4.0]))
        plan.loop.between_ns = {"passed": 3_000_000, "bound": 6_000_000}
        plan.loop.calls = lambda: {Key("wm", "step"): 2, Key("image", "picture"): 1}
        by_way = forecasts(plan, "wm")
        assert by_way[way("eager")].parts_ms == {"wm": pytest.approx(4.0), BETWEEN: pytest.approx(2.0)}
        assert by_way[way("openvino")].ms == pytest.approx(8.0)
        assert forecasts(plan, "wm", means=False)[way("eager")].ms == pytest.approx(4.0)

    def test_calls_that_were_timed_in_a_loop_are_promised(self) -> None:
        plan = made({"step": {"eager": 1.0}}, step=2)
        alone = plan.parts_of("wm")["step"][way("eager")].record
        kept = replace(alone, measurement=replace(alone.measurement, in_loop_ns=Samples([1_500_000, 2_500_000])))
        plan.parts_of("wm")["step"][way("eager")] = Stored("x", kept)
        assert forecasts(plan, "wm")[way("eager")].ms == pytest.approx(4.0)
        assert forecasts(plan, "wm", in_loop=False)[way("eager")].ms == pytest.approx(2.0)


def made(medians_ms: Mapping[str, Mapping[str, float]], **calls: int) -> Any:
    """A plan whose one slot has these records, by program and backend."""
    parts = {
        program: {way(name): Stored("x", record(samples_ms=[ms] * 3)) for name, ms in known.items() if ms}
        for program, known in medians_ms.items()
    }
    counts = {Key("wm", program): count for program, count in calls.items()}
    loop = SimpleNamespace(calls=lambda: counts, slots=[SimpleNamespace(name="wm")], between_ns={})
    return SimpleNamespace(loop=loop, parts_of=lambda _slot: parts, spread=0.1)


def found(medians_ms: Mapping[str, Mapping[str, float]], **calls: int) -> dict[str, float]:
    """What is promised of each way of filling the slot, in ms, by the name of its backend."""
    return {choice.backend: each.ms for choice, each in forecasts(made(medians_ms, **calls), "wm").items()}


def way(name: str) -> SlotChoice:
    return SlotChoice("wm", (BackendUse(name),), "fp32")


def test_a_workload_with_another_name_is_the_same_program_where_its_spec_is() -> None:
    wm = resolve_component("wm")
    config = wm.preset("200m").config
    assert same_program(wm, config, "step", "step29", 1)
    assert same_program(wm, config, "append", "append29", 1)
    assert not same_program(wm, config, "step", "step28", 1)
    assert not same_program(wm, config, "step", "append", 1)
    assert not same_program(wm, config, "step0", "step29", 1), "a name that it does not have"
