"""Measures one variant: build, prove, check, time, meter memory, call with fresh inputs, trace.

Before the checks it waits for its turn; until then other workers may build at the same time.
"""

import gc
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, median_high

from torch import Tensor

from bakeoff.backends.backend import Call, Engine
from bakeoff.backends.torch_internals import copier, snapshot
from bakeoff.machine.build_cache import was_built_beside
from bakeoff.models.types import Scalar
from bakeoff.process.jobs import MeasureJob, MeasureResult, TraceJob
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.regimes import Regime
from bakeoff.record.schema import MEASURED, InputCopy, Measurement, Memory, Overhead, Parity, ProofRecord, Samples
from bakeoff.worker.build import build_engine
from bakeoff.worker.checked_variant import (
    CheckedVariant,
    build_and_check,
    final_proof,
    first_proof,
    left_findings,
    proof_record,
    with_failures,
    with_precision,
)
from bakeoff.worker.checks import memory
from bakeoff.worker.checks.dispatch import CallOperators, dispatched
from bakeoff.worker.checks.fresh_inputs import (
    ChangeableInputs,
    FreshInputsResult,
    call_with_fresh_inputs,
    changed_input,
    changed_values,
    find_changeable,
)
from bakeoff.worker.checks.growth import LEAST_REPEATED, LONGEST_REPEAT_S, confirmed_drift, confirmed_leak
from bakeoff.worker.checks.memory import tensors_bytes
from bakeoff.worker.checks.regimes import call_in_regimes, call_on_overwritten_memory
from bakeoff.worker.checks.window import WindowChecker
from bakeoff.worker.clocks.clock import TimingConfig, measure_overhead, time_often
from bakeoff.worker.clocks.in_loop import time_in_loop
from bakeoff.worker.clocks.timing import Timing, time_calls
from bakeoff.worker.device import GpuState, GpuWatch, cache_flush, context_bytes, held_bytes, watching
from bakeoff.worker.failures import StageError, UncheckedError, call_stage, checking, traceback_text
from bakeoff.worker.reference.error import Difference
from bakeoff.worker.reporter import Report, Turn, at_once
from bakeoff.worker.sizes import measure_sizes, size_findings, status_with_sizes
from bakeoff.worker.status import (
    contention_text,
    decide_status,
    is_contended,
    settings_alarms,
    stored_alarms,
    timing_alarms,
    timing_remarks,
)
from bakeoff.worker.subject import LoadedSubject, cast_inputs, held_inputs
from bakeoff.worker.torch_flags import settings
from bakeoff.worker.trace import trace_build, trace_measured

_LEAST_UNSEEN = 1 << 20
_LEAST_HELP = 0.02
"""A finding reports processes that the backend started if they kept at least this many cores busy."""


@dataclass(frozen=True, slots=True)
class _TimedRow:
    """Results of the timed part of a measurement, without outputs or a flush buffer, since memory is metered later."""

    timing: Timing
    gpu: GpuState
    overhead: Overhead | None
    """None if a check of the last calls ran out of memory; see `unchecked`."""
    differences: list[list[Difference]]
    """Differences of outputs in the window, and of outputs of the last timed calls, from their references."""
    checks: WindowChecker
    changeable: tuple[ChangeableInputs, ...]
    """Means to change the values of bound inputs, without the changed values themselves."""
    slowdown: float
    """Ratio by which calls were slower at the end of the latency window than at its start; 1.0 for no drift."""
    flushed: bool
    """True if caches were flushed before each call."""
    unchecked: UncheckedError | None = None
    """Error of a check that ran out of memory after the timing; None if all were done."""


@dataclass(frozen=True, slots=True)
class _AfterTiming:
    """Results of the untimed checks after the timing."""

    memory: Memory
    leaked_bytes: int
    changed_input: str | None
    """Name of an input that the engine wrote to; None if there is none."""
    ran: CallOperators
    fresh: FreshInputsResult
    differences: list[list[Difference]]
    """Differences of the outputs for fresh inputs, and after freed memory was overwritten, from their references."""
    input_copy: InputCopy | None
    regimes: tuple[Regime, ...]
    repeats: bool
    """Whether two equal calls gave equal bits."""


