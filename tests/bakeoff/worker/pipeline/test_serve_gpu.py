"""A mix on a GPU: events account for its units, and memory of the device is metered."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="workers need it")

import torch
from mixes import make_job, run_mix

from bakeoff.models.pipelines.schedule import ONE_GRAPH
from bakeoff.worker.pipeline.units import stamp_ns

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here"),
]


@pytest.mark.parametrize(
    ("world", "stream"),
    [
        ("eager", "eager"),
        ("inductor", "eager"),
        ("cudagraph", "eager"),
        ("tensorrt-aot[cudagraphs]", "tensorrt-aot"),  # the mode is one global of the process
        ("tensorrt-aot", "tensorrt-aot[cudagraphs]"),
    ],
)
def test_a_mix_runs_on_a_gpu(world: str, stream: str, tmp_path: Path) -> None:
    if world.startswith("tensorrt") and find_spec("torch_tensorrt") is None:
        pytest.skip("torch_tensorrt is not installed")
    job = make_job(tmp_path, {"world": f"{world}/bf16", "stream": f"{stream}/fp32"}, device="cuda")
    made, _ = run_mix(job, tmp_path / "work")
    assert (made.status, made.reason) in (("ok", ""), ("unstable", made.reason))
    assert made.units is not None
    for unit, wall_ns in enumerate(made.units.wall_ns):
        assert sum(line.ns[unit] for line in made.units.lines) == wall_ns
    assert made.parity is not None
    assert made.parity.passed
    assert made.memory is not None
    assert made.memory.device_peak_bytes


@pytest.mark.parametrize(("world", "stream"), [("eager", "eager"), ("eager", "cudagraph"), ("cudagraph", "cudagraph")])
def test_a_decoder_runs_behind_on_a_stream_of_its_own(world: str, stream: str, tmp_path: Path) -> None:
    job = make_job(tmp_path, {"world": f"{world}/bf16", "stream": f"{stream}/fp32"}, device="cuda")
    made, _ = run_mix(replace(job, schedule="decode-behind:1+1"), tmp_path / "work", units=16)
    assert (made.status, made.reason) in (("ok", ""), ("unstable", made.reason))
    assert made.units is not None
    for unit, wall_ns in enumerate(made.units.wall_ns):
        for lines in (made.units.lines, made.units.beside):
            assert sum(line.ns[unit] for line in lines) == wall_ns
    assert made.promised is not None
    assert made.promised.slowdowns


@pytest.mark.parametrize("backend", ["eager", "inductor", "aoti", "tensorrt-aot"])
def test_a_unit_is_one_graph(backend: str, tmp_path: Path) -> None:
    if backend.startswith("tensorrt") and find_spec("torch_tensorrt") is None:
        pytest.skip("torch_tensorrt is not installed")
    job = make_job(tmp_path, {"world": f"{backend}/bf16", "stream": "eager/fp32"}, device="cuda")
    made, _ = run_mix(replace(job, schedule=ONE_GRAPH), tmp_path / "work", units=16)
    assert (made.status, made.reason) in (("ok", ""), ("unstable", made.reason))
    assert made.units is not None
    assert any(line.name == "graph" and all(line.ns) for line in made.units.lines)
    assert made.promised is not None
    assert made.promised.memory_bytes, "its buffers and its pool"


@pytest.mark.parametrize(
    ("world", "schedule", "status"),
    [
        ("cudagraph", ONE_GRAPH, "unsupported"),
        ("inductor[mode=reduce-overhead]", ONE_GRAPH, "unsupported"),
        ("inductor[mode=reduce-overhead]", "decode-behind:1+1", "unsupported"),
    ],
)
def test_graphs_that_a_schedule_cannot_hold_are_refused(world: str, schedule: str, status: str, tmp_path: Path) -> None:
    job = make_job(tmp_path, {"world": f"{world}/bf16", "stream": "eager/fp32"}, device="cuda")
    made, _ = run_mix(replace(job, schedule=schedule), tmp_path / "work")
    assert made.status == status
    assert "world.world" in made.reason


def test_a_stamp_costs_less_than_20_us_on_a_gpu() -> None:
    assert 0 < stamp_ns("cuda") < 20_000
