"""Whole mixes of the toy loop in the test's process: what is right passes, each fault is found and named."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="workers need it")

import loop_backends
import toy_loops as toy
from mixes import UNITS, make_job, run_mix
from toys import LIBRARY_WARNINGS, NEEDS_COMPILER
from wrong_loops import FIRST_NAN

from bakeoff.models.component import LEAST_SQNR_DB
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import PipelineJob
from bakeoff.record.pipeline import PipelineMeasurement, Sustained
from bakeoff.worker.pipeline import clocks
from bakeoff.worker.pipeline.parity import LoopCheck, LoopFiles
from bakeoff.worker.reference.files import ReferenceFiles

EAGER = {"world": "eager/fp32", "stream": "eager/fp32"}
FULL = 6
"""Units of the toy loop until its windows are full."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """References and caches of all tests."""
    return tmp_path_factory.mktemp("mixes")


@pytest.fixture(autouse=True)
def told() -> Iterator[None]:
    yield
    loop_backends.COMPILED.clear()
    loop_backends.FELL_BACK.clear()
    loop_backends.ADDED.clear()


def check_account(made: PipelineMeasurement, units: int) -> None:
    """The integer identity, and one entry a unit everywhere."""
    assert made.units is not None
    assert len(made.units.wall_ns) == units
    for index, wall_ns in enumerate(made.units.wall_ns):
        assert sum(line.ns[index] for line in made.units.lines) == wall_ns
    phases = {line.name: sum(line.ns) for line in made.units.lines if line.kind == "phase"}
    for one in made.units.programs:
        assert len(one.calls) == len(one.ns) == units
        assert sum(one.ns) == phases[{"world": "denoise", "stream": "decode"}[one.slot]]
        assert set(one.calls) == {2 if one.slot == "world" else 1}


@pytest.mark.parametrize(
    "ways",
    [
        EAGER,
        {"world": "eager/bf16", "stream": "eager/fp32"},
        pytest.param({"world": "inductor/bf16", "stream": "openvino/fp32"}, marks=[LIBRARY_WARNINGS, NEEDS_COMPILER]),
        pytest.param({"world": "onnxruntime/fp32", "stream": "eager/bf16"}, marks=LIBRARY_WARNINGS),
    ],
    ids=lambda ways: ",".join(ways.values()),
)
def test_a_right_mix_is_ok(ways: dict[str, str], folder: Path, tmp_path: Path) -> None:
    for way in ways.values():
        library = way.partition("/")[0]
        if library in ("openvino", "onnxruntime"):
            pytest.importorskip(library)
    made, heard = run_mix(make_job(folder, ways), tmp_path / "work")
    assert (made.status, made.reason) == ("ok", "")
    check_account(made, 14)
    assert made.units is not None
    assert made.units.kinds == ("filling",) * 2 * FULL + ("steady",) * 2
    assert [block.kind for block in heard.blocks] == list(made.units.kinds)
    assert [block.samples_ns for block in heard.blocks] == [(wall_ns,) for wall_ns in made.units.wall_ns]
    assert made.units.sessions == (0,) * 14
    assert len(made.opened_ns) == 1
    assert heard.phases.index("ready") > heard.phases.index("loop check")
    assert made.parity is not None
    assert made.parity.passed
    assert [unit.unit for unit in made.parity.units] == [-1, *range(UNITS)]
    for unit in made.parity.units[1:]:
        assert {"x", "video"} < {output.name for output in unit.outputs}
    assert made.memory is not None
    assert made.memory.host_peak_bytes
    assert made.stamp_ns > 0
    for one in made.programs:
        assert one.status == "ok"
        assert f"{one.slot}={one.variant.backend}/{one.variant.dtype}" == f"{one.slot}={ways[one.slot]}"
        assert one.parity is not None
        assert one.parity.passed
        assert one.proof is not None
        assert "operators_dispatched" in one.proof.facts, "proved again after the last unit"


def wrong(folder: Path, mistake: str) -> PipelineJob:
    job = make_job(folder, EAGER)
    loop = replace(job.subject.loop, reference=f"wrong_loops:{mistake}")
    return replace(job, subject=replace(job.subject, loop=loop))


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("TOY_NOT_SHIFTED", "state.cache_k"),
        ("TOY_SHIFTED_BY_A_TOKEN", "state.cache_k"),
        ("TOY_STALE_LATENT", "x"),
        ("TOY_DECODES_THE_FRAME_BEFORE", "video"),
    ],
)
def test_a_fault_of_the_loop_is_found_by_name(fault: str, name: str, folder: Path, tmp_path: Path) -> None:
    made, heard = run_mix(wrong(folder, fault), tmp_path / "work")
    assert made.status == "parity_failed"
    assert made.reason.startswith(f"{name}: ")
    assert "(unit 0)" in made.reason
    assert heard.blocks == []
    assert [one.status for one in made.programs] == ["ok", "ok"], "each program alone is right"
    assert made.parity is not None
    assert not made.parity.passed


def test_a_value_that_is_not_finite_in_a_late_unit_is_found_by_name(folder: Path, tmp_path: Path) -> None:
    made, _ = run_mix(wrong(folder, "TOY_NAN"), tmp_path / "work")
    assert made.status == "parity_failed"
    assert made.reason == f"x: 512 of 512 values are not finite (unit {FIRST_NAN} of session 0)"
    assert made.parity is not None
    assert made.parity.passed, "the first units are right, before and after"
    check_account(made, 14)


def test_a_loop_that_goes_wrong_while_units_run_is_found_after_the_last_one(folder: Path, tmp_path: Path) -> None:
    job = make_job(folder, {**EAGER, "world": "loop_backends:GOES_WRONG/fp32"})
    made, heard = run_mix(job, tmp_path / "work", 8, {8: lambda: loop_backends.ADDED.append(1.0)})
    assert len(heard.blocks) == 8, "it was right before the first unit"
    assert made.status == "parity_failed"
    assert made.reason.startswith("x: ")
    assert "(unit 0)" in made.reason


def test_sessions_are_opened_anew_at_their_end(folder: Path, tmp_path: Path) -> None:
    subject = (job := make_job(folder, EAGER)).subject
    short = replace(subject, loop=replace(subject.loop, max_units=8, filling=2))
    made, _ = run_mix(replace(job, subject=short), tmp_path / "work", 20)
    assert (made.status, made.reason) == ("ok", "")
    assert made.units is not None
    assert made.units.sessions == (0,) * 8 + (1,) * 8 + (2,) * 4
    assert made.units.kinds == ("filling",) * 10 + ("steady",) * 6 + ("filling",) * 2 + ("steady",) * 2
    assert len(made.opened_ns) == 3


def test_a_sustained_run_goes_on_by_itself_and_has_one_account_for_units_of_a_kind(
    folder: Path, tmp_path: Path
) -> None:
    subject = (job := make_job(folder, EAGER)).subject
    short = replace(subject, loop=replace(subject.loop, max_units=12, filling=2))
    made, heard = run_mix(replace(job, subject=short, sustained=Sustained(24.0, False, 1)), tmp_path / "work", 30)
    assert (made.status, made.reason) == ("ok", "")
    units = made.units
    assert units is not None
    kinds = ("filling", "steady") * 3
    counts = (8, 4, 2, 10, 2, 4)
    assert units.kinds == tuple(kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count))
    assert units.spans == counts
    ends = [0, *accumulate(counts)]
    walls = [sum(units.wall_ns[start:end]) for start, end in pairwise(ends)]
    assert [sum(line.ns[span] for line in units.lines) for span in range(6)] == walls
    assert tuple(stamp.wall_ns for stamp in heard.stamps) == units.wall_ns
    assert tuple(stamp.kind for stamp in heard.stamps) == units.kinds
    opened = [(place, stamp.opened_ns) for place, stamp in enumerate(heard.stamps) if stamp.opened_ns]
    assert opened == list(zip((0, 12, 24), made.opened_ns, strict=True))
    assert made.memory is not None


@pytest.mark.parametrize(
    ("backend", "late", "moved", "wrong"),
    [
        ("eager", [], {}, []),
        ("loop_backends:COMPILES_IN_SECOND", [0], {"0": ("stream.stream",)}, []),
        ("loop_backends:ALLOCATES_IN_HUNDREDTH", [98], {}, []),
        ("loop_backends:FIRST_WRONG", [0], {}, [0]),
    ],
)
def test_a_cold_start_calls_nothing_before_its_first_unit_but_what_a_build_must(
    backend: str, late: list[int], moved: dict[str, tuple[str, ...]], wrong: list[int], folder: Path, tmp_path: Path
) -> None:
    """The build makes an engine's first call, unit N its call N + 2."""
    job = make_job(folder, {**EAGER, "stream": f"{backend}/fp32"})
    job = replace(job, sustained=Sustained(24.0, False, 1), cold=True)
    made, heard = run_mix(job, tmp_path / "work", 102)
    assert made.status == ("parity_failed" if wrong else "ok"), made.reason
    assert made.units is not None
    assert made.parity is not None
    assert [unit for unit, ns in enumerate(made.units.wall_ns) if ns > 100_000_000] == late
    assert made.units.moved == moved
    found = {unit.unit: all(output.passed for output in unit.outputs) for unit in made.parity.units}
    assert found == {unit: unit not in wrong for unit in range(UNITS)}
    program = ["weights", "check", "weights", "build", "prove"]
    judged = ["loop check", "opening", "loop check"]
    assert heard.phases[:15] == [*program, *program, "bind", "loop check", "opening", *judged[:2]]
    assert "ready" not in heard.phases


