"""Assembles the record of a row from its worker's report, or from how the worker ended, and facts of this machine."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from bakeoff.machine import host, paths
from bakeoff.machine.floors import Ceiling
from bakeoff.machine.identity import this_machine
from bakeoff.models.component import LEAST_WEIGHT_BYTES
from bakeoff.models.types import Device
from bakeoff.models.words import counted
from bakeoff.plan.memory import element_bytes
from bakeoff.plan.rows import Row
from bakeoff.process.environment import recorded_environment, without_folders
from bakeoff.process.phases import PHASES, TIMED
from bakeoff.process.supervisor import Outcome
from bakeoff.process.watch import GpuPeaks
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.floor import below_floor
from bakeoff.record.pipeline import PipelineMeasurement, SlotProgram
from bakeoff.record.schema import NEVER_RUN, SCHEMA, Clock, Measurement, Memory, Record, Source, Status
from bakeoff.record.source import backend_source, code_hash, component_hash, instrument_hash
from bakeoff.record.store import now
from bakeoff.sweeps.context import SweepContext

Reported = TypeVar("Reported", Measurement, PipelineMeasurement, SlotProgram)
STATUS: dict[str, Status] = {"timeout": "timeout", "oom": "oom", "crashed": "crashed"}
"""Status of a row by the outcome of a worker that ended without a result."""


def make_record(context: SweepContext, row: Row, outcome: Outcome, findings: Sequence[Finding] = ()) -> Record:
    """Return the record of one attempt at a row, whatever its outcome, to whose findings `findings` are added."""
    watched = outcome.watched
    plan, component, subject = context.plan, context.plan.component, row.subject
    preset = component.preset(subject.preset)
    workload, work = component.workload(preset.config, subject.workload, subject.batch), context.works[subject]
    io_bytes = element_bytes(row.variant.dtype)
    header = common_facts(outcome, context, context.log_of(row), row.environment, subject.device, subject.python)
    # The calibration that includes this machine, or the one that its rows are for.
    machine = header["machine"].id
    calibrations = (each for each in plan.request.calibrations if machine in (each.medians_ns or [machine]))
    record = Record(
        **header,
        sweep=context.sweep,
        variant=row.variant,
        config_id=row.config_id,
        label=preset.label,
        config=asdict(preset.config),
        batch=subject.batch,
        weight_seed=subject.weight_seed,
        input_seed=subject.input_seed,
        checkpoint=row.checkpoint,
        threads=subject.threads,
        frames_per_call=workload.frames_per_call,
        calls_per_frame=workload.calls_per_frame,
        parameters=preset.parameters,
        flops=work.flops,
        convolution_flops=work.convolution_flops,
        policy=plan.request.policy,
        measurement=_measurement(context, row, outcome, (*findings, *watched.findings)),
        baseline=row.baseline,
        quantisation=row.quantisation,
        minimum_bytes=workload.minimum_bytes(work, LEAST_WEIGHT_BYTES.get(row.quantisation, io_bytes), io_bytes),
        ceilings=context.ceilings,
        process=row.process,
        source=source_of(row),
        position=context.position(row),
        order_seed=context.order_seed,
        build_span_s=context.since_start(outcome.built),
        alone_span_s=context.since_start(outcome.alone),
        objective=plan.request.objective,
        node=host.node(),
        asked=dict(plan.request.asked),
        calibration=next(calibrations, None),
    )
    problem = clock_span(record.measurement, outcome.phase_s, outcome.worker_phase_s)
    return record if problem is None else unstable(record, new_finding("clock-span", problem))


def common_facts(
    outcome: Outcome,
    context: SweepContext,
    log: Path,
    environment: Mapping[str, str],
    device: Device,
    python: str = "",
) -> dict[str, Any]:
    """Return the fields of a `Header` that tell of this machine, its code, and how a worker ran."""
    commit, dirty = paths.commit()
    return {
        "schema": SCHEMA,
        "created": now(),
        "host": host.read_host(),
        "load_before": round(context.load.others, 2),
        "environment": recorded_environment(environment),
        "versions": host.read_versions(python),
        "commit": commit,
        "dirty": dirty,
        "wall_s": round(outcome.wall_s - outcome.phase_s.get("turn", 0.0), 3),
        "log": str(log.relative_to(context.cache)),
        "machine": this_machine(device),
        "code": code_hash(),
        "note": context.note,
        "selftest": context.selftest,
        "phase_s": {phase: round(seconds, 3) for phase, seconds in outcome.phase_s.items()},
        "monitored": outcome.watched.monitored,
        "monitored_window_ns": outcome.watched.window_ns,
    }


def source_of(row: Row) -> Source:
    """Return the code that now measures a row. Raises BakeoffError if one of its modules cannot be found."""
    backends = tuple(backend_source(step.backend) for step in row.steps)
    return Source(component_hash(row.subject.component), backends, instrument_hash())


def against_floor(record: Record, ceilings: tuple[Ceiling, ...]) -> Record:
    """Return the record with these ceilings, `unstable` if its row is faster than its floor allows."""
    record = replace(record, ceilings=ceilings)
    reason = below_floor(record) if record.status == "ok" else None
    return record if reason is None else unstable(record, new_finding("below_floor", reason))


def unstable(record: Record, finding: Finding) -> Record:
    """Return the record with a finding added; a status `ok` becomes `unstable`, others are kept."""
    made = replace(record.measurement, findings=(*record.measurement.findings, finding))
    if made.status == "ok":
        made = replace(made, status="unstable", reason=finding.text)
    return replace(record, measurement=made)


def _measurement(context: SweepContext, row: Row, outcome: Outcome, more: Sequence[Finding]) -> Measurement:
    """Return the worker's report, or the status that its end means, with this process's findings added.

    Folders of this machine are removed from all texts.
    """
    status = ended_status(outcome)
    made = Measurement(status, ending(outcome)) if status is not None else outcome.value
    seen = host_findings(context.load, row.subject.threads, "the sweep", outcome)
    issues = issue_findings(row.known_issues, made.status)
    findings = (*made.findings, *insensitive(made), *seen, *issues, *more)
    memory = made.memory and with_gpu_peaks(made.memory, outcome.gpu_peaks)
    return shareable(replace(made, memory=memory, findings=findings))


def shareable(made: Reported) -> Reported:
    """Return the report without folders of this machine in its texts."""
    findings = tuple(replace(finding, text=without_folders(finding.text)) for finding in made.findings)
    made = replace(made, reason=without_folders(made.reason), findings=findings)
    return made if isinstance(made, SlotProgram) else replace(made, traceback=without_folders(made.traceback))


def ended_status(outcome: Outcome) -> Status | None:
    """Return the status that a worker's end means; None if the worker returned a result."""
    return STATUS.get(outcome.kind)


