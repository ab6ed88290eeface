"""Starts a mix in fresh processes, with and without what its compilers kept, and records when its first frames came."""

from collections.abc import Mapping
from dataclasses import replace

from bakeoff.machine import build_cache
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.pipeline.assemble import make_record
from bakeoff.pipeline.mix_worker import Limits, MixWorker, run_sustained
from bakeoff.pipeline.plan import MixPlan
from bakeoff.pipeline.request import STARTS
from bakeoff.pipeline.session import PipelineSession
from bakeoff.process.phases import Block
from bakeoff.process.supervisor import Event, Outcome
from bakeoff.race import LARGEST_OFFSET
from bakeoff.record.pipeline import Caches, PipelineMeasurement, PipelineRecord, Start
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.row import References

_PARTS: Mapping[str, tuple[str, ...]] = {
    "import": ("start", "import"),
    "weights": ("weights",),
    "load": ("open",),
    "compile": ("build", "headers"),
    "opening": ("bind",),
}
"""Parts of a start, with the phases that they consist of."""
_OF_THE_LAB = ("check", "loop check", "prove")
Artifacts = Mapping[str, str] | str
"""Folder of the artifact with each `slot.program`, or why the mix has none."""


def start_mix(
    session: PipelineSession,
    mix: MixPlan,
    references: Mapping[str, References],
    loop: References,
    limits: Limits,
    artifacts: Artifacts,
    running: Running,
) -> PipelineRecord:
    """Start the mix `STARTS` times with each kind of caches, in turns, and return its record.

    A process without caches fills them for the next one. The first process without any unit is the last one. Raises
    BakeoffError if the request itself was wrong.
    """
    refused: dict[Caches, str] = {}
    if not mix.keeps_caches:
        refused["compiler"] = "none of its backends keeps a cache"
    if isinstance(artifacts, str):
        refused["artifact"], artifacts = artifacts, {}
    kinds: list[Caches] = [kind for kind in ("none", "compiler", "artifact") if kind not in refused]
    limits = replace(limits, seconds=limits.seconds / STARTS / len(kinds))
    starts, kept = list[Start](), list[tuple[MixWorker, Outcome]]()
    for caches in kinds * STARTS:
        running.event(Event("rounds", f"{counted(len(starts), 'start')} of {STARTS * len(kinds)}, caches: {caches}"))
        if caches == "none":
            build_cache.open_folder(mix.cache_folder, anew=True)
        offset = session.order.randrange(0, LARGEST_OFFSET, 16)
        shipped = artifacts if caches == "artifact" else {}
        worker = MixWorker(session, mix, references, loop, offset, limits, running, cold=caches, artifacts=shipped)
        how = session.plan.request.sustained
        assert how is not None
        with worker:
            run_sustained(worker, limits, how, lambda: False, running)
            outcome = worker.finish()
        if outcome.kind == "refused":
            raise BakeoffError(outcome.reason, outcome.code)
        starts.append(_start(caches, worker, outcome))
        kept.append((worker, outcome))
        if not worker.stamps:
            break
        build_cache.mark_finished(mix.cache_folder)
    worker, outcome = next((each for each in kept if _status(each[1]) != "ok"), kept[0])
    blocks = [Block(tuple(stamp.wall_ns for stamp in worker.stamps), 0.0)]
    record = make_record(session, mix, outcome, "cold", blocks, worker.span_s, (), worker.stamps)
    return replace(record, starts=tuple(starts), not_started=refused)


def _status(outcome: Outcome) -> str:
    return outcome.value.status if outcome.kind == "result" else outcome.kind


def _start(caches: Caches, worker: MixWorker, outcome: Outcome) -> Start:
    made: PipelineMeasurement | None = outcome.value if outcome.kind == "result" else None
    problem, stamps = outcome.reason if made is None else "", worker.stamps
    if not stamps:
        return Start(caches, problem=problem or (made.reason if made is not None else ""))
    spent, first = worker.until_first_s(), stamps[0]
    costs = [program.build for program in made.programs if program.build is not None] if made is not None else []
    untimed_s = sum(cost.untimed_s or 0.0 for cost in costs)
    parts = {part: sum(spent.get(phase, 0.0) for phase in phases) for part, phases in _PARTS.items()}
    parts["compile"] -= untimed_s
    wall_s = sum(spent.values()) - untimed_s - sum(spent.get(phase, 0.0) for phase in _OF_THE_LAB)
    parts_ns = {part: round(seconds * 1e9) for part, seconds in parts.items()}
    parts_ns["opening"] += first.opened_ns
    judged = made.parity.units if made is not None and made.parity is not None else ()
    wrong = [unit.unit for unit in judged if not all(output.passed for output in unit.outputs)]
    if judged and judged[-1].unit in wrong:
        wrong += range(len(judged), len(stamps))
    return Start(
        caches=caches,
        wall_ns=round(wall_s * 1e9),
        parts_ns={part: ns for part, ns in parts_ns.items() if ns},
        units_ns=(first.wall_ns, *(stamp.wall_ns + stamp.opened_ns for stamp in stamps[1:])),
        frames=tuple(stamp.frames for stamp in stamps),
        wrong=tuple(wrong),
        moved=made.units.moved if made is not None and made.units is not None else {},
        problem=problem,
    )
