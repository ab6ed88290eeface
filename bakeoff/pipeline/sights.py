"""Kernels of the programs that show nothing of themselves in a traced loop: by a traced build of each alone.

The trace of the record that predicts the program's time is used where there is one: it is of the same machine and code.
"""

from dataclasses import replace

from bakeoff.backends import resolve_backend
from bakeoff.pipeline.mixes import MixPlan, MixProgram
from bakeoff.pipeline.session import PipelineSession
from bakeoff.process.jobs import TraceJob, TraceResult
from bakeoff.process.supervisor import Event, run_job
from bakeoff.record.pipeline import PipelineMeasurement
from bakeoff.record.profile import ProgramSight
from bakeoff.record.schema import TraceRecord
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.row import measure_job

_TRACER = "torch.profiler"


def with_sights(
    session: PipelineSession, mix: MixPlan, measurement: PipelineMeasurement, running: Running
) -> PipelineMeasurement:
    """The measurement with kernels of its hidden programs; as it is where it has no profile."""
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
