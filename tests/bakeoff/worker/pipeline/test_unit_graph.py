"""A steady unit as one graph, by a fake of torch's: the same bits as sequential units, and what is refused by name.

The fake cannot show that CUDA captures a unit; a test marked `gpu` does (test_serve_gpu.py), which no card has run.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="workers need it")

import torch
from eager_loops import eager_runner
from fake_cuda_graphs import FakeCuda, Graph, install
from mixes import loop_of, make_job, run_mix

from bakeoff.backends.backend import ModuleEngine, Unsupported
from bakeoff.models.pipelines.schedule import ONE_GRAPH
from bakeoff.process.jobs import BackendStep
from bakeoff.worker.pipeline import runner as runners
from bakeoff.worker.pipeline import unit_graph
from bakeoff.worker.pipeline.account import Account
from bakeoff.worker.pipeline.programs import LoopProgram
from bakeoff.worker.pipeline.promise import unlike
from bakeoff.worker.pipeline.runner import LoopRunner, flat

pytestmark = pytest.mark.usefixtures("cuda")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return install(monkeypatch)


def graph_runner(pipeline: str, toy: str = "") -> LoopRunner:
    with torch.no_grad():
        return eager_runner(pipeline, loop_of(toy or pipeline), graph=True)


@pytest.mark.parametrize("pipeline", ["toy_loops:Toy", "owl", "matrix"])
def test_no_bit_of_a_replay_differs_from_sequential_units(pipeline: str, cuda: FakeCuda) -> None:
    loop, runner = loop_of(pipeline), graph_runner(pipeline)
    with torch.no_grad():
        assert unlike(runner, loop) == ""
        assert [line for line in cuda.log if line.startswith("capture")] == ["capture pool 1"]
        runner.open()
        for _ in range(len(loop.opening) + 6):
            sample = runner.unit()
            assert sum(sample.segments.values()) == sample.wall_ns
        assert not sample.calls, "no program has a time of its own"
        assert {one.line for one, ns in sample.segments.items() if ns} <= {"graph", "copies", "glue", "unattributed"}


def test_a_unit_is_warmed_up_captured_once_and_only_replayed(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, replays, step = graph_runner("toy_loops:Toy"), list[int](), runners.LoopRunner.called

    def called(self: LoopRunner, *of: object) -> object:
        cuda.log.append("call")
        return step(self, *of)  # type: ignore[arg-type]

    monkeypatch.setattr(LoopRunner, "called", called)
    monkeypatch.setattr(Graph, "replay", lambda graph, own=Graph.replay: (replays.append(len(cuda.log)), own(graph)))
    with torch.no_grad():
        runner.open()
        runner.ordered("beside")
        for _ in range(3):
            runner.unit()
    unit = ["call"] * 3
    side = ["Stream", "side waits for current", "on side", *unit * 3, "off", "current waits for side"]
    assert cuda.log == [*unit, *side, "graph_pool_handle", "capture pool 1", *unit]
    assert replays == [len(cuda.log)] * 3


@pytest.mark.parametrize("planted", ["", "state", "given", "windows"])
def test_values_that_a_replay_would_read_too_late_are_found_in_the_first_units(
    planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the new state, or what a unit is given, stays out of its buffers; windows stay as captured."""
    copier = unit_graph.copier

    def leaving_out(buffers: dict[str, Any], values: dict[str, Any]) -> object:
        whole = len(values) == len(buffers)
        out = whole if planted == "windows" else bool(planted) and all(name.startswith(planted) for name in values)
        return copier(buffers, {} if out else values)

    monkeypatch.setattr(unit_graph, "copier", leaving_out)
    runner = graph_runner("toy_loops:Toy")
    with torch.no_grad():
        problem = unlike(runner, loop_of("toy_loops:Toy"))
    assert problem.startswith("the schedule changes values: ") == bool(planted)


def test_a_state_whose_parts_change_places_is_read_before_it_is_overwritten() -> None:
    account = Account(loop_of("toy_loops:Toy"), "cpu")
    feeder: Any = SimpleNamespace(windows={}, forget=lambda: None)

    def step(state: Any, given: Any, _run: Any) -> Any:
        outputs = {"old": state["a"], "sum": state["a"] + given["x"]}
        state["a"], state["b"] = state["b"], state["a"]  # a loop may write into its dict
        return state, outputs

    graph = unit_graph.UnitGraph(step, feeder, account, "cpu", flat)
    state, found = {"a": torch.tensor([1.0]), "b": torch.tensor([2.0])}, list[tuple[float, float]]()
    for unit in range(4):
        state, outputs = graph.step(state, {"x": torch.full((1,), 10.0 * unit)}, None)  # type: ignore[assignment]
        found.append((float(outputs["old"]), float(outputs["sum"])))
    assert found == [(1.0, 1.0), (2.0, 12.0), (1.0, 21.0), (2.0, 32.0)]


