"""`bakeoff budget` as it is typed: what records give the choices, the answer, the runs, `--resume`, exit codes."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab import TORCHLESS, marked_folder
from program_records import COMPILED, EAGER, PICTURE, QUANTISED, own
from typer.testing import CliRunner

from bakeoff.cli import app
from bakeoff.machine import paths
from bakeoff.models.errors import BakeoffError
from bakeoff.pipeline import mix_worker
from bakeoff.process import supervisor
from bakeoff.record.schema import Memory, Record
from bakeoff.record.store import load_all, save

ARGUMENTS = ("budget", "loops:Small", "--device", "cpu", "--threads", "1", "--units", "3")
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(supervisor, "WORKER", TORCHLESS)
    monkeypatch.setattr("bakeoff.pipeline.run._ANCHOR_S", 0.05)
    monkeypatch.setattr("bakeoff.cli.pages.update_pages", lambda _folder: None)
    with marked_folder(tmp_path):
        yield


def keep(*records: Record, minute: int = 4) -> list[str]:
    """Store records of the loop's programs, one after the other; return their ids."""
    created = (f"2026-01-02T03:{minute:02}:{number:02}.000000Z" for number in range(60))
    return [save(paths.runs_folder(), replace(each, created=next(created))) for each in records]


def budget(*arguments: str) -> Any:
    return CliRunner().invoke(app, [*ARGUMENTS, *arguments])


def answer(*arguments: str) -> dict[str, Any]:
    done = budget("--json", *arguments)
    assert done.exit_code in (0, 1), done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def slots(found: dict[str, Any]) -> list[str]:
    return [each["slots"] for each in found["budget"]["candidates"]]


def with_memory(record: Record, peak: int, call: int, weights: int) -> Record:
    memory = Memory(weights * MIB, 0, host_peak_bytes=peak * MIB, host_call_bytes=call * MIB)
    return replace(record, measurement=replace(record.measurement, memory=memory))


def test_calls_times_medians_and_what_each_slot_adds_make_a_forecast() -> None:
    ids = keep(
        with_memory(own(EAGER, 3.0), 500, 20, 80),
        with_memory(own(COMPILED, 1.0), 600, 20, 80),
        with_memory(own(PICTURE, 2.0), 450, 30, 20),
    )
    found = answer("--dry-run")
    fast, slow = found["budget"]["candidates"]
    assert slots(found) == [
        "wm=inductor[freezing]/bf16,image=eager/fp32",
        "wm=eager/fp32,image=eager/fp32",
    ]
    assert (fast["ms"], slow["ms"], fast["sqnr_db"]) == (4.0, 8.0, 120.0)
    # of the process at least 450 - 30 - 20
    assert (fast["memory_bytes"], slow["memory_bytes"]) == ((400 + 200 + 50) * MIB, (400 + 100 + 50) * MIB)
    assert found["budget"]["records"] == sorted(ids)
    assert fast["parts_ms"] == {"wm": 2.0, "image": 2.0}
    assert fast["interval"] == pytest.approx([4.0 / 1.13, 4.0 * 1.13])
    small = answer("--dry-run", "--objective", "memory<=600MiB")["budget"]["candidates"]
    assert [each["ms"] for each in small] == [8.0]


def test_classes_keep_quantised_choices_out() -> None:
    keep(own(EAGER, 3.0), own(QUANTISED, 1.0, quantisation="dynamic"), own(PICTURE, 2.0))
    quantised = "wm=int8+inductor/bf16,image=eager/fp32"
    assert slots(answer("--dry-run"))[0] == quantised
    assert slots(answer("--dry-run", "--classes", "dynamic,fp8"))[0] == quantised
    assert quantised not in slots(answer("--dry-run", "--classes", "none"))
    assert quantised not in slots(answer("--dry-run", "--classes", "static"))


def test_a_slot_without_records_is_answered_with_the_sweep_that_makes_them() -> None:
    keep(own(EAGER, 3.0))
    done = budget("--dry-run")
    assert isinstance(done.exception, BakeoffError)
    text = "run: bakeoff sweep toy --preset tiny --workload picture --device cpu --threads 1"
    assert str(done.exception) == f"no ok records of this machine and code for image; {text}"
    keep(own(PICTURE, 2.0), minute=5)
    done = budget("--dry-run", "--export", "made")
    assert "of a backend with an artifact format for wm, image; run: bakeoff sweep toy" in str(done.exception)


