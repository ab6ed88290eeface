"""Runs a plan: references, live workers that take turns, and a record of each mix.

Ctrl-C keeps the records that are complete.
"""

import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bakeoff.machine.locks import entry_lock
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.pipeline.assemble import How, make_record
from bakeoff.pipeline.compiler_log import seen_apart
from bakeoff.pipeline.mix_worker import Limits, MixWorker, run_rounds, wait_until_ready
from bakeoff.pipeline.plan import MixPlan, PipelinePlan
from bakeoff.pipeline.session import PipelineSession, loop_reference_folder, make_loop_reference
from bakeoff.plan.memory import total
from bakeoff.plan.rows import short_of_memory
from bakeoff.process.supervisor import Outcome
from bakeoff.race import LARGEST_OFFSET, open_sides
from bakeoff.record.pipeline import PipelineMeasurement, PipelineRecord
from bakeoff.record.schema import Finding, new_finding
from bakeoff.record.store import StoredPipeline, load_all, save
from bakeoff.sweeps.progress import Progress, Running
from bakeoff.sweeps.resume import SweepState, opened
from bakeoff.sweeps.row import References, launch_of, make_reference
from bakeoff.sweeps.session import open_session

_MORE_UNSETTLED = 40
"""Units beyond twice those that fill windows, after which a mix without a steady one is given up."""


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """Result of a run."""

    run: str
    stored: tuple[StoredPipeline, ...]
    interrupted: tuple[str, ...]
    """Mixes that were not measured to the end: `--resume` runs them."""


def run_pipeline(plan: PipelinePlan, runs: Path, note: str, resume: bool, progress: Progress) -> PipelineResult:
    """Run every mix of `plan` that has no record yet.

    Ctrl-C ends the run cleanly: workers are dead, mixes without a record are in `interrupted`. Raises BakeoffError
    before anything is measured when records cannot be written or a weights file is wrong.
    """
    measures = any(mix.never_runs is None for mix in plan.mixes)
    with opened(plan.key, plan.name, plan.subject.device, measures, runs, resume, progress) as opening:
        state, cache, load = opening.state, opening.cache, opening.load
        stored = stored_of(state, runs)
        slots = {
            slot: open_session(of, state.sweep, note, runs, cache, load, progress) for slot, of in plan.slots.items()
        }
        order = random.Random(state.order_seed)
        session = PipelineSession(plan, state.sweep, note, load, cache, progress, runs, order, slots, stored)
        interrupted = False
        try:
            _run_mixes(session, [mix for mix in plan.mixes if str(mix.mix) not in stored])
        except KeyboardInterrupt:
            interrupted = True
        if not interrupted:
            opening.finish()
    left = tuple(mix.label for mix in plan.mixes if str(mix.mix) not in stored)
    kept = tuple(stored[str(mix.mix)] for mix in plan.mixes if str(mix.mix) in stored)
    return PipelineResult(state.sweep, kept, left)


def stored_of(state: SweepState, runs: Path) -> dict[str, StoredPipeline]:
    """Return the records of a run so far, by their mixes."""
    return {str(entry.record.mix): entry for entry in load_all(runs).pipelines if entry.record.run == state.sweep}


def _run_mixes(session: PipelineSession, mixes: Sequence[MixPlan]) -> None:
    """Settle what cannot run; measure the others, side by side where they fit into memory together."""
    waiting: list[MixPlan] = []
    for mix in mixes:
        obstacle = mix.obstacle()
        if obstacle is None:
            waiting.append(mix)
        else:
            _settle(session, mix, Outcome("result", value=PipelineMeasurement(obstacle.status, obstacle.reason)))
    if not waiting:
        return
    folders = {loop_reference_folder(session.plan), *(mix.cache_folder for mix in waiting)}
    with ExitStack() as stack:
        for folder in sorted(folders):
            stack.enter_context(entry_lock(session.cache, folder, session.progress.say))
        _measure_all(session, waiting)


def _start(session: PipelineSession, mix: MixPlan) -> Running:
    mixes = session.plan.mixes
    return session.progress.start(1 + mixes.index(mix), len(mixes), str(mix.mix))


def _keep(session: PipelineSession, mix: MixPlan, record: PipelineRecord, running: Running) -> None:
    """Store the record before the mix is shown as finished."""
    session.stored[str(mix.mix)] = StoredPipeline(save(session.runs, record), record)
    running.finish(record.status, _line(record))


def _settle(session: PipelineSession, mix: MixPlan, outcome: Outcome) -> None:
    """Keep a record of a mix that is not run."""
    _keep(session, mix, make_record(session, mix, outcome), _start(session, mix))


