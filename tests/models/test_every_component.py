"""What holds for each component in the table: its spec states what its network does, and its keys are the published."""

import json
import re
from dataclasses import is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_files import GOLDEN, config_from
from golden_matrix_wm import read_config
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from bakeoff.models import component_names, resolve_component
from bakeoff.models.checkpoint import load_checkpoint
from bakeoff.models.component import Component, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.weights import randomize
from bakeoff.process.jobs import CountJob
from bakeoff.worker.work import count_works

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


def _drawn(workload: Workload, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(spec.shape, generator=generator).to(dtype) for spec in workload.inputs]


def _tiny(
    name: str, workload: str, batch: int = 1, seed: int = 0, **changes: Any
) -> tuple[Component, Workload, torch.nn.Module]:
    component = resolve_component(name)
    config = replace(component.preset("tiny").config, **changes)
    module = component.network_module().build(config, workload, batch)
    randomize(module, seed, getattr(component.network_module(), "initial_std", None))
    return component, component.workload(config, workload, batch), module


@pytest.mark.parametrize(
    ("name", "preset", "file", "read", "count"),
    [
        ("audio", "cod", "owl_audio_decoder_cod", config_from, 20_950_528),
        ("image", "128x", "owl_image_decoder_128x", config_from, 73_355_776),
        ("matrix-vae", "full", "matrix_game_vae_decoder", config_from, 73_295_603),
        ("matrix-wm", "universal", "matrix_game_wm", read_config, 1_619_242_304),
        ("wm", "1b", "owl_wm_1b", config_from, 1_093_823_296),
        ("wm", "200m", "owl_wm_200m", config_from, 274_839_872),
    ],
)
def test_keys_and_parameters_are_the_published_ones(name: str, preset: str, file: str, read: Any, count: int) -> None:
    published = json.loads((GOLDEN / "keys" / f"{file}.keys.json").read_text())
    component = resolve_component(name)
    config = component.preset(preset).config
    stored = read(published["config"]) if read is read_config else read(type(config), published["config"], name)
    assert stored == (replace(config, denoising_steps=20) if name == "wm" else config)
    assert component.preset(preset).parameters == count
    for workload in component.workload_names(config)[:2]:
        with torch.device("meta"):
            module = component.network_module().build(config, workload)
        state = {key: list(tensor.shape) for key, tensor in module.state_dict().items()}
        assert state == {key.removeprefix("model."): shape for key, shape in published["state_dict"].items()}
    if name == "wm":
        frequencies = sum(buffer.numel() for key, buffer in module.named_buffers() if key.endswith("freqs"))
        assert frequencies == published["non_trainable_parameters_in_state_dict"]


@pytest.mark.parametrize(
    ("name", "key"),
    [("audio", "encoder.conv_in.weight"), ("image", "encoder.conv_in.weight"), ("matrix-vae", "conv1.weight")],
)
def test_a_training_checkpoint_of_the_whole_autoencoder_loads(name: str, key: str, tmp_path: Path) -> None:
    component = resolve_component(name)
    workload = component.workload_names(component.preset("tiny").config)[0]
    (_, _, source), (_, _, target) = _tiny(name, workload, seed=3), _tiny(name, workload, seed=4)
    state = {**source.state_dict(), key: torch.zeros(3)}
    path = tmp_path / "checkpoint.pt"
    wrapped = {"ema": {f"ema_model.module.{inner}": tensor for inner, tensor in state.items()}, "steps": 7}
    torch.save(state if name == "matrix-vae" else wrapped, path)
    load_checkpoint(path, target, component)
    assert all(torch.equal(tensor, state[inner]) for inner, tensor in target.state_dict().items())


UNKNOWN = {
    "audio": ("step", "decode0", "decode030", "decode-3", "decodes", "decode3.5"),
    "image": ("step", "decode2"),
    "matrix-vae": ("steady0", "steady", "steady01", "step", "prime3"),
    "matrix-wm": ("Denoise", "denoise1", "context00", "step", "flow"),
    "wm": ("Step", "single1", "step-", "step0", "step04", "step4x", "full-3", "prepared"),
}


