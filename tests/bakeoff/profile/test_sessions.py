"""Sessions from their opening to their record: what they take along, how they end, and what they refuse."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
from recording import Clock, codes, make_profiler, opened, own_times, quiet, record_of

from bakeoff.machine import gpus
from bakeoff.models.errors import BakeoffError
from bakeoff.monitor import client
from bakeoff.profile import NO_SESSION, Profiler, Settings, current
from bakeoff.profile.recording import MOST_EVENTS, MOST_SAMPLED
from bakeoff.record.monitor import Monitored
from bakeoff.record.session import SessionRecord


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_record_is_written_and_can_be_read(tmp_path: Path, clock: Clock) -> None:
    profiler = make_profiler(tmp_path, clock, session_tags={"mode": "t2v"})
    made = profiler.session("my video/../x", {"commit": "abc", "mode": "i2v"})
    with made as session, session.unit(frames=3), session.phase("denoise"), session.step(0, timestep=1.0):
        clock.ms(5)
    (path,) = session.files
    assert path.parent == tmp_path
    assert msgspec.json.decode(path.read_bytes(), type=SessionRecord) == session.record
    record = record_of(session)
    assert (record.name, record.status, record.ns) == ("my video/../x", "ok", 5_000_000)
    assert record.tags == {"mode": "i2v", "commit": "abc"}
    assert record.settings["overhead_limit"] == 0.01
    assert record.started_at.endswith("+00:00")
    assert {"cpu", "cores", "python", "system", "bakeoff"} <= set(record.environment)
    assert record.findings == ()


def test_sessions_do_not_bleed_into_each_other(tmp_path: Path, clock: Clock) -> None:
    profiler = make_profiler(tmp_path, clock)
    for name in ("one", "two"):
        with opened(profiler, name) as session:
            with session.unit(frames=1), session.phase(name):
                clock.ns += 5
            session.event(name)
            session.sample(name, 1.0)
            session.parameters(name, 7)
        record = record_of(session)
        assert own_times(record) == {(): 0, ("unit",): 0, ("unit", name): 5}
        assert [event.name for event in record.events] == [name]
        assert [each.name for each in record.parameters] == [name]
        assert [each.name for each in record.series] == ["unit", f"phase.{name}", name]
        assert record.before == ()
        assert record.units[0].count == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_a_session_that_raises_has_a_record_and_the_exception_goes_on(tmp_path: Path, clock: Clock) -> None:
    session = opened(make_profiler(tmp_path, clock))

    def fail() -> None:
        with session, session.phase("encode"):
            clock.ns += 3
            raise ValueError("no such prompt")

    with pytest.raises(ValueError, match="no such prompt"):
        fail()
    record = record_of(session)
    assert record.status == "failed: ValueError: no such prompt"
    assert own_times(record) == {(): 0, ("encode",): 3}
    assert json.loads(session.files[0].read_bytes())["status"] == record.status


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (asyncio.CancelledError(), "interrupted"),
        (SystemExit(0), "ok"),
        (SystemExit(3), "failed: SystemExit: 3"),
        (MemoryError(), "failed: MemoryError"),
    ],
)
def test_what_ends_a_session_is_its_status(error: BaseException, status: str, tmp_path: Path, clock: Clock) -> None:
    session = opened(make_profiler(tmp_path, clock))
    with pytest.raises(type(error)), session:
        raise error
    assert record_of(session).status == status


def test_ranges_before_a_session_are_told_by_the_next_one_alone(tmp_path: Path, clock: Clock) -> None:
    profiler = make_profiler(tmp_path, clock)
    with profiler.stage("load"):
        clock.ns += 8
        with profiler.stage("weights"):
            clock.ns += 2
    with opened(profiler, "one") as first:
        clock.ns += 1
    with first.phase("late"), profiler.stage("after"):  # a session that has ended keeps nothing more
        clock.ns += 4
    with opened(profiler, "two") as second:
        pass
    assert [(each.path, each.total_ns, each.own_ns) for each in record_of(first).before] == [
        (("load",), 10, 8),
        (("load", "weights"), 2, 2),
    ]
    assert [(each.path, each.kind, each.total_ns) for each in record_of(second).before] == [(("after",), "stage", 4)]
    assert own_times(record_of(first)) == {(): 1}


def test_a_session_within_a_session_of_the_same_profiler_is_a_stage_of_it(tmp_path: Path, clock: Clock) -> None:
    profiler = make_profiler(tmp_path, clock)
    with opened(profiler, "outer") as outer:
        with opened(profiler, "inner") as inner:
            assert inner is outer
            clock.ns += 2
        assert current() is outer
    record = record_of(outer)
    assert own_times(record) == {(): 0, ("inner",): 2}
    assert [(each.name, each.data["session"]) for each in record.events] == [("session_in_session", "inner")]


def test_the_gpu_of_a_torch_that_is_loaded_is_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler, told = Profiler(quiet(tmp_path)), Profiler(quiet(tmp_path), device="cpu")
    assert profiler.device == ""
    monkeypatch.setitem(sys.modules, "torch.cuda", SimpleNamespace(is_available=lambda: True))
    for each in (profiler, told, Profiler()):
        each.session("one")
    assert (profiler.device, told.device) == ("cuda", "cpu")


def test_a_session_is_used_once(tmp_path: Path, clock: Clock) -> None:
    session = opened(make_profiler(tmp_path, clock))
    with session:
        pass
    with pytest.raises(BakeoffError, match="was used already"), session:
        pass


def test_tasks_have_sessions_of_their_own(tmp_path: Path, clock: Clock) -> None:
    profiler = make_profiler(tmp_path, clock)
    found = {}

    async def serve(name: str) -> None:
        with opened(profiler, name) as session:
            await asyncio.sleep(0)
            assert current() is session
            with current().phase(name):
                await asyncio.sleep(0)
        found[name] = record_of(session)

    async def both() -> None:
        await asyncio.gather(serve("a"), serve("b"))

    asyncio.run(both())
    assert {name: set(own_times(record)) for name, record in found.items()} == {
        "a": {(), ("a",)},
        "b": {(), ("b",)},
    }


def test_a_profiler_that_is_off_records_and_writes_nothing(tmp_path: Path) -> None:
    profiler = Profiler(Settings(output_dir=str(tmp_path / "none")))
    with profiler.session("t2v", {"a": 1}) as session:
        assert session is NO_SESSION
        assert current() is NO_SESSION
        with session.stage("a"), session.unit(frames=3), session.phase("b"), session.step(0), session.collective("c"):
            session.event("e", a=1)
            session.parameters("wm", 5)
            session.sample("queue", 1)
    assert (session.record, session.files) == (None, ())
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("device", "parallelism"), [("gpu", "model"), ("cuda:x", "model"), ("", "pipeline")])
def test_a_profiler_refuses_what_it_does_not_know(device: str, parallelism: Any) -> None:
    with pytest.raises(BakeoffError):
        Profiler(Settings(), device, parallelism)


def test_events_hold_plain_values_and_say_what_is_none(tmp_path: Path, clock: Clock) -> None:
    class Tensor:
        shape, dtype, device = (2, 3), "torch.bfloat16", "cuda:0"

        def __repr__(self) -> str:
            raise AssertionError("read from the device")

    with opened(make_profiler(tmp_path, clock)) as session:
        clock.ns += 6
        session.event("good", name="x", n=1, f=1.5, b=True, none=None, shape=(1, 2), path=Path("a"), tensor=Tensor())
        session.event("bad", value=float("nan"), other=1)
        session.event("long", text="y" * 10_000, items=list(range(10**5)), huge=10**40)
    good, bad, long = record_of(session).events
    assert (good.t_ns, good.failed) == (6, False)
    assert good.data == {
        "name": "x",
        "n": 1,
        "f": 1.5,
        "b": True,
        "none": None,
        "shape": "(1, 2)",
        "path": f"{Path('a')!r}",
        "tensor": "Tensor[2, 3] torch.bfloat16 cuda:0",
    }
    assert (bad.failed, bad.data) == (True, {"value": None, "other": 1})
    assert all(len(str(value)) <= 1_024 for value in long.data.values())


def test_events_are_bounded_and_those_left_out_are_counted(tmp_path: Path, clock: Clock) -> None:
    with opened(make_profiler(tmp_path, clock)) as session:
        for index in range(MOST_EVENTS + 7):
            session.event("e", index=index)
    record = record_of(session)
    assert (len(record.events), record.events_dropped) == (MOST_EVENTS, 7)
    assert record.events[0].data == {"index": 0}


def test_parameters_are_counted_once_by_name(tmp_path: Path, clock: Clock) -> None:
    torch = pytest.importorskip("torch")
    shared = torch.nn.Linear(4, 3, bias=False)
    module = torch.nn.Sequential(shared, torch.nn.Linear(3, 4), torch.nn.Linear(4, 3, bias=False))
    module[2].weight = shared.weight
    module[1].to(torch.bfloat16)
    with opened(make_profiler(tmp_path, clock)) as session:
        for _ in range(3):
            session.parameters("wm", module, kind="diffusion")
        session.parameters("vae", 1_000)
        session.parameters("bad", "many")
    record = record_of(session)
    wm, vae = record.parameters
    assert (wm.name, wm.count, wm.bytes, wm.kind) == ("wm", 28, 12 * 4 + 16 * 2, "diffusion")
    assert wm.dtype == "bfloat16, float32"
    assert (vae.count, vae.bytes, vae.dtype) == (1_000, None, "")
    assert codes(record) == ["misused"]


def test_samples_that_are_no_numbers_are_told(tmp_path: Path, clock: Clock) -> None:
    with opened(make_profiler(tmp_path, clock)) as session:
        for value in (3, 5.0, float("inf"), "many"):
            session.sample("queue", value, unit="frames")  # type: ignore[arg-type]
        for index in range(MOST_SAMPLED + 3):
            session.sample(f"s{index}", 1.0)
    record = record_of(session)
    queue = record.series[0]
    assert (queue.name, queue.unit, queue.source, queue.count, queue.greatest) == ("queue", "frames", "user", 2, 5.0)
    assert len(record.series) == MOST_SAMPLED
    assert codes(record) == ["misused", "left-out"]


class Monitor:
    """Stands in for a monitor: tells what it was asked."""

    def __init__(self, fails: bool = False) -> None:
        self.requests: list[Any] = []
        self.stopped_from: list[int | None] = []
        self._fails = fails

    def start(self, request: Any) -> "Monitor":
        self.requests.append(request)
        return self

    def latest(self) -> Mapping[str, float]:
        return {"gpu.power": 300.0}

    def stop(self, start_ns: int | None = None) -> Monitored:
        self.stopped_from.append(start_ns)
        if self._fails:
            raise RuntimeError("the driver is gone")
        return Monitored(missing=("no GPU",))


def watched(monkeypatch: pytest.MonkeyPatch, monitor: Monitor) -> None:
    """Let this be the monitor of the package."""
    monkeypatch.setattr(client, "Monitor", monitor)
    monkeypatch.setattr(gpus, "read_gpus", lambda: ({"uuid": "GPU-1"},))


def test_a_monitor_watches_what_the_settings_ask_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = Monitor()
    watched(monkeypatch, monitor)
    changes = {"monitor_gpu_power": True, "monitor_gpu_utilization": True, "monitor_cpu_usage": True}
    profiler = make_profiler(tmp_path, None, **changes, gpu_monitor_interval=0.2, max_data_points=77)
    with opened(profiler) as session:
        assert session.latest() == {"gpu.power": 300.0}
    (request,) = monitor.requests
    assert request.gpu == ("busy", "sm_active", "power", "clocks", "throttle")
    assert request.cpu == ("process", "load", "energy")
    assert (request.devices, request.gpu_interval_s, request.points, request.raw) == (("GPU-1",), 0.2, 77, "")
    assert record_of(session).monitored == Monitored(missing=("no GPU",))
    assert monitor.stopped_from == [pytest.approx(session.root.started_ns, abs=1e7)]


def test_a_monitor_that_fails_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched(monkeypatch, Monitor(fails=True))
    with opened(make_profiler(tmp_path, None, monitor_cpu_usage=True)) as session:
        pass
    record = record_of(session)
    assert codes(record) == ["not-monitored"]
    assert "the driver is gone" in record.findings[0].text


def test_samples_of_the_monitor_lie_beside_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = Monitor()
    watched(monkeypatch, monitor)
    with opened(make_profiler(tmp_path, None, monitor_cpu_usage=True, save_raw_data=True)):
        raw = Path(monitor.requests[0].raw)
        raw.write_text('{"t_ns": 1}\n')
    assert not raw.exists()
    (kept,) = tmp_path.glob("*.samples.jsonl")
    assert kept.read_text() == '{"t_ns": 1}\n'


def test_a_display_that_fails_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Live:
        def __init__(self, session: Any) -> None:
            self.name = session.name

        def start(self) -> None:
            raise OSError("no terminal")

        def stop(self) -> None:
            raise OSError("never started")

    live = ModuleType("bakeoff.profile.live")
    vars(live)["Live"] = Live
    monkeypatch.setitem(sys.modules, "bakeoff.profile.live", live)
    with opened(make_profiler(tmp_path, None, real_time_display=True)) as session:
        pass
    assert codes(record_of(session)) == ["live-failed"]


@pytest.mark.parametrize("with_session", [False, True])
def test_nothing_large_is_imported(with_session: bool, tmp_path: Path) -> None:
    heavy = ("torch", "numpy", "scipy", "vl_convert", "rich", "jinja2", "psutil", "pynvml")
    run = f"import bakeoff.profile as p; s = p.Settings(**{asdict(quiet(tmp_path))!r})\n"
    if with_session:
        run += "with p.Profiler(s).session('t2v') as session:\n with session.unit(frames=1), session.phase('a'): pass\n"
        run += "assert session.files and session.record.units[0].count == 1"
    script = f"{run}\nimport sys\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
