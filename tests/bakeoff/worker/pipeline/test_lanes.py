"""Units whose lanes run beside each other: every bit as in sequential ones, every nanosecond in each account."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import pytest

pytest.importorskip("torch", reason="workers need it")

import torch
from eager_loops import eager_runner
from mixes import loop_of, make_job, run_mix

from bakeoff.backends.backend import ModuleEngine, Unsupported
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.models.pipelines.schedule import BEHIND, BESIDE, Schedule
from bakeoff.record.pipeline import Sustained
from bakeoff.worker.pipeline.feeder import Feeder
from bakeoff.worker.pipeline.lanes import Lane, Later
from bakeoff.worker.pipeline.promise import unlike
from bakeoff.worker.pipeline.runner import LoopRunner

EAGER = {"world": "eager/fp32", "stream": "eager/fp32"}


@pytest.fixture
def opened() -> Iterator[list[Lane]]:
    """The lanes of a test, closed after it."""
    found: list[Lane] = []
    yield found
    for lane in found:
        lane.close()


def runner_of(pipeline: str, loop: Loop, schedule: str, opened: list[Lane]) -> LoopRunner:
    lane = Lane(loop, Schedule(schedule, (1, 1)), "cpu")
    opened.append(lane)
    with torch.no_grad():
        return eager_runner(pipeline, loop, lane)


@pytest.mark.parametrize(
    ("pipeline", "preset", "schedule"),
    [
        ("toy_loops:Toy", "tiny", BEHIND),
        ("owl", "tiny", BEHIND),
        ("owl", "tiny", BESIDE),
        ("matrix", "tiny", BEHIND),
        ("matrix", "tiny", BESIDE),
    ],
)
def test_no_bit_differs_from_sequential_units(pipeline: str, preset: str, schedule: str, opened: list[Lane]) -> None:
    loop = loop_of(pipeline, preset)
    runner = runner_of(pipeline, loop, schedule, opened)
    with torch.no_grad():
        assert unlike(runner, loop) == ""


@pytest.mark.parametrize("schedule", [BEHIND, BESIDE])
def test_lanes_account_for_every_nanosecond(schedule: str, opened: list[Lane]) -> None:
    loop = loop_of("matrix", "tiny")
    runner = runner_of("matrix", loop, schedule, opened)
    late = {call.slot for call in loop.steady.calls if call.key in opened[0].programs}
    with torch.no_grad():
        runner.open()
        samples = [runner.unit() for _ in range(6)]
    for sample in samples:
        assert sum(sample.segments.values()) == sum(sample.beside.values()) == sample.wall_ns
        assert 0 <= sample.done_ns <= sample.wall_ns
    for sample in samples[3:]:
        called = {one.slot for one, ns in sample.beside.items() if one.program and ns}
        assert called == late
        assert not any(ns for one, ns in sample.segments.items() if (one.slot, one.program) in opened[0].programs)
        assert sample.calls == loop.calls()


def test_frames_are_those_of_the_outputs_that_are_ready(opened: list[Lane]) -> None:
    loop = loop_of("toy_loops:Toy")
    runner = runner_of("toy_loops:Toy", loop, BEHIND, opened)
    plain = eager_runner("toy_loops:Toy", loop)
    with torch.no_grad():
        runner.open()
        plain.open()
        assert runner.unit().frames == 0
        assert runner.outputs == {}
        for _ in range(3):
            plain.unit()
            wanted = {name: value.clone() for name, value in plain.outputs.items()}
            assert runner.unit().frames == 1
            assert all(torch.equal(value, wanted[name]) for name, value in runner.outputs.items())
        assert runner.settle()
        plain.unit()
        assert all(torch.equal(value, plain.outputs[name]) for name, value in runner.outputs.items())
        assert not runner.settle()


@pytest.mark.parametrize("planted", [False, True])
def test_a_buffer_that_is_written_too_early_is_caught_in_the_first_units(
    planted: bool, monkeypatch: pytest.MonkeyPatch, opened: list[Lane]
) -> None:
    """Planted: the lane reads the window itself, which the next unit slides; it begins as that unit ends."""
    run, wait, awaited = Lane._run, Lane.wait, threading.Event()

    def late(*of: Any) -> None:
        assert awaited.wait(60)
        run(*of)

    def waiting(lane: Lane) -> None:
        awaited.set()
        wait(lane)
        awaited.clear()

    monkeypatch.setattr(Lane, "_run", late)
    monkeypatch.setattr(Lane, "wait", waiting)
    if planted:
        monkeypatch.setattr(Feeder, "held", lambda _self, value: value)
    loop = loop_of("owl", "tiny")
    runner = runner_of("owl", loop, BEHIND, opened)
    with torch.no_grad():
        problem = unlike(runner, loop)
    assert problem.startswith("the schedule changes values: samples of unit ") if planted else not problem


def test_outputs_that_are_read_before_the_lane_is_done_are_an_error_of_the_lab(
    monkeypatch: pytest.MonkeyPatch, opened: list[Lane]
) -> None:
    """Planted: nobody waits for the lane."""
    run = Lane._run
    monkeypatch.setattr(Lane, "_run", lambda *of: (time.sleep(0.2), run(*of)))
    loop = loop_of("toy_loops:Toy")
    runner = runner_of("toy_loops:Toy", loop, BEHIND, opened)
    with torch.no_grad():
        runner.open()
        runner.unit()  # which computes at once what it does not know yet
        runner.unit()
        monkeypatch.setattr(Lane, "wait", lambda _self: None)
        with pytest.raises(RuntimeError, match="read before it was computed"):
            runner.unit()


def test_programs_are_called_by_the_lane_that_owns_them(opened: list[Lane]) -> None:
    loop = loop_of("toy_loops:Toy")
    runner = runner_of("toy_loops:Toy", loop, BEHIND, opened)
    seen: dict[str, set[str]] = {}
    for key in loop.programs:
        port: Any = runner.port(key)
        call, slot = port._call, key.slot

        def noted(call: Any = call, slot: str = slot) -> Any:
            seen.setdefault(slot, set()).add(threading.current_thread().name.partition("_")[0])
            return call()

        port._call = noted
    with torch.no_grad():
        runner.open()
        for _ in range(4):
            runner.unit()
    assert seen == {"world": {"MainThread"}, "stream": {"lane"}}


def test_what_a_lane_captures_is_bound_in_its_thread(monkeypatch: pytest.MonkeyPatch, opened: list[Lane]) -> None:
    """Else its graphs share the cuBLAS workspace of those of the other lane, beside which they are replayed."""
    bound, port = list[str](), ModuleEngine.port

    def noted(*of: Any, **named: Any) -> Any:
        bound.append(threading.current_thread().name.partition("_")[0])
        return port(*of, **named)

    monkeypatch.setattr(ModuleEngine, "port", noted)
    loop = loop_of("toy_loops:Toy")
    runner_of("toy_loops:Toy", loop, BEHIND, opened)
    assert dict(zip((key.slot for key in loop.programs), bound, strict=True)) == {
        "world": "MainThread",
        "stream": "lane",
    }


@pytest.mark.parametrize(("kind", "refused"), [("captures", False), ("copies_inputs", True)])
def test_engines_with_graphs_run_in_lanes_where_torch_documents_it(
    kind: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pretended of engines of eager: a graph with a pool of its own, and one that is captured within the call."""
    job = make_job(tmp_path, EAGER)
    monkeypatch.setattr(ModuleEngine, kind, lambda _self: True)
    made, _ = run_mix(replace(job, schedule="decode-behind:1+1"), tmp_path / "work", units=8)
    assert (made.status == "unsupported") == refused
    assert made.reason.startswith("decode-behind: world.world captures within its calls") == refused


