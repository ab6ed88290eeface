"""Loops on eager engines, and the modules and draws that an independent loop in plain torch needs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from bakeoff.backends.backend import ModuleEngine
from bakeoff.models import resolve_component
from bakeoff.models.component import Draw, TensorSpec
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.models.weights import randomize
from bakeoff.worker.pipeline.runner import LoopRunner, ProgramEngine
from bakeoff.worker.subject import cast_inputs, draw

WEIGHT_SEED, INPUT_SEED = 3, 5


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch: a tiny layer on several takes long where other processes have the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def module(component: str, preset: str, workload: str, batch: int = 1) -> nn.Module:
    """A component's module for one workload, with random fp32 weights that are the same for all its workloads."""
    spec = resolve_component(component)
    network = spec.network_module()
    built: nn.Module = network.build(spec.preset(preset).config, workload, batch).requires_grad_(False)
    randomize(built, WEIGHT_SEED, getattr(network, "initial_std", None))
    return built


def eager_runner(loop: Loop, dtypes: Mapping[str, str] | None = None) -> LoopRunner:
    """A runner of the loop with an eager engine for each program; fp32 where `dtypes` names no other for a slot."""
    found = {slot.name: (dtypes or {}).get(slot.name, "fp32") for slot in loop.slots}
    torch_dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}
    engines = {}
    for program in loop.programs:
        component = next(slot.component for slot in loop.slots if slot.name == program.slot)
        spec, preset = resolve_component(component), loop.presets[program.slot]
        workload = spec.workload(spec.preset(preset).config, program.workload, program.batch)
        dtype = found[program.slot]
        built = module(component, preset, program.workload, program.batch).to(torch_dtypes[dtype])
        inputs = cast_inputs(workload, {one.name: draw(one, one.name) for one in workload.inputs}, dtype, "cpu")
        engines[program.slot, program.workload] = ProgramEngine(ModuleEngine(built), workload, inputs)
    return LoopRunner(loop, engines, found, "cpu", INPUT_SEED)


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
