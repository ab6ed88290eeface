"""Programs of one component share one set of weights, and compute what they compute with a set of their own."""

import pytest
import torch
from torch import Tensor, nn

from bakeoff.models import resolve_component
from bakeoff.models.errors import BakeoffError
from bakeoff.models.weights import randomize, share_weights
from bakeoff.worker.build import free_weights
from bakeoff.worker.subject import build_module, cast_inputs, draw
from bakeoff.worker.torch_flags import TORCH_DTYPES

PROGRAMS = [("wm", ("context4", "step4", "append4")), ("matrix-vae", ("prime", "steady2", "steady3"))]


def built(component: str, program: str, values: bool = True) -> nn.Module:
    chosen = resolve_component(component)
    network, config = chosen.network_module(), chosen.preset("tiny").config
    module = build_module(lambda: network.build(config, program, 1), 0).requires_grad_(False)
    if values:
        randomize(module, 3, getattr(network, "initial_std", None))
    return module


def outputs(component: str, program: str, module: nn.Module, dtype: str) -> tuple[Tensor, ...]:
    chosen = resolve_component(component)
    workload = chosen.workload(chosen.preset("tiny").config, program, 1)
    drawn = {spec.name: draw(spec, spec.name) for spec in workload.inputs}
    return tuple(module(*cast_inputs(workload, drawn, dtype, "cpu").values()))


def addresses(module: nn.Module) -> dict[str, int]:
    return {name: parameter.data_ptr() for name, parameter in module.named_parameters()}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("component", "programs"), PROGRAMS)
def test_programs_share_one_set_and_compute_the_same(component: str, programs: tuple[str, ...], dtype: str) -> None:
    expected = [
        outputs(component, program, built(component, program).to(TORCH_DTYPES[dtype]), dtype) for program in programs
    ]
    first = built(component, programs[0]).to(TORCH_DTYPES[dtype])
    others = [built(component, program, values=False).to(TORCH_DTYPES[dtype]) for program in programs[1:]]
    tables = [[buffer.data_ptr() for buffer in module.buffers()] for module in others]
    one_set = sum(parameter.nbytes for parameter in first.parameters())
    for other in others:
        assert addresses(first) != addresses(other)
        assert share_weights(first, other) == one_set > 0
    modules = [first, *others]
    assert all(addresses(module) == addresses(first) for module in modules)
    assert [[buffer.data_ptr() for buffer in module.buffers()] for module in others] == tables
    assert not {address for part in tables for address in part} & {buffer.data_ptr() for buffer in first.buffers()}
    for program, module, wanted in zip(programs, modules, expected, strict=True):
        for found, right in zip(outputs(component, program, module, dtype), wanted, strict=True):
            assert torch.equal(found, right)
    free_weights(first)
    assert not list(first.parameters())
    for program, module, wanted in zip(programs[1:], others, expected[1:], strict=True):
        for found, right in zip(outputs(component, program, module, dtype), wanted, strict=True):
            assert torch.equal(found, right)


@pytest.mark.parametrize("cast", ["source", "target"])
def test_a_later_cast_of_either_casts_both_and_keeps_them_shared(cast: str) -> None:
    source, target = built("wm", "context4"), built("wm", "step4", values=False)
    share_weights(source, target)
    {"source": source, "target": target}[cast].to(torch.bfloat16)
    assert addresses(source) == addresses(target)
    assert {parameter.dtype for parameter in target.parameters()} == {torch.bfloat16}


class Two(nn.Module):
    def __init__(self, width: int = 2, **more: nn.Module) -> None:
        super().__init__()
        self.body = nn.Linear(width, width)
        for name, part in more.items():
            self.add_module(name, part)


def test_a_target_on_the_meta_device_gets_the_values() -> None:
    source = Two()
    with torch.device("meta"):
        target = Two()
    assert share_weights(source, target) == 24
    assert torch.equal(target.body(torch.ones(1, 2)), source.body(torch.ones(1, 2)))


def test_tied_parameters_are_counted_once_and_stay_tied() -> None:
    source, target = Two(), Two()
    for module in (source, target):
        module.head = nn.Linear(2, 2)
        module.head.weight = module.body.weight
    assert share_weights(source, target) == 32
    assert target.head.weight is target.body.weight is source.body.weight


def test_another_tensor_in_one_module_leaves_the_other() -> None:
    source, target = Two(), Two()
    share_weights(source, target)
    target.body.weight = nn.Parameter(torch.zeros(2, 2))
    assert source.body.weight.any()


@pytest.mark.parametrize(
    ("target", "named"),
    [
        (Two(extra=nn.Linear(1, 1)), "extra.weight"),
        (Two(width=3), "body.weight"),
        (Two(**{f"part{index}": nn.Linear(1, 1) for index in range(9)}), "13 more"),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_modules_that_differ_are_refused_by_name(target: nn.Module, named: str, swapped: bool) -> None:
    source = Two()
    before = addresses(source), addresses(target)
    with pytest.raises(BakeoffError) as refused:
        share_weights(*((target, source) if swapped else (source, target)))
    assert refused.value.code == "bad-input"
    assert named in str(refused.value)
    assert (addresses(source), addresses(target)) == before
