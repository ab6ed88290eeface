"""Builds, proves and checks a variant, and makes the proof for its record; measurements and comparisons both use it.

The proof is the engine's own statement, compared with the operators that a call dispatched.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from torch import Tensor

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import Call, Prepared, Proof, Unsupported
from bakeoff.models.errors import BakeoffError
from bakeoff.models.types import Scalar
from bakeoff.process.jobs import MeasureJob
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.schema import Measurement, Parity, ProofRecord
from bakeoff.worker.build import BuiltEngine, build_engine
from bakeoff.worker.checks.dispatch import CallOperators, left_to_aten, uncompiled
from bakeoff.worker.checks.outputs import OutputWatch, call_twice
from bakeoff.worker.failures import StageError, call_stage, status_of, traceback_text
from bakeoff.worker.reference.error import Difference, not_comparable
from bakeoff.worker.reference.files import ReferenceFiles
from bakeoff.worker.reference.parity import Reference
from bakeoff.worker.reporter import Report, Turn, at_once
from bakeoff.worker.subject import LoadedSubject, cast_subject, load_subject, plain_eager, synchronise
from bakeoff.worker.torch_flags import flags, one_thread, settings

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class CheckedVariant:
    """Subject, inputs and built engine for one dtype and device, after the initial output checks."""

    loaded: LoadedSubject
    sets: tuple[dict[str, Tensor], ...]
    """Sets of inputs in the variant's dtype and on its device."""
    built: BuiltEngine
    proof: Proof
    """Proof as the engine stated it after its first call."""
    reference: Reference
    watch: OutputWatch
    differences: list[list[Difference]]
    """Difference of each output from its reference, one list for each comparison so far."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors of all sets."""
        return tuple(tensor for inputs in self.sets for tensor in inputs.values())


def with_failures(job: MeasureJob, report: Report, action: Callable[[LoadedSubject], _Made]) -> _Made | Measurement:
    """Load the job's subject, and run `action` on it with torch's flags set; return the action's result.

    If the variant's own code fails, also while it is imported, return a measurement with its status and reason instead.
    Raises BakeoffError if the request itself is wrong (a bad checkpoint).
    """
    report("weights")
    with one_thread(job.overlapped):
        loaded = load_subject(job.subject)
    try:
        backends = [resolve_backend(step.backend) for step in job.steps]  # before the flags, which they may set
    except BakeoffError as error:
        return _failed(StageError(status_of(error, "build_failed"), error), loaded)
    stance = plain_eager(loaded.component) if backends[-1].runs_eagerly else nullcontext()
    with flags(job.dtype, job.subject.threads, search=job.subject.device == "cuda"), stance:
        try:
            return action(loaded)
        except StageError as stage:
            return _failed(stage, loaded)


def _failed(stage: StageError, loaded: LoadedSubject) -> Measurement:
    text = traceback_text(stage.error)
    return Measurement(stage.status, stage.reason, settings=settings(), weights=loaded.weights, traceback=text)


def build_and_check(
    job: MeasureJob, loaded: LoadedSubject, report: Report, turn: Turn = at_once, cold: bool = False
) -> CheckedVariant:
    """Build and prove the job's variant, and compare two calls on each set of inputs with the reference.

    With `cold`, build with one set of inputs, and compare nothing: a build calls its engine once. Waits for `turn`
    before these calls: beside other builds they take many times as long. Raises StageError if the variant's own code
    fails, if its reference cannot be used, or if its engine is for another GPU.
    """
    if job.target:
        text = f"engines for {job.target} are built here and run elsewhere; use bakeoff sweep, or bakeoff export"
        raise StageError("unsupported", Unsupported(text))
    device = job.subject.device
    if cold:
        loaded = replace(loaded, sets=loaded.sets[:1])
        report("check")
    with one_thread(job.overlapped):
        reference, watch = _reference(job, loaded)
        if cold:
            report("weights")
        sets = cast_subject(loaded, job.dtype, device)
    report("build")
    built = build_engine(job, loaded, sets, report=report)
    report("prove")
    proof = call_stage(built.engine.prove)
    checked = CheckedVariant(loaded, sets, built, proof, reference, watch, [])
    if cold:
        return checked
    turn()
    report("check")
    for index, call in enumerate(built.calls):
        checked.differences.extend(_compare_two_calls(checked, index, call, device))
    return checked


def _reference(job: MeasureJob, loaded: LoadedSubject) -> tuple[Reference, OutputWatch]:
    """Read the reference before any code of the variant is imported, so that such code cannot change it.

    Raises StageError with `crashed` for damaged files, and with `unsupported` if even eager is wrong in this dtype.
    """
    files = ReferenceFiles(Path(job.reference_folder), job.reference_hashes)
    try:
        reference = Reference(files, loaded, job.dtype, job.quantisation)
        watch = reference.watch()
    except BakeoffError as error:
        if error.code != "bad-reference":
            raise
        raise StageError("crashed", error) from error
    if reference.not_survived:
        raise StageError("unsupported", Unsupported(reference.not_survived))
    return reference, watch