def measure(job: MeasureJob, report: Report, turn: Turn = at_once) -> MeasureResult:
    """Measure one variant; if a trace is requested, trace the timed engine, or one that is then built for it.

    Waits for `turn` before anything is checked or timed. Failures of the variant's own code become the measurement's
    status. Raises BakeoffError only if the request itself is wrong (a bad checkpoint).
    """
    made = with_failures(job, report, lambda loaded: _measure(job, loaded, report, turn))
    if isinstance(made, Measurement):
        return MeasureResult(made)
    if job.policy.trace and made.traced is None and made.measurement.status in MEASURED:
        gc.collect()  # of the engine that was timed
        return replace(made, traced=trace_build(TraceJob(job), report))
    return made


def _measure(job: MeasureJob, loaded: LoadedSubject, report: Report, turn: Turn) -> MeasureResult:
    if job.target:
        return MeasureResult(_built(job, loaded, report))
    context = context_bytes(job.subject.device)
    before = settings()
    checked = build_and_check(job, loaded, report, turn)
    chosen = {**before, **checked.built.prepared.settings}
    with watching(job.subject.device) as watch:
        timed = _time(job, checked, watch, report)
    try:
        return _checked(job, checked, timed, context, chosen, report)
    except UncheckedError as stage:
        made = _unchecked(job, checked, timed, chosen, stage)
    with suppress(StageError):
        call_stage(checked.built.engine.close)
    return MeasureResult(made)


def _built(job: MeasureJob, loaded: LoadedSubject, report: Report) -> Measurement:
    """Build and prove an engine for another GPU, of which nothing else can be known here."""
    before = settings()
    loaded.cast(job.dtype, job.subject.device)
    inputs = cast_inputs(loaded.workload, loaded.sets[0], job.dtype, job.subject.device)
    report("build")
    built = build_engine(job, loaded, [inputs], report=report)
    report("prove")
    proof = proof_record(call_stage(built.engine.prove), built.prepared, built.fallback or "")
    call_stage(built.engine.close)
    return Measurement("built", build=built.cost, proof=proof, settings=before, weights=loaded.weights)


def _checked(
    job: MeasureJob,
    checked: CheckedVariant,
    timed: _TimedRow,
    context: int,
    chosen: Mapping[str, Scalar],
    report: Report,
) -> MeasureResult:
    """Run the checks after the timing, decide the status, and trace. Raises UncheckedError if memory runs out."""
    if timed.unchecked is not None:
        raise timed.unchecked
    after = _examine(job, checked, timed, context, report)
    with checking("calls at other sizes"):
        sizes = measure_sizes(job, checked, timed.timing.latency.samples_ns, report)
    in_loop_ns = time_in_loop(job, checked.built.calls[0])
    with checking("the proof after the last call"):
        proof = final_proof(checked, after.ran)
    parity = checked.reference.parity([*checked.differences, *timed.differences, *after.differences])
    parity = replace(parity, regimes=after.regimes, repeats=after.repeats)
    alarms = [
        *timing_alarms(timed.timing, timed.slowdown, after.leaked_bytes, proof.recompiles, job),
        *stored_alarms(timed.checks.problem),
        *settings_alarms(chosen, settings()),
        *after.fresh.alarms(),
        *timed.gpu.alarms(),
    ]
    proof = with_precision(job, proof, parity, checked)
    problem = f"the engine changed its input {after.changed_input}" if after.changed_input else checked.watch.problem
    status, reason = decide_status(proof.fell_back, parity, problem, alarms)
    of_sizes = size_findings(sizes)
    status, reason = status_with_sizes(status, reason, sizes)
    remarks = left_findings(checked, proof, after.ran, median(timed.timing.latency.samples_ns))
    if after.memory.unseen_bytes >= _LEAST_UNSEEN:
        text = f"processes that ended within calls and files in memory take up to {after.memory.unseen_bytes >> 20} MiB"
        remarks.append(new_finding("helpers", f"{text}, which is not in the peak"))
    made = replace(
        _timed_measurement(job, checked, timed, chosen, proof, parity, [*alarms, *of_sizes], remarks),
        status=status,
        reason=reason,
        memory=after.memory,
        input_copy=after.input_copy,
        sizes=sizes,
        in_loop_ns=in_loop_ns,
    )
    traced = trace_measured(job, checked.built, report)
    call_stage(checked.built.engine.close)
    return MeasureResult(made, traced)