def test_a_paced_run_never_begins_a_unit_before_its_time(folder: Path, tmp_path: Path) -> None:
    job = replace(make_job(folder, EAGER), sustained=Sustained(20.0, True, 2))
    made, heard = run_mix(job, tmp_path / "work", 24)
    assert made.status == "ok"
    first = next(place for place, stamp in enumerate(heard.stamps) if stamp.kind == "steady")
    shown = heard.stamps[first + 1].started_ns + heard.stamps[first + 1].wall_ns
    assert len(heard.stamps) - first > 8
    for place, stamp in enumerate(heard.stamps[first + 2 :]):
        assert stamp.started_ns >= shown + place * 50_000_000, "the second unit before it is shown"


def test_what_compiles_in_a_steady_unit_is_named_with_the_compilers_reason(folder: Path, tmp_path: Path) -> None:
    job = make_job(folder, {**EAGER, "stream": "loop_backends:COMPILES_AGAIN/fp32"})
    compile_again = {13: lambda: loop_backends.COMPILED.append("size of z changed")}
    made, _ = run_mix(job, tmp_path / "work", 16, compile_again)
    assert (made.status, made.reason) == ("unstable", "recompiled: stream.stream (size of z changed)")
    assert [finding.code for finding in made.findings][:1] == ["recompiles"]
    assert made.units is not None
    assert made.units.moved == {"13": ("stream.stream",)}
    assert made.units.kinds[13] == "steady"