def ending(outcome: Outcome) -> str:
    """Describe how a worker ended; after a build's deadline, name the option that extends it."""
    late = outcome.kind == "timeout" and any(
        phase == outcome.phase and info.deadline in ("build", "reference") for phase, info in PHASES.items()
    )
    return f"{outcome.reason}; run with --row-timeout SECONDS to give it longer" if late else outcome.reason


def with_gpu_peaks(memory: Memory, peaks: GpuPeaks | None) -> Memory:
    """Return the worker's memory figures with the GPU peaks that its parent polled; unchanged if there are none."""
    if peaks is None:
        return memory
    peak, explained = peaks.bytes_of.get("memory"), (memory.reserved_peak_bytes, memory.context_bytes)
    memory = replace(memory, device_build_peak_bytes=peaks.bytes_of.get("build"))
    if peak is None:
        return memory
    known = [size for size in explained if size is not None]
    unexplained = peak - sum(known) if len(known) == len(explained) else None
    return replace(memory, device_peak_bytes=peak, device_meter=f"peak {peaks.meter}", unexplained_bytes=unexplained)


def insensitive(measurement: Measurement) -> Iterator[Finding]:
    """Yield a finding for the first output that depends so little on the inputs that its error limit proves little."""
    for output in measurement.parity.outputs if measurement.parity is not None else ():
        if output.insensitive:
            yield new_finding(
                "insensitive",
                f"{output.name} differs by {output.sensitivity:.1e} between inputs, less than ten times the limit of "
                f"its error, {output.limit:.1e}: parity says little",
            )
            return


