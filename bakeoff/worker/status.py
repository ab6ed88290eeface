"""The status of a measurement, its one-line reason, and the findings that it rests on."""

from collections.abc import Mapping, Sequence

from bakeoff.models.types import Scalar
from bakeoff.process.jobs import MeasureJob
from bakeoff.record.schema import Finding, Parity, Status, new_finding
from bakeoff.worker.clocks.timing import Timing

_SPARE_CORES = 0.25
"""Cores that a process may keep busy beside its threads: for the interpreter and the measurement itself."""


def decide_status(fallback: str, parity: Parity, problem: str | None, alarms: Sequence[Finding]) -> tuple[Status, str]:
    """The first status that applies, with its reason: fell_back, parity_failed, unstable, ok.

    `fallback` is ProofRecord.fell_back; `problem` is an output problem that no parity figure shows, None for none.
    """
    if fallback:
        return "fell_back", fallback_reason(fallback)
    if not parity.passed:
        return "parity_failed", next(output.problem for output in parity.outputs if not output.passed)
    if problem is not None:
        return "parity_failed", problem
    if alarms:
        return "unstable", alarms[0].text
    return "ok", ""


def fallback_reason(fallback: str) -> str:
    """The reason of a row that fell back; `fallback` is a noun phrase for what ran instead of the requested backend."""
    return f"fell back to {fallback}"


def timing_alarms(
    timing: Timing, slowdown: float, leaked_bytes: int, recompiles: Sequence[str], job: MeasureJob
) -> list[Finding]:
    """What happened in the timed windows that makes their numbers unfit to be ranked; `slowdown` 1.0 is no drift."""
    alarms = []
    if timing.moved_counters:
        because = f": {recompiles[-1]}" if recompiles else ""
        text = f"compiled in the timed window ({', '.join(timing.moved_counters)}){because}"
        alarms.append(new_finding("recompiles", text))
    if slowdown > 1.0:
        text = f"calls took {slowdown - 1:.0%} longer at the end of the timed window than at its start"
        alarms.append(new_finding("drift", text))
    if leaked_bytes:
        text = f"memory grew by {leaked_bytes >> 20} MiB in half of the timed window, and grew again in a second run"
        alarms.append(new_finding("leak", text))
    threads = job.subject.threads
    if job.subject.device == "cpu" and timing.cores_busy > threads + _SPARE_CORES:
        alarms.append(new_finding("threads", f"kept {timing.cores_busy:.1f} cores busy with {threads} threads allowed"))
    if timing.other_cpu_share > job.policy.contention:
        text = f"other processes used {timing.other_cpu_share:.0%} of all cores in the timed window"
        alarms.append(new_finding("contention", text))
    return alarms


def settings_alarms(before: Mapping[str, Scalar], after: Mapping[str, Scalar]) -> list[Finding]:
    """Global torch settings that the backend changed and did not restore."""
    changed = [f"{name} from {value} to {after[name]}" for name, value in before.items() if after[name] != value]
    if not changed:
        return []
    return [new_finding("settings", f"the backend changed global settings and left them so: {', '.join(changed)}")]
