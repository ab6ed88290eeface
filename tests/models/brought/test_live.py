"""Live modules to a folder and back: everything arrives as it was, or is refused by name."""

import functools
import socket
import sys
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from bakeoff.models.brought.live_read import read_live
from bakeoff.models.brought.live_write import write_live
from bakeoff.models.brought.model import Model
from bakeoff.models.errors import BakeoffError

X = torch.linspace(-1, 1, 24).reshape(2, 3, 4)


class Frozen(OrderedDict[str, Any]):
    """A dict that refuses changes, as diffusers' configs are."""

    def __init__(self, **values: Any) -> None:
        super().__init__(values)
        self._closed = True

    def __setitem__(self, key: str, value: Any) -> None:
        if hasattr(self, "_closed"):
            raise TypeError("frozen")
        super().__setitem__(key, value)


class Attributes(nn.Module):
    """Attributes of kinds that need care."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = self.again = nn.Linear(4, 4)
        self.register_parameter("no_bias", None)
        self.register_buffer("table", torch.arange(4.0), persistent=False)
        self.kept = [self, {"inner": self.layer}]
        self.frozen = Frozen(channels=3)
        self.kinds = [torch.float16, torch.Size([1, 2]), torch.channels_last, range(3), ..., nn.LayerNorm, F]
        self.functions = [F.silu, torch.relu, torch.Tensor.exp, F.scaled_dot_product_attention, len]
        self.activation = functools.partial(F.gelu, approximate="tanh")
        self.method, self.whole = self._scale, weakref.ref(self)
        self.constant = torch.full((2, 3), 2.0, dtype=torch.bfloat16)
        self.row = self.constant[1]
        self.shared = self.common = {"x", "y", torch.int8}
        self.array, self.number = np.arange(3, dtype=np.int16), np.float32(0.1)

    def _scale(self, x: Tensor) -> Tensor:
        return x * self.table

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.method(self.again(x)))


def quantised() -> nn.Module:
    quantization = pytest.importorskip("torchao.quantization")
    module = nn.Sequential(nn.Linear(4, 4)).eval()
    quantization.quantize_(module, quantization.Int8WeightOnlyConfig())
    assert type(module[0].weight) is not nn.Parameter
    return module


ZOO: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "training": (lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(3).eval(), nn.ModuleList([nn.ReLU()])[0]), (X,)),
    "attention": (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), (X,)),
    "cross-attention": (lambda: nn.MultiheadAttention(4, 2, kdim=4, vdim=4).eval(), (X, X, X)),
    "recurrent": (lambda: nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True), (X,)),
    "weight-norm": (lambda: parametrizations.weight_norm(nn.Linear(4, 4)), (X,)),
    "spectral-norm": (lambda: parametrizations.spectral_norm(nn.Linear(4, 4)).eval(), (X,)),
    "half": (lambda: nn.Linear(4, 4).half().requires_grad_(False), (X.half(),)),
    "quantised": (quantised, (X,)),
    "attributes": (Attributes, (X,)),
}


def travelled(module: nn.Module, folder: Path) -> nn.Module:
    write_live(Model(module), {}, folder)
    return read_live(folder)[0].module


def refused(module: nn.Module, folder: Path) -> str:
    with pytest.raises(BakeoffError, match="; give a function that makes the module in a file instead") as caught:
        write_live(Model(module), {}, folder)
    assert caught.value.code == "cannot-travel"
    assert not folder.exists()
    return str(caught.value)


def form(tensor: Tensor) -> tuple[Any, ...]:
    return type(tensor), tensor.requires_grad, tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj()


def assert_same(one: nn.Module, other: nn.Module) -> None:
    """The same classes, modes and tensors under the same names, bit for bit."""
    parts = [[(name, type(part), part.training) for name, part in each.named_modules()] for each in (one, other)]
    assert [repr(found) for found in parts] == [repr(parts[0])] * 2
    mine, its = (
        dict([*each.named_parameters(remove_duplicate=False), *each.named_buffers(remove_duplicate=False)])
        for each in (one, other)
    )
    assert (list(mine), list(one.state_dict())) == (list(its), list(other.state_dict()))
    for name, tensor in mine.items():
        assert form(tensor) == form(its[name]), name
        if type(tensor) in (Tensor, nn.Parameter):
            bits = [
                part.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8) for part in (tensor, its[name])
            ]
            assert torch.equal(*bits), name


@pytest.mark.parametrize("name", ZOO)
def test_a_module_computes_the_same_after_the_journey(name: str, tmp_path: Path) -> None:
    make, args = ZOO[name]
    torch.manual_seed(0)
    module = make()
    other = travelled(module, tmp_path / "live")
    assert_same(module, other)
    mine, its = (each(*args) for each in (module, other))
    assert torch.equal(mine, its) if isinstance(mine, Tensor) else torch.equal(mine[0], its[0])


def test_attributes_arrive_with_their_identity(tmp_path: Path) -> None:
    module = Attributes()
    other = travelled(module, tmp_path / "live")
    assert other.again is other.layer is other.kept[1]["inner"]
    assert other.kept[0] is other.method.__self__ is other.whole() is other
    assert (type(other.frozen), dict(other.frozen), other.kinds) == (Frozen, {"channels": 3}, module.kinds)
    with pytest.raises(TypeError):
        other.frozen["channels"] = 4
    assert all(one is two for one, two in zip(other.functions, module.functions, strict=True))
    assert other.row.data_ptr() == other.constant.data_ptr() + 6
    assert other.shared is other.common == module.common
    assert (other.array.tolist(), other.array.dtype, other.number) == ([0, 1, 2], np.int16, module.number)


def test_tied_weights_and_views_share_one_storage(tmp_path: Path) -> None:
    module, flat = nn.Linear(2, 2), torch.arange(10.0)
    module.first, module.second = nn.Parameter(flat[:4]), nn.Parameter(flat[4:].view(3, 2).t(), requires_grad=False)
    module.tied = module.weight
    module.register_buffer("alias", module.first.detach())
    other = travelled(module, tmp_path / "views")
    assert_same(module, other)
    assert other.alias.data_ptr() == other.first.data_ptr() == other.second.data_ptr() - 16
    assert other.tied is other.weight
    assert len(load_file(tmp_path / "views" / "tensors.safetensors")) == 3, "with the linear layer's two"


def test_dtypes_and_strides_travel_bit_for_bit(tmp_path: Path) -> None:
    module, bits = nn.Module(), torch.arange(64, dtype=torch.uint8)
    for dtype in (torch.float64, torch.bfloat16, torch.float8_e5m2fnuz, torch.complex128, torch.int8, torch.uint16):
        name = str(dtype).partition(".")[2]
        module.register_buffer(f"{name}_turned", bits.clone().view(dtype).reshape(2, -1).t())
        module.register_buffer(f"{name}_stepped", bits.clone().view(dtype)[1::2])
        module.register_buffer(f"{name}_none", torch.empty(0, 3, dtype=dtype))
    module.register_buffer("last", torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))
    module.register_buffer("expanded", torch.arange(3.0).expand(4, 3))
    module.register_buffer("conjugate", torch.randn(3, dtype=torch.complex64).conj())
    module.register_buffer("truth", torch.tensor([True, False]))
    assert_same(module, travelled(module, tmp_path / "live"))


def add_one(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
    return output + 1


def test_hooks_of_the_forward_pass_alone(tmp_path: Path) -> None:
    module = nn.Linear(4, 4)
    module.register_forward_hook(add_one)
    module.register_full_backward_hook(lambda *_: threading.Lock())
    module.register_load_state_dict_post_hook(lambda *_: None)
    other = travelled(module, tmp_path / "live")
    assert torch.equal(other(X), module(X))
    assert not {*other._backward_hooks, *other._load_state_dict_post_hooks}
    other.register_forward_hook(add_one)
    assert len(other._forward_hooks) == 2, "a new hook does not replace one that came along"


def test_lambdas_closures_and_classes_of_functions(tmp_path: Path) -> None:
    offset = torch.ones(4)

    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if x is None else F.relu(x) + offset

    module = nn.Sequential(Inner(), nn.Linear(4, 4))
    module[1].register_forward_hook(lambda _module, _args, output: add_one(module, (), output) * offset)
    other = travelled(module, tmp_path / "live")
    assert torch.equal(other(X), module(X))
    assert other[0].forward.__globals__ is globals(), "those of a module that is imported"


class TestWhatCannotTravel:
    def test_every_part_is_named_by_its_path(self, tmp_path: Path) -> None:
        module, lock = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.LazyLinear(3)), threading.Lock()
        module[0].act = lambda x: x if lock else None
        module[1].locks = [threading.Lock()]
        module.items = (number for number in range(2))
        with open("/dev/null") as file, socket.socket() as link:
            module.options, module.link = {"file": file}, link
            text = refused(module, tmp_path / "live")
        assert text.startswith("Sequential cannot travel to another process: 0.act.lock is a _thread.lock, ")
        for part in ("1.locks.0 is a _thread.lock, ", "2.weight has no values yet; call the module once, "):
            assert f" {part}" in text
        assert "items is a generator, options.file is a _io.TextIOWrapper, link is a socket.socket; give" in text

    def test_what_torch_made_of_a_module(self, tmp_path: Path) -> None:
        compiled: Any = torch.compile(nn.Linear(1, 1), backend="eager")
        assert "the module was returned by torch.compile" in refused(compiled, tmp_path / "live")
        with warnings.catch_warnings(action="ignore"):
            scripted = nn.Sequential(torch.jit.script(nn.Linear(1, 1)))
        assert "0 is a module of torch.jit" in refused(scripted, tmp_path / "live")


@pytest.mark.parametrize("name", ["__metadata__", "a/b", "/up", "a b\n", "π", "weight'", "\udc80", "x" * 300])
def test_hostile_names(name: str, tmp_path: Path) -> None:
    module = nn.Module()
    module.a = nn.Linear(1, 1)
    module.register_buffer(name, torch.ones(2))
    setattr(module, "a.weight", name)
    other = travelled(module, tmp_path / "live")
    assert_same(module, other)
    assert getattr(other, "a.weight") == name


@pytest.mark.parametrize("file", ["live.json", "module.pickle", "tensors.safetensors"])
@pytest.mark.parametrize("content", [b"", b'{"schema":1}', b"\xff", None])
def test_other_bytes_are_refused(file: str, content: bytes | None, tmp_path: Path) -> None:
    travelled(nn.Linear(1, 1), tmp_path / "live")
    path = tmp_path / "live" / file
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(BakeoffError, match=rf"{file}.*; bring the module anew") as caught:
        read_live(tmp_path / "live")
    assert caught.value.code == "not-readable"


def test_a_class_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_live(Model(Attributes()), {}, tmp_path / "live")
    monkeypatch.delattr(sys.modules[__name__], "Attributes")
    with pytest.raises(BakeoffError, match=r"Can't get attribute 'Attributes'.*; bring the module anew") as caught:
        read_live(tmp_path / "live")
    assert caught.value.code == "bad-user-code"
