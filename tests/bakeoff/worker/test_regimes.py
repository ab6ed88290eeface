"""Faults that inputs of one distribution do not show, each found by its regime or probe; honest rows are left alone."""

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import canaries
import pytest

pytest.importorskip("torch", reason="variants are built with it")

import torch
from lab import FAST, sweep
from ranged_network import PLANTED
from toys import LIBRARY_WARNINGS

from bakeoff.backends.backend import Backend, ModuleEngine, Prepared
from bakeoff.models.component import Quantisation
from bakeoff.models.types import Dtype
from bakeoff.plan.request import Request
from bakeoff.process.jobs import BackendStep, MeasureJob, ReferenceJob, Subject
from bakeoff.record.regimes import NEAR, Regime, range_text
from bakeoff.record.schema import Measurement, Parity
from bakeoff.selftest.faulty import canary
from bakeoff.worker.checks import regimes
from bakeoff.worker.clocks import timing
from bakeoff.worker.measure import measure
from bakeoff.worker.reference.files import ReferenceFiles
from bakeoff.worker.reference.make import make_reference
from bakeoff.worker.reference.regimes import regime_inputs, regime_names, scaled_inputs
from bakeoff.worker.subject import load_subject

Measure = Callable[..., Measurement]


def silent(_phase: str, _detail: str = "", /) -> None:
    pass


def subject(component: str, preset: str, workload: str, batch: int = 1) -> Subject:
    return Subject(component, preset, workload, batch, 0, 0, "", "cpu", 1)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measure:
    """Measures steps on a subject as a worker does, with the references that it makes for it."""

    def run(of: Subject, dtype: Dtype, *steps: tuple[str, dict[str, Any]], kind: Quantisation = "") -> Measurement:
        cache = tmp_path_factory.getbasetemp() / f"{of.component}.{of.workload}.{of.batch}".replace(":", ".")
        make_reference(ReferenceJob(of, (dtype,), str(cache)), silent)
        hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in cache.iterdir()}
        named = tuple(BackendStep(name, options) for name, options in steps)
        folder = str(tmp_path_factory.mktemp("cache"))
        job = MeasureJob(of, "mine", named, dtype, FAST, str(cache), folder, kind, hashes)
        with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:  # backends write into a worker's folder
            patch.setattr(timing, "_BLOCK_S", 0.01)
            return measure(job, silent).measurement

    return run


