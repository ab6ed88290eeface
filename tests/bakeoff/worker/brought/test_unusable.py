"""Tensors that no engine can be given are refused in one sentence, wherever a model or its inputs hold them."""

from pathlib import Path

import pytest
from describing import described, source_of
from records import bakeoff
from torch import nn

from bakeoff.models.brought.about import Source
from bakeoff.models.brought.live_write import write_live
from bakeoff.models.brought.model import Model
from bakeoff.models.errors import BakeoffError
from bakeoff.models.weights import fingerprint
from bakeoff.worker.brought.load import load_module

KINDS = {
    "coo": ("torch.eye(4).to_sparse()", "has the layout torch.sparse_coo", "give its to_dense()"),
    "csr": ("torch.eye(4).to_sparse_csr()", "has the layout torch.sparse_csr", "give its to_dense()"),
    "bsc": ("torch.eye(4).to_sparse_bsc((2, 2))", "has the layout torch.sparse_bsc", "give its to_dense()"),
    "mkldnn": ("torch.eye(4).to_mkldnn()", "has the layout torch._mkldnn", "give its to_dense()"),
    "jagged": ("nested(layout=torch.jagged)", "is a nested tensor", "give its to_padded_tensor(0.0)"),
    "nested": ("nested(layout=torch.strided)", "is a nested tensor", "give its to_padded_tensor(0.0)"),
    "masked": ("masked_tensor(torch.eye(4), torch.eye(4) > 0)", "is a masked tensor", "give its to_tensor(0.0)"),
    "meta": ("torch.eye(4, device='meta')", "is on the meta device", "make it on the CPU"),
    "fake": ("fake()", "is a FakeTensor", "make it outside of FakeTensorMode"),
}
"""How each is made, what is said of it, and what to do."""
_SOURCE = """
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.masked import masked_tensor

def nested(layout):
    return torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=layout)

def fake():
    with FakeTensorMode():
        return torch.eye(4)

class Net(nn.Linear):
    def __init__(self, parameter=None, buffer=None, hidden=None):
        super().__init__(4, 4)
        self.parameter = parameter if parameter is None else nn.Parameter(parameter, requires_grad=False)
        self.register_buffer("buffer", buffer)
        self.register_buffer("hidden", hidden, persistent=False)

class Nothing(nn.Module):
    def forward(self, x, parts=None):
        return x

def model():
    made = {made}
    return {returned}
"""
RETURNED = {
    "input": ("Net().eval(), {'input': made}", "call: the input input"),
    "part": ("Nothing().eval(), {'x': torch.eye(4), 'parts': [(None, made)]}", "call: the input parts.0.1"),
    "parameter": ("Net(parameter=made).eval(), torch.eye(4)", "mine.py:model: the parameter parameter"),
    "buffer": ("Net(buffer=made).eval(), torch.eye(4)", "mine.py:model: the buffer buffer"),
    "hidden": ("Net(hidden=made).eval(), torch.eye(4)", "mine.py:model: the buffer hidden"),
}


def written(folder: Path, made: str, returned: str) -> Source:
    path = folder / "mine.py"
    path.write_text(_SOURCE.replace("{made}", made).replace("{returned}", returned))
    return source_of(path)


@pytest.mark.filterwarnings("ignore")  # torch's own, of what is not stable yet
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", RETURNED)
def test_one_sentence_says_which_tensor_and_what_to_do(where: str, kind: str, tmp_path: Path) -> None:
    made, found, advice = KINDS[kind]
    returned, which = RETURNED[where]
    with pytest.raises(BakeoffError) as refused:
        described(written(tmp_path, made, returned), tmp_path / "about")
    text = str(refused.value)
    assert refused.value.code == "bad-user-code"
    assert text.startswith(f"{which} {found}")
    assert text.partition("; ")[2].startswith(advice)
    assert "\n" not in text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_live_modules_and_their_inputs_are_told_the_same(kind: str, tmp_path: Path) -> None:
    made, found, advice = KINDS[kind]
    source = written(tmp_path, made, "nn.Module(), made")
    names: dict[str, object] = {"__name__": "made_here"}
    exec(Path(source.path).read_text(), names)
    module, tensor = names["model"]()  # type: ignore[operator]  # defined by the source
    module.register_buffer("table", tensor)
    refused = [
        pytest.raises(BakeoffError, match=rf"^{which} {found.replace('.', '[.]')}.*; {advice[:10]}")
        for which in ("table", "call: the input x", "weights have no fingerprint: table")
    ]
    with refused[0]:
        write_live(Model(module), {}, tmp_path / "live")
    with refused[1]:
        write_live(Model(nn.Identity()), {"call": [((), {"x": tensor})]}, tmp_path / "live")
    with refused[2]:
        fingerprint(module)


def test_a_whole_module_on_the_meta_device(tmp_path: Path) -> None:
    source = written(tmp_path, "torch.device('meta')", "nn.Linear(4, 4).to(made).eval(), torch.eye(4)")
    with pytest.raises(BakeoffError, match=r"^mine.py:model: the parameter weight is on the meta device"):
        load_module(source, 0)


def test_the_command_ends_with_the_sentence(tmp_path: Path) -> None:
    written(tmp_path, *(KINDS["nested"][0], RETURNED["input"][0]))
    ran = bakeoff(
        "sweep", "mine.py:model", "--sizes", "input.0=2,8", cwd=tmp_path,
        BAKEOFF_CACHE=str(tmp_path / "cache"), BAKEOFF_RUNS=str(tmp_path / "runs"),
    )  # fmt: skip
    assert (ran.code, len(ran.said), ran.out) == (2, 1, "")
    assert "call: the input input is a nested tensor, and engines take dense ones" in ran.said[0]
    assert "Traceback" not in ran.err


def test_dense_tensors_that_look_odd_are_taken(tmp_path: Path) -> None:
    """Views that are conjugated, negated, strided, expanded or empty; sparse tensors within the forward pass."""
    path = tmp_path / "mine.py"
    path.write_text("""
import torch
from torch import nn

def turned():
    return torch.randn(4, 4, dtype=torch.complex64).conj()

class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.strided = nn.Parameter(torch.randn(4, 8)[:, ::2].t())
        self.register_buffer("expanded", torch.randn(1, 4).expand(4, 4))
        self.register_buffer("conjugated", turned())
        self.register_buffer("negated", turned().imag)
        self.register_buffer("empty", torch.empty(0))
        self.table = torch.eye(4).to_sparse()

    def forward(self, strided, expanded, negated, empty):
        table = self.table @ strided.relu().to_sparse().to_dense()
        seen = (self.conjugated * self.conjugated.conj()).real + self.negated + empty.sum()
        return table @ self.strided + expanded @ self.expanded + negated + seen

def model():
    given = torch.randn(8, 4)[::2], torch.randn(1, 4).expand(4, 4), turned().imag, torch.empty(0, 4)
    assert given[2].is_neg() and turned().is_conj()
    return Odd().eval(), given
""")
    about = described(source_of(path), tmp_path / "about")
    assert [spec.shape for spec in about.sets[0].inputs] == [(4, 4), (4, 4), (4, 4), (0, 4)]


def test_subclasses_that_hold_dense_tensors_are_taken(tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    path = tmp_path / "mine.py"
    path.write_text("""
import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_

def model():
    net = torch.nn.Sequential(torch.nn.Linear(4, 4)).eval()
    quantize_(net, Int8WeightOnlyConfig())
    return net, torch.randn(2, 4)
""")
    about = described(source_of(path), tmp_path / "about")
    assert about.sets[0].work.weight_elements >= 16