def test_where_no_mix_meets_the_limits_nothing_runs_and_the_fastest_are_shown() -> None:
    keep(own(EAGER, 3.0), own(COMPILED, 1.0), own(PICTURE, 2.0))
    done = budget("--objective", "fps>=300,sqnr>=30")
    assert done.exit_code == 1
    assert "of 2 mixes none meets the limits by the records." in " ".join(done.stdout.split())
    assert "A: not met: fps 250, 17% below 300" in done.stdout
    assert not load_all(paths.runs_folder()).pipelines
    assert [each["ms"] for each in answer("--objective", "fps>=300")["misses"]] == [4.0, 8.0]


def test_a_limit_of_the_first_good_frame_is_answered_by_cold_starts_alone() -> None:
    keep(own(EAGER, 3.0), own(COMPILED, 1.0), own(PICTURE, 2.0))
    refused = budget("--objective", "first<=60s", "--dry-run").exception
    assert isinstance(refused, BakeoffError)
    fastest, slower = answer("--dry-run")["budget"]["candidates"]
    command = f"deadline loops:Small:tiny --cold --mix '{fastest['slots']}' --device cpu --threads 1"
    assert str(refused).endswith(f"run: bakeoff {command}")
    started = shlex.split(command.replace(fastest["slots"], slower["slots"]))
    done = CliRunner().invoke(app, [*started, "--minutes", "0.02"])
    assert done.exit_code == 0, done.output
    found = answer("--objective", "first<=60s", "--dry-run")
    assert slots(found) == [slower["slots"]], "of the faster one none is known"
    assert [note for note in found["notes"] if note.endswith(command)]
    assert 1 < found["budget"]["candidates"][0]["first_ms"][0] < 60_000
    assert slots(answer("--objective", "first<=1ms", "--dry-run")) == []
    ran = answer("--objective", "first<=60s")
    (record,) = [entry.record for entry in load_all(paths.runs_folder()).pipelines]
    assert record.started is not None
    assert ran["ship"]["mix"] == str(record.mix)


def test_the_best_two_run_side_by_side_and_keep_the_request() -> None:
    keep(own(EAGER, 3.0), own(COMPILED, 1.0), own(PICTURE, 2.0))
    found = answer("--objective", "mean", "--note", "why")
    records = [entry.record for entry in load_all(paths.runs_folder()).pipelines]
    assert [mix["mix"] for mix in found["mixes"]] == [str(record.mix) for record in records]
    assert {record.mix.variants for record in records} == set(slots(found))
    assert {(record.how, record.note, record.budget and record.budget.mixes) for record in records} == {
        ("interleaved", "why", 2)
    }
    assert found["ship"]["record"] in [mix["record"] for mix in found["mixes"]]
    promised = {(round(record.forecast.ms, 2), record.forecast.anchored) for record in records if record.forecast}
    assert promised == {(5.0, True)}, "by units that ran before, not by the records' 4 and 8 ms"


def test_of_mixes_that_records_do_not_tell_apart_the_two_that_were_timed_as_the_fastest_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BAKEOFF_TEST_FAULTS", "slow@inductor")
    exported = own(EAGER.replace("eager", "torch.export"), 1.02)
    keep(own(EAGER, 1.04), own(COMPILED, 1.0), exported, own(PICTURE, 2.0))
    ordered = slots(answer("--dry-run"))
    assert [each.partition("/")[0] for each in ordered] == ["wm=inductor[freezing]", "wm=torch.export", "wm=eager"]
    found = answer()
    ran = [entry.record for entry in load_all(paths.runs_folder()).pipelines]
    assert {record.mix.variants for record in ran} == set(ordered[1:]), "the first is the slowest when timed"
    assert len(found["mixes"]) == 2


def test_a_mix_that_fails_while_it_is_timed_first_keeps_its_promise_by_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep(own(EAGER, 3.0), own(COMPILED, 1.0), own(PICTURE, 2.0))
    monkeypatch.setenv("BAKEOFF_TEST_FAULTS", "crash@inductor")
    budget()
    records = [entry.record for entry in load_all(paths.runs_folder()).pipelines]
    assert {
        (record.status, round(record.forecast.ms, 2), record.forecast.anchored) for record in records if record.forecast
    } == {("crashed", 4.0, False), ("ok", 5.0, True)}


def test_threads_sleep_in_a_mix_that_is_faster_so_where_an_engine_has_threads_of_its_own() -> None:
    beside = own(EAGER.replace("eager", "onnxruntime"), 1.02)
    keep(own(COMPILED, 1.0), beside, own(PICTURE, 2.0))
    told = " ".join(budget().stdout.split())
    waits = {
        record.mix.variants.partition("/")[0]: (record.environment.get("OMP_WAIT_POLICY"), round(record.forecast.ms, 2))
        for record in (entry.record for entry in load_all(paths.runs_folder()).pipelines)
        if record.forecast is not None
    }
    assert waits == {"wm=inductor[freezing]": (None, 5.0), "wm=onnxruntime": ("passive", 2.0)}
    assert "ship wm=onnxruntime/fp32" in told
    assert "set OMP_WAIT_POLICY=passive where it runs" in told