def test_each_lane_keeps_its_number_of_threads(opened: list[Lane]) -> None:
    before = torch.get_num_threads()
    lane = Lane(loop_of("toy_loops:Toy"), Schedule(BEHIND, (3, 1)), "cpu")
    opened.append(lane)
    lane.do(lambda: None)
    try:
        torch.set_num_threads(3)
        assert (torch.get_num_threads(), lane.do(torch.get_num_threads)) == (3, 1)
        lane.do(lambda: torch.set_num_threads(2))  # as a build does
        lane.settle_threads()
        assert (torch.get_num_threads(), lane.do(torch.get_num_threads)) == (3, 1)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ReadsOnTheHost", "the loop reads values of what it returns on the host within the unit"),
        ("WritesIntoItsOwn", "the loop writes what it returns into a tensor of its own"),
    ],
)
def test_a_loop_that_needs_values_within_the_unit_is_refused_by_name(
    name: str, reason: str, opened: list[Lane]
) -> None:
    runner = runner_of(f"planted_loops:{name}", loop_of("toy_loops:Toy"), BEHIND, opened)
    with torch.no_grad():
        runner.open()
        with pytest.raises(Unsupported, match=reason) as caught:
            runner.unit()
    assert "decode-behind: " in str(caught.value)
    assert "stream.stream cannot be put off" in str(caught.value)


