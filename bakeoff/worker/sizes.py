"""Checks and times a built engine at its workload's other sizes: refusals, recompilations, outputs, padding, time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from statistics import median

from bakeoff.backends.backend import Engine
from bakeoff.backends.torch_internals import snapshot
from bakeoff.models.component import Size
from bakeoff.process.jobs import MeasureJob
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.schema import Samples, SizeResult, SizeStatus, Status, all_known
from bakeoff.worker.checked_variant import CheckedVariant
from bakeoff.worker.checks.outputs import copied, overwrite
from bakeoff.worker.clocks.clock import TimingConfig, now_ns, time_often
from bakeoff.worker.clocks.timing import moved_counters
from bakeoff.worker.device import cache_flush
from bakeoff.worker.failures import StageError, is_out_of_memory
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import cast_inputs, synchronise

_WARM_UP = 3
_LEAST_SAMPLES = 5
_SAME_TIME, _LESS_TIME = 1.2, 2.0
"""An engine counts as padding if the largest size takes at most `_SAME_TIME` times as long as a smaller one, although
it takes at least `_LESS_TIME` times as long in eager."""


def measure_sizes(
    job: MeasureJob, checked: CheckedVariant, usual_ns: Sequence[int], report: Report
) -> tuple[SizeResult, ...]:
    """Bind, check and time the engine at each size, and return the results from the smallest size.

    Returns () if the workload has one size only. `usual_ns` are the row's samples. Exceptions of the engine, other than
    out-of-memory errors, and wrong outputs become results.
    """
    workload = checked.loaded.workload
    if not workload.axes:
        return ()
    eager_ns = checked.reference.eager_size_ns
    usual = SizeResult(
        name=workload.usual,
        which="usual",
        inputs={spec.name: spec.shape for spec in workload.inputs},
        status="ok",
        eager_ns=eager_ns[0],
    )
    results = [usual]
    for index, size in enumerate(workload.sizes):
        report("sizes", size.name)
        results.append(replace(_measure_size(job, checked, index, size), eager_ns=eager_ns[index + 1]))
    ordered = sorted(results, key=lambda result: sum(map(prod, result.inputs.values())))
    return tuple(with_padding(one, ordered[-1], median(usual_ns)) for one in ordered)


def _measure_size(job: MeasureJob, checked: CheckedVariant, index: int, size: Size) -> SizeResult:
    engine = checked.built.engine
    result = SizeResult(
        name=size.name,
        which="seen" if size.seen else "unseen",
        inputs={spec.name: spec.shape for spec in size.inputs},
        status="ok",
    )
    compilations = _compilations(engine)
    try:
        result, outputs = _call(job, checked, index, result)
    except Exception as error:  # whatever else an engine raises for a size is the result there
        if is_out_of_memory(error):
            raise
        reason = StageError("call_failed", error).reason
        return replace(result, status="refused", reason=reason, compilations=compilations())
    counted = compilations()
    parity = checked.reference.size_parity(index, outputs)
    nearest = max(parity, key=lambda output: output.of_limit)
    result = replace(
        result,
        compilations=counted,
        rel_l2=nearest.rel_l2,
        limit=nearest.limit,
        lossless=all_known(output.lossless for output in parity),
    )
    wrong = next((output for output in parity if not output.passed), None)
    if wrong is not None:
        return replace(result, status="parity_failed", reason=wrong.problem)
    if counted:
        reasons = engine.prove().recompiles
        return replace(result, status="recompiled", reason=reasons[-1] if reasons else "")
    return result


def _call(
    job: MeasureJob, checked: CheckedVariant, index: int, result: SizeResult
) -> tuple[SizeResult, Sequence[object]]:
    """Call the engine on each set of a size, time it, and call it on each set once more.

    Return `result` with the times, and the outputs of the first and the last calls, in the order of the sets.
    """
    device, policy = job.subject.device, job.policy
    loaded, engine = checked.loaded, checked.built.engine
    sets = [cast_inputs(loaded.workload, one, job.dtype, device) for one in loaded.sized[index]]
    tensors = tuple(tensor for one in sets for tensor in one.values())
    calls = [engine.bind(one) for one in sets]
    started = now_ns()
    first = calls[0]()
    synchronise(device)
    first_call_ns = now_ns() - started
    outputs = [copied(first)]
    overwrite(first, tensors)
    outputs += [copied(call()) for call in calls[1:]]
    flush = cache_flush(device, checked.loaded)
    config = TimingConfig(device, policy, lambda _index, _outputs: None, flush=flush, inputs=tensors)
    warm_up = _WARM_UP * len(calls)
    time_often(calls, config, warm_up, warm_up, 0.0)
    samples = time_often(calls, config, _LEAST_SAMPLES, policy.max_samples, policy.min_s / 2)
    outputs += [copied(call()) for call in calls]
    synchronise(device)
    return replace(result, first_call_ns=first_call_ns, samples_ns=Samples(samples)), outputs


def _compilations(engine: Engine) -> Callable[[], int]:
    """Return a function that returns the number of compilations since now.

    This is the larger of the engine's own count and dynamo's, and at least 1 if any counter of the engine has moved.
    """
    own, dynamo, before = engine.compilations(), snapshot().captured, dict(engine.activity())

    def read() -> int:
        moved = bool(moved_counters(before, engine.activity()))
        return max(engine.compilations() - own, snapshot().captured - dynamo, int(moved))

    return read


def with_padding(result: SizeResult, largest: SizeResult, usual_ns: float) -> SizeResult:
    """Return the result, with status `padded` if its time shows that the engine computes the largest size instead.

    `usual_ns` is the row's median at the usual size.
    """
    own, most = (_median_ns(one, usual_ns) for one in (result, largest))
    if result is largest or result.status != "ok" or not own or not most or not result.eager_ns:
        return result
    ratio, eager_ratio = most / own, largest.eager_ns / result.eager_ns
    if ratio > _SAME_TIME or eager_ratio < _LESS_TIME:
        return result
    text = f"{largest.name} takes {ratio:.2f} times as long as {result.name}, and {eager_ratio:.1f} times in eager"
    return replace(result, status="padded", reason=text)


def _median_ns(result: SizeResult, usual_ns: float) -> float:
    if result.which == "usual":
        return usual_ns
    return median(result.samples_ns) if result.samples_ns else 0.0


_WORDS: Mapping[SizeStatus, str] = {
    "parity_failed": "wrong outputs at",
    "refused": "no call succeeds at",
    "recompiled": "compiled again for",
    "padded": "seems to compute the largest size at",
}
_WORSE: Mapping[SizeStatus, Status] = {"parity_failed": "parity_failed", "refused": "call_failed"}


def size_findings(results: Sequence[SizeResult]) -> list[Finding]:
    """Return one finding for each kind of problem, the worst first, with its sizes and the reason of the first."""
    found = []
    for status, words in _WORDS.items():
        those = [one for one in results if one.status == status]
        if those:
            names = ", ".join(one.name + (" (not listed)" if one.which == "unseen" else "") for one in those)
            found.append(new_finding("sizes", f"{words} {names}" + (f": {those[0].reason}" if those[0].reason else "")))
    return found


def status_with_sizes(status: Status, reason: str, results: Sequence[SizeResult]) -> tuple[Status, str]:
    """Return the row's status and reason, replaced by the worst failure at a size if it is `ok` or `unstable`."""
    worst = next((worse for kind, worse in _WORSE.items() if kind in {one.status for one in results}), None)
    failed = worst is not None and status in ("ok", "unstable")
    return (worst, size_findings(results)[0].text) if worst is not None and failed else (status, reason)
