"""What an artifact computes is what the user's own call returned, not what the lab's reference says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from given_models import channels_last, modulated
from typer.testing import CliRunner

from bakeoff.cli import app
from bakeoff.export import load
from bakeoff.models.brought.model import Model

GIVEN = Path(__file__).resolve().parents[2] / "support" / "given_models.py"


@pytest.mark.parametrize(
    ("name", "factory", "dtype", "limit"),
    [
        ("channels_last", channels_last, "fp32", 1e-5),
        ("modulated", modulated, "given", 1e-2),
    ],
)
def test_an_artifact_returns_what_the_users_own_call_does(
    name: str, factory: Callable[[], Any], dtype: str, limit: float, tmp_path: Path
) -> None:
    arguments = ["--backend", "torch.export", "--dtype", dtype, "--to", str(tmp_path / "artifact"), "--threads", "1"]
    done = CliRunner().invoke(app, ["export", f"{GIVEN}:{name}", *arguments])
    assert done.exit_code == 0, done.stderr
    torch.manual_seed(0)
    made = factory()
    module, inputs = (made.module, made.inputs) if isinstance(made, Model) else made
    with torch.no_grad():
        own = module(**inputs) if isinstance(inputs, dict) else module(inputs)
    engine = load(tmp_path / "artifact")
    assert engine.manifest.label.startswith(f"given_models.py:{name}, ")
    assert str(GIVEN.parent) not in (tmp_path / "artifact" / "manifest.json").read_text()
    ports = engine.manifest.programs[0].inputs
    given = inputs if isinstance(inputs, dict) else {ports[0].name: inputs}
    found = list(engine(**given).values())
    for mine, theirs in zip(found, own if isinstance(own, tuple) else (own,), strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        assert (mine - theirs).double().norm() <= limit * theirs.double().norm()
    if name == "channels_last":
        assert (ports[0].layout, ports[0].order) == ("ordered", (0, 2, 3, 1))
