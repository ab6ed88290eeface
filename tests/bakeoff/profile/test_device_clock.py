"""Times of a CUDA device: events at the borders of ranges, read without waiting, by a stand-in for torch."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from recording import MS, Clock, codes, quiet, range_at, record_of

from bakeoff.profile import Profiler, Session
from bakeoff.profile import torch_state as module


class Device:
    """A device whose work is done when the test says so; events are times in milliseconds."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.done_ms = 0.0
        self.waited = 0
        self.capturing = False
        self.fails = False
        self.made = 0

    def module(self) -> ModuleType:
        """The part of torch that is used."""
        device = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing
                device.made += 1
                self.ms = -1.0

            def record(self, stream: str) -> None:
                assert stream == "stream of cuda:1"
                if device.fails:
                    raise RuntimeError("CUDA error: an illegal memory access was encountered")
                self.ms = device.ms

            def query(self) -> bool:
                return device.done_ms >= self.ms

            def synchronize(self) -> None:
                device.waited += 1
                device.done_ms = max(device.done_ms, self.ms)

            def elapsed_time(self, end: "Event") -> float:
                assert end.query()
                return end.ms - self.ms

        torch = ModuleType("torch")
        vars(torch)["device"] = lambda name: name
        vars(torch)["cuda"] = SimpleNamespace(
            Event=Event,
            current_stream=lambda name: f"stream of {name}",
            is_current_stream_capturing=lambda: device.capturing,
            get_device_properties=lambda name: SimpleNamespace(uuid=f"uuid of {name}"),
        )
        return torch


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    for name in [name for name in sys.modules if name == "torch" or name.startswith("torch.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", made.module())
    return made


def opened(folder: Path, clock: Clock) -> Session:
    profiler = Profiler(quiet(folder), device="cuda:1")
    profiler.clock = clock
    session = profiler.session("gpu")
    assert isinstance(session, Session)
    return session


def test_ranges_have_the_time_between_their_events(tmp_path: Path, device: Device) -> None:
    clock = Clock()
    with opened(tmp_path, clock) as session:
        for _ in range(3):
            with session.unit(frames=1):
                with session.phase("denoise"):
                    device.ms += 40  # queued: the host goes on at once
                    clock.ms(1)
                with session.phase("decode"):
                    device.ms += 2.5
                    clock.ms(1)
    record = record_of(session)
    assert range_at(record, "unit", "denoise").device_ns == 120 * MS
    assert range_at(record, "unit", "decode").device_ns == round(7.5 * MS)
    assert range_at(record, "unit").device_ns == round(127.5 * MS)
    assert range_at(record, "unit", "denoise").total_ns == 3 * MS
    assert codes(record) == []


def test_nothing_waits_for_the_device_before_the_session_has_ended(tmp_path: Path, device: Device) -> None:
    clock = Clock()
    with opened(tmp_path, clock) as session:
        for _ in range(5):
            with session.unit(), session.phase("a"):
                device.ms += 10
        assert device.waited == 0
        seen = session.tree.root.children["unit", "unit"].device_ns
        device.done_ms = 30
        with session.unit(), session.phase("a"):
            device.ms += 10
        assert device.waited == 0
        later = session.tree.root.children["unit", "unit"].device_ns
    assert (seen, later) == (None, 30 * MS)
    assert range_at(record_of(session), "unit").device_ns == 60 * MS


def test_the_device_has_the_uuid_that_nvml_gives(device: Device) -> None:
    assert module.DeviceClock("cuda:1").uuid() == "GPU-uuid of cuda:1"
    del sys.modules["torch"].cuda.get_device_properties
    assert module.DeviceClock("cuda:1").uuid() == ""
    assert device.made == 0


def test_while_a_graph_is_captured_no_event_is_recorded(tmp_path: Path, device: Device) -> None:
    with opened(tmp_path, Clock()) as session:
        with session.phase("captured"):
            device.capturing = True
            with session.phase("inner"):
                device.ms += 5
            device.capturing = False
        with session.phase("replayed"):
            device.ms += 5
    record = record_of(session)
    assert range_at(record, "captured", "inner").device_ns is None
    assert range_at(record, "replayed").device_ns == 5 * MS
    assert codes(record) == ["no-device-times"]
    assert record.findings[0].text.startswith("1 range has no time of cuda:1")


def test_an_error_of_cuda_is_told_and_goes_no_further(tmp_path: Path, device: Device) -> None:
    with opened(tmp_path, Clock()) as session:
        with session.phase("good"):
            device.ms += 1
        device.fails = True
        with session.phase("bad"):
            device.ms += 1
    record = record_of(session)
    assert record.status == "ok"
    assert codes(record) == ["no-device-times"]
    assert "illegal memory access" in record.findings[0].text
    assert range_at(record, "bad").device_ns is None


def test_a_device_that_falls_behind_does_not_fill_memory(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PENDING", 10)
    with opened(tmp_path, Clock()) as session:
        for _ in range(25):
            with session.phase("a"):
                device.ms += 1
    record = record_of(session)
    assert range_at(record, "a").device_ns == 10 * MS
    assert record.findings[0].text.startswith("15 ranges have no time")


@pytest.mark.gpu
def test_a_real_device_is_timed(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")

    def work(size: int) -> Any:
        value = torch.ones(size, size, device="cuda")
        for _ in range(20):
            value = value @ value / size
        return value

    work(4_096)
    torch.cuda.synchronize()
    profiler = Profiler(quiet(tmp_path), device="cuda")
    with profiler.session("gpu") as session:
        for _ in range(3):
            with session.unit(frames=1), session.phase("matmul"):
                work(4_096)
    found = range_at(record_of(session), "unit", "matmul").device_ns
    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began.record()
    work(4_096)
    ended.record()
    ended.synchronize()
    assert found is not None
    assert found / 3 == pytest.approx(began.elapsed_time(ended) * MS, rel=0.5)
