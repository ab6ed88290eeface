"""Exported graphs: their operators, hashes and cache keys, and the check of input layouts."""

import pytest

pytest.importorskip("torch", reason="graphs are torch's")

import torch
from torch import Tensor, nn
from toys import LIBRARY_WARNINGS, misfits

from bakeoff.backends.backend import Unsupported
from bakeoff.backends.graphs import (
    check_layouts,
    export,
    graph_hash,
    input_layouts,
    operators,
    program_key,
    tensors_of,
)

pytestmark = LIBRARY_WARNINGS


class Small(nn.Module):
    def __init__(self, scale: float = 2.0, power: int = 2, weight: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False)
        nn.init.constant_(self.linear.weight, weight)
        self.register_buffer("scale", torch.tensor([scale]), persistent=False)
        self.power = power
        self.requires_grad_(False)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor]:
        return (self.linear(x) ** self.power * self.scale + y,)


def inputs(length: int = 3) -> dict[str, Tensor]:
    return {"x": torch.ones(length, 4), "y": torch.zeros(length, 4)}


def program(module: nn.Module | None = None, length: int = 3) -> "torch.export.ExportedProgram":
    return export(module or Small(), inputs(length))


def key(module: nn.Module, *settings: object) -> str:
    made = program(module)
    return program_key(made, graph_hash([made.graph]), *settings)


def test_operators_by_name_with_their_number() -> None:
    found = operators(program().graph)
    assert found == {"aten.linear": 1, "aten.pow.Tensor_Scalar": 1, "aten.mul.Tensor": 1, "aten.add.Tensor": 1}


def test_a_graphs_hash_is_of_what_it_computes_on_which_shapes() -> None:
    known = graph_hash([program().graph])
    assert graph_hash([program(Small(weight=3.0)).graph]) == known
    assert graph_hash([program(Small(power=3)).graph]) != known
    assert graph_hash([program(length=5).graph]) != known


def test_a_programs_key_is_of_its_weights_buffers_and_settings_too() -> None:
    made = [
        key(Small()),
        key(Small(weight=3.0)),
        key(Small(scale=3.0)),
        key(Small(power=3)),
        key(Small(), "freezing"),
    ]
    assert len(set(made)) == len(made)
    assert key(Small()) == made[0]


def test_tensors_of_a_program_include_what_is_in_no_state_dict() -> None:
    assert set(tensors_of(program())) == {"linear.weight", "scale"}


def test_torchaos_weights_count_as_what_they_hold() -> None:
    pytest.importorskip("torchao", reason="int8 is torchao's")
    from bakeoff.backends.quantization import quantise_linear, quiet

    with quiet():
        from torchao.quantization import Int8WeightOnlyConfig
    found = []
    for weight in (1.0, 1.0, 3.0):
        module = Small(weight=weight)
        quantise_linear(module, Int8WeightOnlyConfig(), "int8", "", 0)
        made = program(module)
        held = tensors_of(made)
        assert {"scale", "linear.parametrizations.weight.original0"} < set(held)
        assert torch.int8 in {tensor.dtype for tensor in held.values()}
        found.append(program_key(made, graph_hash([made.graph])))
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("how", ["shape", "size", "dtype", "integers", "strides", "order", "number"])
def test_other_inputs_are_refused_in_one_sentence(how: str) -> None:
    with pytest.raises(Unsupported) as refused:
        check_layouts(input_layouts(inputs()), misfits(inputs())[how])
    assert refused.value.code == "unsupported"
    assert "\n" not in str(refused.value)


def test_the_same_inputs_are_taken() -> None:
    check_layouts(input_layouts(inputs()), inputs())
    turned = {"x": torch.ones(4, 3).T, "y": torch.zeros(3, 4)}
    check_layouts(input_layouts(turned), turned)
