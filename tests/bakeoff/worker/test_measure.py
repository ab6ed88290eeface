"""One variant measured in this process: what its figures are of, and what decides its status."""

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import canaries
import pytest

pytest.importorskip("torch", reason="variants are built with it")

import torch
from lab import FAST
from selftest_backends.faulty import changing

from bakeoff.backends.backend import Backend, BuildFunction, ModuleEngine, Outputs, Prepared, Proof
from bakeoff.machine import build_cache
from bakeoff.models.component import Quantisation
from bakeoff.process.jobs import BackendStep, MeasureJob, MeasureResult, ReferenceJob, Subject
from bakeoff.record.policy import Policy
from bakeoff.record.schema import Measurement
from bakeoff.selftest.faulty import canary, doing
from bakeoff.worker.clocks import timing
from bakeoff.worker.measure import _remarks, measure
from bakeoff.worker.reference.make import make_reference

WORLD = Subject("toy", "tiny", "world", 1, 0, 0, "", "cpu", 1)
TIMED = ("latency", "throughput")


@dataclass
class Bench:
    """Measures a build function on the toy; engines may ask in which phase they are called."""

    patch: pytest.MonkeyPatch
    references: Path
    folder: Path
    phases: list[str] = field(default_factory=list)
    """Announced so far, without repetitions, and "its turn"."""
    policy: Policy = FAST
    result: MeasureResult = field(init=False)

    def __call__(self, build: BuildFunction, prepare: Any = None, quantisation: Quantisation = "") -> Measurement:
        self.phases.clear()
        self.patch.setattr(timing, "_BLOCK_S", 0.01)
        self.patch.setattr(canaries, "MINE", canary("mine", "of a test", build), raising=False)
        self.patch.setattr(
            canaries, "PREPARES_MINE", Backend("prepares-mine", "of a test", prepare=prepare), raising=False
        )
        names = ["canaries:PREPARES_MINE", "canaries:MINE"] if prepare else ["canaries:MINE"]
        hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in self.references.iterdir()}
        job = MeasureJob(
            WORLD,
            "mine",
            tuple(BackendStep(name, {}) for name in names),
            "fp32",
            self.policy,
            str(self.references),
            str(self.folder),
            quantisation,
            hashes,
        )
        self.result = measure(job, self.report, lambda: self.phases.append("its turn"))
        return self.result.measurement

    def report(self, phase: str, _detail: str = "", /) -> None:
        if phase not in self.phases[-1:]:
            self.phases.append(phase)

    def within(self, *phases: str) -> bool:
        return self.phases[-1] in phases


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("references") / "toy"
    make_reference(ReferenceJob(WORLD, ("fp32",), str(folder)), lambda _phase, _detail="": None)
    return folder


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, references: Path, tmp_path: Path) -> Bench:
    return Bench(monkeypatch, references, tmp_path)


def rounded(outputs: Outputs) -> Outputs:
    """So little off that neither a norm nor a thousand elements show it."""
    return tuple(output.bfloat16().float() for output in outputs)


def unchanged(outputs: Outputs) -> Outputs:
    return outputs


def test_nothing_is_checked_or_timed_before_its_turn(measured: Bench) -> None:
    made = measured(changing(unchanged))
    assert made.status in ("ok", "unstable"), made.reason
    turn = measured.phases.index("its turn")
    assert measured.phases[turn - 1] == "prove", "built beside others"
    assert not {"check", "warm-up", *TIMED} & set(measured.phases[:turn])


def test_an_engine_that_cannot_be_traced_as_it_was_timed_is_built_again_after_all_else(measured: Bench) -> None:
    measured.policy = replace(FAST, trace=True)
    made = measured(changing(unchanged))
    assert made.status in ("ok", "unstable"), made.reason
    assert measured.result.traced is not None
    assert measured.result.traced.trace is not None
    assert measured.phases[-2:] == ["traced build", "trace"]


@pytest.mark.parametrize("phases", [TIMED, ("fresh inputs",)], ids=["timed", "fresh inputs"])
def test_a_small_error_counts_in_whichever_phase_it_is(phases: tuple[str, ...], measured: Bench) -> None:
    made = measured(changing(lambda outputs: rounded(outputs) if measured.within(*phases) else outputs))
    assert made.status == "parity_failed", made.reason
    assert made.parity is not None
    assert not made.parity.passed
    assert "inputs " in made.reason, "beside what regimes find"


def test_a_fallback_that_the_engine_states_after_its_last_call_counts(measured: Bench) -> None:
    def build(module: Any, *_: Any) -> ModuleEngine:
        return ModuleEngine(module, lambda: Proof(fell_back="" if "memory" not in measured.phases else "the framework"))

    assert measured(build).status == "fell_back"


