"""torchao int8 on a toy: which layers it quantises, why it skips the others, and that inductor multiplies integers."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="layers are torch's")
pytest.importorskip("torchao", reason="int8 is torchao's")

import torch
from torch import Tensor, nn
from torch.nn import functional
from toys import LIBRARY_WARNINGS, NEEDS_COMPILER, build_toy

from bakeoff.backends import int8
from bakeoff.backends.backend import BuildContext, Unsupported
from bakeoff.backends.int8 import BACKEND, Options
from bakeoff.backends.quantization import choose, quantise_linear
from bakeoff.backends.torch_internals import TUNED

pytestmark = LIBRARY_WARNINGS


@pytest.fixture(autouse=True)
def _work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo compiles the code of one class eight times at most."""
    import torch._dynamo

    torch._dynamo.reset()
    monkeypatch.chdir(tmp_path)


def layers() -> nn.Module:
    return nn.ModuleDict(
        {
            "attention": nn.ModuleDict({"query": nn.Linear(64, 64), "gate": nn.Linear(64, 2)}),
            "mlp": nn.Linear(64, 256),
            "picture": nn.Conv2d(64, 64, 3),
        }
    ).requires_grad_(False)


def test_layers_are_chosen_by_name_and_size() -> None:
    chosen, skipped = choose(layers(), "attention", 1000)
    assert list(chosen) == ["attention.query"]
    assert skipped == {
        "attention.gate": "128 elements, fewer than 1000",
        "mlp": "'attention' is not in its name",
    }
    assert len(choose(layers(), "", 0)[0]) == 3


NONE: dict[str, tuple[nn.Module, str, int, tuple[str, ...]]] = {
    "no linear layer": (nn.Conv2d(4, 4, 3), "", 0, ("nn.Linear", "int8-static")),
    "none of that name": (layers(), "decoder", 0, ("'decoder'", "attention.query, attention.gate, mlp")),
    "too small": (layers(), "", 1 << 16, ("65536", "least=16384")),
    "too small of that name": (layers(), "attention", 5000, ("5000", "least=4096")),
    "many": (nn.ModuleList(nn.Linear(4, 4) for _ in range(9)), "x", 0, ("'x'", "0, 1, 2, 3, 4, 5 and 3 more")),
}


@pytest.mark.parametrize("case", NONE)
def test_none_qualifies(case: str) -> None:
    module, filtered, least, facts = NONE[case]
    with pytest.raises(Unsupported) as refused:
        quantise_linear(module, None, "int8", filtered, least)
    assert refused.value.code == "unsupported"
    assert [fact for fact in facts if fact not in str(refused.value)] == []


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("kind", "calls"), [("dynamic", "_int_mm"), ("weight-only", "_weight_int8pack_mm")], ids=["dynamic", "weight-only"]
)
def test_inductor_multiplies_integers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, calls: str) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    made = build_toy(f"world/int8[kind={kind},least=0]+inductor/bf16", tmp_path)
    assert made.built.prepared.quantised == {"world": f"int8 {kind}"}
    assert (made.built.fallback, made.proof.fell_back) == (None, "")
    assert made.proof.operators_outside[calls] == 1
    assert made.built.weights_bytes < made.module.get_parameter("picture.0.weight").nbytes * 10
    assert 1e-4 < made.error() < 3e-2


