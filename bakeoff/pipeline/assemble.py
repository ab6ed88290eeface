"""Assembles the record of a mix from its worker's report, or from how the worker ended, and facts of this machine."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Literal

from bakeoff.models.pipelines.pipeline import Key
from bakeoff.models.words import counted
from bakeoff.pipeline.plan import MixPlan
from bakeoff.pipeline.session import PipelineSession
from bakeoff.process.phases import Block, UnitStamp
from bakeoff.process.supervisor import Outcome
from bakeoff.process.watch import GpuPeaks
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.pipeline import Forecast, PipelineMeasurement, PipelineMemory, PipelineRecord, SlotProgram, Units
from bakeoff.record.source import instrument_hash, pipeline_hash
from bakeoff.sweeps.assemble import (
    common_facts,
    ended_status,
    ending,
    host_findings,
    issue_findings,
    shareable,
    source_of,
)

How = Literal["alone", "interleaved", "in turn", "cold"]


def make_record(
    session: PipelineSession,
    mix: MixPlan,
    outcome: Outcome,
    how: How = "alone",
    blocks: Sequence[Block] = (),
    span_s: float = 0.0,
    findings: Sequence[Finding] = (),
    stamps: Sequence[UnitStamp] = (),
) -> PipelineRecord:
    """Return the record of one mix, whatever its outcome.

    `blocks` are the units that its worker reported, within `span_s` seconds; `findings` are those of the rounds.
    `stamps` are the units of a sustained run.
    """
    plan, watched = session.plan, outcome.watched
    blocks = blocks or [Block(tuple(stamp.wall_ns for stamp in stamps), 0.0)]
    request, loop, subject = plan.request, plan.loop, plan.subject
    configs = {slot: of.component.preset(loop.presets[slot]).config for slot, of in plan.slots.items()}
    return PipelineRecord(
        **common_facts(outcome, session.context, session.log_of(mix), mix.environment, subject.device),
        run=session.context.sweep,
        how=how if request.horizon_db is None else "rollout",
        mix=mix.mix,
        config_id=mix.config_id,
        subject_id=plan.subject_id,
        role=mix.role,
        label=loop.label,
        options=dict(loop.options),
        sizes=dict(loop.sizes),
        calls={f"{slot}.{program}": count for (slot, program), count in loop.calls().items()},
        phase_calls=dict(loop.phase_calls()),
        configs={slot: asdict(config) for slot, config in configs.items()},
        unit=loop.unit,
        frame_rate=loop.rate,
        threads=subject.threads,
        weight_seed=request.weight_seed,
        input_seed=request.input_seed,
        checkpoints={slot: plan.slots[slot].rows[0].checkpoint for slot in subject.checkpoints}
        | {slot: of.component.weights for slot, of in plan.slots.items() if of.component.weights},
        measurement=_measurement(session, mix, outcome, blocks, span_s, (*findings, *watched.findings), stamps),
        loop_hash=pipeline_hash(subject.loop.reference),
        instrument=instrument_hash(),
        budget=request.budget,
        forecast=_promise(outcome, mix),
        sustained=request.sustained,
        started=plan.started.get(mix.mix.scheduled_variants),
    )


def _promise(outcome: Outcome, mix: MixPlan) -> Forecast | None:
    """Return what was promised of the mix: by its worker under a schedule, else by records."""
    promised = outcome.value.promised if outcome.kind == "result" else None
    return mix.forecast if promised is None else replace(promised, slots=mix.mix.scheduled_variants)


def _measurement(
    session: PipelineSession,
    mix: MixPlan,
    outcome: Outcome,
    blocks: Sequence[Block],
    span_s: float,
    findings: Sequence[Finding],
    stamps: Sequence[UnitStamp],
) -> PipelineMeasurement:
    """Return the worker's report, or the status that its end means, with this process's findings added.

    Folders of this machine are removed from all texts.
    """
    status = ended_status(outcome)
    if status is not None:
        made = _with_stamps(PipelineMeasurement(status, ending(outcome)), stamps)
    else:
        made = with_status(outcome.value, blocks, span_s, session.plan.loop.filling)
    seen = host_findings(session.context.load, session.plan.subject.threads, "the run", outcome)
    known = dict.fromkeys(issue for row in mix.rows.values() for issue in row.known_issues)
    found = (*made.findings, *findings, *seen, *issue_findings(known, made.status))
    programs = tuple(_completed(program, mix) for program in made.programs)
    memory = made.memory and _memory(made.memory, outcome.gpu_peaks)
    return shareable(replace(made, findings=found, programs=programs, memory=memory))


def _with_stamps(made: PipelineMeasurement, stamps: Sequence[UnitStamp]) -> PipelineMeasurement:
    """Return the measurement with units of these stamps, which have no account; unchanged without stamps."""
    if not stamps:
        return made
    units = Units(
        wall_ns=tuple(stamp.wall_ns for stamp in stamps),
        started_ns=tuple(stamp.started_ns - stamps[0].started_ns for stamp in stamps),
        frames=tuple(stamp.frames for stamp in stamps),
        kinds=tuple(stamp.kind for stamp in stamps),
        sessions=tuple(stamp.session for stamp in stamps),
        lines=(),
        programs=(),
        copied_bytes=(),
    )
    return replace(made, units=units, opened_ns=tuple(stamp.opened_ns for stamp in stamps if stamp.opened_ns))


def _completed(program: SlotProgram, mix: MixPlan) -> SlotProgram:
    """Return the worker's report of a program with the facts that only the parent process knows."""
    key = Key(program.slot, program.variant.workload)
    program = replace(shareable(program), source=source_of(mix.rows[key]))
    part = mix.parts.get(key)
    return program if part is None else replace(program, part=part.id)


