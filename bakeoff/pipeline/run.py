"""Runs the plan of a pipeline: makes references, lets the mixes' workers take turns, and stores a record of each mix.

Ctrl-C keeps the records that are complete.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from bakeoff.backends import resolve_backend
from bakeoff.models.words import counted
from bakeoff.pipeline.assemble import How, make_record
from bakeoff.pipeline.cold import start_mix
from bakeoff.pipeline.compiler_log import seen_apart
from bakeoff.pipeline.mix_worker import Limits, MixWorker, run_rounds, run_sustained, wait_until_ready
from bakeoff.pipeline.plan import MixPlan, PipelinePlan
from bakeoff.pipeline.session import PipelineSession, loop_reference_folder, make_loop_reference
from bakeoff.plan.memory import total
from bakeoff.plan.rows import short_of_memory
from bakeoff.process.environment import PASSIVE
from bakeoff.process.signals import first_signal_waits
from bakeoff.process.supervisor import Outcome
from bakeoff.race import LARGEST_OFFSET, open_sides
from bakeoff.record.account import account_of, middle
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.forecast import around, parts_ms
from bakeoff.record.frames import figures
from bakeoff.record.pipeline import Forecast, PipelineMeasurement, PipelineRecord, Units
from bakeoff.record.rollout import rollout_text
from bakeoff.record.store import StoredPipeline, load_all, save
from bakeoff.sweeps.context import make_context
from bakeoff.sweeps.progress import Progress, Running
from bakeoff.sweeps.resume import SweepState, open_run
from bakeoff.sweeps.row import References, launch_of, make_reference

_MORE_UNSETTLED = 40
"""Units beyond twice the number that fills the windows, after which a mix without a steady unit is given up."""
_Ready = tuple[MixPlan, Mapping[str, References]]
"""A mix that can run, with the references of its programs by `slot.program`."""
_CONFIRMED = 2
"""Mixes of a budget that run."""
_ANCHOR_S = 2.0
"""Seconds in which the units of a mix are timed before it runs."""
_GAIN = 0.95
"""Share of a unit's usual time, below which threads that sleep are taken for a mix."""


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """Result of a run of a pipeline."""

    run: str
    stored: tuple[StoredPipeline, ...]
    interrupted: tuple[str, ...]
    """Labels of the mixes that were not completed; `--resume` runs them."""


def run_pipeline(plan: PipelinePlan, runs: Path, note: str, resume: bool, progress: Progress) -> PipelineResult:
    """Run every mix of `plan` that has no record yet, and return the records.

    Ctrl-C ends the run cleanly: the workers are killed, and mixes without a record are in `interrupted`. Raises
    BakeoffError before anything is measured if records cannot be written or a weights file is wrong.
    """
    measures = any(mix.never_runs is None for mix in plan.mixes)
    with open_run(plan.key, plan.name, plan.subject.device, measures, runs, resume, progress) as opening:
        state, cache, load = opening.state, opening.cache, opening.load
        stored = stored_of(state, runs)
        slots = {
            slot: make_context(of, state.sweep, note, runs, cache, load, progress) for slot, of in plan.slots.items()
        }
        order = random.Random(state.order_seed)
        session = PipelineSession(plan, slots, runs, order, stored)
        interrupted = False
        try:
            _run_mixes(session, [mix for mix in plan.mixes if str(mix.mix) not in stored])
        except KeyboardInterrupt:
            interrupted = True
        if not interrupted:
            opening.finish()
    left = tuple(mix.label for mix in plan.mixes if str(mix.mix) not in stored) if interrupted else ()
    kept = tuple(stored[str(mix.mix)] for mix in plan.mixes if str(mix.mix) in stored)
    return PipelineResult(state.sweep, kept, left)


def stored_of(state: SweepState, runs: Path) -> dict[str, StoredPipeline]:
    """Return the records of a run so far, by the string of the mix."""
    return {str(entry.record.mix): entry for entry in load_all(runs).ran if entry.record.run == state.sweep}


