"""One variant from build to numbers: build, prove, check, time, meter, then what only shows afterwards."""

import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from bakeoff.backends.backend import Call, Engine, Outputs, Proof
from bakeoff.models.types import Scalar
from bakeoff.process.jobs import MeasureJob
from bakeoff.record.schema import Finding, Measurement, Parity, ProofRecord, Status
from bakeoff.worker.build import BuiltEngine, StageError, build, call_stage
from bakeoff.worker.checks import memory
from bakeoff.worker.checks.dispatch import Dispatched, dispatched, uncompiled
from bakeoff.worker.checks.fresh_inputs import FreshInputsResult, call_with_fresh_inputs, changed_inputs
from bakeoff.worker.checks.outputs import OutputWatch, copied, overwrite
from bakeoff.worker.clocks.timing import Timing, TimingConfig, measure_overhead, time_calls, timed
from bakeoff.worker.clocks.trend import LEAST_GROWTH, climb, leak, least_leak
from bakeoff.worker.device import DeviceState, cache_flush, context_bytes, device_state, held_bytes
from bakeoff.worker.failures import encodable
from bakeoff.worker.reference.error import Difference, not_comparable
from bakeoff.worker.reference.load import Reference
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import LoadedSubject, cast_inputs, load_subject, synchronise
from bakeoff.worker.torch_flags import TORCH_DTYPES, flags, settings

_LATE_S = 0.02
_SPARE_CORES = 0.25
_DRIFT_S = 1.0
"""How long a suspected drift is looked at again: slow moments of a virtual machine last for tens of milliseconds."""
_LEAK_S = 5.0
"""How long a suspected leak is looked for again."""


@dataclass(frozen=True, slots=True)
class CheckedVariant:
    """A subject made real in one dtype on one device, with an engine for it that has passed the first checks."""

    loaded: LoadedSubject
    sets: tuple[dict[str, Tensor], ...]
    built: BuiltEngine
    proof: Proof
    reference: Reference
    watch: OutputWatch
    differences: list[list[Difference]]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(tensor for inputs in self.sets for tensor in inputs.values())


def measure(job: MeasureJob, report: Report) -> Measurement:
    """Measure one variant. Raises BakeoffError only where the request itself is wrong (a bad checkpoint)."""
    return attempt(job, report, lambda loaded: _measure(job, loaded, report))


def attempt(job: MeasureJob, report: Report, action: Callable[[LoadedSubject], Measurement]) -> Measurement:
    """Open the job's subject and do something with it; an exception of the variant's own code is a status."""
    report("weights")
    loaded = load_subject(job.subject)
    with flags(job.dtype, job.subject.threads):
        try:
            return action(loaded)
        except StageError as stage:
            return Measurement(
                status=stage.status,
                reason=stage.reason,
                settings=settings(),
                weights=loaded.weights,
                traceback=encodable("".join(traceback.format_exception(stage.error))[-8000:]),
            )


def build_and_check(job: MeasureJob, loaded: LoadedSubject, report: Report) -> CheckedVariant:
    """Build, prove and check the job's variant."""
    device, dtype = job.subject.device, job.dtype
    sets = cast_subject(loaded, job)
    report("build")
    built = build(job, loaded, sets)
    report("prove")
    proof = call_stage(built.engine.prove)
    report("check")
    reference = Reference(Path(job.reference_folder), loaded, dtype, job.quantisation)
    inputs = [tensor for inputs in sets for tensor in inputs.values()]
    found = [
        differences
        for index, call in enumerate(built.calls)
        for differences in _check(reference, index, call, device, inputs)
    ]
    return CheckedVariant(loaded, sets, built, proof, reference, reference.watch(), found)


def _check(
    reference: Reference, index: int, call: Call, device: str, inputs: Sequence[Tensor]
) -> list[list[Difference]]:
    """Two calls of one set. What the first gave must stay as it is, and be of no use to the second."""
    outputs = call_stage(call)
    synchronise(device)
    copy = copied(outputs)
    first = reference.differences(index, copy)
    time.sleep(_LATE_S)
    if not _alike(outputs, copy):
        first = [not_comparable("changed after the call had returned") for _ in first]
        first = [replace(entry, where=f"inputs {index}") for entry in first]
    call_stage(lambda: overwrite(outputs, inputs))
    again = call_stage(call)
    synchronise(device)
    return [first, reference.differences(index, copied(again), "after the caller overwrote what it gave before")]


def _alike(outputs: object, copy: object) -> bool:
    """Bit for bit, NaN being like itself."""
    if not isinstance(outputs, tuple | list) or not isinstance(copy, tuple):
        return True
    return all(
        torch.equal(new.nan_to_num(), old.nan_to_num())
        for new, old in zip(outputs, copy, strict=True)
        if isinstance(new, Tensor) and isinstance(old, Tensor)
    )


