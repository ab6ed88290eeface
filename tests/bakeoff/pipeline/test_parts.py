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
from bakeoff.mix import SlotChoice, parse_slots
from bakeoff.models import resolve_component
from bakeoff.models.pipelines.pipeline import Slot
from bakeoff.pipeline.parts import Part, best_choice, same_program
from bakeoff.pipeline.plan import PipelinePlan, estimate, make_pipeline_plan, no_records
from bakeoff.pipeline.request import PipelineRequest
from bakeoff.plan.request import Request
from bakeoff.record.schema import Record, Source
from bakeoff.record.store import save
from bakeoff.report.pages.plan import of_pipeline
from bakeoff.report.render import terminal
from bakeoff.variant import BackendUse, Variant


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
    assert (eager["predicted_unit_ms"], best["predicted_unit_ms"]) == (8.0, 4.0)
    assert best["seconds_from"] == "parts"
    assert list(best["parts"]) == ["wm.world", "image.picture"]
    assert "by its parts 4.0 ms" in terminal.render(of_pipeline(estimate(made, tmp_path / "runs")))


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


def test_the_newest_record_of_a_variant_counts(tmp_path: Path) -> None:
    made = plan(tmp_path, [own(COMPILED, 1.0), own(EAGER, 3.0), own(PICTURE, 2.0), own(COMPILED, 4.0)], "best")
    assert wm_of(made, "best") == "wm=eager/fp32"


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


def test_that_unstable_records_do_not_count_is_said(tmp_path: Path) -> None:
    made = plan(tmp_path, [own(EAGER, 3.0), own(PICTURE, 2.0, "unstable")])
    assert "for image (unstable ones do not count); run: " in made.notes[0]


def test_a_mix_that_no_record_predicts_says_once_what_is_there_and_what_to_sweep(tmp_path: Path) -> None:
    made = plan(tmp_path, [own(EAGER, 3.0, "unstable"), own(PICTURE, 2.0)], "eager", "image=eager/bf16")
    (note,) = made.notes
    assert note.startswith("no prediction of a unit's time: no ok records of this machine and code for wm, image")
    assert "(unstable ones do not count); run: bakeoff sweep toy --preset tiny --workload world" in note


class TestBestWay:
    def parts(self, **medians_ms: Mapping[str, float]) -> dict[str, dict[SlotChoice, Part]]:
        """Of each program, the medians of ways by the names of their backends."""
        return {program: {way(name): part(ms) for name, ms in found.items()} for program, found in medians_ms.items()}

    def test_calls_weigh_the_programs(self) -> None:
        parts = self.parts(step={"a": 10.0, "b": 11.0}, append={"a": 30.0, "b": 5.0})
        assert best_choice(parts, {"step": 2, "append": 1}, True) == (way("b"), ("step", "append"))
        assert best_choice(parts, {"step": 40, "append": 1}, True) == (way("a"), ("step", "append"))

    def test_where_a_way_lacks_a_program_those_that_all_have_decide(self) -> None:
        parts = self.parts(step={"a": 10.0, "b": 11.0}, append={"b": 5.0})
        assert best_choice(parts, {"step": 20, "append": 1}, True) == (way("a"), ("step",))

    def test_a_way_without_the_main_program_is_none(self) -> None:
        parts = self.parts(step={"a": 10.0}, append={"a": 9.0, "b": 0.1})
        assert best_choice(parts, {"step": 20, "append": 1}, True) == (way("a"), ("step", "append"))

    def test_a_way_that_failed_in_any_program_is_none(self) -> None:
        parts = self.parts(step={"a": 10.0, "b": 11.0}, prime={"b": 1.0})
        parts["prime"][way("a")] = Part("x", record(made=measurement(status="crashed")))
        assert best_choice(parts, {"step": 20}, True) == (way("b"), ("step",))

    def test_nothing_is_known(self) -> None:
        assert best_choice({"step": {}}, {"step": 20}, True) is None
        assert best_choice(self.parts(prime={"a": 1.0}), {"step": 20}, True) is None


def way(name: str) -> SlotChoice:
    return SlotChoice("wm", (BackendUse(name),), "fp32")


def part(ms: float) -> Part:
    return Part("x", record(samples_ms=[ms] * 3))


def test_a_workload_with_another_name_is_the_same_program_where_its_spec_is() -> None:
    wm = resolve_component("wm")
    config = wm.preset("200m").config
    assert same_program(wm, config, "step", "step29", 1)
    assert same_program(wm, config, "append", "append29", 1)
    assert not same_program(wm, config, "step", "step28", 1)
    assert not same_program(wm, config, "step", "append", 1)
    assert not same_program(wm, config, "step0", "step29", 1), "a name that it does not have"


def test_a_record_under_another_name_is_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import bakeoff.pipeline.parts as parts

    monkeypatch.setattr(parts, "same_program", lambda _component, _config, one, other, _batch: {one, other} <= SAME)
    made = plan(tmp_path, [own("toy:tiny.sound/eager/fp32@cpu", 3.0), own(PICTURE, 2.0)], "eager")
    assert made.mixes[0].parts["wm", "world"].median_ns == 3_000_000


SAME = {"world", "sound"}


def test_slots_are_parsed_alone() -> None:
    (first, second) = parse_slots("wm=a[x=1,y]+b/bf16,image=eager/fp32")
    assert (str(first), str(second)) == ("wm=a[x=1,y]+b/bf16", "image=eager/fp32")
    assert Variant("c", "p", "w", first.backends, first.dtype, "cpu").backend == "a[x=1,y]+b"