def _run_mixes(session: PipelineSession, mixes: Sequence[MixPlan]) -> None:
    """Store records of the mixes that cannot run, then measure the others."""
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
            stack.enter_context(session.context.entry_lock(folder))
        _measure_all(session, waiting)


def _start(session: PipelineSession, mix: MixPlan) -> Running:
    mixes = [str(each.mix) for each in session.plan.mixes]
    return session.context.progress.start(1 + mixes.index(str(mix.mix)), len(mixes), str(mix.mix))


def _keep(session: PipelineSession, mix: MixPlan, record: PipelineRecord, running: Running) -> None:
    """Store the record, then show the mix as finished."""
    session.stored[str(mix.mix)] = StoredPipeline(save(session.runs, record), record)
    running.finish(record.status, _line(record))


def _settle(session: PipelineSession, mix: MixPlan, outcome: Outcome) -> None:
    """Store a record of a mix that does not run."""
    _keep(session, mix, make_record(session, mix, outcome), _start(session, mix))


def _measure_all(session: PipelineSession, mixes: Sequence[MixPlan]) -> None:
    progress = session.context.progress
    running = progress.start(0, 0, f"{mixes[0].mix.subject}: references")
    ended, loop = make_loop_reference(session.plan, mixes, session.launch_of(mixes[0], running))
    made = [
        (mix, *(_program_references(session, mix, running) if ended.kind == "result" else (ended, {}))) for mix in mixes
    ]
    ready = [(mix, references) for mix, outcome, references in made if outcome.kind == "result"]
    running.finish("ok" if len(ready) == len(mixes) else "failed", "")
    for mix, outcome, _ in made:
        if outcome.kind != "result":
            _settle(session, mix, outcome)
    if session.plan.request.budget is not None:
        ready = [*_anchored(session, ready, loop)]
    if session.plan.request.horizon_db is not None:
        for each in ready:
            _measure(session, [each], loop, "alone")
    elif session.plan.request.sustained is not None:
        for mix, references in session.order.sample(ready, len(ready)):
            if session.plan.request.cold:
                _start_cold(session, mix, references, loop)
            else:
                _sustain(session, mix, references, loop)
    elif len(ready) > 1 and short_of_memory(total([mix.memory for mix, _ in ready]), session.plan.subject.device):
        progress.say("The mixes do not fit in memory at once; they run in turn.")
        for each in session.order.sample(ready, len(ready)):
            _measure(session, [each], loop, "in turn", len(ready))
    elif ready:
        _measure(session, ready, loop, "interleaved" if len(ready) > 1 else "alone")


def _anchored(session: PipelineSession, ready: Sequence[_Ready], loop: References) -> Sequence[_Ready]:
    """Time units of a budget's mixes in turns, each in a process of its own, and return the two that are then promised
    to be the fastest, fewer where mixes have records already, and these under each other schedule. A mix that fails
    keeps its promise by records.

    A mix with an engine that has threads of its own beside torch's is timed in a second process too, with threads that
    sleep as soon as they wait, and runs so if that is faster: a thread that spins takes the core that the other
    library's need, and one that sleeps must be woken for each parallel region.
    """
    plan, begun = session.plan, {entry.record.mix.variants for entry in session.stored.values()}
    wanted = max(0, _CONFIRMED - len(begun))
    others = [each for each in ready if each[0].mix.variants not in begun and not each[0].mix.schedule]
    timed = [way for each in others for way in _ways(each)]
    if not wanted or not others or short_of_memory(total([mix.memory for mix, _ in timed]), plan.subject.device):
        return _with_schedules(others[:wanted], ready, begun)
    limits = replace(_limits(session, 1), steady_s=_ANCHOR_S)
    what = f"{others[0][0].mix.subject}: first {counted(len(timed), 'process', 'processes')} in turns"
    running = session.context.progress.start(0, 0, what)
    workers = [
        MixWorker(session, mix, references, loop, session.order.randrange(0, LARGEST_OFFSET, 16), limits, running)
        for mix, references in timed
    ]
    with ExitStack() as stack:
        open_sides(stack, workers, session.order, wait_until_ready)
        run_rounds(workers, limits, session.order, running)
        ended = [worker.finish() for worker in workers]
    running.finish("ok" if all(outcome.kind == "result" for outcome in ended) else "failed", "")
    best = dict[str, _Ready]()
    for (mix, references), outcome in zip(timed, ended, strict=True):
        promised = _promised_again(mix, plan.anchored_spread, outcome.value.units) if outcome.kind == "result" else None
        known = best.setdefault(str(mix.mix), (mix, references))
        if promised is not None and (known[0] is mix or promised.ms < _GAIN * _ms(known[0])):
            best[str(mix.mix)] = replace(mix, forecast=promised), references
    return _with_schedules(sorted(best.values(), key=lambda each: _ms(each[0]))[:wanted], ready, begun)