def test_values_that_are_not_there_yet_are_not_read_by_accident(opened: list[Lane]) -> None:
    loop = loop_of("toy_loops:Toy")
    runner_of("toy_loops:Toy", loop, BEHIND, opened)
    form = (2, 3), (3, 1), 0, torch.float32, torch.device("cpu")
    later = Later(opened[0], form)
    assert (later.shape, later.dtype, repr(later)) == ((2, 3), torch.float32, "Later([2, 3], torch.float32)")
    for read in (lambda: later.numpy(), lambda: later.tolist(), lambda: torch.zeros(2, 3).copy_(later)):
        with pytest.raises(Unsupported, match="cannot be put off"):
            read()


@pytest.mark.parametrize("schedule", ["sequential", "decode-behind:1+1"])
def test_a_mix_under_a_schedule_is_ok_and_promised(schedule: str, tmp_path: Path) -> None:
    job = replace(make_job(tmp_path, EAGER), schedule=schedule)
    made, _ = run_mix(job, tmp_path / "work", units=16)
    assert (made.status, made.reason) == ("ok", "")
    assert made.promised is not None
    assert made.promised.ms > 0
    assert made.promised.latency_ms is not None
    assert made.promised.latency_ms >= made.promised.ms
    assert set(made.promised.alone_ms) == {"world.world", "stream.stream", ""}
    assert made.units is not None
    for index, wall_ns in enumerate(made.units.wall_ns):
        assert sum(line.ns[index] for line in made.units.lines) == wall_ns
        if schedule != "sequential":
            assert sum(line.ns[index] for line in made.units.beside) == wall_ns
    beside = {line.name for line in made.units.beside}
    assert beside == ({"decode", "present", "copies", "idle", "glue"} if schedule != "sequential" else set())
    assert bool(made.promised.slowdowns) == (schedule != "sequential")
    assert bool(made.promised.memory_bytes) == (schedule != "sequential"), "the latent, the window and outputs"


def test_settings_that_only_a_build_reads_may_differ_between_lanes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a mix whose first program is eager, and whose second one imports inductor."""
    import torch._inductor.config as config

    name = "inductor.coordinate_descent_tuning"
    known = {name: bool(config.coordinate_descent_tuning)}
    monkeypatch.setattr(
        "bakeoff.worker.torch_flags.read_inductor_settings",
        lambda: {} if threading.current_thread() is threading.main_thread() else known,
    )
    made, _ = run_mix(replace(make_job(tmp_path, EAGER), schedule="decode-behind:1+1"), tmp_path / "work", units=4)
    assert "flags of torch" not in made.reason


class Streams:
    """A pretended device: what is recorded, waited for and called on its streams, in order."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str, int]] = []
        """What, on which stream, and the number of the event; 0 without one."""
        self._of = threading.local()
        self._events = count(1)

    def note(self, what: str, event: int = 0) -> None:
        self.log.append((what, self.current().name, event))

    def current(self) -> Any:
        found: Any = getattr(self._of, "stream", None) or FakeStream(self, "main")
        return found

    def enter(self, stream: Any) -> None:
        self._of.stream = stream

    def event(self, **_: Any) -> "FakeEvent":
        return FakeEvent(self, next(self._events))


@dataclass
class FakeStream:
    device: Streams
    name: str = "lane"

    def wait_event(self, event: "FakeEvent") -> None:
        self.device.log.append(("wait", self.name, event.number))

    def wait_stream(self, other: "FakeStream") -> None:
        self.device.log.append((f"wait for {other.name}", self.name, 0))

    def synchronize(self) -> None:
        self.device.log.append(("synchronize", self.name, 0))


@dataclass
class FakeEvent:
    device: Streams
    number: int

    def record(self) -> None:
        self.device.note("record", self.number)

    def elapsed_time(self, _other: "FakeEvent") -> float:
        return 0.0


