"""What a user's file gives: modules of all kinds, the numbers that a factory draws, and where its code fails."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from bakeoff.models.brought.about import Source
from bakeoff.models.errors import BakeoffError
from bakeoff.models.weights import fingerprint
from bakeoff.record.source import file_hash
from bakeoff.worker.brought.load import load_module

_IMPORTS = "import argparse, json, random\nimport numpy as np\nimport torch\nfrom torch import nn\n"


def source_of(folder: Path, text: str, request: pytest.FixtureRequest) -> Source:
    """A file of a name that no other test's file has, since modules stay imported."""
    path = folder / f"{request.node.name.partition('[')[0]}_{folder.name}.py"
    path.write_text(_IMPORTS + text)
    return Source("function", str(path), "model", file_hash(path), str(folder))


def test_lazy_parameters_are_made_by_a_first_call(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """pytorch#151525."""
    text = "def model():\n    return nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d()).eval(), torch.ones(2, 4)\n"
    source = source_of(tmp_path, text, request)
    first, second = (load_module(source, 0)[0].module for _ in range(2))
    assert [tuple(one.shape) for one in first.parameters()] == [(8, 4), (8,), (8,), (8,)]
    assert not any(one.requires_grad for one in first.parameters())
    assert fingerprint(first) == fingerprint(second)


def test_weights_made_under_inference_mode_are_plain_ones(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = (
        "def model():\n    with torch.inference_mode():\n        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4),"
        " nn.BatchNorm1d(4))\n        net[1].weight = net[0].weight\n    return net.eval(), torch.ones(2, 4)\n"
    )
    module = load_module(source_of(tmp_path, text, request), 0)[0].module
    assert not any(one.is_inference() for one in [*module.parameters(), *module.buffers()])
    assert module.get_submodule("1").weight is module.get_submodule("0").weight
    assert [name for name, _ in module.named_parameters() if name.endswith("weight")] == ["0.weight", "2.weight"]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("made", ["script(net)", "trace(net, x)", "freeze(torch.jit.script(net))"])
def test_torchscript_is_loaded(made: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """pytorch#121214; a frozen module has no attribute `training`."""
    text = f"def model():\n    net, x = nn.Linear(4, 4).eval(), torch.ones(2, 4)\n    return torch.jit.{made}, x\n"
    model, sets = load_module(source_of(tmp_path, text, request), 0)
    assert isinstance(model.module, torch.jit.ScriptModule)
    assert not model.module.training
    ((args, _),) = sets["call"]
    assert model.module(*args).shape == (2, 4)


@pytest.mark.parametrize("method", ["cpu", "parameters", "modules"])
def test_what_a_users_object_raises_is_told_with_its_line(
    method: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = f"class Net(nn.Linear):\n    def {method}(self, *_):\n        raise KeyError('own')\n"
    source = source_of(tmp_path, f"{text}def model():\n    return Net(4, 4), torch.ones(2, 4)\n", request)
    with pytest.raises(BakeoffError, match=r"raised KeyError \(test_what_.*py, line 7\): 'own'") as raised:
        load_module(source, 0)
    assert raised.value.code == "bad-user-code"


def test_a_factory_draws_the_same_from_every_global_generator(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = (
        "random.random(), np.random.rand(), torch.rand(1)\n"
        "def model():\n"
        "    net = nn.Linear(4, 4)\n"
        "    net.weight.data.copy_(torch.from_numpy(np.random.randn(4, 4)))\n"
        "    net.bias.data.fill_(random.random())\n"
        "    return net.eval(), torch.ones(2, 4)\n"
    )
    source = source_of(tmp_path, text, request)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()
    first, _ = load_module(source, 3)
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist())
    assert fingerprint(load_module(source, 3)[0].module) == fingerprint(first.module), "drawn at import and not again"
    assert fingerprint(load_module(source, 4)[0].module) != fingerprint(first.module)


def test_a_file_that_reads_the_command_line_gets_defaults(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker's own arguments are not its."""
    monkeypatch.setattr(sys, "argv", ["bakeoff.worker", "3", "4"])
    text = (
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--size', type=int, default=4)\n"
        "size = parser.parse_args().size\n"
        "def model():\n"
        "    return nn.Linear(size, parser.parse_args().size).eval(), torch.ones(2, size)\n"
    )
    module = load_module(source_of(tmp_path, text, request), 0)[0].module
    assert isinstance(module, nn.Linear)
    assert module.weight.shape == (4, 4)
    assert sys.argv == ["bakeoff.worker", "3", "4"]