def _unchecked(
    job: MeasureJob, checked: CheckedVariant, timed: _TimedRow, chosen: Mapping[str, Scalar], stage: UncheckedError
) -> Measurement:
    """Return the timed measurement with what was known before a check ran out of memory (`stage`).

    Its status is `oom`, unless earlier checks already show that something else ran, or that outputs are wrong.
    """
    parity = checked.reference.parity([*checked.differences, *timed.differences])
    proof = with_precision(job, first_proof(checked), parity, checked)
    status, reason = decide_status(proof.fell_back, parity, checked.watch.problem, ())
    if status == "ok":
        status, reason = stage.status, stage.reason
    alarms = [*stored_alarms(timed.checks.problem), *settings_alarms(chosen, settings()), *timed.gpu.alarms()]
    made = _timed_measurement(job, checked, timed, chosen, proof, parity, alarms)
    return replace(made, status=status, reason=reason, traceback=traceback_text(stage.error))


def _timed_measurement(
    job: MeasureJob,
    checked: CheckedVariant,
    timed: _TimedRow,
    chosen: Mapping[str, Scalar],
    proof: ProofRecord,
    parity: Parity,
    alarms: Sequence[Finding],
    remarks: Sequence[Finding] = (),
) -> Measurement:
    """Return a measurement of the build and the timing, with all findings, as if its status were ok."""
    timing = timed.timing
    others = _remarks(job, timed, parity, checked.reference.unmeasured)
    return Measurement(
        status="ok",
        findings=(*timing.findings, *alarms, *timing_remarks(timing, job), *remarks, *others),
        build=checked.built.cost,
        proof=proof,
        parity=parity,
        latency=timing.latency,
        throughput=timing.throughput,
        overhead=timed.overhead,
        settings={**settings(), **chosen},  # also those of libraries that the build imported
        device_state={**timing.cpu.facts(), **timed.gpu.facts},
        weights=checked.loaded.weights,
        window_checks=timed.checks.record,
    )


def _time(job: MeasureJob, checked: CheckedVariant, watch: GpuWatch, report: Report) -> _TimedRow:
    """Time the calls, watch the GPU, and compare the last outputs; measure a suspected drift again."""
    reference = checked.reference
    changeable, calls, config, checks = timed_calls(job, checked, report)
    config = replace(config, read_gpu=watch.read)
    watch.begin()
    timing = call_stage(lambda: time_calls(calls, activity(checked.built.engine), config, checks))
    call_stage(lambda: checks.complete(calls, timing.latency.samples_ns, config))
    checks.release()
    gpu = watch.end()

    def time_again(count: int) -> list[int]:
        return call_stage(lambda: time_often(calls, config, LEAST_REPEATED, count, LONGEST_REPEAT_S))

    released = tuple(replace(entry, changed={}) for entry in changeable)
    flushed = config.flush is not None
    timed = _TimedRow(replace(timing, outputs=()), gpu, None, checks.differences, checks, released, 1.0, flushed)
    try:
        with checking("the comparison of the last timed outputs"):
            overhead = measure_overhead(timing.outputs[0], config)
            last = [
                reference.differences(index, outputs, "after timing") for index, outputs in enumerate(timing.outputs)
            ]
            slowdown = confirmed_drift(timing.latency.samples_ns, timing.host_slowdown, time_again)
    except UncheckedError as stage:
        return replace(timed, unchecked=stage)
    return replace(timed, overhead=overhead, differences=[*checks.differences, *last], slowdown=slowdown)


