"""The proof of a record: the engine's own statement, compared with the operators that a call dispatched."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bakeoff.backends.backend import Prepared, Ran
from bakeoff.models.types import Scalar
from bakeoff.process.jobs import MeasureJob
from bakeoff.record.schema import Finding, Parity, ProofRecord, new_finding
from bakeoff.worker.checked_variant import CheckedVariant
from bakeoff.worker.checks.dispatch import Dispatched, left_to_aten, uncompiled
from bakeoff.worker.failures import call_stage


def final_proof(checked: CheckedVariant, ran: Dispatched) -> ProofRecord:
    """Prove the engine again after its last call, and compare that call's operators with eager's.

    `fell_back` is the first of these that applies: what the build showed; what the engine stated after its first call,
    then after its last; a graph that inductor compiled for a backend that does not use inductor; what ran instead of
    what was prepared; eager's operators, for most of the work, in the call of a backend that compiles.
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
    return proof_record(checked, fallback, final.recompiles, ran)


def left_findings(checked: CheckedVariant, proof: ProofRecord, ran: Dispatched, call_ns: float) -> list[Finding]:
    """What a compiler left to PyTorch's kernels; of a CPU alone, where the host's times are those of the work."""
    if proof.fell_back or checked.built.runs_eagerly or not _on_cpu(checked):
        return []
    shares = ", ".join(f"{name} {share:.0%}" for name, share in left_to_aten(ran, call_ns / 1000).items())
    text = f"operators that the compiler left to PyTorch's own kernels, by their share of a call: {shares}"
    return [new_finding("left-to-aten", text)] if shares else []


def _on_cpu(checked: CheckedVariant) -> bool:
    return all(tensor.device.type == "cpu" for tensor in checked.inputs)


def ran_instead(prepared: Prepared, names: Iterable[str], complete: bool) -> str:
    """What a call ran instead of what was prepared, by the names of what ran; "" if nothing shows that."""
    ran = Ran(frozenset(names), complete)
    return next(filter(None, (check(ran) for check in prepared.ran_instead)), "")


def first_proof(checked: CheckedVariant) -> ProofRecord:
    """The proof as it stands after the build, with neither recompiles nor dispatched operators."""
    return proof_record(checked, checked.built.fallback or checked.proof.fell_back, ())


def with_precision(job: MeasureJob, proof: ProofRecord, parity: Parity, checked: CheckedVariant) -> ProofRecord:
    """The proof; it gets `fell_back` where a quantised fp32 variant is as exact as eager: nothing was quantised."""
    if job.quantisation and job.dtype == "fp32" and not proof.fell_back and checked.reference.as_exact_as_eager(parity):
        text = "full precision: the error is no larger than plain eager's, too small for a quantised computation"
        return replace(proof, fell_back=text)
    return proof


def proof_record(
    checked: CheckedVariant, fallback: str, recompiles: Sequence[str], ran: Dispatched | None = None
) -> ProofRecord:
    """The engine's statement as records store it; `fallback` is a noun phrase for what ran instead, "" for nothing."""
    proof, prepared = checked.proof, checked.built.prepared
    facts: dict[str, Scalar] = {**prepared.facts, **proof.facts}
    if ran is not None:
        eager = checked.reference.eager
        facts["operators_dispatched"] = sum(ran.operators.values())
        facts["operators_dispatched_by_eager"] = sum(eager.operators.values())
        facts["elementwise_dispatched"] = ran.elementwise
        facts["elementwise_dispatched_by_eager"] = eager.elementwise
    return ProofRecord(
        fell_back=fallback,
        graphs=proof.graphs,
        graph_breaks=proof.graph_breaks,
        recompiles=tuple(recompiles),
        operators_inside=dict(proof.operators_inside),
        operators_outside=dict(proof.operators_outside),
        facts=facts,
        graph_hash=proof.graph_hash,
        quantised={**prepared.quantised, **proof.quantised},
        skipped={**prepared.skipped, **proof.skipped},
    )