@pytest.mark.parametrize(
    ("name", "unknown"), [(name, text) for name, texts in UNKNOWN.items() for text in ("", *texts)]
)
def test_unknown_workloads_are_refused_with_the_known_ones(name: str, unknown: str) -> None:
    component = resolve_component(name)
    config = component.preset("tiny").config
    for ask in (
        partial(component.workload, config, unknown, 1),
        partial(component.network_module().build, config, unknown),
    ):
        with pytest.raises(BakeoffError, match=component.workload_names(config)[-1]) as refused:
            ask()
        assert refused.value.code == "unknown-name"


@pytest.mark.parametrize(("name", "preset"), EVERY_PRESET)
def test_a_preset_states_what_its_network_has(name: str, preset: str) -> None:
    component = resolve_component(name)
    config = component.preset(preset).config
    assert is_dataclass(config)
    attended: set[str] = set()
    names = component.workload_names(config)
    if preset in ("gta_drive", "templerun"):  # as universal but for the actions, which each workload of theirs takes
        names = names[-1:]
    for workload_name in names:
        workload = component.workload(config, workload_name, 1)
        with torch.device("meta"):
            module = component.network_module().build(config, workload_name, 1)
            inputs = [torch.empty(spec.shape) for spec in workload.inputs]
            with torch.no_grad(), _CountAttention() as attention:
                outputs = module(*inputs)
        assert sum(parameter.numel() for parameter in module.parameters()) == component.preset(preset).parameters
        assert [tuple(output.shape) for output in outputs] == [spec.shape for spec in workload.outputs]
        held = {kind for kind, layer in LAYERS.items() if any(isinstance(part, layer) for part in module.modules())}
        attended |= {"attention"} if attention.calls else set()
        assert held == set(component.layers) - {"attention"}
    assert attended == set(component.layers) & {"attention"}


@pytest.mark.parametrize(
    ("subject", "flops", "of_convolutions", "weights"),
    [
        ("audio:cod.decode", 205_371_371_520, 81_343_180_800, 20_950_528),
        ("audio:cpu.decode", 17_114_280_960, 6_778_598_400, 20_950_528),
        ("image:128x.decode", 649_456_254_976, 190_024_777_728, 73_355_776),
        ("matrix-vae:full.prime", 2_440_378_941_440, 2_415_116_943_360, 71_524_595),
        ("matrix-vae:full.steady1", 7_628_883_722_240, 7_601_545_543_680, 73_295_603),
        ("matrix-vae:full.steady3", 22_886_651_166_720, 22_804_636_631_040, 73_295_603),
        ("matrix-wm:universal.open", 74_613_391_360, 0, 145_308_928),
        ("matrix-wm:universal.denoise0", 8_847_421_452_288, 0, 1_473_929_536),
        ("matrix-wm:universal.denoise", 10_133_031_333_888, 0, 1_473_929_536),
        ("matrix-wm:universal.context", 9_847_540_297_728, 0, 1_436_843_008),
        ("wm:1b.step", 27_507_774_464, 0, 1_092_282_688),
        ("wm:1b.full", 1_650_466_467_840, 0, 1_093_823_296),
        ("wm:200m.append", 6_241_727_488, 0, 255_248_448),
        ("toy:tiny.world", 294_912, 0, 4_096),
        ("toy:tiny.sound", 974_848, 974_848, 7_648),
    ],
)
def test_work_is_that_of_the_specifications(subject: str, flops: int, of_convolutions: int, weights: int) -> None:
    """FLOPs by hand from the specifications of one frame, counted for the two of guidance."""
    name, preset, workload = re.split("[:.]", subject)
    made = count_works(CountJob(name, ((preset, workload, 2),)), lambda *_: None)
    assert made.problems == ()
    (work,) = made.works
    assert work is not None
    assert (work.flops, work.convolution_flops, work.weight_elements) == (2 * flops, 2 * of_convolutions, weights)


