"""From a plan to records: references, live workers that take turns unit by unit, and a record of each mix.

Ctrl-C keeps the records that are complete.
"""

import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from bakeoff.backends import resolve_backend
from bakeoff.machine import host, paths
from bakeoff.machine.locks import device_lock, entry_lock
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.pipeline.assemble import How, make_record
from bakeoff.pipeline.compiler_log import with_compiler_log
from bakeoff.pipeline.mix_worker import Limits, MixWorker, take_turns
from bakeoff.pipeline.mixes import MixPlan, MixProgram
from bakeoff.pipeline.plan import PipelinePlan
from bakeoff.pipeline.session import PipelineSession, loop_reference_folder, make_loop_reference, open_pipeline_session
from bakeoff.plan.memory import total
from bakeoff.plan.rows import short_of_memory
from bakeoff.process.jobs import TraceJob, TraceResult
from bakeoff.process.supervisor import Event, Outcome, run_job
from bakeoff.record.pipeline import PipelineMeasurement, PipelineRecord, ProgramSight
from bakeoff.record.schema import Finding, TraceRecord, new_finding
from bakeoff.record.store import StoredPipeline, load_all, save
from bakeoff.sweeps.progress import Progress, Running
from bakeoff.sweeps.resume import SweepState, begin_run, find_unfinished, mark_finished
from bakeoff.sweeps.row import References, launch_of, make_reference, measure_job

_LARGEST_OFFSET = 2**20
"""Bytes, as between the sides of a comparison: memory layout varies from process to process."""
_MORE_UNSETTLED = 40
"""Units beyond twice those that fill windows, after which a mix without a steady one is given up."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a run leaves behind."""

    run: str
    stored: tuple[StoredPipeline, ...]
    interrupted: tuple[str, ...]
    """Mixes that were not measured to the end: `--resume` runs them."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One run while it goes on."""

    session: PipelineSession
    runs: Path
    order: random.Random
    stored: dict[str, StoredPipeline] = field(default_factory=dict)
    """By the mix's string."""

    def start(self, mix: MixPlan) -> Running:
        mixes = self.session.plan.mixes
        return self.session.progress.start(1 + mixes.index(mix), len(mixes), str(mix.mix))

    def keep(self, mix: MixPlan, record: PipelineRecord, running: Running) -> None:
        """Store the record before the mix is shown as finished."""
        self.stored[str(mix.mix)] = StoredPipeline(save(self.runs, record), record)
        running.finish(record.status, _line(record))

    def settle(self, mix: MixPlan, outcome: Outcome) -> None:
        """Keep a record of a mix that is not run."""
        self.keep(mix, make_record(self.session, mix, outcome), self.start(mix))


def run_pipeline(plan: PipelinePlan, runs: Path, note: str, resume: bool, progress: Progress) -> Done:
    """Run every mix of `plan` that has no record yet.

    Ctrl-C ends the run cleanly: workers are dead, mixes without a record are in `interrupted`. Raises BakeoffError
    before anything is measured when records cannot be written or a weights file is wrong.
    """
    paths.ensure_writable(runs, "records")
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    name = _name(plan)
    if resume:
        continue_run(plan, runs, cache)
    measures = any(mix.never_runs is None for mix in plan.mixes)
    with device_lock(plan.subject.device, progress.say, cache, measures) as held:
        # Under the lock: the run that was waited for was the load, and may have been this one, resumed twice.
        load = host.present_load(held.idle_s)
        state, earlier = continue_run(plan, runs, cache) if resume else (begin_run(plan.key, name, runs, cache), {})
        if load > host.usable_cores() / 2:
            progress.say(f"This host is busy ({host.busy_text(load)}); each record will say so.")
        session = open_pipeline_session(plan, state.sweep, note, runs, cache, load, progress)
        run = _Run(session, runs, random.Random(state.order_seed), earlier)
        interrupted = False
        try:
            _run_mixes(run, [mix for mix in plan.mixes if str(mix.mix) not in earlier])
        except KeyboardInterrupt:
            interrupted = True
        if not interrupted:
            mark_finished(cache, state)
    left = tuple(mix.label for mix in plan.mixes if str(mix.mix) not in run.stored)
    kept = tuple(run.stored[str(mix.mix)] for mix in plan.mixes if str(mix.mix) in run.stored)
    return Done(state.sweep, kept, left)


