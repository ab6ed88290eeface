"""Builds rows in waves of concurrent workers, and finishes the rows one after the other.

The worker of a row builds and proves its variant, and waits for its turn. In its turn it has the machine to itself: it
checks the variant, times it, measures its memory, and traces it. A row is finished when its turn ends.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import ceil, inf

from bakeoff.machine import host
from bakeoff.machine.build_cache import open_folder
from bakeoff.plan.rows import Row
from bakeoff.process.jobs import NOTHING_TRACED, Job, MeasureResult, TraceResult
from bakeoff.process.phases import TIMED
from bakeoff.process.signals import first_signal_waits
from bakeoff.process.supervisor import Launch, Outcome
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.schema import MEASURED, Measurement, ProofRecord, Record, Status, TraceRecord
from bakeoff.record.short_calls import UNNAMED_NS, short_call
from bakeoff.sweeps.assemble import make_record
from bakeoff.sweeps.context import SweepContext
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.row import NO_REFERENCES, References, launch_of, make_reference, measure_job
from bakeoff.sweeps.turns import in_turns

Keep = Callable[[Record, Running], None]
"""Callback that receives each record as soon as it is made."""
_MOST = 8
"""Largest number of rows in a wave: each keeps its engine in memory until its turn."""
_MEMORY_SHARE = 0.6
"""Share of the free memory that the rows of a wave may take, by estimates that leave out compilers' helper processes.
"""
_SHORTAGES: tuple[Status, ...] = ("oom", "crashed", "timeout")
"""Statuses that a row may have only because other rows were built at the same time."""
_TRACING = ("traced build", "trace")
_UNCHECKED: tuple[Status, ...] = ("crashed", "parity_failed")
"""Statuses that a row may have only because it could not read its references."""


def next_wave(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the first row, and those of the other rows that may be built at the same time, in their order.

    The rows of a wave have separate cache folders and together fit into memory. Baselines form waves of their own, so
    that later rows soon have something to be compared with. A wave has at most one row more than there are cores, since
    most builds keep one core busy. If the rows need several waves, the waves have about equal sizes.
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
class Try:
    """One attempt to time a row."""

    row: Row
    running: Running
    untraced: bool = False
    """Whether to trace nothing, because the process of the first attempt ended while it traced."""
    ended_before: str = ""
    """Why the row's first attempt failed; "" for a first attempt."""


def time_wave(
    context: SweepContext,
    wave: Sequence[Try],
    keep: Keep,
    patience_s: Callable[[int], float] = lambda _: inf,
) -> None:
    """Time the rows of one wave, and pass a record of each to `keep` as soon as it was timed or has failed.

    `patience_s` returns for how long builds may still go on, given how many rows are built and wait to be timed; what
    is not built then is stopped and has no record. A row that may have failed for an external reason is tried again by
    itself. Raises BakeoffError if the request itself is wrong (a bad checkpoint).
    """
    waves = [list(wave)]
    while waves:
        waves += [[again] for again in _time(context, waves.pop(0), keep, patience_s)]


def _time(
    context: SweepContext,
    tries: Sequence[Try],
    keep: Keep,
    patience_s: Callable[[int], float],
) -> list[Try]:
    """Build rows at the same time, then time them one after the other; return the rows that must be tried again."""
    able = []
    for tried in tries:
        found = _references(context, tried)
        if isinstance(found, Record):
            keep(found, tried.running)
        else:
            able.append((tried, found))
    again = []
    with ExitStack() as stack:
        for folder in sorted({tried.row.cache_folder for tried, _ in able}):
            stack.enter_context(context.entry_lock(folder))
        jobs = [_job(context, tried, references, len(able) - 1) for tried, references in able]
        turns = stack.enter_context(in_turns(jobs, patience_s))
        for (tried, references), worker in zip(able, turns, strict=True):
            if worker is None:
                tried.running.finish("stopped", "its build left no time for the rows that are built")
                continue
            with first_signal_waits():  # what was measured is kept
                outcome = _measured(context, tried, worker.finish(MeasureResult))
                why = _why_again(tried, outcome, references, len(able))
                if why:
                    context.progress.say(f"{tried.row.label}: {why}; it is run again by itself.")
                    untraced = tried.untraced or outcome.phase in _TRACING
                    again.append(replace(tried, untraced=untraced, ended_before=why))
                else:
                    findings = _around(tried, outcome, references)
                    keep(make_record(context, tried.row, outcome, findings), tried.running)
    return again


