"""Live modules to a folder and back: everything arrives as it was, or is refused by name."""

import enum
import functools
import json
import sys
import threading
import types
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from bakeoff.models.brought import live_tensors
from bakeoff.models.brought.live_read import read_facts, read_module
from bakeoff.models.brought.live_write import write_module
from bakeoff.models.errors import BakeoffError


class Mode(enum.Enum):
    CAUSAL = "causal"


class Sides(enum.Flag):
    LEFT = 1
    RIGHT = 2


@dataclass(frozen=True)
class Config:
    dim: int = 4
    eps: float = float("inf")
    modes: tuple[Mode, ...] = (Mode.CAUSAL,)
    extra: dict[str, Any] = field(default_factory=dict)


Pair = namedtuple("Pair", "first second")


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value


class Frozen(OrderedDict[str, Any]):
    """A dict that refuses changes, as diffusers' configs are."""

    def __init__(self, **values: Any) -> None:
        super().__init__(values)
        self._closed = True

    def __setitem__(self, key: str, value: Any) -> None:
        if hasattr(self, "_closed"):
            raise TypeError("frozen")
        super().__setitem__(key, value)


class Counting(list[int]):
    """A list of a class of its own."""


class Symmetric(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).transpose(-1, -2)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embedding(ids))


class Attributes(nn.Module):
    """One attribute of every kind that travels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.again = self.layer
        self.absent = None
        self.register_parameter("no_bias", None)
        self.register_buffer("no_table", None)
        self.register_buffer("table", torch.arange(4.0), persistent=False)
        self.kept = [self.layer, {"inner": self.layer}]
        self.self_reference = [self]
        self.config = Config(extra={"a": [1, 2.5, None]})
        self.layer.config = self.config
        self.numbers = [True, 1, -1.5, float("nan"), float("-inf"), 1 << 80, 1 + 2j, -0.0]
        self.text = "π \n\0"
        self.raw = b"\x00\xff"
        self.many = ({1, 2}, frozenset({"a"}), (1, (2,)), Pair(1, [2]), Counting([1, 2]))
        self.maps = [OrderedDict(b=1, a=2), defaultdict(list, {1: [2]}), {(0, 1): "key", Mode.CAUSAL: 2}]
        self.frozen = Frozen(channels=3)
        self.slotted = Slotted(7)
        self.space = types.SimpleNamespace(width=3)
        self.kinds = [torch.float16, torch.device("cpu"), torch.Size([1, 2]), torch.channels_last, slice(1, None, 2)]
        self.members = [Mode.CAUSAL, Sides.LEFT, Sides.LEFT | Sides.RIGHT]
        self.places = [Path("a/b"), range(3), ...]
        self.functions = [F.silu, F.gelu, torch.relu, torch.Tensor.exp, F.scaled_dot_product_attention, len]
        self.activation = functools.partial(F.gelu, approximate="tanh")
        self.kind = nn.LayerNorm
        self.module = torch.nn.functional
        self.method = self._scale
        self.constant = torch.full((2, 3), 2.0, dtype=torch.bfloat16)
        self.row = self.constant[1]
        self.array = np.arange(3, dtype=np.int16)
        self.number = np.float32(0.1)

    def _scale(self, x: Tensor) -> Tensor:
        return x * self.table

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.method(self.again(x)))


def add_one(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
    return output + 1


def travelled(module: nn.Module, folder: Path) -> nn.Module:
    write_module(module, folder)
    return read_module(folder)


def refused(module: nn.Module, folder: Path) -> str:
    with pytest.raises(BakeoffError) as caught:
        write_module(module, folder)
    assert caught.value.code == "cannot-travel"
    assert "bakeoff sweep mine.py:model" in str(caught.value)
    assert not folder.exists() or not list(folder.iterdir())
    return str(caught.value)


def assert_same(one: nn.Module, other: nn.Module) -> None:
    """The same classes, modes and tensors under the same names, bit for bit."""
    assert [(name, type(part).__name__, part.training) for name, part in one.named_modules()] == [
        (name, type(part).__name__, part.training) for name, part in other.named_modules()
    ]
    mine = [*one.named_parameters(remove_duplicate=False), *one.named_buffers(remove_duplicate=False)]
    its = [*other.named_parameters(remove_duplicate=False), *other.named_buffers(remove_duplicate=False)]
    assert [name for name, _ in mine] == [name for name, _ in its]
    for (name, a), (_, b) in zip(mine, its, strict=True):
        assert live_tensors.same_bits(a, b), name
        assert (type(a), a.requires_grad) == (type(b), b.requires_grad), name
    assert list(one.state_dict()) == list(other.state_dict())


X = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
ZOO: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "tied": (Tied, (torch.tensor([[1, 2]]),)),
    "nested": (lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.ModuleList([nn.ReLU()])[0]), (X,)),
    "batch-norm": (lambda: nn.BatchNorm1d(3).eval(), (X,)),
    "attention": (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), (X,)),
    "convolution": (
        lambda: nn.Conv2d(4, 4, 3, padding="same").to(memory_format=torch.channels_last),
        (X.reshape(1, 4, 2, 3),),
    ),
    "weight-norm": (lambda: parametrizations.weight_norm(nn.Linear(4, 4)), (X,)),
    "spectral-norm": (lambda: parametrizations.spectral_norm(nn.Linear(4, 4)).eval(), (X,)),
    "frozen": (lambda: nn.Linear(4, 4).requires_grad_(False), (X,)),
    "half": (lambda: nn.Linear(4, 4).half(), (X.half(),)),
    "attributes": (Attributes, (X,)),
}


@pytest.mark.parametrize("name", ZOO)
def test_a_module_computes_the_same_after_the_journey(name: str, tmp_path: Path) -> None:
    make, args = ZOO[name]
    torch.manual_seed(0)
    module = make()
    other = travelled(module, tmp_path / "live")
    assert_same(module, other)
    assert torch.equal(module(*args), other(*args))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_modules(kind: Any, tmp_path: Path) -> None:
    module = kind(4, 5, num_layers=2, bidirectional=True, batch_first=True)
    other = travelled(module, tmp_path / "live")
    assert_same(module, other)
    assert torch.equal(module(X)[0], other(X)[0])
    other.weight_ih_l0.data.zero_()
    assert not other._flat_weights[0].any(), "its flat weights are its parameters"


def test_multihead_attention_in_both_forms(tmp_path: Path) -> None:
    for index, module in enumerate([nn.MultiheadAttention(4, 2), nn.MultiheadAttention(4, 2, kdim=4, vdim=4)]):
        assert_same(module, travelled(module.eval(), tmp_path / str(index)))


def test_containers_of_parameters(tmp_path: Path) -> None:
    module = nn.Module()
    module.list = nn.ParameterList([torch.ones(2), nn.Parameter(torch.zeros(1))])
    module.dict = nn.ParameterDict({"a": torch.ones(2)})
    module.modules_ = nn.ModuleDict({"x-y": nn.Identity()})
    other = travelled(module, tmp_path / "live")
    assert_same(module, other)
    assert torch.equal(other.list[0], module.list[0])
    assert list(other.dict) == ["a"]


def test_tied_weights_are_one_parameter(tmp_path: Path) -> None:
    other = travelled(Tied(), tmp_path / "live")
    assert other.head.weight is other.embedding.weight
    assert len(load_file(tmp_path / "live" / "weights.safetensors")) == 1


def test_views_share_their_storage(tmp_path: Path) -> None:
    module = nn.Module()
    flat = torch.arange(10.0)
    module.first, module.second = nn.Parameter(flat[:4]), nn.Parameter(flat[4:].view(3, 2).t())
    module.register_buffer("alias", module.first.detach())
    other = travelled(module, tmp_path / "live")
    assert_same(module, other)
    assert other.alias.data_ptr() == other.first.data_ptr()
    assert other.second.data_ptr() == other.first.data_ptr() + 16
    assert other.alias is not other.first


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.complex64),
        *(torch.complex128, torch.int8, torch.int64, torch.uint8, torch.uint16, torch.bool),
    ],
    ids=str,
)
def test_all_dtypes_travel_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    module = nn.Module()
    bits = torch.arange(64, dtype=torch.uint8) if dtype != torch.bool else torch.ones(64, dtype=torch.uint8)
    module.register_buffer("matrix", bits.view(dtype).reshape(2, -1))
    module.register_buffer("transposed", bits.clone().view(dtype).reshape(2, -1).t())
    module.register_buffer("number", bits.clone().view(dtype)[0])
    module.register_buffer("none", torch.empty(0, 3, dtype=dtype))
    assert_same(module, travelled(module, tmp_path / "live"))


def test_not_a_number_keeps_its_payload(tmp_path: Path) -> None:
    module = nn.Module()
    module.register_buffer(
        "odd", torch.tensor([0x7FC01234, 0x7F800001, -0x80000000]).to(torch.int32).view(torch.float32)
    )
    other = travelled(module, tmp_path / "live")
    assert torch.equal(other.odd.view(torch.int32), module.odd.view(torch.int32))


def test_strides_and_conjugates(tmp_path: Path) -> None:
    module = nn.Module()
    module.register_buffer("last", torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))
    module.register_buffer("expanded", torch.arange(3.0).expand(4, 3))
    module.register_buffer("stepped", torch.arange(10.0)[1::3])
    module.register_buffer("conjugate", torch.randn(3, dtype=torch.complex64).conj())
    module.register_buffer("negative", torch.randn(3, dtype=torch.complex64).conj().imag)
    assert_same(module, travelled(module, tmp_path / "live"))


def test_attributes_arrive_with_their_identity(tmp_path: Path) -> None:
    module = Attributes()
    other = travelled(module, tmp_path / "live")
    assert other.again is other.layer
    assert other.kept[0] is other.layer
    assert other.kept[1]["inner"] is other.layer
    assert other.self_reference[0] is other
    assert other.config is other.layer.config
    assert other.config == module.config
    assert repr(other.numbers) == repr(module.numbers)
    assert (other.text, other.raw, other.many, other.maps) == (module.text, module.raw, module.many, module.maps)
    assert [type(one) for one in other.many] == [type(one) for one in module.many]
    assert type(other.maps[1]) is defaultdict
    assert other.maps[1].default_factory is list
    assert (type(other.frozen), dict(other.frozen)) == (Frozen, {"channels": 3})
    with pytest.raises(TypeError):
        other.frozen["channels"] = 4
    assert other.slotted.value == 7
    assert other.space == module.space
    assert (other.kinds, other.members, other.places) == (module.kinds, module.members, module.places)
    assert all(one is two for one, two in zip(other.functions, module.functions, strict=True))
    assert other.kind is nn.LayerNorm
    assert other.module is F
    assert other.method.__self__ is other
    assert other._non_persistent_buffers_set == {"table"}
    assert other.row.data_ptr() == other.constant.data_ptr() + 6
    assert (other.array.tolist(), other.array.dtype) == ([0, 1, 2], np.int16)
    assert (type(other.number), other.number) == (np.float32, module.number)
    assert other.no_bias is None
    assert other.no_table is None


def test_parametrizations_stay_active(tmp_path: Path) -> None:
    module = nn.Linear(4, 4)
    parametrize.register_parametrization(module, "weight", Symmetric())
    other = travelled(module, tmp_path / "live")
    assert parametrize.is_parametrized(other, "weight")
    assert torch.equal(other.weight, other.weight.mT)
    parametrize.remove_parametrizations(other, "weight")
    assert type(other) is nn.Linear


def test_hooks_that_are_functions_of_a_module(tmp_path: Path) -> None:
    module = nn.Linear(4, 4)
    module.register_forward_hook(add_one)
    module.register_full_backward_hook(lambda *_: None)
    module.register_load_state_dict_post_hook(lambda *_: None)
    other = travelled(module, tmp_path / "live")
    assert torch.equal(other(X), module(X))
    other.register_forward_hook(add_one)
    assert len(other._forward_hooks) == 2, "a new hook does not replace one that came along"


def test_training_mode_of_every_part(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3).eval())
    assert_same(module, travelled(module, tmp_path / "live"))


def test_facts_and_name(tmp_path: Path) -> None:
    write_module(
        nn.Linear(1, 1), tmp_path, state={"y": "x"}, keep_fp32=("t",), hold=["p"], place="unet", tolerance_fp32=1e-3
    )
    assert read_facts(tmp_path) == {
        "state": {"y": "x"},
        "keep_fp32": ("t",),
        "hold": ("p",),
        "place": "unet",
        "tolerance_fp32": 1e-3,
    }
    assert json.loads((tmp_path / "live.json").read_bytes())["name"] == "linear"


def test_the_same_module_makes_the_same_files(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Attributes()
    for name in ("a", "b"):
        write_module(module, tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


class TestWhatCannotTravel:
    def test_every_part_is_named(self, tmp_path: Path) -> None:
        module = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        module[0].act = lambda x: x
        module[1].lock = threading.Lock()
        module.items = (number for number in range(2))
        module.options = {"file": open("/dev/null")}  # noqa: SIM115
        module.register_forward_hook(lambda *_: None)
        text = refused(module, tmp_path / "live")
        module.options["file"].close()
        for part in (
            "0.act is a lambda",
            "1.lock is a _thread.lock",
            "items is a generator",
            "options.file is a _io.TextIOWrapper",
            "_forward_hooks",
        ):
            assert part in text

    def test_a_class_of_a_function(self, tmp_path: Path) -> None:
        class Inner(nn.Module):
            pass

        text = refused(nn.Sequential(Inner()), tmp_path / "live")
        assert "0 is of class " in text
        assert "Inner, defined inside a function; define it at the top of its file" in text

    def test_a_closure(self, tmp_path: Path) -> None:
        module = nn.Linear(1, 1)

        def scaled(x: Tensor) -> Tensor:
            return module.scale * x

        module.act = scaled
        assert "act is " in refused(module, tmp_path / "live")

    def test_generators_and_streams(self, tmp_path: Path) -> None:
        module = nn.Linear(1, 1)
        module.random = torch.Generator()
        assert "random is a torch._C.Generator" in refused(module, tmp_path / "live")

    def test_tensors_without_values(self, tmp_path: Path) -> None:
        module = nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3))
        assert "1.weight has no values yet" in refused(module, tmp_path / "live")

    def test_compiled_modules(self, tmp_path: Path) -> None:
        compiled: Any = torch.compile(nn.Linear(1, 1), backend="eager")
        assert "the module was returned by torch.compile" in refused(compiled, tmp_path / "live")

    def test_a_module_of_a_program(self, tmp_path: Path) -> None:
        made = types.ModuleType("made_by_a_program")
        exec("import torch\nclass Net(torch.nn.Module):\n    pass", vars(made))
        sys.modules[made.__name__] = made
        try:
            text = refused(made.Net(), tmp_path / "live")
        finally:
            del sys.modules[made.__name__]
        assert "cannot be imported from made_by_a_program" in text

    def test_deep_nesting(self, tmp_path: Path) -> None:
        module = nn.Linear(1, 1)
        module.deep = []
        for _ in range(1000):
            module.deep = [module.deep]
        assert "nested too deeply" in refused(module, tmp_path / "live")

    def test_text_that_is_not_unicode(self, tmp_path: Path) -> None:
        module = nn.Linear(1, 1)
        module.name = "\udc80"
        assert "name is text that is not Unicode" in refused(module, tmp_path / "live")

    def test_a_second_module_in_a_folder(self, tmp_path: Path) -> None:
        write_module(nn.Linear(1, 1), tmp_path)
        with pytest.raises(BakeoffError, match="holds a module already") as caught:
            write_module(nn.Linear(1, 1), tmp_path)
        assert caught.value.code == "target-exists"


class TestHostileNames:
    @pytest.mark.parametrize("name", ["__metadata__", "a/b", "/up", "a b\n", "π", "weight'", "x" * 300])
    def test_tensors(self, name: str, tmp_path: Path) -> None:
        module = nn.Module()
        module.register_buffer(name, torch.ones(2))
        module.register_buffer(name + "'", torch.zeros(2))
        assert_same(module, travelled(module, tmp_path / "live"))
        assert sorted(one.name for one in tmp_path.iterdir()) == ["live"]

    def test_attributes_that_look_like_paths(self, tmp_path: Path) -> None:
        module = nn.Module()
        module.a = nn.Linear(1, 1)
        setattr(module, "a.weight", torch.zeros(3))
        other = travelled(module, tmp_path / "live")
        assert getattr(other, "a.weight").shape == (3,)
        assert torch.equal(other.a.weight, module.a.weight)


class TestReading:
    def test_a_folder_without_a_module(self, tmp_path: Path) -> None:
        with pytest.raises(BakeoffError, match="No such file") as caught:
            read_module(tmp_path)
        assert caught.value.code == "not-readable"

    @pytest.mark.parametrize("content", [b"", b"{}", b"[1", b'{"schema":2}', b"\xff"])
    def test_damaged_json(self, content: bytes, tmp_path: Path) -> None:
        write_module(nn.Linear(1, 1), tmp_path)
        (tmp_path / "live.json").write_bytes(content)
        with pytest.raises(BakeoffError) as caught:
            read_module(tmp_path)
        assert caught.value.code == "not-readable"

    def test_another_schema(self, tmp_path: Path) -> None:
        write_module(nn.Linear(1, 1), tmp_path)
        path = tmp_path / "live.json"
        path.write_text(path.read_text().replace('"schema": 1', '"schema": 9'))
        with pytest.raises(BakeoffError, match="schema 9"):
            read_module(tmp_path)

    def test_other_weights(self, tmp_path: Path) -> None:
        write_module(nn.Linear(1, 1), tmp_path)
        save_file({"weight": torch.ones(7)}, tmp_path / "weights.safetensors")
        with pytest.raises(BakeoffError) as caught:
            read_module(tmp_path)
        assert caught.value.code == "not-readable"

    def test_a_class_that_is_gone(self, tmp_path: Path) -> None:
        write_module(nn.Linear(1, 1), tmp_path)
        path = tmp_path / "live.json"
        path.write_text(path.read_text().replace(":Linear", ":Gone"))
        with pytest.raises(BakeoffError, match="cannot be imported") as caught:
            read_module(tmp_path)
        assert caught.value.code == "bad-user-code"

    def test_a_function_in_place_of_a_class(self, tmp_path: Path) -> None:
        write_module(nn.Linear(1, 1), tmp_path)
        path = tmp_path / "live.json"
        path.write_text(path.read_text().replace("torch.nn.modules.linear:Linear", "os:getcwd"))
        with pytest.raises(BakeoffError, match="is no class"):
            read_module(tmp_path)