def cast_subject(loaded: LoadedSubject, job: MeasureJob) -> tuple[dict[str, Tensor], ...]:
    """Bring the module to the variant's device and dtype, and give its sets of inputs so."""
    device, dtype = job.subject.device, job.dtype
    loaded.module.to(device=device, dtype=TORCH_DTYPES[dtype])
    return tuple(cast_inputs(loaded.workload, inputs, dtype, device) for inputs in loaded.sets)


def _measure(job: MeasureJob, loaded: LoadedSubject, report: Report) -> Measurement:
    device = job.subject.device
    context = context_bytes(device)
    given = settings()
    checked = build_and_check(job, loaded, report)
    engine, calls = checked.built.engine, checked.built.calls

    config = TimingConfig(
        device=device,
        policy=job.policy,
        check_outputs=checked.watch.check,
        flush=cache_flush(device, checked.built.weights_bytes),
        resident=lambda: held_bytes(device),
        inputs=checked.inputs,
        report=report,
    )
    timing = call_stage(lambda: time_calls(calls, activity(engine), config))
    state = device_state(device)
    overhead = measure_overhead(timing.outputs[0], config)
    late = [checked.reference.differences(index, copy, "after timing") for index, copy in enumerate(timing.outputs)]
    grown = _drift(timing, calls, config)
    timing = replace(timing, outputs=())  # neither must be metered
    cold, config = config.flush is not None, replace(config, flush=None)

    report("memory")
    io_bytes = memory.tensors_bytes(checked.inputs)
    weights_bytes = checked.built.weights_bytes
    metered = call_stage(lambda: memory.meter(lambda: _round(calls), device, weights_bytes, io_bytes, context))
    leaked = _leak(timing, calls, device)
    report("fresh inputs")
    changed = changed_inputs(checked.sets, loaded.sets)
    ran = call_stage(lambda: dispatched(calls[0]))
    unseen = call_stage(lambda: call_with_fresh_inputs(engine, checked.sets, config))
    late.append(checked.reference.differences(1, unseen.outputs, "in the memory of inputs 0"))
    proof = closing_proof(checked, ran)

    parity = checked.reference.parity([*checked.differences, *late])
    alarms = [
        *_timing_alarms(timing, grown, leaked, proof.recompiles, job),
        *_other_alarms(given, settings(), unseen, state),
    ]
    findings = [*timing.findings, *alarms]
    if cold:
        findings.append(Finding("cold", "caches are flushed before each timed call: the weights would fit in them"))
    if state.capped:
        findings.append(Finding("power-cap", "the GPU was at its power cap in the timed window"))
    if job.policy.contention >= timing.others > job.policy.contention / 4:
        findings.append(Finding("contention", f"other processes took {timing.others:.0%} of all cores while timing"))
    if job.quantisation and job.dtype == "fp32" and not proof.fell_back and checked.reference.as_exact_as_eager(parity):
        exact = "full precision: its outputs err no more than plain eager's, which nothing quantised does"
        proof = replace(proof, fell_back=exact)
    wrong = f"the engine changes its input {changed}" if changed else checked.watch.problem
    status, reason = _verdict(proof.fell_back, parity, wrong, alarms)
    return Measurement(
        status=status,
        reason=reason,
        findings=tuple(findings),
        build=checked.built.cost,
        proof=proof,
        parity=parity,
        latency=timing.latency,
        throughput=timing.throughput,
        memory=metered,
        overhead=overhead,
        settings=given,
        device_state={"other_cpu_share": round(timing.others, 4), "cores_busy": round(timing.cores, 3), **state.facts},
        weights=loaded.weights,
    )


def _round(calls: Sequence[Call]) -> list[Outputs]:
    return [call() for call in calls]


def activity(engine: Engine) -> Callable[[], Mapping[str, int]]:
    """The engine's own counters, and dynamo's, which moves whoever compiles with it."""

    def read() -> Mapping[str, int]:
        counts = dict(engine.activity())
        dynamo = sys.modules.get("torch._dynamo.utils")
        if dynamo is not None:
            counts["dynamo graphs"] = int(dynamo.counters["stats"]["unique_graphs"])
        return counts

    return read


def closing_proof(checked: CheckedVariant, ran: Dispatched) -> ProofRecord:
    """Ask the engine again after its last call, hold what it ran against what eager runs, and close it."""
    final = call_stage(checked.built.engine.prove)
    call_stage(checked.built.engine.close)
    fell_back = checked.built.unproved or checked.proof.fell_back or final.fell_back
    if not fell_back and ran.inductor_calls and not checked.built.through_inductor:
        fell_back = f"inductor: it compiled {ran.inductor_calls} of the graphs that a call runs"
    if not fell_back and not checked.built.interprets:
        fell_back = uncompiled(ran, checked.reference.eager)
    return proof_record(checked, fell_back, final.recompiles, ran)