def test_what_compiles_while_windows_fill_only_delays_steady_units(folder: Path, tmp_path: Path) -> None:
    job = make_job(folder, {**EAGER, "stream": "loop_backends:COMPILES_AGAIN/fp32"})
    compile_again = {9: lambda: loop_backends.COMPILED.append("size of z changed")}
    made, _ = run_mix(job, tmp_path / "work", 17, compile_again)
    assert (made.status, made.reason) == ("ok", "")
    assert made.units is not None
    assert made.units.kinds == ("filling",) * 16 + ("steady",)


def test_a_slot_that_falls_back_between_the_units_is_named(folder: Path, tmp_path: Path) -> None:
    job = make_job(folder, {**EAGER, "world": "loop_backends:FALLS_BACK/fp32"})
    made, _ = run_mix(job, tmp_path / "work", 8, {4: lambda: loop_backends.FELL_BACK.append("plain eager")})
    assert (made.status, made.reason) == ("fell_back", "world.world: ran plain eager")
    assert [one.status for one in made.programs] == ["fell_back", "ok"]
    check_account(made, 8)


def test_a_slot_that_fell_back_in_its_build_ends_the_mix(folder: Path, tmp_path: Path) -> None:
    job = make_job(folder, {**EAGER, "stream": "loop_backends:FALLS_BACK/fp32"})
    loop_backends.FELL_BACK.append("plain eager")
    made, heard = run_mix(job, tmp_path / "work")
    assert (made.status, made.reason) == ("fell_back", "stream.stream: ran plain eager")
    assert [one.status for one in made.programs] == ["ok", "fell_back"], "what is known of the others is kept"
    assert (heard.blocks, made.units) == ([], None)