def test_graphs_that_inductor_compiled_for_a_call_of_another_compiler_are_a_fallback(
    measured: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bakeoff.worker.checks import dispatch

    monkeypatch.setattr(dispatch, "INDUCTOR_CALL", "aten::")
    made = measured(changing(unchanged))
    assert made.status == "fell_back"
    assert made.reason.startswith("ran inductor")


def test_a_quantised_row_that_is_as_exact_as_eager_is_a_fallback(measured: Bench) -> None:
    def prepare(module: Any, *_: Any) -> Prepared:
        return Prepared(module, {"layer": "int8 dynamic"}, shrinks_weights=False)

    made = measured(changing(unchanged), prepare, "dynamic")
    assert made.status == "fell_back"
    assert "full precision" in made.reason


def test_weights_are_those_of_the_module_as_it_was_prepared(measured: Bench) -> None:
    given: list[int] = []

    def prepare(module: Any, *_: Any) -> Prepared:
        given.append(sum(one.nbytes for one in module.parameters()))
        module.register_buffer("scales", torch.zeros(1000))
        return Prepared(module)

    made = measured(changing(unchanged), prepare)
    assert made.memory is not None
    assert made.memory.weights_bytes == given[0] + 4000


def test_an_engine_that_writes_to_an_input_fails(measured: Bench) -> None:
    """To one that nothing reads afterwards, once its outputs are not compared any more."""
    seen: list[int] = []

    def build(module: Any, *_: Any) -> ModuleEngine:
        def call(*tensors: torch.Tensor) -> Outputs:
            outputs: Outputs = module(*tensors)
            if measured.within("memory"):
                seen.append(tensors[0].data_ptr())
                if list(dict.fromkeys(seen)).index(seen[-1]) == 3:
                    tensors[0].add_(1)
            return outputs

        return ModuleEngine(call)

    made = measured(build)
    assert made.status == "parity_failed"
    assert "inputs 3" in made.reason


@pytest.mark.parametrize(
    ("device", "overlapped", "filled_beside", "says"),
    [
        ("cuda", True, False, True),
        ("cuda", False, True, True),
        ("cuda", False, False, False),
        ("cpu", True, True, False),
    ],
)
def test_a_row_on_a_gpu_says_that_it_was_built_beside_others(
    tmp_path: Path, device: str, overlapped: bool, filled_beside: bool, says: bool
) -> None:
    """Also one that only found the caches of such a build."""
    build_cache.mark_finished(tmp_path, filled_beside)
    subject = SimpleNamespace(device=device)
    job: Any = SimpleNamespace(subject=subject, dtype="bf16", policy=FAST, overlapped=overlapped, cache_folder=tmp_path)
    cpu = SimpleNamespace(other_share=0.0, helper_cores=0.0)
    timed: Any = SimpleNamespace(
        flushed=False, gpu=SimpleNamespace(capped=False), timing=SimpleNamespace(cpu=cpu)
    )  # fmt: skip
    parity: Any = SimpleNamespace(reference_device="cpu", reference_dtype="fp64", regimes=())
    assert ("built-beside" in [finding.code for finding in _remarks(job, timed, parity, "")]) == says


def test_settings_that_a_build_leaves_changed_unrank_the_row(measured: Bench) -> None:
    try:
        made = measured(doing(lambda: torch.backends.cuda.enable_flash_sdp(False)))
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
    assert made.status == "unstable"
    assert "settings" in [finding.code for finding in made.findings]


def test_what_was_timed_and_not_all_checked_is_kept_and_not_ok(measured: Bench) -> None:
    def out_of_memory(outputs: Outputs) -> Outputs:
        if measured.within("fresh inputs"):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return outputs

    made = measured(changing(out_of_memory))
    assert made.status == "oom"
    assert made.latency is not None
    assert made.latency.samples_ns


@pytest.mark.parametrize("copies", [True, False])
def test_what_feeding_a_captured_graph_takes_is_stated_unless_calls_hold_it(copies: bool, measured: Bench) -> None:
    backend = canaries.REPLAYS_COPIES if copies else canaries.REPLAYS
    assert backend.build is not None
    found = measured(backend.build).input_copy
    assert found is not None
    assert found.in_call == copies
    assert found.bytes == 4 * (16 * 32 + 1 + 2 * 64 * 32), "x, t, and the caches, which a graph reads in place as well"
    assert (found.median_ms is None) == copies
    assert (len(found.samples_ns) >= 20) != copies
