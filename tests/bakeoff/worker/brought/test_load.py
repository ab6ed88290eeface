"""What a user's file gives: modules of all kinds, the numbers that a factory draws, and where its code fails."""

from pathlib import Path

import pytest

from bakeoff.models.brought.about import Source
from bakeoff.models.errors import BakeoffError
from bakeoff.record.user_source import file_hash
from bakeoff.worker.brought.load import load_module

_IMPORTS = "import argparse, json, random\nimport numpy as np\nimport torch\nfrom torch import nn\n"


def source_of(folder: Path, text: str, request: pytest.FixtureRequest) -> Source:
    """A file of a name that no other test's file has, since modules stay imported."""
    path = folder / f"{request.node.name.partition('[')[0]}_{folder.name}.py"
    path.write_text(_IMPORTS + text)
    return Source("function", str(path), "model", file_hash(path), str(folder))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [("{'x': x}", "unexpected keyword argument 'x'; it takes .input.:.* a tuple"), ("(x, x)", "too many positional")],
)
def test_inputs_that_forward_lacks_are_told_with_those_it_has(
    inputs: str, said: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = f"x = torch.ones(2, 4)\ndef model():\n    return nn.Sequential(nn.Linear(4, 4)), {inputs}\n"
    with pytest.raises(BakeoffError, match=said) as raised:
        load_module(source_of(tmp_path, text, request), 0)
    assert raised.value.code == "bad-user-code"