def timed_calls(
    job: MeasureJob, checked: CheckedVariant, report: Report
) -> tuple[tuple[ChangeableInputs, ...], tuple[Call, ...], TimingConfig, WindowChecker]:
    """Find out how the values of bound inputs can be changed, which calls the engine; return these inputs, the calls to
    time, how they are timed, and what checks them meanwhile."""
    built, device, reference, workload = checked.built, job.subject.device, checked.reference, checked.loaded.workload
    changed = changed_values(checked.loaded, reference.changes, job.dtype, device)
    names = [spec.name for spec in workload.outputs]
    changeable = call_stage(
        lambda: find_changeable(built.engine, checked.sets, built.calls, changed, names, reference, device)
    )
    config = TimingConfig(
        device=device,
        policy=job.policy,
        check_outputs=checked.watch.check,
        flush=cache_flush(device, checked.loaded),
        held_bytes=lambda: held_bytes(device),
        inputs=(*checked.inputs, *(tensor for entry in changeable for tensor in entry.tensors.values())),
        report=report,
    )
    calls = (*(entry.call for entry in changeable), *built.calls[len(changeable) :])
    return changeable, calls, config, WindowChecker(reference, changeable, secrets.randbits(32), held_inputs(workload))


def leaked_bytes(calls: Sequence[Call], held: Sequence[int], made: int, call_ns: int, device: str) -> int:
    """Return what half of the calls made leaked, by the bytes held meanwhile and by a second run; 0 for no leak."""

    def kept(rounds: int) -> int:
        return call_stage(lambda: memory.kept_bytes(lambda: _call_all(calls), rounds, device))

    return confirmed_leak(held, made, len(calls), call_ns, kept)


def _examine(job: MeasureJob, checked: CheckedVariant, timed: _TimedRow, context: int, report: Report) -> _AfterTiming:
    """Meter memory, look for a leak, then call with fresh inputs, which overwrites the first set of inputs."""
    device, calls, engine = job.subject.device, checked.built.calls, checked.built.engine
    timing = timed.timing
    report("memory")
    io_bytes = memory.tensors_bytes(checked.inputs)
    weights_bytes = checked.built.weights_bytes
    with checking("the metering of memory"):
        metered = call_stage(lambda: memory.meter(lambda: _call_all(calls), device, weights_bytes, io_bytes, context))
        call_ns = median_high(timing.latency.samples_ns)
        leaked = leaked_bytes(calls, timing.held_bytes, timing.calls, call_ns, device)
    report("fresh inputs")
    with checking("the comparison of inputs after the calls"):
        changed = changed_input(checked.sets, checked.loaded.sets)
    with checking("the count of operators"):
        ran = call_stage(lambda: dispatched(calls[0]))
    config = TimingConfig(device, job.policy, checked.watch.check, inputs=checked.inputs)
    first = timed.changeable[0]
    with checking("calls on inputs of other kinds"):
        overwritten, repeats = call_stage(lambda: call_on_overwritten_memory(first, checked.reference, device))
        regimes = call_in_regimes(checked.loaded, first, checked.reference, job.dtype, device, call_ns)
    with checking("calls with fresh inputs"):
        values = changed_values(checked.loaded, checked.reference.changes[:1], job.dtype, device)
        changeable = [replace(entry, changed=value) for entry, value in zip(timed.changeable, values, strict=False)]
        held = held_inputs(checked.loaded.workload)
        often, seed = timing.calls // len(calls), timed.checks.record.seed
        fresh = call_stage(lambda: call_with_fresh_inputs(engine, checked.sets, config, seed, changeable, held, often))
        differences = [overwritten, checked.reference.differences(1, fresh.outputs, "in the memory of inputs 0")]
        if fresh.hot_outputs is not None:
            text = "after many calls on one binding"
            differences.append(checked.reference.changed_differences(0, fresh.hot_outputs, text))
        fresh = replace(fresh, outputs=(), hot_outputs=None)
    with checking("the copy of inputs"):
        buffers = timed.changeable[0].tensors if timed.changeable else checked.sets[0]
        copies = call_stage(lambda: measure_input_copy(engine, buffers, checked.sets[1], config))
    return _AfterTiming(metered, leaked, changed, ran, fresh, differences, copies, regimes, repeats)


