"""Live variants in interleaved blocks: what is kept, what is refused, and that nobody is left."""

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import comparisons
import pytest
from answers import as_text
from lab import Recorder, left_alive, marked_folder, plan_of
from records import record
from typer.testing import CliRunner

from bakeoff.cli import app
from bakeoff.machine import build_cache, host, paths
from bakeoff.models.errors import BakeoffError
from bakeoff.process.phases import Block
from bakeoff.process.supervisor import Outcome
from bakeoff.record.schema import Comparison, Record, Status
from bakeoff.record.store import Stored, StoredComparison, load_all
from bakeoff.record.verdict import AGREEING_PAIRS, FEWEST_PAIRS, MOST_PAIRS, decide
from bakeoff.report.pages.comparison import document
from bakeoff.report.recommendation import deployment
from bakeoff.report.render import terminal
from bakeoff.report.wording import sentence
from bakeoff.sweeps import compare as comparing
from bakeoff.sweeps.compare import CompareWorker, compare
from bakeoff.sweeps.finals import _baseline, _two_best
from bakeoff.sweeps.progress import Unheard
from bakeoff.sweeps.run import run_sweep

pytestmark = pytest.mark.timeout(600)

REPEATS = "canaries:REPEATS"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[StoredComparison, Recorder, Path]:
    """A runs the toy once a call, B three times."""
    folder = tmp_path_factory.mktemp("compare")
    progress = Recorder()
    with marked_folder(folder) as marker:
        found = compare(plan_of(REPEATS, f"{REPEATS}[times=3]"), paths.runs_folder(), "why", progress, seed=5)
        assert left_alive(marker) == []
    return found, progress, folder / "runs"


def test_the_faster_one_is_called_faster(kept: tuple[StoredComparison, Recorder, Path]) -> None:
    verdict = decide(kept[0].record)
    assert verdict.word == "faster"
    assert 1.5 < verdict.ratio < 6
    assert sentence(kept[0].record).startswith("repeats fp32 is faster than repeats[times=3] fp32: ")


def test_both_sides_are_checked_and_told(kept: tuple[StoredComparison, Recorder, Path]) -> None:
    for side in (kept[0].record.a, kept[0].record.b):
        assert (side.status, side.note) == ("ok", "why")
        assert side.latency is None
        assert side.measurement.parity is not None
        assert side.measurement.parity.passed
        assert side.measurement.overhead is not None
        assert side.measurement.proof is not None
    text = terminal.render(document(kept[0]))
    assert text.startswith("repeats fp32 is faster than repeats[times=3] fp32: ")
    assert kept[0].id in text


class Side(nullcontext[None]):
    """A worker of a side whose calls take what the rounds of a comparison say, or `call_ns`."""

    beside, calls, label = 2, 3, "side"

    def __init__(self, kept: Record, call_ns: Sequence[int]) -> None:
        super().__init__()
        self.kept, self.call_ns, self.live, self.ran = kept, call_ns[0], True, iter(call_ns)

    def __enter__(self) -> Any:
        return self

    def warm_up(self) -> None:
        pass

    def block(self) -> Block:
        return Block((next(self.ran),) * self.calls, 0.0)

    def end(self) -> Record:
        return self.kept


def raced(
    monkeypatch: pytest.MonkeyPatch, canned: Comparison, wrong: Record | None = None, fits: int = 3
) -> Comparison:
    """What is measured of sides whose processes give the rounds of a comparison, where so many fit in memory at once;
    A's second process gives `wrong`."""
    started: Counter[int] = Counter()

    def sides(_race: object, numbers: Sequence[int]) -> dict[int, Side]:
        found = {}
        for number in numbers:
            rounds = [turn for turn in canned.rounds if turn.pair == started[number]]
            kept = wrong if wrong is not None and (number, started[number]) == (0, 1) else canned.sides[number]
            found[number] = Side(kept, [turn.samples_ns[number][0] for turn in rounds])
            started[number] += 1
        return found

    monkeypatch.setattr(comparing._Race, "sides", sides)
    monkeypatch.setattr(comparing._Race, "fits", property(lambda race: len(race.rows) <= fits))
    monkeypatch.setattr(comparing, "wait_until_built", lambda _sides: None)
    row: Any = None
    session: Any = SimpleNamespace(
        sweep="",
        plan=SimpleNamespace(request=SimpleNamespace(final_s=0.0)),
        progress=Recorder(),
    )
    entrants = (comparing.Entrant(session, row),) * len(canned.sides)
    return comparing._measure(comparing._Race(Unheard(), entrants, 1, random.Random(1)))


