"""What holds for each component in the table: its spec states what its network does."""

from dataclasses import is_dataclass
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from bakeoff.models import component_names, resolve_component
from bakeoff.models.component import Component, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.weights import randomize

EVERY_PRESET = [(name, preset.name) for name in component_names() for preset in resolve_component(name).presets]
LAYERS = {
    "linear": torch.nn.Linear,
    "conv1d": torch.nn.Conv1d,
    "conv2d": torch.nn.Conv2d,
    "conv3d": torch.nn.Conv3d,
}
EVERY_TINY_WORKLOAD = [
    (name, workload)
    for name in component_names()
    for workload in resolve_component(name).workload_names(resolve_component(name).preset("tiny").config)
]


class _CountAttention(TorchFunctionMode):
    """Counts calls of torch's attention function."""

    calls = 0

    def __torch_function__(self, function, _types, args=(), kwargs=None):
        self.calls += function is functional.scaled_dot_product_attention
        return function(*args, **(kwargs or {}))


def _drawn(workload: Workload) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(spec.shape, generator=generator) for spec in workload.inputs]


def _tiny(name: str, workload: str, batch: int = 1) -> tuple[Component, Workload, torch.nn.Module]:
    component = resolve_component(name)
    config = component.preset("tiny").config
    module = component.network_module().build(config, workload, batch)
    randomize(module, 0, getattr(component.network_module(), "initial_std", None))
    return component, component.workload(config, workload, batch), module


@pytest.mark.parametrize(("name", "workload"), EVERY_TINY_WORKLOAD)
def test_a_misspelt_workload_gets_the_nearest(name: str, workload: str) -> None:
    component = resolve_component(name)
    with pytest.raises(BakeoffError, match=f"did you mean {workload}; it has") as refused:
        component.workload(component.preset("tiny").config, f"{workload}x", 1)
    assert refused.value.code == "unknown-name"


@pytest.mark.parametrize(("name", "preset"), EVERY_PRESET)
def test_formulas_equal_the_module(name: str, preset: str) -> None:
    component = resolve_component(name)
    config = component.preset(preset).config
    assert is_dataclass(config)
    attended: set[str] = set()
    for workload_name in component.workload_names(config):
        workload = component.workload(config, workload_name, 1)
        with torch.device("meta"):
            module = component.network_module().build(config, workload_name, 1)
            inputs = [torch.empty(spec.shape) for spec in workload.inputs]
            with torch.no_grad(), FlopCounterMode(display=False) as counter, _CountAttention() as attention:
                outputs = module(*inputs)
        assert sum(parameter.numel() for parameter in module.parameters()) == component.parameters(config)
        assert [tuple(output.shape) for output in outputs] == [spec.shape for spec in workload.outputs]
        held = {kind for kind, layer in LAYERS.items() if any(isinstance(part, layer) for part in module.modules())}
        attended |= {"attention"} if attention.calls else set()
        assert held == set(component.layers) - {"attention"}
        # The specifications count no resize matrices; each component's own tests account for the rest exactly.
        assert workload.work.flops <= counter.get_total_flops()
        assert 0 < workload.work.weight_elements <= component.parameters(config)
        assert workload.work.io_elements == sum(spec.elements for spec in workload.inputs + workload.outputs)
    assert attended == set(component.layers) & {"attention"}


class _Convolutions(TorchDispatchMode):
    """Counts the FLOPs of dispatched convolutions whose kernel has more than one element, as direct ones."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function is torch.ops.aten.convolution.default:
            weight = args[1]
            assert not args[6], "not a transposed convolution"
            if prod(weight.shape[2:]) > 1:
                self.flops += 2 * (result.numel() // result.shape[1]) * weight.numel()
        return result


@pytest.mark.parametrize(("name", "workload_name"), EVERY_TINY_WORKLOAD)
def test_convolutions_of_the_work_are_those_that_run(name: str, workload_name: str) -> None:
    _, workload, module = _tiny(name, workload_name, batch=2)
    with torch.no_grad(), _Convolutions() as counted:
        module(*_drawn(workload))
    work = workload.work
    assert 0 <= work.convolution_flops <= work.flops
    assert (work.convolution_flops > 0) is (counted.flops > 0)
    if name == "audio":  # some taps are added up before they are multiplied
        assert work.convolution_flops <= counted.flops
    else:  # matrix-vae computes kernels over time alone as products
        assert work.convolution_flops == pytest.approx(counted.flops, rel=0.02)


@pytest.mark.parametrize(("name", "workload_name"), EVERY_TINY_WORKLOAD)
def test_forward_is_a_pure_function(name: str, workload_name: str) -> None:
    _, workload, module = _tiny(name, workload_name, batch=2)
    inputs = _drawn(workload)
    kept = [tensor.clone() for tensor in inputs]
    with torch.no_grad():
        first, second = module(*inputs), module(*inputs)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(inputs, kept, strict=True))
    owners = [tensor.untyped_storage().data_ptr() for tensor in (*inputs, *first)]
    assert len(set(owners)) == len(owners), "an output shares memory with an input or another output"


@pytest.mark.parametrize("name", component_names())
def test_listed_workloads_and_defaults_exist(name: str) -> None:
    component = resolve_component(name)
    for device, preset in component.default_preset.items():
        config = component.preset(preset).config
        assert set(component.default_workloads[device]) <= set(component.workload_names(config))
    with pytest.raises(BakeoffError, match="no-such-workload") as caught:
        component.workload(component.presets[0].config, "no-such-workload", 1)
    assert caught.value.code == "unknown-name"
    with pytest.raises(BakeoffError, match="no-such-preset") as caught:
        component.preset("no-such-preset")
    assert caught.value.code == "unknown-name"


@pytest.mark.parametrize(("name", "workload_name"), EVERY_TINY_WORKLOAD)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_output_size_is_moderate_in_every_dtype(name: str, workload_name: str, dtype: torch.dtype) -> None:
    _, workload, module = _tiny(name, workload_name)
    module.to(dtype)
    generator = torch.Generator().manual_seed(2)
    inputs = [
        torch.randn(spec.shape, generator=generator).to(torch.float32 if spec.keep_fp32 else dtype)
        for spec in workload.inputs
    ]
    with torch.no_grad():
        outputs = module(*inputs)
    for spec, output in zip(workload.outputs, outputs, strict=True):
        assert output.dtype == (torch.float32 if spec.keep_fp32 else dtype)
        assert 0.1 <= float(output.float().square().mean().sqrt()) <= 10, spec.name