def test_a_program_that_cannot_be_built_ends_the_mix(folder: Path, tmp_path: Path) -> None:
    made, _ = run_mix(make_job(folder, {**EAGER, "stream": "canaries:UNSUPPORTED/fp32"}), tmp_path / "work")
    assert made.status == "unsupported"
    assert made.reason.startswith("stream.stream: ")
    assert [one.status for one in made.programs] == ["ok", "unsupported"]


def test_a_quantised_slot_widens_the_limits_of_what_it_has_a_part_in(folder: Path) -> None:
    job = make_job(folder, EAGER)
    files = LoopFiles(ReferenceFiles(Path(job.reference_folder), job.reference_hashes))
    dtypes = {"world": "fp32", "stream": "fp32"}
    check = LoopCheck(job.subject.loop, files, dtypes, {"stream": "static"})
    assert check.limit(1e-7, {"world"}) == 1e-4
    assert check.limit(1e-7, {"world", "stream"}) == pytest.approx(10 ** (-LEAST_SQNR_DB["static"] / 20))
    assert check.limit(0.3, {"world", "stream"}) == 0.6
    both = LoopCheck(job.subject.loop, files, dtypes, {"world": "static", "stream": "dynamic"})
    errors = [10 ** (-LEAST_SQNR_DB[kind] / 20) for kind in ("static", "dynamic")]
    assert both.limit(1e-7, {"world", "stream"}) == pytest.approx(sum(errors)), "their errors add up"


def test_a_changed_reference_is_refused(folder: Path, tmp_path: Path) -> None:
    job = make_job(folder, EAGER)
    hashes = {name: "0" if name == "unit1.safetensors" else value for name, value in job.reference_hashes.items()}
    made, _ = run_mix(replace(job, reference_hashes=hashes), tmp_path / "work")
    assert made.status == "crashed"
    assert "unit1.safetensors" in made.reason


def test_other_weights_than_the_references_are_refused(folder: Path, tmp_path: Path) -> None:
    job, other = make_job(folder, EAGER), make_job(tmp_path / "other", EAGER, weight_seed=1)
    mixed = replace(other, reference_folder=job.reference_folder, reference_hashes=job.reference_hashes)
    with pytest.raises(BakeoffError) as refused:
        run_mix(mixed, tmp_path / "work")
    assert refused.value.code == "bad-checkpoint"


class FakeTime:
    """A clock of which each reading takes half a microsecond."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        self.ns += 500
        return self.ns

    def spin(self, milliseconds: float) -> None:
        self.ns += round(milliseconds * 1e6)


def test_phases_of_known_length_have_their_shares(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, fake = make_job(folder / "spin", {}, preset="spin"), FakeTime()
    monkeypatch.setattr(clocks, "now_ns", fake.now_ns)
    monkeypatch.setattr(toy, "_spin", fake.spin)
    made, _ = run_mix(job, tmp_path / "work", 20)
    assert made.status == "ok"
    assert made.units is not None
    for unit, wall_ns in enumerate(made.units.wall_ns):
        shares = {line.name: 100 * line.ns[unit] / wall_ns for line in made.units.lines}
        expected = {"a": 45.5, "b": 27.3, "c": 18.2, "glue": 9.1, "copies": 0, "unattributed": 0}
        assert shares == {name: pytest.approx(share, abs=0.5) for name, share in expected.items()}
        assert sum(line.ns[unit] for line in made.units.lines) == wall_ns