def _memory(memory: PipelineMemory, peaks: GpuPeaks | None) -> PipelineMemory:
    """Return the worker's memory figures with the GPU peak that its parent polled."""
    polled = peaks.bytes_of.get("loop check", 0) if peaks is not None else 0
    return replace(memory, device_peak_bytes=max(memory.device_peak_bytes or 0, polled) or None)


def with_status(
    measurement: PipelineMeasurement, blocks: Sequence[Block], span_s: float, filling: int
) -> PipelineMeasurement:
    """Return the measurement, `unstable` if it was ok and its units are not a measurement of this mix.

    `blocks` are the units as the worker reported them turn by turn, within `span_s` seconds by the parent's clock;
    `filling` is the number of units of a session until its windows are full.
    """
    if measurement.status != "ok" or measurement.rollout is not None:  # of a rollout nothing was timed
        return measurement
    findings = tuple(_doubts(measurement.units, blocks, span_s, filling))
    if not findings:
        return measurement
    found = (*measurement.findings, *findings)
    return replace(measurement, status="unstable", reason=findings[0].text, findings=found)


def _doubts(units: Units | None, blocks: Sequence[Block], span_s: float, filling: int) -> Iterator[Finding]:
    """Yield a finding for each reason why the numbers are not a measurement of this mix."""
    if units is None or "steady" not in units.kinds:
        count = len(units.kinds) if units is not None else 0
        ran = counted(count, "unit")
        if count < filling:
            yield new_finding("few-units", f"{ran} ran, and the windows are full after {filling}")
        yield new_finding("warm-up", f"no steady unit: times did not settle within {ran}")
        return
    first = 0
    for index, count in enumerate(units.spans or (1,) * len(units.wall_ns)):
        total, taken = sum(line.ns[index] for line in units.lines), sum(units.wall_ns[first : first + count])
        if total != taken:
            yield new_finding("clock-span", f"the lines of unit {first} add up to {total} ns, it took {taken} ns")
            break
        first += count
    units_s = sum(units.wall_ns) / 1e9
    if tuple(units.wall_ns) != tuple(ns for block in blocks for ns in block.samples_ns):
        yield new_finding("clock-span", "the units of the report are not those that were announced turn by turn")
    elif units_s > span_s:
        yield new_finding("clock-span", f"units add up to {units_s:.3f} s, the parent saw {span_s:.3f} s pass")
