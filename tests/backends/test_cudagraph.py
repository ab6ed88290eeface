"""The cudagraph backend with a fake capture, which logs the operators that run and repeats them at a replay."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch captures graphs")

import torch
from fake_cuda_graphs import FakeCuda, install
from toys import Toy, build_toy

from bakeoff.backends.port import Port
from bakeoff.record.policy import Policy
from bakeoff.worker.checks.fresh_inputs import call_with_fresh_inputs
from bakeoff.worker.clocks.clock import TimingConfig
from bakeoff.worker.measure import measure_input_copy


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return install(monkeypatch)


@pytest.fixture
def toy(request: pytest.FixtureRequest, tmp_path: Path) -> Toy:
    request.getfixturevalue("fake_cuda")
    return build_toy("world/cudagraph/fp32", tmp_path)


@pytest.mark.usefixtures("fake_cuda")
def test_weights_are_laid_out_before_the_capture(tmp_path: Path) -> None:
    made = build_toy("picture/cudagraph[channels_last]/fp32", tmp_path)
    assert made.error() < 1e-5
    assert made.proof.facts["channels_last_weights"] > 0


def test_replays_give_what_eager_gives_for_each_set(toy: Toy) -> None:
    assert toy.error() < 1e-6


def test_fresh_inputs_are_captured_once_and_replayed(toy: Toy) -> None:
    expected = toy.module(*toy.sets[1].values())
    config = TimingConfig("cpu", Policy(), lambda _index, _outputs: None)
    fresh = call_with_fresh_inputs(toy.engine, toy.sets, config, seed=0)
    assert toy.engine.captures()
    assert toy.engine.activity() == {"captures": len(toy.sets) + 1}
    for one, other in zip(fresh.outputs, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def test_the_proof_counts_captures(toy: Toy) -> None:
    proof = toy.proof
    assert (proof.fell_back, proof.graphs, proof.facts["captures"]) == ("", 1, len(toy.sets))
    toy.engine.close()
    assert "nothing was captured" in toy.proof.fell_back


def test_a_port_carries_outputs_by_copying_and_captures_once_into_a_pool_of_its_own(
    toy: Toy, fake_cuda: FakeCuda
) -> None:
    fake_cuda.log.clear()
    port = toy.engine.port(toy.sets[0], ("y",), {"y": "x"})
    assert fake_cuda.log == ["graph_pool_handle", "capture pool 2"]
    captured = toy.engine.compilations()
    values = dict(toy.sets[0])
    for _ in range(3):
        port.call()
        (values["x"],) = toy.module(*values.values())
        assert port.advance() == values["x"].nbytes
        assert torch.allclose(port.inputs["x"], values["x"], rtol=1e-5, atol=1e-6)
    assert type(port) is Port
    assert toy.engine.compilations() == captured


def test_feeding_it_is_measured_as_copies_into_what_it_replays(toy: Toy) -> None:
    port = toy.engine.port(toy.sets[0], ("y",))
    config = TimingConfig("cpu", Policy(), lambda _index, _outputs: None)
    copied = measure_input_copy(toy.engine, port.inputs, toy.sets[1], config)
    assert copied is not None
    assert not copied.in_call
    assert copied.bytes == sum(tensor.numel() * 4 for tensor in toy.sets[1].values())
    assert len(copied.samples_ns) >= 20
    port.call()
    (wanted,) = toy.module(*toy.sets[1].values())
    assert torch.allclose(port.outputs["y"], wanted, rtol=1e-5, atol=1e-6), "every input was copied"