def _with_schedules(best: Sequence[_Ready], ready: Sequence[_Ready], begun: Collection[str]) -> Sequence[_Ready]:
    """Return these mixes and what is left of the `begun` ones, each under every schedule and in the environment of the
    mix that was timed."""
    environments = {mix.mix.variants: mix.environment for mix, _ in best}
    more = [
        (replace(mix, environment=environments.get(mix.mix.variants, mix.environment)), references)
        for mix, references in ready
        if mix.mix.variants in begun or (mix.mix.schedule and mix.mix.variants in environments)
    ]
    return [*best, *more]


def _ways(ready: _Ready) -> list[_Ready]:
    """Return the mix, and once more with threads that sleep where an engine on a CPU has threads of its own."""
    mix, references = ready
    steps = {step.backend for row in mix.rows.values() for step in row.steps}
    if mix.mix.device != "cpu" or PASSIVE.keys() & mix.environment.keys():
        return [ready]
    asleep = replace(mix, environment={**mix.environment, **PASSIVE})
    return [ready, *([(asleep, references)] if any(resolve_backend(name).own_threads for name in steps) else [])]


def _promised_again(mix: MixPlan, spread: float, units: Units | None) -> Forecast | None:
    """Return what these units promise of the mix in place of what records say of it; None if none is steady."""
    unit = account_of(units, {}, middle(units)) if units is not None else None
    if unit is None:
        return None
    parts = parts_ms(unit.lines)
    ms = sum(parts.values())
    known = mix.forecast if mix.forecast is not None else Forecast(mix.mix.variants, ms, None, None)
    return replace(known, ms=ms, interval=around(ms, spread), parts_ms=parts, anchored=True)


def _ms(mix: MixPlan) -> float:
    return mix.forecast.ms if mix.forecast is not None else inf


def _program_references(
    session: PipelineSession, mix: MixPlan, running: Running
) -> tuple[Outcome, Mapping[str, References]]:
    """Make the references of every program; return the outcome of the first that fails, and the references by
    `slot.program`."""
    found: dict[str, References] = {}
    for key, row in mix.rows.items():
        of_slot = session.slots[key.slot]
        outcome, references = make_reference(of_slot, row, launch_of(of_slot, row, running))
        if outcome.kind != "result":
            return outcome, found
        found[str(key)] = references
    return Outcome("result"), found


def _limits(session: PipelineSession, turns: int) -> Limits:
    """Return what ends the rounds of mixes that each get 1/`turns` of the time."""
    request = session.plan.request
    return Limits(request.units, 2 * session.plan.loop.filling + _MORE_UNSETTLED, request.minutes * 60 / turns)