@pytest.mark.parametrize("schedule", [BEHIND, BESIDE])
def test_streams_wait_for_what_they_read(schedule: str, monkeypatch: pytest.MonkeyPatch, opened: list[Lane]) -> None:
    streams = Streams()
    for name, fake in (
        ("Stream", lambda: FakeStream(streams)),
        ("Event", streams.event),
        ("set_stream", streams.enter),
        ("current_stream", streams.current),
        ("synchronize", lambda: streams.note("synchronize")),
    ):
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda _self, stream: streams.note(f"keep for {stream.name}"))
    loop = loop_of("matrix", "tiny")
    lane = Lane(loop, Schedule(schedule, (1, 1)), "cuda")
    opened.append(lane)
    runner = eager_runner("matrix", loop, lane)
    for key in loop.programs:
        port: Any = runner.port(key)
        call = port._call

        def noted(call: Any = call, key: Any = key) -> Any:
            streams.note(f"call {key}")
            return call()

        port._call = noted
    with torch.no_grad():
        runner.open()
        for _ in range(3):
            runner.unit()
        for _ in range(2):
            streams.log.clear()
            runner.unit()
            log = streams.log
            late = [place for place, (what, stream, _) in enumerate(log) if stream == "lane" and "call" in what]
            assert {log[place][0] for place in late} == {f"call {key}" for key in lane.programs & loop.calls().keys()}
            waits = [
                place for place, (what, stream, _) in enumerate(log[: late[0]]) if (what, stream) == ("wait", "lane")
            ]
            assert waits, "the lane waits for what it reads"
            waited = waits[-1]
            recorded = log.index(("record", "main", log[waited][2]))
            assert recorded < waited < late[0], "the lane begins when what it reads is computed"
            first = [place for place, (what, stream, _) in enumerate(log) if stream == "main" and "call" in what]
            kept = [place for place, (what, *_) in enumerate(log) if what == "keep for lane"]
            if schedule == BESIDE:
                assert [place for place in first if place < recorded], "it waits for the passes that made the latent"
                assert all(place < waited for place in kept), "copies are made by then"
            joined = log.index(("wait for lane", "main", 0))
            assert joined > max(late), "the unit ends when both lanes are done"


def test_a_decoder_that_is_a_third_of_the_unit_is_hidden_and_the_gain_is_promised(tmp_path: Path) -> None:
    """Each call sleeps for 40 ms, two of the world and one of the stream: 120 ms in a row, 80 beside each other."""
    slow = dict.fromkeys(("world", "stream"), "loop_backends:SLOWER/fp32")
    job, unit_ms, promised_ms = make_job(tmp_path, slow), dict[str, float](), dict[str, float]()
    for schedule in ("sequential", "decode-behind:1+1"):
        made, _ = run_mix(replace(job, schedule=schedule), tmp_path / schedule, units=20)
        assert made.units is not None
        assert made.promised is not None
        steady = [ns for ns, kind in zip(made.units.wall_ns, made.units.kinds, strict=True) if kind == "steady"]
        unit_ms[schedule], promised_ms[schedule] = median(steady) / 1e6, made.promised.ms
    gain = unit_ms["sequential"] / unit_ms["decode-behind:1+1"]
    assert gain == pytest.approx(1.5, rel=0.15)
    assert promised_ms["sequential"] / promised_ms["decode-behind:1+1"] == pytest.approx(gain, rel=0.15)
    assert made.promised.latency_ms is not None
    later_ms = made.promised.latency_ms - made.promised.ms
    assert later_ms == pytest.approx(made.promised.alone_ms["stream.stream"], rel=0.5), "ready in the next unit"


def test_a_sustained_run_delivers_each_frame_a_unit_later(tmp_path: Path) -> None:
    job = replace(make_job(tmp_path, EAGER), schedule="decode-behind:1+1", sustained=Sustained(24.0, False, 1))
    made, heard = run_mix(job, tmp_path / "work", units=16)
    assert (made.status, made.reason) == ("ok", "")
    assert [stamp.frames for stamp in heard.stamps[:4]] == [0, 1, 1, 1]
    assert made.units is not None
    for lines in (made.units.lines, made.units.beside):
        assert sum(ns for line in lines for ns in line.ns) == sum(made.units.wall_ns)
