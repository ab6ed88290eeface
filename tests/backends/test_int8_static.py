"""Static int8 on a toy: pairs counted, calibrated on inputs of its own, and nothing quantised is said to be nothing."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="graphs are torch's")
pytest.importorskip("torchao", reason="PT2E's quantizer is torchao's")

from toys import LIBRARY_WARNINGS, build_toy

from bakeoff.backends.int8_static import BACKEND, Options
from bakeoff.variant import options_of, parse_use
from bakeoff.worker.building import StageError

pytestmark = LIBRARY_WARNINGS


@pytest.fixture(autouse=True)
def _work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_counts_its_pairs(tmp_path: Path) -> None:
    made = build_toy("picture/int8-static[seeds=2]+eager/fp32", tmp_path)
    prepared = made.built.prepared
    assert prepared.quantised == {"conv2d": "conv2d int8 static", "conv2d_1": "conv2d int8 static"}
    assert prepared.skipped == {}
    assert prepared.facts == {"quantise_nodes": 2, "dequantise_nodes": 4, "calibration_sets": 2}
    assert made.built.unproved == ""
    assert 1e-4 < made.error() < 0.15


def test_nothing_quantised_is_refused_with_what_there_was(tmp_path: Path) -> None:
    with pytest.raises(StageError) as refused:
        build_toy("sound/int8-static[seeds=1]+eager/fp32", tmp_path)
    assert refused.value.status == "unsupported"
    assert refused.value.reason == (
        "the X86 quantizer has no pattern for anything in it: 2 conv1d; for linear layers take int8"
    )


def test_onnxruntime_takes_its_pairs(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the engine is onnxruntime's")
    pytest.importorskip("onnxscript", reason="torch exports with onnxscript")
    made = build_toy("picture/int8-static[seeds=1]+onnxruntime/fp32", tmp_path)
    assert made.proof.operators_inside["QuantizeLinear"] == 2
    assert made.error() < 0.15


def test_options_are_read_from_strings() -> None:
    name, pairs = parse_use("int8-static[seeds=8]")
    assert name == "int8-static"
    assert options_of(BACKEND, pairs or {}) == Options(8)
    assert BACKEND.unsupported(Options(0), "cpu", "fp32") == "seeds=0: calibration needs one set of inputs at least"
    assert BACKEND.unsupported(Options(), "cpu", "bf16") == "int8-static does fp32, not bf16"
    assert BACKEND.quantises(Options()) == "static"