def _call_all(calls: Sequence[Call]) -> None:
    """Call each once, and drop the outputs of one call before the next, as in the timed window."""
    for call in calls:
        call()


def activity(engine: Engine) -> Callable[[], Mapping[str, int]]:
    """Return a function that reads the engine's own counters, and how many graphs dynamo captured in this process."""

    def read() -> Mapping[str, int]:
        counts = dict(engine.activity())
        counts["dynamo graphs"] = snapshot().captured
        return counts

    return read


def _remarks(job: MeasureJob, timed: _TimedRow, parity: Parity, unmeasured: str) -> list[Finding]:
    """Return findings that leave the row ranked. `unmeasured` is why eager sets no limit for some outputs, or ""."""
    remarks = []
    same_device = parity.reference_device == job.subject.device
    if same_device and parity.reference_dtype == job.dtype == "fp32":
        text = "the reference is eager fp32 on the same device: an error that both have in common is not seen"
        remarks.append(new_finding("own-reference", text))
    if unmeasured:
        text = f"eager is no measure of every output in this dtype, so wider limits hold there: {unmeasured}"
        remarks.append(new_finding("no-measure", text))
    if any(regime.narrow for regime in parity.regimes):
        remarks.append(new_finding("narrow", parity.range_text))
    if timed.flushed:
        text = "caches were flushed before each timed call, because weights would stay in them from call to call"
        remarks.append(new_finding("cold", text))
    if timed.gpu.capped:
        remarks.append(new_finding("power-cap", "the GPU was at its power cap in the timed window"))
    if job.subject.device != "cpu" and (job.overlapped or was_built_beside(Path(job.cache_folder))):
        text = "other builds ran beside its own, so kernels that were chosen by timing them may not be the best"
        remarks.append(new_finding("built-beside", text))
    cpu, limit = timed.timing.cpu, job.policy.contention
    if cpu.other_share > limit / 4 and not is_contended(cpu, job):
        remarks.append(new_finding("contention", contention_text(cpu)))
    if cpu.helper_cores >= _LEAST_HELP:
        text = f"processes that the backend started kept {cpu.helper_cores:.2f} cores busy in the timed window"
        remarks.append(new_finding("helpers", text))
    return remarks


_WARM_UP, _FEWEST, _MOST, _LONGEST_S = 3, 20, 500, 1.0


def measure_input_copy(
    engine: Engine, buffers: Mapping[str, Tensor], values: Mapping[str, Tensor], config: TimingConfig
) -> InputCopy | None:
    """Time copies of `values` into `buffers`, which the engine's calls read; return None if it captures no graphs.

    All inputs are copied, many by one kernel as a port does: all inputs of a step are new, and state that the last
    step returned must be moved to where the graph reads it. If the timed calls copy inputs themselves, nothing is timed
    and the result has only their size. Overwrites `buffers`.
    """
    size = tensors_bytes(values.values())
    if engine.copies_inputs():
        return InputCopy(True, size)
    if not engine.captures():
        return None
    copy = copier(buffers, values)
    time_often([copy], config, _WARM_UP, _WARM_UP, 0.0)
    return InputCopy(False, size, Samples(time_often([copy], config, _FEWEST, _MOST, _LONGEST_S)))