@pytest.fixture
def planted(measured: Measure, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Measures the part of `ranged` with one of the planted kernels."""

    def run(fault: str, workload: str, dtype: Dtype, batch: int = 1, kind: Quantisation = "") -> Measurement:
        attribute, kernel = PLANTED[fault]

        def prepare(module: Any, *_: Any) -> Prepared:
            setattr(module, attribute, kernel)
            return Prepared(module, {"first": f"int8 {kind}"} if kind else {}, shrinks_weights=False)

        def build(module: Any, *_: Any) -> ModuleEngine:
            if not kind:
                setattr(module, attribute, kernel)
            return ModuleEngine(module)

        monkeypatch.setattr(canaries, "MINE", canary("mine", fault, build), raising=False)
        monkeypatch.setattr(canaries, "PREPARES", Backend("prepares", fault, prepare=prepare), raising=False)
        steps = [("canaries:PREPARES", {}), ("canaries:MINE", {})]
        return measured(subject("ranged:SPEC", "tiny", workload, batch), dtype, *steps[0 if kind else 1 :], kind=kind)

    return run


def parity_of(made: Measurement) -> Parity:
    assert made.parity is not None, made.reason
    return made.parity


def narrow(made: Measurement) -> set[str]:
    return {regime.name for regime in parity_of(made).regimes if regime.narrow}


def test_slow_rows_are_called_only_where_they_must_be_right(measured: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regimes, "SLOW_NS", 0)
    made = measured(subject("ranged:SPEC", "tiny", "gate", 3), "fp32", ("eager", {}))
    assert [regime.name for regime in parity_of(made).regimes] == ["x0.25", "x4", "permuted"]
    assert parity_of(made).range_text == "right from 1/4 up to 4 times the given inputs"


@pytest.mark.parametrize(
    ("fault", "regime", "row"),
    [
        ("clipped mass", "x4", ("attend", "fp32")),
        ("no maximum", "x16", ("attend", "fp32")),
        ("sum in half", "x4", ("attend", "bf16")),
        ("variance by squares", "constant", ("norm", "fp32")),
        ("squares in half", "x16", ("norm", "bf16")),
        ("table to 4", "x4", ("gate", "fp32")),
        ("int8 without outliers", "outlier", ("linear", "fp32", 1, "dynamic")),
        ("scale of the batch", "alone", ("linear", "fp32", 4, "dynamic")),
        ("fixed point", "x0.25", ("linear", "fp32", 1, "dynamic")),
        ("static range", "x4", ("linear", "fp32", 1, "static")),
        ("last item in less", "permuted", ("linear", "fp32", 16)),
    ],
)
def test_a_fault_that_the_given_inputs_do_not_show_is_found_in_its_regime(
    fault: str, regime: str, row: tuple[Any, ...], planted: Measure
) -> None:
    made = planted(fault, *row)
    parity = parity_of(made)
    assert all(output.passed for output in parity.outputs), "today's parity passes it"
    assert regime in narrow(made), parity.range_text
    remark = next(finding.text for finding in made.findings if finding.code == "narrow")
    entry = next(entry for entry in parity.regimes if entry.name == regime)
    assert entry.text in remark
    fails = next((entry.text for entry in parity.regimes if entry.name in NEAR and entry.wrong), "")
    assert (made.status, made.reason) == ("parity_failed", fails) if fails else made.status in ("ok", "unstable")
    assert bool(fails) == (fault in ("clipped mass", "sum in half", "table to 4", "last item in less"))


def test_memory_that_an_engine_does_not_write_is_found_once_it_is_not_a_number(tmp_path: Path) -> None:
    """In a process of its own, whose freed memory holds no values that are not numbers yet."""
    backends = ("selftest_backends.subtle:UNWRITTEN_PAD",)
    swept = sweep(Request("toy", backends=backends, dtypes=("fp32",), device="cpu", threads=1, policy=FAST), tmp_path)
    made = swept.done.stored[0].record.measurement
    assert made.status == "parity_failed"
    assert "not finite (inputs 0, after freed memory was filled with NaN)" in made.reason, "earlier checks pass it"
    assert parity_of(made).repeats is False


INT8 = ("int8", {"least": 0})
WEIGHTS = ("int8", {"least": 0, "kind": "weight-only"})
HONEST: dict[str, tuple[Dtype, Quantisation, tuple[tuple[str, dict[str, Any]], ...]]] = {
    "ort": ("fp32", "", (("onnxruntime", {}),)),
    "export": ("fp32", "", (("torch.export", {}),)),
    "bf16": ("bf16", "", (("eager", {}),)),
    "openvino": ("fp32", "", (("openvino", {}),)),
    "int8": ("fp32", "dynamic", (INT8, ("eager", {}))),
    "int8-bf16": ("bf16", "dynamic", (INT8, ("eager", {}))),
    "weights": ("fp32", "weight-only", (WEIGHTS, ("eager", {}))),
}


@LIBRARY_WARNINGS
@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (subject("ranged:SPEC", "tiny", "attend", 3), "ort openvino int8-bf16"),
        (subject("ranged:SPEC", "tiny", "norm", 3), "ort openvino"),
        (subject("ranged:SPEC", "tiny", "gate", 3), "bf16 openvino"),
        (subject("ranged:SPEC", "tiny", "linear", 3), "export int8 int8-bf16 weights"),
        (subject("toy", "tiny", "world"), "export openvino int8"),
        (subject("toy", "tiny", "stream"), "ort bf16"),
        (subject("normed:SPEC", "plain", "classify", 2), "ort openvino"),
    ],
    ids=lambda of: f"{of.component}.{of.workload}.{of.batch}" if isinstance(of, Subject) else of,
)
def test_an_honest_row_is_not_accused(model: Subject, rows: str, measured: Measure) -> None:
    judged = 0
    for dtype, kind, steps in map(HONEST.__getitem__, rows.split()):
        made = measured(model, dtype, *steps, kind=kind)
        if made.parity is None:
            assert made.status == "unavailable", made.reason
            judged += 4
            continue
        assert made.status not in ("parity_failed", "crashed", "call_failed"), made.reason
        assert not any(entry.wrong for entry in made.parity.regimes)
        assert not kind or kind == "dynamic" or not narrow(made), made.parity.range_text
        assert kind or not narrow(made), (steps, made.parity.range_text)
        judged += sum(entry.limit is not None for entry in made.parity.regimes)
    assert judged >= 4 * len(rows.split())


def test_times_masks_and_states_are_not_scaled() -> None:
    assert scaled_inputs(load_subject(subject("toy", "tiny", "world"))) == {"x", "cache_k", "cache_v"}
    assert scaled_inputs(load_subject(subject("toy", "tiny", "stream"))) == {"z"}, "its cache is the stream's state"


def test_a_regime_counts_where_the_answer_says_something_and_eager_is_right(tmp_path: Path) -> None:
    def counted(name: str, dtype: Dtype) -> tuple[set[str], set[str]]:
        """The regimes in which the model says something, and those in which eager is right."""
        make_reference(ReferenceJob(subject("ranged:SPEC", "tiny", name), (dtype,), str(tmp_path / name)), silent)
        files = ReferenceFiles(tmp_path / name, None)
        return {*files.about().regimes}, {*files.eager(dtype).regime_noise}

    without = tmp_path / "without"
    make_reference(ReferenceJob(subject("ranged:SPEC", "tiny", "norm"), ("fp32",), str(without), regimes=False), silent)
    assert ReferenceFiles(without, None).about().regimes == ()
    assert not list(without.glob("regime-*"))
    sharp = {"x0.25", "x4", "x16", "outlier", "constant", "sharper", "flatter"}
    assert counted("bounded", "fp32") == (sharp - {"x16"},) * 2, "at 16 times its outputs are all at the bound"
    assert counted("norm", "bf16") == (sharp, sharp - {"constant"}), "bf16 does not hold what is left of a row"


def test_regimes_change_what_they_say() -> None:
    loaded = load_subject(subject("ranged:SPEC", "tiny", "linear", 3))
    given = loaded.sets[0]["x"]
    assert regime_names(loaded)[-2:] == ("permuted", "alone")
    values = {name: regime_inputs(loaded, name)["x"] for name in regime_names(loaded)}
    assert torch.equal(values["x4"], 4 * given)
    assert torch.equal(values["outlier"][..., 0], 16 * given[..., 0])
    assert torch.equal(values["outlier"][..., 1:], given[..., 1:])
    assert float((values["constant"] - given[..., :1]).abs().max()) < 0.05
    for name in ("sharper", "flatter"):
        assert float(values[name].square().mean()) == pytest.approx(float(given.square().mean()), rel=1e-5)
    assert float(values["sharper"].abs().max()) > float(given.abs().max()) > float(values["flatter"].abs().max())
    assert torch.equal(values["permuted"][0], given[2])
    assert torch.equal(values["alone"][0], given[0])
    assert torch.equal(values["alone"][1:], 16 * given[1:])
    assert torch.equal(loaded.sets[0]["x"], load_subject(loaded.subject).sets[0]["x"]), "the set itself is unchanged"


def test_an_input_that_is_held_keeps_its_place_in_a_batch() -> None:
    loaded = load_subject(subject("ranged:SPEC", "tiny", "linear", 3))
    inputs = tuple(replace(spec, held=True) for spec in loaded.workload.inputs)
    held = replace(loaded, workload=replace(loaded.workload, inputs=inputs))
    assert torch.equal(regime_inputs(held, "permuted")["x"], loaded.sets[0]["x"])


def test_a_range_in_words() -> None:
    right = [Regime(name, 1e-7, 1e-7, 1e-4) for name in ("x0.25", "x4", "x16")]
    wrong = Regime("x16", 2.5e-2, 1e-2, 2e-2)
    beside = Regime("alone", None, 1e-7, 1e-4, problem="y: not finite")
    assert range_text(right) == "right from 1/4 up to 16 times the given inputs"
    assert range_text([*right[:2], wrong]) == (
        "right from 1/4 up to 4 times the given inputs; from 16 times on 8 dB worse than eager in the same dtype"
    )
    assert range_text([*right[1:], Regime("x0.25", 1.0)]) == (
        "right up to 16 times the given inputs; at 1/4 of them eager itself is not right in this dtype"
    )
    assert range_text([*right, beside]).endswith(
        "; for an item beside others that are 16 times as large wrong, where eager in the same dtype is right: "
        "y: not finite"
    )
    assert range_text([]) == ""


def test_only_near_the_given_inputs_and_unquantised_a_large_error_fails_the_row() -> None:
    assert Regime("x4", 5e-4, 1e-4, 2e-4).wrong
    assert not Regime("x4", 3e-4, 1e-4, 2e-4).wrong, "each regime has one set of inputs"
    assert Regime("x4", 3e-4, 1e-4, 2e-4).narrow
    assert not Regime("x4", 5e-4, 1e-4, 2e-4, judged=False).wrong
    assert not Regime("x16", 5e-4, 1e-4, 2e-4).wrong
    assert not Regime("x4", 5e-4).wrong, "eager is not right there either"