def proof_record(
    checked: CheckedVariant, fell_back: str, recompiles: Sequence[str], ran: Dispatched | None = None
) -> ProofRecord:
    """What the engine stated when it was built, as records keep it."""
    proof = checked.proof
    prepared = checked.built.prepared
    facts: dict[str, Scalar] = {**prepared.facts, **proof.facts}
    if ran is not None:
        eager = checked.reference.eager
        facts["operators_dispatched"] = sum(ran.operators.values())
        facts["operators_dispatched_by_eager"] = sum(eager.operators.values())
        facts["elementwise_dispatched"] = ran.elementwise
        facts["elementwise_dispatched_by_eager"] = eager.elementwise
    return ProofRecord(
        fell_back=fell_back,
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


def _leak(timing: Timing, calls: Sequence[Call], device: str) -> int:
    """Bytes that half of the timed window added for good, as calls go on adding them; 0 where it was the allocator's.

    How much the window itself seemed to add is no measure: with what calls keep between what they free, the allocator's
    holes grow too, to three times of what is kept.
    """
    suspected = leak(timing.sizes)
    if not suspected:
        return 0
    wanted = max(1, timing.called // 2 // len(calls))
    taken_s = wanted * len(calls) * sorted(timing.latency.samples_ns)[len(timing.latency.samples_ns) // 2] / 1e9
    rounds = max(1, round(wanted * min(1.0, _LEAK_S / taken_s)))
    kept = call_stage(lambda: memory.kept_bytes(lambda: _round(calls), rounds, device))
    lasting = round(kept * wanted / rounds)
    return lasting if lasting >= least_leak(timing.sizes[-1]) else 0


def _drift(timing: Timing, calls: Sequence[Call], config: TimingConfig) -> float:
    """How much longer calls took at the end of the timed window than at its beginning, if they still do; else 1.0.

    A slow moment of the host passes: calls that are quick again did not drift.
    """
    steady = timing.latency.samples_ns[: -len(calls)]  # the last ones came after the window
    grown = climb(steady) / max(1.0, timing.host_climb)
    if grown <= LEAST_GROWTH:
        return 1.0
    first = _quartile(steady[: max(2, len(steady) // 10)])
    count = max(4, round(_DRIFT_S * 1e9 / first))
    later = call_stage(lambda: [timed(calls[index % len(calls)], config)[0] for index in range(count)])
    return grown if _quartile(later) / first > (1 + grown) / 2 else 1.0


def _quartile(samples: Sequence[int]) -> int:
    return sorted(samples)[len(samples) // 4]


def _timing_alarms(
    timing: Timing, grown: float, leaked: int, recompiles: Sequence[str], job: MeasureJob
) -> list[Finding]:
    """What the timed windows showed that makes their numbers useless."""
    alarms = []
    if timing.moved:
        because = f": {recompiles[-1]}" if recompiles else ""
        alarms.append(Finding("recompiles", f"compiled in the timed window ({', '.join(timing.moved)}){because}"))
    if grown > 1.0:
        alarms.append(Finding("drift", f"calls took {grown - 1:.0%} longer at the end of the timed window"))
    if leaked:
        alarms.append(Finding("leak", f"memory grew by {leaked >> 20} MiB in half of the timed window, and went on"))
    threads = job.subject.threads
    if job.subject.device == "cpu" and timing.cores > threads + _SPARE_CORES:
        alarms.append(Finding("threads", f"kept {timing.cores:.1f} cores busy, {threads} threads were given"))
    if timing.others > job.policy.contention:
        text = f"other processes took {timing.others:.0%} of all cores in the timed window"
        alarms.append(Finding("contention", text))
    return alarms


def _other_alarms(
    given: Mapping[str, Scalar], now: Mapping[str, Scalar], unseen: FreshInputsResult, state: DeviceState
) -> list[Finding]:
    alarms = []
    changed = [f"{name} from {value} to {now[name]}" for name, value in given.items() if now[name] != value]
    if changed:
        alarms.append(Finding("settings", f"the backend changed settings that others rely on: {', '.join(changed)}"))
    if unseen.alarm:
        alarms.append(Finding("unseen", unseen.alarm))
    return [*alarms, *state.alarms()]


def _verdict(fell_back: str, parity: Parity, wrong: str, alarms: Sequence[Finding]) -> tuple[Status, str]:
    if fell_back:
        return "fell_back", f"what ran is {fell_back}"
    if not parity.passed:
        return "parity_failed", next(output.problem for output in parity.outputs if not output.passed)
    if wrong:
        return "parity_failed", wrong
    if alarms:
        return "unstable", alarms[0].text
    return "ok", ""