def continue_run(plan: PipelinePlan, runs: Path, cache: Path) -> tuple[SweepState, dict[str, StoredPipeline]]:
    """The newest unfinished run of the same plan, and its records so far. Raises BakeoffError when there is none."""
    state = find_unfinished(plan.key, _name(plan), "run", runs, cache)
    kept = [entry for entry in load_all(runs).pipelines if entry.record.run == state.sweep]
    return state, {str(entry.record.mix): entry for entry in kept}


def _name(plan: PipelinePlan) -> str:
    return f"pipeline {plan.pipeline.name}"


def _run_mixes(run: _Run, mixes: Sequence[MixPlan]) -> None:
    """Settle what cannot run; measure the others, side by side where they fit into memory together."""
    waiting: list[MixPlan] = []
    for mix in mixes:
        obstacle = mix.obstacle()
        if obstacle is None:
            waiting.append(mix)
        else:
            run.settle(mix, Outcome("result", value=PipelineMeasurement(obstacle.status, obstacle.reason)))
    if not waiting:
        return
    progress, cache = run.session.progress, run.session.cache
    folders = {loop_reference_folder(run.session.plan), *(mix.cache_folder for mix in waiting)}
    with ExitStack() as stack:
        for folder in sorted(folders):
            stack.enter_context(entry_lock(cache, folder, progress.say))
        _measure_all(run, waiting)


def _measure_all(run: _Run, mixes: Sequence[MixPlan]) -> None:
    session = run.session
    running = session.progress.start(0, 0, f"{mixes[0].mix.subject}: references")
    loop_outcome, loop = make_loop_reference(session.plan, mixes, session.launch_of(mixes[0], running))
    references: Mapping[str, References]
    ready: list[tuple[MixPlan, Mapping[str, References]]] = []
    failed: list[tuple[MixPlan, Outcome]] = []
    for mix in mixes:
        outcome, references = loop_outcome, {}
        if outcome.kind == "result":
            outcome, references = _program_references(session, mix, running)
        if outcome.kind == "result":
            ready.append((mix, references))
        else:
            failed.append((mix, outcome))
    running.finish("ok" if not failed else "failed", "")
    for mix, outcome in failed:
        run.settle(mix, outcome)
    if len(ready) > 1 and short_of_memory(total([mix.memory for mix, _ in ready]), session.plan.subject.device):
        session.progress.say("The mixes do not fit in memory at once; they run in turn.")
        for each in run.order.sample(ready, len(ready)):
            _measure(run, [each], loop, "in turn", len(ready))
    elif ready:
        _measure(run, ready, loop, "interleaved" if len(ready) > 1 else "alone")


def _program_references(
    session: PipelineSession, mix: MixPlan, running: Running
) -> tuple[Outcome, Mapping[str, References]]:
    """References of every program, by `slot.program`; the outcome is that of the first that cannot be made."""
    found: dict[str, References] = {}
    for program in mix.programs:
        of_slot = session.slots[program.slot]
        outcome, references = make_reference(of_slot, program.row, launch_of(of_slot, program.row, running))
        if outcome.kind != "result":
            return outcome, found
        found[program.name] = references
    return Outcome("result"), found


def _measure(
    run: _Run, mixes: Sequence[tuple[MixPlan, Mapping[str, References]]], loop: References, how: How, turns: int = 1
) -> None:
    """Start a worker for each mix, one after the other, since each times its programs alone; then let them take turns.

    Where mixes run in turn, this is one of `turns`, which gets its share of the time. Nothing is kept of mixes whose
    rounds were interrupted. Raises BakeoffError, after the records of the others were kept, where the request itself
    was wrong (other weights than those that were described).
    """
    session, request = run.session, run.session.plan.request
    filling = session.plan.loop.filling
    limits = Limits(request.units, 2 * filling + _MORE_UNSETTLED, request.minutes * 60 / turns)
    names = " and ".join(mix.label for mix, _ in mixes)
    running = session.progress.start(0, 0, f"{mixes[0][0].mix.subject}: {names}")
    with ExitStack() as stack:
        workers: list[MixWorker] = []
        for mix, references in run.order.sample(mixes, len(mixes)):
            offset = run.order.randrange(0, _LARGEST_OFFSET, 16)
            worker = stack.enter_context(MixWorker(session, mix, references, loop, offset, running))
            worker.wait_until_ready()
            workers.append(worker)
        findings = take_turns(workers, limits, run.order, running)
        ended = {str(worker.mix.mix): (worker, worker.finish()) for worker in workers}
    if sum(bool(worker.blocks) for worker in workers) < 2 and how == "interleaved":
        how = "alone"
    running.finish("done", counted(max((len(worker.blocks) for worker in workers), default=0), "round"))
    changed = _changed(mixes, loop)
    refused: list[Outcome] = []
    for mix, _ in mixes:
        worker, outcome = ended[str(mix.mix)]
        if outcome.kind == "refused":
            refused.append(outcome)
            continue
        running = run.start(mix)
        if outcome.kind == "result":
            seen = with_sights(session, mix, outcome.value, running)
            outcome = replace(outcome, value=with_compiler_log(session, mix, seen, running))
        found = (*findings, *changed, *_few(worker, outcome, limits))
        made = make_record(session, mix, outcome, how, worker.blocks, sum(worker.span_s), found, worker.watched)
        run.keep(mix, made, running)
    for outcome in refused:
        raise BakeoffError(outcome.reason, outcome.code)


