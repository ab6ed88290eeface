"""Starts a mix in fresh processes, with and without what its compilers kept, and records when its first frames came."""

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

from bakeoff.machine import build_cache
from bakeoff.models.words import counted
from bakeoff.pipeline.assemble import make_record
from bakeoff.pipeline.mix_worker import Limits, MixWorker, run_sustained
from bakeoff.pipeline.plan import MixPlan
from bakeoff.pipeline.request import STARTS
from bakeoff.pipeline.session import PipelineSession
from bakeoff.process.supervisor import Outcome
from bakeoff.race import LARGEST_OFFSET
from bakeoff.record.pipeline import Caches, PipelineMeasurement, PipelineRecord, Start
from bakeoff.sweeps.row import References

_PARTS = {
    "start": "import",
    "import": "import",
    "weights": "weights",
    "open": "load",
    "build": "compile",
    "headers": "compile",
    "bind": "opening",
}
"""Part of a start that a phase belongs to."""
_OF_THE_LAB = ("check", "loop check", "prove")


def start_mix(
    session: PipelineSession, mix: MixPlan, references: Mapping[str, References], loop: References, limits: Limits
) -> PipelineRecord:
    """Start the mix `STARTS` times with each kind of caches, in turns, and return its record.

    A process that finds nothing fills the caches for the next one. The first process without any unit is the last one.
    Raises BakeoffError if the request itself was wrong.
    """
    how, artifacts, starts = session.plan.request.sustained, session.plan.artifacts[str(mix.mix)], list[Start]()
    assert how is not None
    if not mix.keeps_caches:
        starts.append(Start("compiler", problem="none of its backends keeps a cache"))
    if isinstance(artifacts, str):
        starts.append(Start("artifact", problem=artifacts))
        artifacts = {}
    kinds = [kind for kind in get_args(Caches) if kind not in {start.caches for start in starts}]
    limits, ended = replace(limits, seconds=limits.seconds / STARTS / len(kinds)), list[tuple[MixWorker, Outcome]]()
    running = session.context.progress.start(0, 0, f"{mix.mix.subject}: {mix.label}, started {STARTS} times")
    for caches in kinds * STARTS:
        if caches != "compiler":
            build_cache.open_folder(mix.cache_folder, anew=True)
        offset, shipped = session.order.randrange(0, LARGEST_OFFSET, 16), artifacts if caches == "artifact" else {}
        worker = MixWorker(session, mix, references, loop, offset, limits, running, cold=True, artifacts=shipped)
        with worker:
            run_sustained(worker, limits, how, lambda: False, running)
            outcome = worker.finish()
        outcome.raise_refusal()
        starts.append(_start(caches, worker, outcome))
        ended.append((worker, outcome))
        if not worker.stamps:
            break
        build_cache.mark_finished(mix.cache_folder)
    running.finish("done", counted(len(ended), "process", "processes"))
    worker, outcome = next(
        (each for each in ended if each[1].kind != "result" or each[1].value.status != "ok"), ended[0]
    )
    record = make_record(session, mix, outcome, "cold", (), worker.span_s, (), worker.stamps)
    return replace(record, starts=tuple(starts))


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
    if judged and judged[-1].unit in wrong:
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