def _measure(
    session: PipelineSession,
    mixes: Sequence[_Ready],
    loop: References,
    how: How,
    turns: int = 1,
) -> None:
    """Start the workers of these mixes one after the other, let them take turns, and store a record of each.

    The workers start one after the other because each times its programs alone. Mixes that run in turn each get
    1/`turns` of the time. Nothing is stored if the rounds are interrupted. Raises BakeoffError if the request itself
    was wrong (weights that differ from those described), after the other mixes' records were stored.
    """
    order = session.order
    limits = _limits(session, turns)
    names = " and ".join(mix.label for mix, _ in mixes)
    running = session.context.progress.start(0, 0, f"{mixes[0][0].mix.subject}: {names}")
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
    rounds = max((len(worker.blocks) for worker in workers), default=0)
    running.finish("done", counted(rounds, "round") if rounds else "")
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
        outcome.raise_refusal()


def _sustain(session: PipelineSession, mix: MixPlan, references: Mapping[str, References], loop: References) -> None:
    """Run one mix by itself for minutes, and store its record; a signal ends the mix but not before it has a record.

    Raises BakeoffError if the request itself was wrong.
    """
    request = session.plan.request
    running = session.context.progress.start(0, 0, f"{mix.mix.subject}: {mix.label}")
    limits = _limits(session, 1)
    worker = MixWorker(session, mix, references, loop, session.order.randrange(0, LARGEST_OFFSET, 16), limits, running)
    findings = list[Finding]()
    with ExitStack() as until_stored:
        with ExitStack() as stack:
            open_sides(stack, [worker], session.order, wait_until_ready)
            if worker.live and request.sustained is not None:
                stop = until_stored.enter_context(first_signal_waits())
                findings += run_sustained(worker, limits, request.sustained, stop, running)
            outcome = worker.finish()
        outcome.raise_refusal()
        findings += _changed([(mix, references)], loop)
        how: How = "in turn" if len(session.plan.mixes) > 1 else "alone"
        made = make_record(session, mix, outcome, how, (), worker.span_s, findings, worker.stamps)
        running.finish("done", counted(len(worker.stamps), "unit", form=","))
        _keep(session, mix, made, _start(session, mix))


def _start_cold(session: PipelineSession, mix: MixPlan, references: Mapping[str, References], loop: References) -> None:
    """Start one mix in fresh processes, and store its record; a signal ends the present process and not the record."""
    with first_signal_waits() as stop:
        made, findings = start_mix(session, mix, references, loop, _limits(session, 1), stop)
        found = (*made.measurement.findings, *findings, *_changed([(mix, references)], loop))
        _keep(session, mix, replace(made, measurement=replace(made.measurement, findings=found)), _start(session, mix))


def _few(worker: MixWorker, outcome: Outcome, limits: Limits) -> Sequence[Finding]:
    """Return a finding if the time was over before the mix had all its steady units."""
    if worker.enough or worker.given_up or outcome.kind != "result" or not worker.blocks:
        return ()
    minutes = counted(limits.seconds / 60, "minute", form="g")
    text = f"{worker.steady} of {counted(limits.units, 'steady unit')}: the rounds ended after {minutes}"
    return (new_finding("few-units", text),)


def _changed(mixes: Sequence[_Ready], loop: References) -> Sequence[Finding]:
    """Return a finding if files of the references changed while the mixes ran."""
    folders = {references.folder: references for _, by_name in mixes for references in by_name.values()}
    changed = {name for references in (loop, *folders.values()) for name in references.changed()}
    if not changed:
        return ()
    return (new_finding("tampered", f"{', '.join(sorted(changed))} of the references changed while mixes ran"),)


def _line(record: PipelineRecord) -> str:
    found, reason = figures(record), record.measurement.reason
    if record.measurement.rollout is not None:
        return reason or rollout_text(record.measurement)
    if found is None:
        return reason
    return f"{found.ms_a_frame:.2f} ms a frame (median of {counted(found.units, 'steady unit')})  {reason}".rstrip()
