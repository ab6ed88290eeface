"""Calls of an opened program and the state between them, without an export: a program made by hand."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="programs take tensors")

import torch
from torch import Tensor
from toys import LIBRARY_WARNINGS
from tuned_artifacts import Denoiser, seeded, write_artifact

from bakeoff.backends.format import BadArtifact
from bakeoff.export.loader import Program, State, carry, load
from bakeoff.export.manifest import Port
from bakeoff.export.manifest import Program as About
from bakeoff.models.component import Carry
from bakeoff.models.errors import BakeoffError

pytestmark = LIBRARY_WARNINGS
PORTS = tuple(Port(name, "float32", (2, 3), "") for name in ("a", "b"))
ONE, TWO = torch.full((2, 3), 1.0), torch.full((2, 3), 2.0)


def program(run: Callable[[Sequence[Tensor]], tuple[Tensor, ...]]) -> Program:
    outputs = (Port("difference", "float32", (2, 3), ""),)
    return Program(About("main", "a less b", "main.pt2", (), PORTS, outputs, 1), "cpu", run)


def test_inputs_are_bound_by_their_names() -> None:
    less = program(lambda tensors: (tensors[0] - tensors[1],))
    for outputs in (less(a=ONE, b=TWO), less(b=TWO, a=ONE)):
        assert torch.equal(outputs["difference"], ONE - TWO)


@pytest.mark.parametrize(
    "wrong", [ONE.double(), ONE[:1], ONE.T, ONE.to("meta")], ids=["dtype", "length", "order of axes", "device"]
)
def test_an_input_that_does_not_fit_is_refused(wrong: Tensor) -> None:
    less = program(lambda tensors: (tensors[0] - tensors[1],))
    less(a=ONE, b=TWO)
    with pytest.raises(BakeoffError) as refused:
        less(a=wrong, b=TWO)
    assert refused.value.code == "bad-input"


def test_a_program_does_not_run_in_a_fork_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    less = program(lambda tensors: (tensors[0] - tensors[1],))
    less(a=ONE, b=TWO)
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    with pytest.raises(BakeoffError, match=f"was opened in process {here}") as refused:
        less(a=ONE, b=TWO)
    assert refused.value.code == "other-process"


@pytest.mark.parametrize("backend", ["torch.export", "onnxruntime", "openvino"])
def test_files_that_are_overwritten_change_no_open_program(backend: str, tmp_path: Path) -> None:
    """Both other libraries map a file of weights by default."""
    pytest.importorskip("torch" if backend == "torch.export" else backend)
    inputs = {"x": torch.randn(1, 4, 256), "label": torch.tensor([1])}
    module = seeded(lambda: Denoiser(256))
    manifest = write_artifact(module, tmp_path / "a", tuple(inputs.values()), names=[*inputs], backend=backend)
    opened = load(tmp_path / "a", threads=1)
    for name in manifest.files.keys() - {manifest.sample.file}:
        content = (tmp_path / "a" / name).read_bytes()
        with (tmp_path / "a" / name).open("r+b") as file:
            file.write(bytes(255 - byte for byte in content))
    torch.testing.assert_close(opened(**inputs)["sample"], module(**inputs).sample.detach(), rtol=1e-3, atol=1e-4)


def test_a_gradient_is_refused_and_not_lost() -> None:
    """Without gradients the same input is taken, detached: libraries that read it through numpy refuse it otherwise."""
    given: list[Tensor] = []
    less = program(lambda tensors: (given.extend(tensors), (tensors[0] - tensors[1],))[1])
    one = ONE.clone().requires_grad_()
    with pytest.raises(BakeoffError, match=r"give a\.detach\(\)") as refused:
        less(a=one, b=TWO)
    assert refused.value.code == "needs-gradient"
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(less(a=one, b=TWO)["difference"], ONE - TWO)
    assert not any(tensor.requires_grad for tensor in given)


@pytest.mark.parametrize(
    "made", [(ONE.double(),), (ONE[:1],), (), (ONE, ONE)], ids=["another dtype", "another shape", "none", "two"]
)
def test_outputs_other_than_the_manifests_are_refused(made: tuple[Tensor, ...]) -> None:
    with pytest.raises(BadArtifact) as refused:
        program(lambda _tensors: made)(a=ONE, b=TWO)
    assert refused.value.code == "wrong-output"


def test_a_window_loses_its_oldest_entries() -> None:
    state: State = {("step", "cache"): torch.arange(5.0)[None]}
    carry(state, [Carry("append", "new", "step", "cache", 1)], "append", {"new": torch.tensor([[7.0, 8.0]])})
    assert state["step", "cache"].tolist() == [[2.0, 3.0, 4.0, 7.0, 8.0]]