def test_the_best_two_run_under_each_schedule_that_was_asked_for() -> None:
    keep(*(own(variant, ms, threads=2) for variant, ms in ((EAGER, 3.0), (COMPILED, 1.0), (PICTURE, 2.0))))
    typed = ("--threads", "2", "--schedule", "decode-behind")
    told = " ".join(budget(*typed).stdout.split())
    found = answer(*typed, "--dry-run")
    records = [entry.record for entry in load_all(paths.runs_folder()).pipelines]
    assert {(record.mix.variants, record.mix.schedule) for record in records} == {
        (mix, schedule) for mix in slots(found) for schedule in ("", "decode-behind:1+1")
    }
    assert {(record.how, record.run) for record in records} == {("interleaved", records[0].run)}
    assert "ship wm=inductor[freezing]/bf16,image=eager/fp32 decode-behind:1+1: mean 3.000 ms a frame" in told
    assert "ready 4.000 ms after it begins; 3.000 ms were promised (+0.0%)" in told
    assert "Mixes, 2 of 2 mix" in told
    assert "B: wm=eager/fp32,image=eager/fp32 decode-behind:1+1 C: wm=inductor[freezing]/bf16" in told


def test_a_mix_that_fails_under_a_schedule_keeps_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(*(own(variant, ms, threads=2) for variant, ms in ((EAGER, 3.0), (PICTURE, 2.0))))
    monkeypatch.setenv("BAKEOFF_TEST_FAULTS", "crash@eager")
    told = budget("--threads", "2", "--schedule", "decode-behind").stdout.splitlines()
    rows = [line.split()[:2] for line in told if "crashed" in line]
    assert rows == [["A", "8.000"], ["B", "crashed"]], "nothing was promised of B"


def test_an_interrupted_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    keep(own(EAGER, 3.0), own(COMPILED, 1.0), own(PICTURE, 2.0))
    before = mix_worker.run_rounds
    monkeypatch.setattr("bakeoff.pipeline.run.run_rounds", interrupted)
    done = budget()
    assert done.exit_code == 130
    assert "the same command with --resume runs them" in done.stderr
    monkeypatch.setattr("bakeoff.pipeline.run.run_rounds", before)
    assert len(answer("--resume")["mixes"]) == 2
    assert len(load_all(paths.runs_folder()).pipelines) == 2


def test_only_what_has_an_artifact_format_is_chosen_for_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported: list[tuple[str, Path]] = []
    monkeypatch.setattr(
        "bakeoff.artifact.mix.export_mix",
        lambda _made, entry, target, *_others: exported.append((entry.record.mix.variants, target)),
    )
    onnx = [own(EAGER.replace("eager", "onnxruntime"), 5.0), own(PICTURE.replace("eager", "onnxruntime"), 5.0)]
    keep(own(EAGER, 3.0), own(COMPILED, 1.0), own(PICTURE, 2.0), *onnx)
    found = answer("--export", str(tmp_path / "made"))
    assert exported == [("wm=onnxruntime/fp32,image=onnxruntime/fp32", tmp_path / "made")]
    assert slots(found) == [exported[0][0]]
    done = budget("--export", str(tmp_path / "made"), "--dry-run")
    assert done.stderr.endswith("made: no mix that ran can be shipped\n")
    assert "only backends with an artifact format are allowed" in done.stdout
    (tmp_path / "made").mkdir()
    done = budget("--export", str(tmp_path / "made"))
    assert "made exists; choose another folder, or --force" in str(done.exception)
    assert len(load_all(paths.runs_folder()).pipelines) == 1, "refused before anything runs"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--objective", "latency"), "latency is no goal here; give limits such as mean<=40ms, fps>=24"),
        (("--objective", "fps<=24"), "fps has a lower limit"),
        (("--schedule", "all", "--export", "made"), "--schedule: an exported mix is played one call after the other"),
        (("--classes", "int4"), "--classes int4: give none, or some of dynamic"),
        (("--resume",), "--resume: no unfinished run of pipeline small"),
        (("--units", "0"), "--units 0: give 1 to 100000"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(arguments: tuple[str, ...], text: str) -> None:
    keep(own(EAGER, 3.0), own(PICTURE, 2.0))
    done = budget(*arguments)
    assert isinstance(done.exception, BakeoffError), done.output
    assert text in str(done.exception)
