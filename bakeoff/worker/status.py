"""Decides a measurement's status and its one-line reason, and makes the findings that these rest on."""

from collections.abc import Mapping, Sequence
from statistics import median

from bakeoff.models.types import Scalar
from bakeoff.models.words import counted
from bakeoff.process.jobs import MeasureJob, PipelineJob
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.schema import Parity, Status
from bakeoff.record.short_calls import APART_NS, CLOCKS_APART, short_call
from bakeoff.record.statistics import half_width, modes
from bakeoff.worker.clocks.cpu_usage import CpuUsage
from bakeoff.worker.clocks.timing import Timing

_SPARE_CORES = 0.25
"""Cores that a process may keep busy beyond its threads, for the interpreter and the measurement itself."""


def decide_status(
    fallback: str, parity: Parity | None, problem: str | None, alarms: Sequence[Finding]
) -> tuple[Status, str]:
    """Return the first status that applies, with its reason: fell_back, parity_failed, unstable, ok.

    `fallback` is ProofRecord.fell_back; `parity` is None if nothing was compared; `problem` is an output problem that
    no parity figure shows, None for none.
    """
    if fallback:
        return "fell_back", fallback_reason(fallback)
    if parity is not None and not parity.passed:
        return "parity_failed", parity.problem
    if problem is not None:
        return "parity_failed", problem
    if alarms:
        return "unstable", alarms[0].text
    return "ok", ""


def fallback_reason(fallback: str) -> str:
    """Return the reason of a row that fell back; `fallback` is a noun phrase for what ran instead."""
    return f"ran {fallback}"


def timing_alarms(
    timing: Timing, slowdown: float, leaked_bytes: int, recompiles: Sequence[str], job: MeasureJob
) -> list[Finding]:
    """Return the findings that make the timed numbers unfit to be ranked.

    `slowdown` is the time of calls at the end of the window relative to its start; 1.0 is no drift.
    """
    alarms = []
    if timing.moved_counters:
        because = f": {recompiles[-1]}" if recompiles else ""
        text = f"compiled in the timed window ({', '.join(timing.moved_counters)}){because}"
        alarms.append(new_finding("recompiles", text))
    if slowdown > 1.0:
        text = f"calls took {slowdown - 1:.0%} longer at the end of the timed window than at its start"
        alarms.append(new_finding("drift", text))
    alarms += [*leak_alarms(leaked_bytes), *threads_alarms(timing.cpu, job)]
    if is_contended(timing.cpu, job):
        alarms.append(new_finding("contention", contention_text(timing.cpu)))
    modes_text = bimodal(timing.latency.samples_ns, job.policy.unsteady_ratio)
    if modes_text is not None:
        alarms.append(new_finding("bimodal", modes_text))
    far = _far_apart(timing, job)
    if far:
        alarms.append(new_finding("clocks-disagree", far))
    return alarms


def leak_alarms(leaked_bytes: int) -> list[Finding]:
    """Return a finding if half of the timed calls leaked these bytes; none for 0."""
    text = f"memory grew by {leaked_bytes >> 20} MiB in half of the timed window, and grew again in a second run"
    return [new_finding("leak", text)] if leaked_bytes else []


def _far_apart(timing: Timing, job: MeasureJob) -> str:
    """Return how far the clocks are apart, if by more than `CLOCKS_APART` as where a call computes for several; or "".

    On a GPU latency is longer by launching and waiting, and on a CPU by `APART_NS`; in blocks nothing makes calls so
    much longer. Beside other processes they may: short calls of two threads took 6 times as long in blocks.
    """
    if is_contended(timing.cpu, job):
        return ""
    latency, throughput = median(timing.latency.samples_ns), median(timing.throughput.samples_ns)
    ratio, limit = latency / throughput, max(CLOCKS_APART, 1 + job.policy.unsteady_ratio)
    late = ratio > limit and latency - throughput > APART_NS and job.subject.device == "cpu"
    return _clocks_text(ratio) if late or 1 / ratio > limit else ""


def _clocks_text(ratio: float) -> str:
    return f"both clocks time the same calls, but latency is {ratio:.3g}x the time in blocks of calls"


def threads_alarms(cpu: CpuUsage, job: MeasureJob | PipelineJob) -> list[Finding]:
    """Return a finding if more cores were busy than threads are allowed; none on a GPU."""
    threads = job.subject.threads
    if job.subject.device != "cpu" or cpu.own_cores <= threads + _SPARE_CORES:
        return []
    return [new_finding("threads", f"kept {cpu.own_cores:.1f} cores busy with {counted(threads, 'thread')} allowed")]


def is_contended(cpu: CpuUsage, job: MeasureJob | PipelineJob) -> bool:
    """Return whether other processes used too much of the CPUs to rank a row.

    Always False on a GPU, where the CPU only starts kernels.
    """
    return job.subject.device == "cpu" and cpu.contention > job.policy.contention


def contention_text(cpu: CpuUsage) -> str:
    waited = "" if cpu.waited_share is None else f"; tasks here waited for a CPU in {cpu.waited_share:.0%} of the time"
    return f"other processes used {cpu.other_share:.0%} of the CPUs in the timed window{waited}"


def bimodal(samples_ns: Sequence[int], least_apart: float) -> str | None:
    """Describe both modes of a clock's samples if they differ by more than `least_apart`, a ratio; else return None."""
    found = modes(samples_ns)
    if found is None or found[1].median_ms <= (1 + least_apart) * found[0].median_ms:
        return None
    texts = [f"{mode.median_ms:.4g} ms ({mode.share:.0%} of the calls)" for mode in found]
    return f"calls took {texts[0]} or {texts[1]}: a median of both says little"


def timing_remarks(timing: Timing, job: MeasureJob) -> list[Finding]:
    """Return the findings on the timing that leave the row ranked: clocks that disagree, and an imprecise median."""
    remarks, limit = [], job.policy.unsteady_ratio
    latency, throughput = timing.latency.samples_ns, timing.throughput.samples_ns
    if job.subject.device == "cpu" and not _far_apart(timing, job):
        apart_ns = median(latency) - median(throughput)
        ratio = median(latency) / median(throughput)
        if 0 < apart_ns <= APART_NS and ratio > 1 + limit:
            remarks.append(short_call())
        elif max(ratio, 1 / ratio) > 1 + limit:
            remarks.append(new_finding("clocks-disagree", _clocks_text(ratio)))
    width = half_width(latency)
    if width > limit:
        text = f"the median's interval is {width:.0%} of it to either side after {counted(len(latency), 'sample')}"
        remarks.append(new_finding("wide", text))
    return remarks


def stored_alarms(problem: str | None) -> list[Finding]:
    """Return a finding that makes the row unstable if `problem` says that results were stored instead of computed."""
    return [new_finding("memoised", problem)] if problem is not None else []


def settings_alarms(before: Mapping[str, Scalar], after: Mapping[str, Scalar]) -> list[Finding]:
    """Return a finding that names global torch settings which the backend changed and did not restore, if any."""
    changed = [f"{name} from {value} to {after[name]}" for name, value in before.items() if after[name] != value]
    if not changed:
        return []
    return [new_finding("settings", f"the backend changed global settings and left them so: {', '.join(changed)}")]
