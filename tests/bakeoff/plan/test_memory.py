"""Estimates of memory: by a row's dtype and its sets of inputs, on the card and on its host."""

import pytest
from records import GPU_HOST

from bakeoff.machine import host
from bakeoff.models import resolve_component
from bakeoff.plan.memory import total
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.plan.rows import Row, short_of_memory

GIB = 1 << 30
USABLE = {16: 15 * GIB, 24: 22 * GIB, 80: 78 * GIB}
"""Of cards with so many GiB."""


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Free memory of a host with a GPU, to be set by a test."""
    host.read_versions()  # kept for the process, so with the real compiler
    version = host._version
    room = {"cuda": 1 << 50, "cpu": 1 << 50}
    monkeypatch.setattr(host, "_version", lambda name: version(name).removesuffix("+cpu"))
    monkeypatch.setattr(host, "read_host", lambda: GPU_HOST)
    monkeypatch.setattr(host, "available_bytes", lambda device: room[device])
    monkeypatch.setenv("CXX", "sh")
    return room


def row(component: str, backend: str, dtype: str, device: str = "cuda") -> Row:
    name, _, workload = component.partition(".")
    preset = resolve_component(name).default_preset["cuda"]
    asked = Request(name, (preset,), (workload,) if workload else (), (backend,), (dtype,), device)  # type: ignore[arg-type]
    return make_plan(asked).rows[0]


def refused(component: str, backend: str, dtype: str) -> bool:
    """Whether it is not started for want of memory, wherever its library is."""
    return short_of_memory(row(component, backend, dtype).memory, "cuda") is not None


@pytest.mark.usefixtures("free")
class TestEstimates:
    @pytest.mark.parametrize("device", ["cpu", "cuda"])
    def test_inputs_and_outputs_have_the_dtype_of_the_row(self, device: str) -> None:
        """Those of matrix-vae are of gigabytes, and all but all of the memory."""
        wide, narrow = (row("matrix-vae.steady1", "eager", dtype, device).memory.device for dtype in ("fp32", "bf16"))
        assert narrow < 0.95 * wide
        if device == "cuda":
            assert narrow - GIB == pytest.approx((wide - GIB) / 2, rel=0.02), "nothing of it is drawn on the card"

    def test_as_many_sets_count_as_are_drawn(self) -> None:
        """Two where a set is large, of which one is changed; with the values that are written back."""
        component = resolve_component("matrix-vae")
        preset = component.preset(component.default_preset["cuda"])
        workload = component.workload(preset.config, "steady1", 1)
        assert (workload.set_count, workload.changed_set_count) == (2, 1)
        inputs, outputs = (4 * sum(spec.elements for spec in ends) for ends in (workload.inputs, workload.outputs))
        weights = preset.parameters * 4
        assert row("matrix-vae.steady1", "eager", "fp32").memory.device == weights + 4 * inputs + 2 * outputs + GIB

    def test_tensorrt_ahead_of_time_holds_six_copies_of_its_plan_on_the_host(self) -> None:
        weights = 4 * resolve_component("wm").preset("1b").parameters
        host_bytes = row("wm", "tensorrt-aot", "fp32").memory.host
        assert 6 * weights < host_bytes < 6 * weights + 2 * GIB
        assert row("wm", "eager", "fp32").memory.host < 2 * weights
        assert row("wm", "eager", "fp32", "cpu").memory.host == 0, "the device is the host"


class TestWhatIsTried:
    def test_a_host_without_room_for_the_plans_is_named(self, free: dict[str, int]) -> None:
        free.update(cuda=USABLE[24], cpu=16 * GIB)
        found = row("wm", "tensorrt-aot", "fp32")
        assert refused("wm", "tensorrt-aot", "fp32")
        assert "of the host's memory" in str(short_of_memory(found.memory, "cuda"))
        assert "16384 MiB are free" in str(short_of_memory(found.memory, "cuda"))
        assert not refused("wm", "tensorrt-aot", "bf16")
        assert not refused("wm", "eager", "fp32")

    def test_is_asked_again_when_it_is_a_rows_turn(self, free: dict[str, int]) -> None:
        planned = row("toy", "eager", "fp32", "cpu")
        assert planned.obstacle() is None
        free.update(cpu=0)
        assert str(planned.obstacle()).startswith("oom: ")
        planned = row("toy", "eager", "fp32", "cpu")
        free.update(cpu=1 << 50)
        assert planned.obstacle() is None

    @pytest.mark.parametrize("backend", ["eager", "inductor[mode=reduce-overhead]", "tensorrt", "tensorrt-aot"])
    @pytest.mark.parametrize(
        "component", ["wm", "image", "audio", "matrix-vae.steady1", "matrix-vae.steady3", "matrix-wm"]
    )
    def test_half_precision_on_a_card_of_16_gib(self, free: dict[str, int], component: str, backend: str) -> None:
        free.update(cuda=USABLE[16], cpu=32 * GIB)
        assert not refused(component, backend, "bf16")

    def test_finals_of_large_outputs_run_side_by_side_on_24_gib(self, free: dict[str, int]) -> None:
        free.update(cuda=USABLE[24])
        sides = [row("matrix-vae.steady1", name, "bf16").memory for name in ("tensorrt", "inductor[]", "eager")]
        assert short_of_memory(total(sides), "cuda") is None
        assert short_of_memory(total([*sides, *sides]), "cuda") is not None