def test_copies_to_the_host_are_made_after_the_replay() -> None:
    runner, plain = (graph_runner("planted_loops:CopiesToTheHost", "toy_loops:Toy") for _ in range(2))
    runner.ordered("beside")
    with torch.no_grad():
        for one in (runner, plain):
            one.open()
        for _ in range(4):
            for one in (runner, plain):
                one.unit()
            assert type(runner.outputs["shown"]) is torch.Tensor
            for name, value in plain.outputs.items():
                assert torch.equal(runner.outputs[name], value), name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ReadsOnTheHost", "the loop reads a value on the host"),
        ("CountsOnTheHost", "the loop has given/unit as 0 and then as 1; let it be a tensor"),
        ("ComputesOnTheHost", "the loop computes with what it copied to the host"),
    ],
)
def test_a_loop_that_a_graph_cannot_hold_is_refused_by_name(name: str, reason: str) -> None:
    runner = graph_runner(f"planted_loops:{name}", "toy_loops:Toy")
    runner.ordered("beside")
    with torch.no_grad():
        runner.open()
        if name == "CountsOnTheHost":
            runner.unit()
        with pytest.raises(Unsupported, match=reason) as caught:
            runner.unit()
    assert str(caught.value).startswith("one-graph: a graph cannot hold the unit, since ")


def test_a_loop_whose_values_lie_on_the_host_is_refused_by_name() -> None:
    runner = graph_runner("toy_loops:Toy")
    runner.ordered("beside")
    assert runner._graph is not None
    runner._graph._device = "cuda"
    with torch.no_grad():
        runner.open()
        with pytest.raises(Unsupported, match=r"has \S+ as tensor(.|\n)*; let it be a tensor of the device"):
            runner.unit()


def test_compiled_code_is_called_as_it_was_compiled() -> None:
    """Under a mode dynamo leaves compiled code out, and eager would be captured in its place."""
    ran: list[str] = []

    def backend(graph: torch.fx.GraphModule, _inputs: object) -> object:
        return lambda *of: (ran.append("compiled"), graph(*of))[1]

    runner = graph_runner("toy_loops:Toy")
    torch._dynamo.reset()
    port = next(iter(runner._feeder.programs.values())).port
    compiled, call = torch.compile(lambda x: x * 2, backend=backend), port._call

    def both() -> object:
        compiled(torch.ones(2))
        return call()

    port._call = both
    with torch.no_grad():
        runner.open()
        runner.unit()
        before = len(ran)
        runner.ordered("beside")
        runner.unit()
    assert before
    assert len(ran) == 6 * before, "warmed up four times, and captured"


def test_a_mix_as_one_graph_is_ok_and_says_what_memory_it_adds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserved = iter([5 << 20, 12 << 20])
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: next(reserved))
    job = replace(make_job(tmp_path, {"world": "eager/fp32", "stream": "eager/fp32"}), schedule=ONE_GRAPH)
    made, _ = run_mix(job, tmp_path / "work", units=16)
    assert (made.status, made.reason) == ("ok", "")
    assert made.promised is not None
    assert made.promised.memory_bytes == 7 << 20
    assert made.units is not None
    lines = {line.name: line.ns for line in made.units.lines}
    assert all(lines["graph"])
    assert "denoise" not in lines
    for index, wall_ns in enumerate(made.units.wall_ns):
        assert sum(line.ns[index] for line in made.units.lines) == wall_ns


@pytest.mark.parametrize(
    ("backend", "can"),
    [
        *((name, True) for name in ("eager", "inductor", "aoti", "tensorrt-aot")),
        *((name, False) for name in ("tensorrt", "tensorrt-rtx", "onnxruntime", "openvino")),
    ],
)
def test_a_graph_can_hold_eager_and_backends_that_offer_to_be_captured(backend: str, can: bool) -> None:
    job: Any = SimpleNamespace(steps=(BackendStep(backend, {}),))
    none: Any = None
    assert LoopProgram(job, none, none, none).can_be_captured == can


def test_an_engine_that_no_graph_can_hold_is_refused_by_name(
    tmp_path: Path, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = replace(make_job(tmp_path, {"world": "eager/fp32", "stream": "eager/fp32"}), schedule=ONE_GRAPH)
    monkeypatch.setattr(LoopProgram, "can_be_captured", property(lambda program: program.key.slot != "stream"))
    made, _ = run_mix(job, tmp_path / "work")
    assert made.status == "unsupported"
    assert made.reason.startswith("one-graph: stream.stream has no option `graph`")
    assert not any(line.startswith("capture") for line in cuda.log)


@pytest.mark.parametrize("kind", ["captures", "copies_inputs"])
def test_a_graph_of_an_engine_is_not_replayed_within_that_of_the_unit(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(tmp_path, {"world": "eager/fp32", "stream": "eager/fp32"})
    monkeypatch.setattr(ModuleEngine, kind, lambda _self: True)
    made, _ = run_mix(replace(job, schedule=ONE_GRAPH), tmp_path / "work", units=8)
    assert made.status == "unsupported"
    assert made.reason.startswith("one-graph: world.world replays a graph of its own")