def _references(context: SweepContext, tried: Try) -> References | Record:
    """Return the references of a row, or its record if it cannot be measured."""
    row = tried.row
    obstacle = row.obstacle()
    if obstacle is not None:
        return make_record(context, row, Outcome("result", value=Measurement(obstacle.status, obstacle.reason)))
    if row.target:
        return NO_REFERENCES
    outcome, references = make_reference(context, row, launch_of(context, row, tried.running))
    return references if outcome.kind == "result" else make_record(context, row, replace(outcome, timeline=()))


def _job(context: SweepContext, tried: Try, references: References, beside: int) -> tuple[Job, Launch]:
    """Return the job of the row's worker and how to start it, with its cache folder opened; `beside` builds run at the
    same time."""
    row, request = tried.row, context.plan.request
    # What a backend that states no caches keeps all the same would make its next build look fast.
    open_folder(row.cache_folder, anew=not row.caches)
    policy = replace(request.policy, trace=request.policy.trace and not tried.untraced)
    job = replace(measure_job(row, policy, references), overlapped=beside > 0, next_slot=request.next_slot)
    return job, replace(launch_of(context, row, tried.running, beside), timed=TIMED if request.monitor else ())


def _measured(context: SweepContext, tried: Try, outcome: Outcome) -> Outcome:
    """Return the worker's outcome with a Measurement as its value. Raises BakeoffError if the request was wrong."""
    outcome.raise_refusal()
    if outcome.kind != "result":
        return outcome
    made, traced = outcome.value.measurement, outcome.value.traced
    if tried.untraced:
        traced = replace(NOTHING_TRACED, problem=tried.ended_before)
    if traced is not None and made.status in MEASURED:
        made = with_trace(made, traced, context.plan.rows[0].subject.device)
    return replace(outcome, value=made)


def _why_again(tried: Try, outcome: Outcome, references: References, tries: int) -> str:
    """Return why a row must be tried again, or "" if its result counts.

    Reasons are other builds at the same time, a crash while tracing, and references that changed.
    """
    if outcome.kind == "result":
        status = outcome.value.status
        changed = references.changed() if status in _UNCHECKED and not tried.ended_before else ()
        if changed:
            return f"{', '.join(changed)} of its references changed while it ran"
        return outcome.value.reason if tries > 1 and status in _SHORTAGES else ""
    tracing = outcome.phase in _TRACING and not tried.untraced
    return outcome.reason if tries > 1 or tracing else ""


def _around(tried: Try, outcome: Outcome, references: References) -> list[Finding]:
    """Return findings about the circumstances of a row: changed references, and a failed first attempt."""
    found = []
    if changed := references.changed() if outcome.kind == "result" else ():
        # Its own limits were read before any of its code ran, and the next row gets references made anew.
        text = f"{', '.join(changed)} of its references changed while this row ran"
        found.append(new_finding("tampered", text))
    if tried.ended_before:
        text = f"it was run again by itself, because it had ended otherwise at first: {tried.ended_before}"
        found.append(new_finding("run-again", text))
    return found


LEAST_NAMED = 0.8
"""Smallest share of a traced call that must be in named kernels."""
_SLOW_CONV = re.compile("slow_conv_dilated|vol2col")
"""Kernels that run a convolution that no library supports (aten/src/ATen/native/NaiveDilatedConvolution.cpp)."""


def with_trace(made: Measurement, traced: TraceResult, device: str) -> Measurement:
    """Return the measurement with the kernels of its trace; unchanged without a proof.

    The status becomes `fell_back` if operators ran outside the requested compiler or provider, or if something else ran
    instead of what was prepared. On a CPU, a trace that names too little only because the call is short adds the
    finding `short-call` in place of `proof.incomplete`.
    """
    if made.proof is None:
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
        found.append(new_finding("known-issue", text))
    return found


def _is_short(proof: ProofRecord, trace: TraceRecord | None) -> bool:
    """Return whether the proof lacks only named kernels, and lacks them because the call is short."""
    if trace is None or proof.graph_hash != trace.graph_hash:
        return False
    return trace.named_ns > 0 and trace.total_ns - trace.named_ns <= UNNAMED_NS


def _incomplete(proof: ProofRecord, traced: TraceResult) -> str:
    """Return why the proof is incomplete; "" if it is complete."""
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
