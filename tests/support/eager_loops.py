"""Loops on eager engines, and the modules and draws that an independent loop in plain torch needs."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from bakeoff.backends.backend import ModuleEngine
from bakeoff.models import resolve_component
from bakeoff.models.component import Draw, TensorSpec
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.models.weights import randomize
from bakeoff.process.jobs import LoopSubject
from bakeoff.worker.pipeline.feeder import ProgramEngine
from bakeoff.worker.pipeline.lanes import Lane
from bakeoff.worker.pipeline.parity import pipeline_of
from bakeoff.worker.pipeline.runner import LoopRunner
from bakeoff.worker.subject import cast_inputs, draw

WEIGHT_SEED, INPUT_SEED = 3, 5


def module(component: str, preset: str, workload: str, batch: int = 1) -> nn.Module:
    """A component's module for one workload, with random fp32 weights that are the same for all its workloads."""
    spec = resolve_component(component)
    network = spec.network_module()
    built: nn.Module = network.build(spec.preset(preset).config, workload, batch).requires_grad_(False)
    randomize(built, WEIGHT_SEED, getattr(network, "initial_std", None))
    return built


class Reusing(nn.Module):
    """Writes its outputs into the same memory at each call, as an engine may."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.outputs: tuple[Tensor, ...] = ()

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        made = self.module(*inputs)
        self.outputs = self.outputs or tuple(torch.empty_like(one) for one in made)
        for output, one in zip(self.outputs, made, strict=True):
            output.copy_(one)
        return self.outputs


def eager_runner(pipeline: str, loop: Loop, lane: Lane | None = None, graph: bool = False) -> LoopRunner:
    """A runner of the pipeline with eager engines in fp32, whose outputs their next call overwrites."""
    engines = {}
    for key in loop.programs:
        slot = loop.slot(key.slot)
        spec = resolve_component(slot.component)
        workload = spec.workload(spec.preset(slot.preset).config, key.program, slot.batch)
        built = module(slot.component, slot.preset, key.program, slot.batch)
        inputs = cast_inputs(workload, {one.name: draw(one, one.name) for one in workload.inputs}, "fp32", "cpu")
        outputs = [one.name for one in workload.outputs]
        engines[key] = ProgramEngine(ModuleEngine(Reusing(built)), outputs, inputs)
    subject = LoopSubject(replace(loop, reference=pipeline), WEIGHT_SEED, INPUT_SEED, {}, "cpu", 1)
    return LoopRunner(pipeline_of(subject), subject, engines, dict.fromkeys(loop.presets, "fp32"), lane, graph)


def made_by(runner: LoopRunner) -> dict[str, Tensor]:
    """Outputs of the last unit, and the state after it."""
    return {**runner.outputs, **runner.state()}


def given(session: int, key: str, shape: tuple[int, ...], kind: Draw = "normal") -> Tensor:
    """What a loop is given under this key in a session: a name and a unit, or a name and a row."""
    return draw(TensorSpec(key, shape, kind), f"{INPUT_SEED}:{session}:{key}")


def assert_equal(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], where: str) -> None:
    """Every tensor within 1e-4 of the wanted one, relative L2 error: the components' own limit in fp32."""
    assert set(wanted) <= set(found), set(wanted) - set(found)
    for name, reference in wanted.items():
        value = found[name].double()
        assert value.shape == reference.shape, f"{where}: {name} is {value.shape} instead of {reference.shape}"
        reference = reference.double()
        assert float(reference.norm()) > 0, f"{where}: {name} is zero"
        error = float((value - reference).norm() / reference.norm())
        assert error < 1e-4, f"{where}: {name} differs by {error:.2e}"
