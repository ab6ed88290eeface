"""Rows from their references to their records: built beside each other, then measured one after the other.

A worker for each row builds, proves and checks its variant, and waits for its turn. In its turn it times, meters and
traces the variant, alone on the machine. A second worker follows where the build was cold, to build again with warm
caches, or where the engine that was timed cannot be traced.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from math import ceil

from bakeoff.machine import host
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.rows import Key, Row
from bakeoff.process.jobs import NOTHING_TRACED, MeasureJob, MeasureResult, TraceJob, TraceResult
from bakeoff.process.phases import TIMED
from bakeoff.process.supervisor import Event, Outcome
from bakeoff.record.schema import MEASURED, Finding, Measurement, ProofRecord, Record, Status, TraceRecord, new_finding
from bakeoff.record.short_calls import UNNAMED_NS, short_call
from bakeoff.sweeps.assemble import make_record
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.row import References, launch_of, make_reference, measure_job, open_cache
from bakeoff.sweeps.session import Session
from bakeoff.sweeps.time_limit import TimeIsUpError
from bakeoff.sweeps.watch import Ended, Task, in_turns

_MOST = 8
"""Rows of a wave: each keeps its engine in memory until its turn."""
_MEMORY_SHARE = 0.6
"""Of the free memory, that the rows of a wave may take by their estimates; those do not know compilers' helpers."""
_NO_TIME = Outcome("timeout", "the time of the budget was up")
_SHORTAGES: tuple[Status, ...] = ("oom", "crashed", "timeout")
"""How a row may end because others were built beside it."""
_UNCHECKED: tuple[Status, ...] = ("crashed", "parity_failed")
"""How a row may end because it could not read the references that it is checked against."""