def _measure_all(session: PipelineSession, mixes: Sequence[MixPlan]) -> None:
    running = session.progress.start(0, 0, f"{mixes[0].mix.subject}: references")
    ended, loop = make_loop_reference(session.plan, mixes, session.launch_of(mixes[0], running))
    made = [
        (mix, *(_program_references(session, mix, running) if ended.kind == "result" else (ended, {}))) for mix in mixes
    ]
    ready = [(mix, references) for mix, outcome, references in made if outcome.kind == "result"]
    running.finish("ok" if len(ready) == len(mixes) else "failed", "")
    for mix, outcome, _ in made:
        if outcome.kind != "result":
            _settle(session, mix, outcome)
    if len(ready) > 1 and short_of_memory(total([mix.memory for mix, _ in ready]), session.plan.subject.device):
        session.progress.say("The mixes do not fit in memory at once; they run in turn.")
        for each in session.order.sample(ready, len(ready)):
            _measure(session, [each], loop, "in turn", len(ready))
    elif ready:
        _measure(session, ready, loop, "interleaved" if len(ready) > 1 else "alone")


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
    session: PipelineSession,
    mixes: Sequence[tuple[MixPlan, Mapping[str, References]]],
    loop: References,
    how: How,
    turns: int = 1,
) -> None:
    """Start a worker for each mix, one after the other, since each times its programs alone; then let them take turns.

    Where mixes run in turn, this is one of `turns`, which gets its share of the time. Nothing is kept of mixes whose
    rounds were interrupted. Raises BakeoffError, after the records of the others were kept, where the request itself
    was wrong (other weights than those that were described).
    """
    request, order = session.plan.request, session.order
    limits = Limits(request.units, 2 * session.plan.loop.filling + _MORE_UNSETTLED, request.minutes * 60 / turns)
    names = " and ".join(mix.label for mix, _ in mixes)
    running = session.progress.start(0, 0, f"{mixes[0][0].mix.subject}: {names}")
    workers = [
        MixWorker(session, mix, references, loop, order.randrange(0, LARGEST_OFFSET, 16), limits, running)
        for mix, references in mixes
    ]
    with ExitStack() as stack:
        open_sides(stack, workers, order, wait_until_ready)
        findings = run_rounds(workers, limits, order, running)
        ended = [(worker, worker.finish()) for worker in workers]
    if sum(bool(worker.blocks) for worker in workers) < 2 and how == "interleaved":
        how = "alone"
    running.finish("done", counted(max((len(worker.blocks) for worker in workers), default=0), "round"))
    changed = _changed(mixes, loop)
    for worker, outcome in ended:
        mix = worker.mix
        if outcome.kind == "refused":
            continue
        running = _start(session, mix)
        if outcome.kind == "result":
            outcome = replace(outcome, value=seen_apart(session, mix, outcome.value, running))
        found = (*findings, *changed, *_few(worker, outcome, limits))
        made = make_record(session, mix, outcome, how, worker.blocks, worker.span_s, found)
        _keep(session, mix, made, running)
    for _, outcome in ended:
        if outcome.kind == "refused":
            raise BakeoffError(outcome.reason, outcome.code)


def _few(worker: MixWorker, outcome: Outcome, limits: Limits) -> Sequence[Finding]:
    """A finding where the time was over before the mix had all its units."""
    if worker.enough or worker.given_up or outcome.kind != "result" or not worker.blocks:
        return ()
    minutes = counted(limits.seconds / 60, "minute", form="g")
    text = f"{worker.steady} of {counted(limits.units, 'steady unit')}: the rounds ended after {minutes}"
    return (new_finding("few-units", text),)


def _changed(mixes: Sequence[tuple[MixPlan, Mapping[str, References]]], loop: References) -> Sequence[Finding]:
    """A finding where files of the references changed while the mixes ran."""
    folders = {references.folder: references for _, by_name in mixes for references in by_name.values()}
    changed = {name for references in (loop, *folders.values()) for name in references.changed()}
    if not changed:
        return ()
    return (new_finding("tampered", f"{', '.join(sorted(changed))} of the references changed while mixes ran"),)


def _line(record: PipelineRecord) -> str:
    units, reason = record.measurement.units, record.measurement.reason
    walls = [ns for ns, kind in zip(units.wall_ns, units.kinds, strict=True) if kind == "steady"] if units else []
    if not walls:
        return reason
    text = f"{median(walls) / 1e6:.2f} ms a {record.unit} (median of {counted(len(walls), 'steady unit')})"
    return f"{text}  {reason}".rstrip()