@pytest.mark.parametrize(("slower_ms", "sets"), [(3.0, FEWEST_PAIRS), (2.2, AGREEING_PAIRS), (2.0, 1)])
def test_a_large_difference_needs_three_sets(slower_ms: float, sets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    canned = comparisons.final(record("inductor", [2.0]), record("eager", [slower_ms]), pairs=MOST_PAIRS)
    found = raced(monkeypatch, canned)
    assert {turn.pair for turn in found.rounds} == set(range(sets))
    verdict = decide(found)
    assert (verdict.pairs, verdict.early) == (sets, sets == FEWEST_PAIRS)
    assert verdict.word == ("faster" if slower_ms > 2 else "no difference shown")
    said = sentence(found)
    assert (f"(early verdict of {FEWEST_PAIRS} pairs, assumed spread)" in said) is verdict.early
    assert f"in {sets} pair" in said


@pytest.mark.parametrize(("eager_ms", "sets"), [(4.0, FEWEST_PAIRS), (2.4, AGREEING_PAIRS)])
def test_the_baseline_runs_until_its_speed_up_is_known(
    eager_ms: float, sets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    canned = comparisons.final(
        record("inductor", [2.0]), record("aoti", [2.2]), record("eager", [eager_ms]), pairs=MOST_PAIRS
    )
    found = raced(monkeypatch, canned)
    assert decide(found).pairs == AGREEING_PAIRS
    over_eager = decide(found, 0, 2)
    assert (over_eager.pairs, over_eager.word) == (sets, "faster")
    assert {turn.pair for turn in found.rounds if 2 in turn.order} == set(range(sets))
    assert over_eager.b_ms == pytest.approx(eager_ms, rel=0.01)


@pytest.mark.parametrize("status", ["parity_failed", "unstable", "fell_back"])
def test_a_side_that_failed_in_one_set_has_failed(status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is right in the next one: rounds of both are in the comparison."""
    canned = comparisons.final(record("inductor", [2.0]), record("eager", [2.2]), pairs=MOST_PAIRS)
    wrong = replace(canned.a, measurement=replace(canned.a.measurement, status=status, reason="video: 0.3"))
    found = raced(monkeypatch, canned, wrong)
    assert (found.a.status, found.b.status, found.rounds[-1].pair) == (status, "ok", 1), "no more sets can help"
    assert "no verdict" in sentence(found)
    monkeypatch.setattr(comparing, "is_decided", lambda _comparison: False)
    assert raced(monkeypatch, canned, wrong).a.status == status, "whatever follows"


@pytest.mark.parametrize(("fits", "orders"), [(3, 6), (2, 2), (1, 2)])
def test_blocks_are_of_their_sides_in_whatever_order_they_ran(
    fits: int, orders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    canned = comparisons.final(*(record(samples_ms=[ms]) for ms in (2.0, 2.2, 2.4)), pairs=12)
    found = raced(monkeypatch, canned, fits=fits)
    drawn = {turn.order for turn in found.rounds if turn.pair == 0 or fits == 1}
    assert len(drawn) == orders, "random order, also within a pair"
    for turn in found.rounds:
        assert [samples[0] // 200_000 for samples in turn.samples_ns] == [10, 11, 12][: max(fits, 2)]
    assert found.how == ("in turn" if fits == 1 else "interleaved")
    assert [finding.code for finding in found.findings] == ([] if fits == 3 else ["no-baseline"])
    assert all("does not fit in memory" in finding.text for finding in found.findings)


def test_a_worker_that_refuses_the_request_ends_the_comparison_with_its_reason() -> None:
    """As where a brought model's weights were changed after its references had been made."""
    outcome = Outcome("refused", "its weights are others", code="bad-checkpoint")
    refusing: Any = SimpleNamespace(_worker=SimpleNamespace(finish=lambda _type: outcome))
    with pytest.raises(BakeoffError, match="its weights are others") as refused:
        CompareWorker._record(refusing)
    assert refused.value.code == "bad-checkpoint"


def test_a_final_is_of_the_two_best_and_eager_unless_it_is_one_of_them() -> None:
    plan = plan_of("eager", REPEATS, f"{REPEATS}[times=2]")
    eager, once, twice = plan.rows
    stored = {
        row.key: Stored(row.label, record(samples_ms=[ms], variant=row.variant, baseline=row.baseline))
        for row, ms in ((eager, 3.0), (once, 1.0), (twice, 2.0))
    }
    assert _two_best(plan.rows, stored) == [once, twice]
    assert _baseline(plan, plan.rows, (once, twice), stored) == (eager, "")
    assert _baseline(plan, plan.rows, (once, eager), stored) == (None, "")
    stored[eager.key] = Stored("", record("eager", [3.0], "unstable", variant=eager.variant))
    assert _baseline(plan, plan.rows, (once, twice), stored) == (eager, ""), "it may be stable in the final"
    stored[eager.key] = Stored("", record("eager", status="oom", reason="no room", variant=eager.variant))
    assert _baseline(plan, plan.rows, (once, twice), stored) == (None, "it was oom: no room")
    made, why = _baseline(plan, (once, twice), (once, twice), stored)
    assert made is not None, "a sweep without eager gets it for its final"
    assert (made.key, made.subject, why) == (eager.key, eager.subject, "")


@pytest.mark.usefixtures("torchless")
def test_what_does_not_fit_together_is_measured_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, progress = plan_of("inductor[]", "eager"), Recorder()
    monkeypatch.setattr(comparing, "_IN_TURN", 2)
    monkeypatch.setattr(host, "available_bytes", lambda _device: plan.rows[0].memory.device)
    comparison = compare(plan, tmp_path / "runs", "", progress).record
    assert comparison.how == "in turn"
    assert len(comparison.rounds) == 2
    assert [what for what, _ in progress.told].count("say") == 1, "it says that both do not fit in memory"
    assert decide(comparison).word == "no difference shown", "two pairs show nothing, however far apart"
    assert "2 pairs of fresh processes in turn" in sentence(comparison)


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        ("bakeoff.selftest.faulty:SEGFAULT", "crashed: SIGSEGV"),
        ("selftest_backends.faulty:NAN", "parity_failed: image"),
        ("canaries:MISSING_LIBRARY", "unavailable: no_such_module_anywhere "),
        ("targets:ELSEWHERE[target=sm89]", "unsupported: engines for sm89"),
    ],
)
def test_what_cannot_be_measured_is_not_compared(tmp_path: Path, backend: str, reason: str) -> None:
    with (
        marked_folder(tmp_path) as marker,
        pytest.raises(BakeoffError) as refused,
    ):
        compare(plan_of("eager", backend), tmp_path / "runs", "", Recorder())
    assert refused.value.code == "not-comparable"
    assert reason in str(refused.value)
    assert left_alive(marker) == []
    assert load_all(tmp_path / "runs").comparisons == ()


@pytest.mark.usefixtures("torchless")
def test_a_sweep_ends_with_a_final_on_which_it_recommends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without eager among the rows, which is measured in the final all the same."""
    monkeypatch.setenv("BAKEOFF_TEST_DIES", "onnxruntime")
    plan = plan_of("openvino[]", "inductor[]", "onnxruntime[]")
    compiled = plan.rows[1].cache_folder
    compiled.mkdir(parents=True)
    (compiled / "slowness").write_text("0.5")  # openvino keeps no caches: each build draws 1 to 2, and may be near 1
    build_cache.mark_finished(compiled)
    done = run_sweep(plan, tmp_path / "runs", "", resume=False, progress=Recorder())
    (final,) = done.finals
    assert final.record.sweep == done.sweep
    assert {str(side.variant) for side in (final.record.a, final.record.b)} == {
        str(entry.variant) for entry in plan.rows[:2]
    }
    assert final.record.baseline is not None
    text = as_text(deployment(done.stored, done.finals))
    assert text.startswith("Deploy inductor fp32: in the final it was faster than openvino fp32 (")
    assert "interleaved rounds" in text


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["toy:tiny.world/eager/fp32@cpu", "20260101"], "bad-option", "give two variants"),
        (["20260101", "20260102"], "bad-option", "bakeoff explain A B"),
        (["nonsense"], "bad-option", "bakeoff show A"),
        (["toy:tiny.world/eager/fp32@cpu", "toy:tiny.world/eager/fp32@nowhere/x@"], "bad-variant", ""),
        (["toy:tiny.world/eager/fp32@cpu", "toy:tiny.world/nobody/fp32@cpu"], "", "'nobody'"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, arguments: list[str], code: str, said: str) -> None:
    refused = CliRunner().invoke(app, ["--runs", str(tmp_path / "runs"), "compare", *arguments]).exception
    assert isinstance(refused, BakeoffError)
    assert refused.code == code or not code
    assert said in str(refused)
