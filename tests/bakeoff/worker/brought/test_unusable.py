"""Tensors that no engine can be given are refused in one sentence, wherever a model or its inputs hold them."""

from pathlib import Path

import pytest
from describing import described, source_of

from bakeoff.models.brought.about import Source
from bakeoff.models.errors import BakeoffError

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
@pytest.mark.parametrize(
    ("where", "kind"),
    [*(("input", kind) for kind in KINDS), *((where, "coo") for where in RETURNED if where != "input")],
)
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