def _few(worker: MixWorker, outcome: Outcome, limits: Limits) -> Sequence[Finding]:
    """A finding where the time was over before the mix had all its units."""
    given_up = worker.unsettled >= limits.unsettled
    if worker.steady >= limits.units or given_up or outcome.kind != "result" or not worker.blocks:
        return ()
    minutes = counted(limits.seconds / 60, "minute", form="g")
    text = f"{worker.steady} of {counted(limits.units, 'steady unit')}: the rounds ended after {minutes}"
    return (new_finding("few-units", text),)


def _changed(mixes: Sequence[tuple[MixPlan, Mapping[str, References]]], loop: References) -> Sequence[Finding]:
    """A finding where files of the references changed while the mixes ran."""
    folders = {references.folder: references for _, by_name in mixes for references in by_name.values()}
    changed = [name for references in (loop, *folders.values()) for name in references.changed()]
    if not changed:
        return ()
    return (new_finding("tampered", f"{', '.join(sorted(set(changed)))} of the references changed while mixes ran"),)


def _line(record: PipelineRecord) -> str:
    units, reason = record.measurement.units, record.measurement.reason
    walls = [ns for ns, kind in zip(units.wall_ns, units.kinds, strict=True) if kind == "steady"] if units else []
    if not walls:
        return reason
    text = f"{median(walls) / 1e6:.2f} ms a {record.unit} (median of {counted(len(walls), 'steady unit')})"
    return f"{text}  {reason}".rstrip()


_TRACER = "torch.profiler"


def with_sights(
    session: PipelineSession, mix: MixPlan, measurement: PipelineMeasurement, running: Running
) -> PipelineMeasurement:
    """The measurement with kernels of its hidden programs, by a traced build of each; as it is without a profile.

    The trace of the record that predicts the program's time is used where there is one: of the same machine and code.
    """
    profile = measurement.profile
    if profile is None:
        return measurement
    planned = {program.name: program for program in mix.programs}
    sights = tuple(
        _seen(session, mix, planned[f"{sight.slot}.{sight.program}"], sight, running)
        if sight.sight == "hidden"
        else sight
        for sight in profile.programs
    )
    return replace(measurement, profile=replace(profile, programs=sights))


def _seen(
    session: PipelineSession, mix: MixPlan, program: MixProgram, sight: ProgramSight, running: Running
) -> ProgramSight:
    tracer = resolve_backend(program.row.steps[-1].backend).evidence.tracer or _TRACER
    proof = program.part.record.measurement.proof if program.part is not None else None
    if program.part is not None and proof is not None and proof.trace is not None:
        return _with(sight, f"{tracer}, record {program.part.id}", proof.trace)
    running.event(Event("traced build", program.name))
    launch = session.launch_of(mix, running)
    log = launch.log.with_suffix(f".{program.name}.trace.log")
    policy = replace(session.plan.request.policy, trace=True)
    job = TraceJob(measure_job(program.row, policy, None), rebuild=False)
    outcome = run_job(job, TraceResult, replace(launch, log=log))
    if outcome.kind != "result":
        return replace(sight, problem=outcome.reason)
    traced: TraceResult = outcome.value
    if traced.trace is None:
        return replace(sight, problem=traced.problem or "no trace was made")
    return _with(sight, tracer, traced.trace)


def _with(sight: ProgramSight, tracer: str, trace: TraceRecord) -> ProgramSight:
    return replace(
        sight,
        sight="in its own build",
        tracer=tracer,
        kernels=trace.kernels,
        kernel_count=trace.kernel_count,
        total_ns=trace.total_ns,
        named_ns=trace.named_ns,
    )