def _compare_two_calls(checked: CheckedVariant, index: int, call: Call, device: str) -> list[list[Difference]]:
    """Call twice on set `index`, and compare the outputs of both calls with the reference.

    If the first call's outputs change after it has returned, they count as not comparable.
    """
    kept = checked.inputs
    outputs, changed, again = call_stage(lambda: call_twice(call, lambda: synchronise(device), kept))
    first = checked.reference.differences(index, outputs)
    if changed:
        text = "the outputs changed after the call had returned"
        first = [replace(not_comparable(text), where=f"inputs {index}") for _ in first]
    return [first, checked.reference.differences(index, again, "after the first outputs were overwritten")]


def final_proof(checked: CheckedVariant, ran: CallOperators) -> ProofRecord:
    """Prove the engine again after its last call, and compare the operators of a call (`ran`) with eager's.

    `fell_back` is the first of these that applies: what the build showed; what the engine stated after its first call,
    then after its last; a graph that inductor compiled although no backend uses inductor; what ran instead of the
    prepared module; eager's operators doing most of the work of a call although the backend compiles.
    """
    built = checked.built
    final = call_stage(built.engine.prove)
    fallback = built.fallback or checked.proof.fell_back or final.fell_back
    if not fallback and ran.inductor_calls and not built.uses_inductor:
        fallback = f"inductor: it compiled {ran.inductor_calls} of the graphs that a call runs"
    if not fallback:
        names = {*ran.operators, *final.operators_outside}
        fallback = ran_instead(built.prepared, names, complete=_on_cpu(checked))
    if not fallback and not built.runs_eagerly:
        fallback = uncompiled(ran, checked.reference.eager) or ""
    return _proof_record(checked, fallback, final.recompiles, ran)


def left_findings(checked: CheckedVariant, proof: ProofRecord, ran: CallOperators, call_ns: float) -> list[Finding]:
    """Return a finding on the operators that a compiler left to PyTorch's kernels, with their shares of a call's time.

    `call_ns` is the time of a call. Empty on a GPU, because only on a CPU are the host's times those of the work.
    """
    if proof.fell_back or checked.built.runs_eagerly or not _on_cpu(checked):
        return []
    shares = ", ".join(f"{name} {share:.0%}" for name, share in left_to_aten(ran, call_ns / 1000).items())
    text = f"operators that the compiler left to PyTorch's own kernels, by their share of a call: {shares}"
    return [new_finding("left-to-aten", text)] if shares else []


def _on_cpu(checked: CheckedVariant) -> bool:
    return all(tensor.device.type == "cpu" for tensor in checked.inputs)


def ran_instead(prepared: Prepared, names: Iterable[str], complete: bool) -> str:
    """Return what a call ran instead of the prepared module, as a noun phrase; "" if nothing shows that.

    `names` are operators and kernels that ran. With `complete`, nothing else ran.
    """
    ran = frozenset(names)
    return next(filter(None, (check(ran, complete) for check in prepared.ran_instead)), "")


def first_proof(checked: CheckedVariant) -> ProofRecord:
    """Return the proof record as it stands after the build, still without recompiles and dispatched operators."""
    return _proof_record(checked, checked.built.fallback or checked.proof.fell_back, ())


def with_precision(job: MeasureJob, proof: ProofRecord, parity: Parity, checked: CheckedVariant) -> ProofRecord:
    """Return the proof; set `fell_back` if a quantised fp32 variant is as exact as eager.

    Such a small error shows that nothing was quantised.
    """
    if job.quantisation and job.dtype == "fp32" and not proof.fell_back and checked.reference.as_exact_as_eager(parity):
        text = "full precision: the error is no larger than plain eager's, too small for a quantised computation"
        return replace(proof, fell_back=text)
    return proof


def _proof_record(
    checked: CheckedVariant, fallback: str, recompiles: Sequence[str], ran: CallOperators | None = None
) -> ProofRecord:
    facts: dict[str, Scalar] = {}
    if ran is not None:
        eager = checked.reference.eager
        facts["operators_dispatched"] = sum(ran.operators.values())
        facts["operators_dispatched_by_eager"] = sum(eager.operators.values())
        facts["elementwise_dispatched"] = ran.elementwise
        facts["elementwise_dispatched_by_eager"] = eager.elementwise
    return proof_record(checked.proof, checked.built.prepared, fallback, recompiles, facts)


def proof_record(
    proof: Proof,
    prepared: Prepared,
    fallback: str,
    recompiles: Sequence[str] = (),
    facts: Mapping[str, Scalar] = MappingProxyType({}),
) -> ProofRecord:
    """Return the engine's statement as records store it, with further `facts`.

    `fallback` is a noun phrase for what ran instead, or "".
    """
    return ProofRecord(
        fell_back=fallback,
        graphs=proof.graphs,
        graph_breaks=proof.graph_breaks,
        recompiles=tuple(recompiles),
        operators_inside=dict(proof.operators_inside),
        operators_outside=dict(proof.operators_outside),
        facts={**prepared.facts, **proof.facts, **facts},
        graph_hash=proof.graph_hash,
        quantised={**prepared.quantised, **proof.quantised},
        skipped={**prepared.skipped, **proof.skipped},
    )