@pytest.mark.parametrize(("name", "workload_name"), EVERY_TINY_WORKLOAD)
def test_forward_is_a_pure_function(name: str, workload_name: str) -> None:
    _, workload, module = _tiny(name, workload_name, batch=2)
    inputs = _drawn(workload)
    kept = [tensor.clone() for tensor in inputs]
    with torch.no_grad():
        first, second = module(*inputs), module(*inputs)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(inputs, kept, strict=True))
    owners = [tensor.untyped_storage().data_ptr() for tensor in (*inputs, *first, *module.parameters())]
    assert len(set(owners)) == len(owners), "an output shares memory with an input, a weight or another output"
    passed_on = (
        output for spec, output in zip(workload.outputs, first, strict=True) if spec.name not in ("video", "audio")
    )
    assert all(output.is_contiguous() for output in passed_on)


@pytest.mark.parametrize(("name", "workload_name"), EVERY_TINY_WORKLOAD)
def test_rows_of_a_batch_are_independent(name: str, workload_name: str) -> None:
    """In fp64, where sums in another order do not show."""
    component, both, module = _tiny(name, workload_name, batch=2)
    alone = component.workload(component.preset("tiny").config, workload_name, 1)
    inputs = _drawn(both, torch.float64)
    with torch.no_grad():
        together = module.double()(*inputs)
        for row in range(2):
            parts = [_row(tensor, spec.shape[0], row) for tensor, spec in zip(inputs, alone.inputs, strict=True)]
            for spec, found, expected in zip(alone.outputs, module(*parts), together, strict=True):
                torch.testing.assert_close(found, _row(expected, spec.shape[0], row), rtol=1e-9, atol=1e-9)


def _row(tensor: Tensor, size: int, row: int) -> Tensor:
    """One entry of a batch of two, of which each has `size` rows; all of what both share."""
    return tensor[row * size : (row + 1) * size] if len(tensor) == 2 * size else tensor


@pytest.mark.parametrize("name", component_names())
def test_a_module_from_the_meta_device_is_the_same(name: str) -> None:
    component = resolve_component(name)
    config = component.preset("tiny").config
    workload = component.workload_names(config)[-1]
    with torch.device("meta"):
        module = component.network_module().build(config, workload)
    module.to_empty(device="cpu")
    randomize(module, 0, getattr(component.network_module(), "initial_std", None))
    _, stated, expected = _tiny(name, workload)
    with torch.no_grad():
        inputs = _drawn(stated)
        assert all(torch.equal(one, two) for one, two in zip(module(*inputs), expected(*inputs), strict=True))


@pytest.mark.parametrize(
    ("name", "workload_name", "changes"),
    [
        ("audio", "decode", {}),
        ("image", "decode", {}),
        ("matrix-vae", "steady2", {}),
        ("matrix-wm", "denoise", {}),
        ("matrix-wm", "context", {}),
        ("wm", "full", {"backbone": "uvit"}),
    ],
)
def test_exports_and_compiles_as_one_graph(name: str, workload_name: str, changes: dict[str, Any]) -> None:
    """With every input and output its own, and without a tensor that is complex, in double or of seven dimensions."""
    _, workload, module = _tiny(name, workload_name, 2, **changes)
    inputs = _drawn(workload)
    torch._dynamo.reset()
    with torch.no_grad():
        program = torch.export.export(module, tuple(inputs))
        found = [program.module()(*inputs), torch.compile(module, fullgraph=True, backend="eager")(*inputs)]
        expected = module(*inputs)
    for outputs in found:
        torch.testing.assert_close(tuple(outputs), tuple(expected), rtol=1e-4, atol=1e-5)
    signature = program.graph_signature
    assert (len(signature.user_inputs), len(signature.user_outputs)) == (len(inputs), len(expected))
    tensors = [node.meta["val"] for node in program.graph.nodes if isinstance(node.meta.get("val"), Tensor)]
    assert {tensor.dtype for tensor in tensors} <= {torch.float32, torch.int64, torch.bool}
    assert max(tensor.ndim for tensor in tensors) <= 6


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


@pytest.mark.parametrize(
    ("name", "workload_name", "dtype"),
    [
        *((*each, torch.bfloat16) for each in EVERY_TINY_WORKLOAD),
        *((*each, dtype) for each in dict(EVERY_TINY_WORKLOAD).items() for dtype in (torch.float32, torch.float16)),
    ],
)
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