def next_wave(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The first of these rows, with those of the others that may be built beside it, in their order.

    They have caches of their own and fit into memory together. Baselines come by themselves, so that there is soon
    something to compare with. There is at most one row more than there are cores, because most of a build keeps one
    core busy; where the rows need several waves, these are of about one size.
    """
    first, *others = rows
    if not first.overlaps or first.obstacle() is not None:
        return (first,)
    joining = [row for row in others if _may_join(row, first)]
    waves = ceil((1 + len(joining)) / min(_MOST, host.usable_cores() + 1))
    most = ceil((1 + len(joining)) / waves)
    free = host.available_bytes(first.subject.device) * _MEMORY_SHARE
    chosen = [first]
    for row in joining:
        own_cache = row.cache_folder not in {other.cache_folder for other in chosen}
        if len(chosen) < most and own_cache and sum(other.memory.device for other in (*chosen, row)) <= free:
            chosen.append(row)
    return tuple(chosen)


def _may_join(row: Row, first: Row) -> bool:
    alike = (row.process, row.baseline) == (first.process, first.baseline)
    return row.overlaps and alike and row.obstacle() is None


@dataclass(frozen=True, slots=True)
class _Try:
    """A row that can be measured now."""

    row: Row
    references: References
    running: Running
    trace_apart: bool = False
    """Trace a build of its own, because its process ended while the engine that was timed was traced."""
    ended_before: str = ""
    """How it ended when it was tried before; "" for the first time."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """A row whose first worker has ended."""

    tried: _Try
    ended: Ended
    outcome: Outcome
    """Its value is a Measurement where the worker left a result."""
    follows: TraceJob | None = None
    """What a second worker has to do."""


def run_wave(
    session: Session, wave: Sequence[Row], running: Mapping[Key, Running]
) -> Generator[tuple[Row, Record], None, None]:
    """Measure the rows of one wave; yields each with its record, whatever came of it, as soon as that is whole.

    Close the iterator where it is not read to its end: that ends the workers. Raises BakeoffError when the request
    itself is wrong (a bad checkpoint).
    """
    tries = []
    for row in wave:
        made = _begun(session, row, running[row.key])
        if isinstance(made, _Try):
            tries.append(made)
        else:
            yield row, made
    yield from _run(session, tries)


def _begun(session: Session, row: Row, running: Running) -> _Try | Record:
    """The row with its references, or its record where it cannot be measured."""
    obstacle = row.obstacle()
    if obstacle is not None:
        return make_record(session, row, Outcome("result", value=Measurement(obstacle.status, obstacle.reason)))
    with session.spent.on("references"):
        outcome, references = make_reference(session, row, launch_of(session, row, running))
    return _Try(row, references, running) if outcome.kind == "result" else make_record(session, row, outcome)


def _run(session: Session, tries: Sequence[_Try]) -> Generator[tuple[Row, Record], None, None]:
    """When the time of a budget is up, what is measured is still yielded, without a second build, before the error.

    So it is where the error is thrown in because it was raised while a row was saved.
    """
    again: list[tuple[_Measured, str]] = []
    kept: list[_Measured] = []  # without a record yet
    with ExitStack() as stack:
        for folder in sorted({tried.row.cache_folder for tried in tries}):
            stack.enter_context(session.entry_lock(folder))
        try:
            with closing(_measure(session, tries)) as found:
                for measured in found:
                    why = _why_again(session, measured, len(tries))
                    if why:
                        again.append((measured, why))
                        continue
                    kept.append(measured)
                    if measured.follows is None:
                        record = _record(session, measured)
                        kept.pop()
                        yield measured.tried.row, record
            with closing(_follow(session, tuple(kept))) as found:
                for measured in found:
                    kept[0] = measured
                    record = _record(session, measured)
                    kept.pop(0)
                    yield measured.tried.row, record
        except TimeIsUpError:
            for measured in kept:
                outcome = measured.outcome
                if measured.follows is not None:
                    outcome = _with_second(outcome, measured.follows, _NO_TIME)
                yield measured.tried.row, _record(session, replace(measured, outcome=outcome))
            raise
    for measured, why in again:
        yield from _run_again(session, measured, why)


def _run_again(session: Session, measured: _Measured, why: str) -> Generator[tuple[Row, Record], None, None]:
    """The same row by itself; `why` says how it ended at first."""
    before = measured.tried
    tried = _begun(session, before.row, before.running)
    if isinstance(tried, Record):
        yield before.row, tried
        return
    trace_apart = before.trace_apart or measured.outcome.phase == "trace"
    yield from _run(session, [replace(tried, trace_apart=trace_apart, ended_before=why)])


def _why_again(session: Session, measured: _Measured, tries: int) -> str:
    """How the row ended for a reason that may lie outside it, so that it is run again; "" where its end counts."""
    tried, outcome = measured.tried, measured.outcome
    changed = tried.references.changed() if _is_unchecked(measured) and not tried.ended_before else ()
    if changed:
        why = f"{', '.join(changed)} of its references changed while it ran"
        session.progress.say(f"{tried.row.label}: {why}; it is run again.")
        return why
    return (outcome.reason or outcome.value.reason) if _ended_by_others(measured, tries) else ""


def _is_unchecked(measured: _Measured) -> bool:
    outcome = measured.outcome
    return outcome.kind == "result" and outcome.value.status in _UNCHECKED


def _ended_by_others(measured: _Measured, tries: int) -> bool:
    """Whether those beside it may have ended the row, or the profiler in its process."""
    outcome = measured.outcome
    if outcome.kind == "result":
        return tries > 1 and outcome.value.status in _SHORTAGES
    return tries > 1 or (outcome.phase == "trace" and not measured.tried.trace_apart)


def _measure(session: Session, tries: Sequence[_Try]) -> Generator[_Measured, None, None]:
    """Build the rows beside each other and measure them in turn. Raises BakeoffError for a request that is wrong."""
    request, beside = session.plan.request, len(tries) - 1
    jobs, tasks = [], []
    for tried in tries:
        row = tried.row
        open_cache(row, anew=row.builds > 1 and row.process == 1)
        policy = replace(request.policy, trace=request.policy.trace and not tried.trace_apart)
        job = replace(measure_job(row, policy, tried.references), overlapped=beside > 0)
        jobs.append(job)
        launch = launch_of(session, row, tried.running, beside)
        tasks.append(Task(job, MeasureResult, replace(launch, timed=TIMED if request.monitor else ())))
    with closing(in_turns(tasks, session.spent.stopped)) as all_ended:
        for tried, job, ended in zip(tries, jobs, all_ended, strict=True):
            session.spent.worker(ended.timeline)
            yield _measured(tried, job, ended, request.policy.trace)


def _measured(tried: _Try, job: MeasureJob, ended: Ended, trace: bool) -> _Measured:
    outcome = ended.outcome
    if outcome.kind == "refused":
        raise BakeoffError(outcome.reason, outcome.code)
    if outcome.kind != "result":
        return _Measured(tried, ended, outcome)
    measurement, traced = outcome.value.measurement, outcome.value.traced
    follows = None
    if measurement.status in MEASURED and measurement.build is not None:
        if traced is not None:
            measurement = with_trace(measurement, traced, True, job.subject.device)
        rebuild, retrace = measurement.build.cache == "cold", trace and traced is None
        if rebuild or retrace:
            follows = TraceJob(replace(job, policy=replace(job.policy, trace=retrace)), rebuild)
    return _Measured(tried, ended, replace(outcome, value=measurement), follows)


def _follow(session: Session, all_measured: Sequence[_Measured]) -> Generator[_Measured, None, None]:
    """Build the rows once more, beside each other, and trace them in turn where that is wanted."""
    beside = len(all_measured) - 1
    jobs, tasks = [], []
    for measured in all_measured:
        assert measured.follows is not None
        row, running = measured.tried.row, measured.tried.running
        running.event(Event("traced build"))
        job = replace(measured.follows, measure=replace(measured.follows.measure, overlapped=beside > 0))
        jobs.append(job)
        launch = launch_of(session, row, running, beside)
        tasks.append(Task(job, TraceResult, replace(launch, log=launch.log.with_suffix(".trace.log"))))
    with closing(in_turns(tasks, session.spent.stopped)) as all_ended:
        for measured, job, ended in zip(all_measured, jobs, all_ended, strict=True):
            session.spent.worker(ended.timeline, "warm and traced builds")
            yield replace(measured, outcome=_with_second(measured.outcome, job, ended.outcome), follows=None)


def _with_second(outcome: Outcome, job: TraceJob, second: Outcome) -> Outcome:
    """The outcome of a row's first worker with what its second one found."""
    found = second.value if second.kind == "result" else replace(NOTHING_TRACED, problem=second.reason)
    measurement = with_trace(outcome.value, found, job.measure.policy.trace, job.measure.subject.device)
    if job.rebuild and not found.rebuilt:
        finding = new_finding("rebuild", f"no warm build: {found.problem}")
        measurement = replace(measurement, findings=(*measurement.findings, finding))
    return replace(outcome, value=measurement)


def _record(session: Session, measured: _Measured) -> Record:
    """The row's record, with findings of what happened around it."""
    tried, outcome = measured.tried, measured.outcome
    findings = []
    if outcome.kind == "result":
        changed = tried.references.changed()
        if changed:
            # Its own limits were read before any of its code ran, and the next row gets references made anew.
            text = f"{', '.join(changed)} of its references changed while this row ran"
            findings.append(new_finding("tampered", text))
    if tried.ended_before:
        text = f"it was run again by itself, because it had ended otherwise at first: {tried.ended_before}"
        findings.append(new_finding("run-again", text))
    return make_record(session, tried.row, outcome, measured.ended, findings)


LEAST_NAMED = 0.8
"""Share of a traced call that must be in named kernels."""
_SLOW_CONV = re.compile("slow_conv_dilated|vol2col")
"""Kernels that run where no library takes a convolution (aten/src/ATen/native/NaiveDilatedConvolution.cpp)."""


def with_trace(measurement: Measurement, traced: TraceResult, wanted: bool, device: str) -> Measurement:
    """The measurement with the cost of a warm build and, where a trace is `wanted`, its kernels.

    Its status becomes `fell_back` where operators ran elsewhere than in the requested compiler or provider, or where
    something ran instead of what was prepared. On a CPU, a trace that names too little only because the call is short
    gives the finding `short-call`, once for all that follows from it.
    """
    made = measurement
    if made.build is not None and traced.rebuilt:
        made = replace(made, build=replace(made.build, warm_s=traced.warm_s, warm_cpu_s=traced.warm_cpu_s))
    if not wanted or made.proof is None:
        return made
    incomplete = _incomplete(made.proof, traced)
    proof = replace(
        made.proof,
        trace=traced.trace,
        incomplete=incomplete,
        operators_inside=traced.inside or made.proof.operators_inside,
        operators_outside=traced.outside or made.proof.operators_outside,
    )
    instead = traced.instead
    if traced.outside:
        elsewhere = ", ".join(f"{count} {name}" for name, count in traced.outside.items())
        instead = f"another compiler or provider for some operators: {elsewhere}"
    if instead and made.status != "fell_back":
        proof = replace(proof, fell_back=instead)
        made = replace(made, status="fell_back", reason=f"ran {proof.fell_back}")
    short = bool(incomplete) and device == "cpu" and _is_short(proof, traced.trace)
    findings = [*made.findings, *_findings(traced, "" if short else incomplete)]
    if short and short_call() not in findings:
        findings.append(short_call())
    return replace(made, proof=proof, findings=tuple(findings))


def _findings(traced: TraceResult, incomplete: str) -> list[Finding]:
    found = []
    if incomplete:
        found.append(new_finding("proof.incomplete", f"the proof is incomplete: {incomplete}"))
    slow = [kernel.name for kernel in traced.trace.kernels if _SLOW_CONV.search(kernel.name)] if traced.trace else []
    if slow:
        text = f"{slow[0]} is ATen's own slow convolution: cuDNN or oneDNN refused its shape, dtype or layout"
        found.append(new_finding("slow-conv", text))
    return found


def _is_short(proof: ProofRecord, trace: TraceRecord | None) -> bool:
    """Whether the proof lacks nothing but named kernels, and that because the call is short."""
    if trace is None or proof.graph_hash != trace.graph_hash:
        return False
    return trace.named_ns > 0 and trace.total_ns - trace.named_ns <= UNNAMED_NS


def _incomplete(proof: ProofRecord, traced: TraceResult) -> str:
    """Why the proof is incomplete; "" if it is complete."""
    trace = traced.trace
    if trace is None:
        return f"no traced build: {traced.problem}"
    if proof.graph_hash != trace.graph_hash:
        hashes = f"{trace.graph_hash or 'none'}, measured {proof.graph_hash or 'none'}"
        return f"the traced build has another graph ({hashes})"
    named = trace.named_ns / trace.total_ns if trace.total_ns else 0.0
    if named < LEAST_NAMED:
        percent = trace.named_ns * 100 // max(trace.total_ns, 1)  # rounded down: 79.9 % must not read as enough
        return f"{percent}% of the traced time is in named kernels, at least {LEAST_NAMED:.0%} are required"
    return ""
