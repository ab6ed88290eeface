"""Starts a mix in fresh processes, with and without what its compilers kept, and records when its first frames came."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from bakeoff.machine import build_cache
from bakeoff.models.words import counted
from bakeoff.pipeline.assemble import make_record
from bakeoff.pipeline.mix_worker import Limits, MixWorker, run_sustained
from bakeoff.pipeline.plan import ExportedMix, MixPlan
from bakeoff.pipeline.request import STARTS
from bakeoff.pipeline.session import PipelineSession
from bakeoff.process.supervisor import Outcome
from bakeoff.race import LARGEST_OFFSET
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.pipeline import Caches, PipelineMeasurement, PipelineRecord, Start
from bakeoff.sweeps.row import References

_PARTS = {
    "start": "import",
    "import": "import",
    "weights": "weights",
    "open": "load",
    "build": "compile",
    "warm-up": "warm-up",
    "headers": "compile",
    "bind": "opening",
}
"""Part of a start that a phase belongs to."""
_SHIPPED = ("artifact", "warmed")
_OF_THE_LAB = ("check", "loop check", "prove")


def start_mix(
    session: PipelineSession,
    mix: MixPlan,
    references: Mapping[str, References],
    loop: References,
    limits: Limits,
    stop: Callable[[], bool],
) -> tuple[PipelineRecord, Sequence[Finding]]:
    """Start the mix `STARTS` times with each kind of caches, in turns, until `stop`; return its record, and findings
    that are not in it yet.

    A process that finds nothing fills the caches for the next one. A kind of which a process ends without any unit is
    started no more. Raises BakeoffError if the request itself was wrong.
    """
    how, exported = session.plan.request.sustained, session.plan.artifacts[str(mix.mix)]
    assert how is not None
    lacking = _lacking(mix, exported)
    starts = [Start(caches, problem=problem) for caches, problem in lacking.items() if problem]
    kinds = [caches for caches in get_args(Caches) if caches not in lacking]
    limits = replace(limits, seconds=limits.seconds / STARTS / len(kinds))
    ended, given_up = list[tuple[Caches, MixWorker, Outcome]](), set[Caches]()
    running = session.context.progress.start(0, 0, f"{mix.mix.subject}: {mix.label}, started {STARTS} times")
    for caches in kinds * STARTS:
        if caches in given_up:
            continue
        if caches != "compiler":
            build_cache.open_folder(mix.cache_folder, anew=True)
        worker = MixWorker(
            session, mix, references, loop, session.order.randrange(0, LARGEST_OFFSET, 16), limits, running, cold=True
        )
        if caches in _SHIPPED:
            worker.artifacts = exported.folders
        if caches == "warmed" and exported.warmup is not None:
            worker.warm = exported.warmup.calls
        with worker:
            run_sustained(worker, limits, how, stop, running)
            outcome = worker.finish()
        outcome.raise_refusal()
        if ended and stop():
            break  # this process was cut short
        starts.append(_start(caches, worker, outcome))
        ended.append((caches, worker, outcome))
        if not worker.stamps:
            given_up |= {caches} if caches in _SHIPPED else {"none", "compiler"}
        else:
            build_cache.mark_finished(mix.cache_folder)
    running.finish("done", counted(len(ended), "process", "processes"))
    built = [each for each in ended if each[0] not in _SHIPPED] or ended
    failed = (each for each in built if each[2].kind != "result" or each[2].value.status != "ok")
    _, worker, outcome = next(failed, built[0])
    seen = {one.code: one for *_, each in ended if each.kind == "result" for one in each.value.findings}
    record = make_record(session, mix, outcome, "cold", (), worker.span_s, (), worker.stamps)
    told = {one.code for one in record.measurement.findings}
    if stop():
        text = f"{counted(len(ended), 'start')} of {STARTS * len(kinds)}: the command was told to end"
        seen["few-units"] = new_finding("few-units", text)
    record = replace(record, starts=tuple(starts), shipped=exported.shipped)
    return record, [one for code, one in seen.items() if code not in told]


def _lacking(mix: MixPlan, exported: ExportedMix) -> dict[Caches, str]:
    """Return the kinds of caches that a mix cannot have, and why; "" where another kind's reason says it."""
    lacking: dict[Caches, str] = {} if mix.keeps_caches else {"compiler": "none of its backends keeps a cache"}
    if not exported.folders:
        return lacking | {"artifact": exported.problem, "warmed": ""}
    plan = exported.warmup
    if plan is None:
        lacking["warmed"] = exported.problem
    elif not plan.calls:
        names = ", ".join(plan.counters)
        lacking["warmed"] = f"no call is needed: in {counted(plan.units, 'unit', form=',')} none of {names} moved"
    return lacking


def _start(caches: Caches, worker: MixWorker, outcome: Outcome) -> Start:
    ended = outcome.kind == "result"
    made = outcome.value if ended else PipelineMeasurement("crashed", outcome.reason)
    stamps = worker.stamps
    if not stamps:
        return Start(caches, problem=made.reason)
    spent_ns = {phase: round(s * 1e9) for phase, s in worker.until_first_s().items() if phase not in _OF_THE_LAB}
    untimed_ns = sum(round((program.build.untimed_s or 0) * 1e9) for program in made.programs if program.build)
    parts_ns = {**dict.fromkeys(_PARTS.values(), 0), "compile": -untimed_ns, "opening": stamps[0].opened_ns}
    for phase, part in _PARTS.items():
        parts_ns[part] += spent_ns.get(phase, 0)
    judged = made.parity.units if made.parity is not None else ()
    wrong = [unit.unit for unit in judged if not all(output.passed for output in unit.outputs)]
    if not ended:
        wrong = [*range(len(stamps))]  # nothing is known of a process that died
    elif judged and judged[-1].unit in wrong:
        wrong += range(len(judged), len(stamps))
    return Start(
        caches=caches,
        wall_ns=sum(spent_ns.values()) - untimed_ns,
        parts_ns=parts_ns,
        units_ns=(stamps[0].wall_ns, *(stamp.wall_ns + stamp.opened_ns for stamp in stamps[1:])),
        frames=tuple(stamp.frames for stamp in stamps),
        wrong=tuple(wrong),
        moved=made.units.moved if made.units is not None else {},
        problem="" if ended else made.reason,
    )