@NEEDS_COMPILER
def test_weights_alone_take_a_picture_whose_channels_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor's int8 product refuses them; without a copy the world model's first layer did not build."""
    import torch

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))

    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.projection = nn.Linear(64, 256)

        def forward(self, picture: torch.Tensor) -> torch.Tensor:
            projected: torch.Tensor = self.projection(picture.flatten(2).transpose(1, 2))
            return projected

    module = Patches().to(torch.bfloat16).requires_grad_(False)
    picture = torch.randn(1, 64, 4, 4, dtype=torch.bfloat16)
    assert BACKEND.prepare is not None
    prepared = BACKEND.prepare(module, {}, Options(kind="weight-only", least=0), None)  # type: ignore[arg-type]
    with torch.no_grad():
        expected = module(picture).float()
        found = torch.compile(prepared.module, fullgraph=True)(picture).float()
    assert float((found - expected).norm() / expected.norm()) < 0.02


def test_the_settings_of_inductor_that_torchao_changes_are_stated_and_recorded() -> None:
    """As it sets them: every one that differs afterwards is known by name, and read from inductor itself."""
    from torch._inductor import config
    from torchao.quantization import Int8WeightOnlyConfig

    from bakeoff.worker.torch_flags import settings

    with config.patch(dict.fromkeys(TUNED, False)):
        before = config.get_config_copy()
        prepared = quantise_linear(layers(), Int8WeightOnlyConfig(), "int8", "", 0)
        after = config.get_config_copy()
        changed = {
            f"inductor.{name}"
            for name, value in after.items()
            if value != before[name] and isinstance(value, bool | int | float | str | None)  # a copied pass equals none
        }
        assert changed == prepared.settings.keys()
        assert prepared.settings == {f"inductor.{name}": value for name, value in TUNED.items()}
        assert prepared.settings.items() <= settings().items()


class Rows(nn.Module):
    """One linear layer with 32 rows, one with a single row, and one that is called with both, by parts."""

    def __init__(self) -> None:
        super().__init__()
        self.many, self.one, self.parts = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 64)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        gate = functional.linear(self.one(x[:, :1]), self.parts.weight[32:])
        return (self.many(x) * gate + functional.linear(x, self.parts.weight[:32]),)


def on_cuda(folder: Path) -> BuildContext:
    return BuildContext("int8", "cuda", "fp32", 1, folder, folder, lambda _seed: {})


def on_cpu(folder: Path) -> BuildContext:
    return BuildContext("int8", "cpu", "fp32", 1, folder, folder, lambda _seed: {})


def unwritten(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """Torch 2.13's product by oneDNN: the leading dimension is taken from the stride of a dimension of size 1."""
    made = torch._int_mm(left.contiguous(), right)
    if out is None:
        return made
    return out if left.stride(0) < left.shape[1] else out.copy_(made)


def written(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    made = left.int() @ right.int()
    return made if out is None else out.copy_(made)


def torch_2_11(left: Tensor, right: Tensor) -> Tensor:
    """Torch 2.11's CUDA product refuses so (aten/src/ATen/native/cuda/Blas.cpp, _int_mm_out_cuda)."""
    if left.shape[0] <= 16:
        raise RuntimeError(f"self.size(0) needs to be greater than 16, but got {left.shape[0]}")
    return torch._int_mm(left, right)


def test_layers_with_too_few_rows_for_torch_2_11_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "int8_product", torch_2_11)
    module = Rows().requires_grad_(False)
    made = BACKEND.prepare(module, {"x": torch.zeros(1, 32, 32)}, Options(least=0), on_cuda(tmp_path))
    assert made.quantised == {"many": "int8 dynamic"}
    assert set(made.skipped) == {"one", "parts"}
    assert all("its input has 1 row," in reason for reason in made.skipped.values())
    assert all(type(layer.weight) is nn.Parameter for layer in (module.one, module.parts))


def test_layers_whose_one_row_stays_unwritten_on_a_cpu_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8, "int8_product", unwritten)
    made = BACKEND.prepare(
        Rows().requires_grad_(False), {"x": torch.zeros(1, 32, 32)}, Options(least=0), on_cpu(tmp_path)
    )
    assert made.quantised == {"many": "int8 dynamic"}
    assert set(made.skipped) == {"one", "parts"}
    assert all("pytorch#195066" in reason for reason in made.skipped.values())


@pytest.mark.parametrize(
    ("product", "options"),
    [
        (written, Options(least=0)),
        (unwritten, Options(kind="weight-only", least=0)),
    ],
    ids=["a product that is right", "no product of integers"],
)
def test_a_cpu_whose_results_are_right_leaves_none_out(
    product: Any, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8, "int8_product", product)
    made = BACKEND.prepare(Rows().requires_grad_(False), {"x": torch.zeros(1, 32, 32)}, options, on_cpu(tmp_path))
    assert set(made.quantised) == {"many", "one", "parts"}


def test_this_torch_is_tried_on_what_inductor_makes() -> None:
    """A product of a layer's size is right here exactly where the small one that is tried says so."""
    row = torch.randint(-127, 128, (1, 512), dtype=torch.int8).as_strided((1, 512), (0, 1))
    weight = torch.randint(-127, 128, (2048, 512), dtype=torch.int8).t()
    found = torch._int_mm(row, weight, out=torch.full((1, 2048), -1, dtype=torch.int32))
    right = torch.equal(found, row.int() @ weight.int())
    assert right == (not int8._leaves_one_row_unwritten())