def host_findings(load: host.Load, threads: int, what: str, outcome: Outcome) -> Iterator[Finding]:
    """Yield findings about a busy host, processes that outlived the worker, and dropped output.

    `load` is `present_load` before `what` started.
    """
    if load.others > threads / 2:
        yield new_finding("busy-host", f"{load} before {what} started")
    if outcome.leftovers:
        one, many = "process outlived the worker and was", "processes outlived the worker and were"
        yield new_finding("leftovers", f"{counted(outcome.leftovers, one, many)} killed")
    if outcome.log_dropped:
        yield new_finding("log", f"{outcome.log_dropped} bytes of output are not in the log")


def issue_findings(issues: Iterable[str], status: Status) -> tuple[Finding, ...]:
    """Return a finding for each known library issue of a row or mix; none if its `status` means that it never ran."""
    return () if status in NEVER_RUN else tuple(new_finding("known-issue", text) for text in issues)


_SLOWEST, _FASTEST = 0.5, 1.1
"""Smallest and largest rate of the worker's clock relative to this process's clock."""
_EARLY_S, _LATE_S = 0.25, 0.05
"""Largest seconds by which phases may seem too short or too long, because a busy host reads events late."""
_LEAST_SHARE = 0.3
"""Smallest share of the timed phases that samples and checks must fill, if a call is much longer than the work around
it.

If calls take as long as the intervals between readings of memory and speed, every second call is untimed.
"""
_LONG_CALL_NS = 10_000_000


def clock_span(
    measurement: Measurement, phase_s: Mapping[str, float], worker_phase_s: Mapping[str, float]
) -> str | None:
    """Return how the samples contradict the duration of the timed phases; None if they agree or nothing was timed.

    `phase_s` are durations by this process's clock, `worker_phase_s` by the worker's. The phases of both clocks
    (latency and throughput) are added up, because they may alternate.
    """
    seconds = sum(phase_s.get(phase, 0.0) for phase in TIMED)
    if measurement.latency is None or not seconds:
        return None
    apart = clocks_apart(seconds, sum(worker_phase_s.get(phase, 0.0) for phase in TIMED))
    if apart is not None:
        return apart
    clocks = (measurement.latency, measurement.throughput)
    covered = sum(_sampled_ns(clock) for clock in clocks if clock is not None and clock.samples_ns) / 1e9
    if covered > _FASTEST * seconds + _EARLY_S:
        return f"samples add up to {covered:.2f} s, but the timed phases took {seconds:.2f} s"
    if measurement.window_checks is not None:
        covered += measurement.window_checks.seconds
    figures = measurement.latency.figures
    if figures is not None and figures.median_ms * 1e6 >= _LONG_CALL_NS and covered < _LEAST_SHARE * seconds:
        return f"samples and checks add up to {covered:.2f} s only, but the timed phases took {seconds:.2f} s"
    return None


def clocks_apart(seconds: float, by_worker: float) -> str | None:
    """Return how far the clock of a measured process is from this process's, if too far for timed phases."""
    if not by_worker or _SLOWEST * (seconds - _LATE_S) <= by_worker <= _FASTEST * seconds + _EARLY_S:
        return None
    return f"the timed phases took {seconds:.2f} s, by the clock of the measured process {by_worker:.2f} s"


def _sampled_ns(clock: Clock) -> float:
    """Return the least time in ns that all calls of a clock can have taken; which blocks ended early is unknown."""
    most = clock.calls_per_sample
    all_calls = len(clock.samples_ns) * most
    if not 0 < clock.calls < all_calls:
        return sum(clock.samples_ns) / len(clock.samples_ns) * max(clock.calls, all_calls)
    total, left = 0, clock.calls
    for sample in sorted(clock.samples_ns):
        total += sample * min(left, most)
        left -= min(left, most)
    return total
