"""What a sweep and a comparison both do with one entry of a plan: its judge, its worker, its record."""

import contextlib
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from bakeoff.machine import build_cache, host, paths
from bakeoff.machine.files import digest
from bakeoff.machine.floors import Ceiling
from bakeoff.machine.known_issues import known_issues
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import Entry, Plan, checkpoint_label, element_bytes, reference_folder, user_code_environment
from bakeoff.process.environment import worker_environment
from bakeoff.process.jobs import Job, MeasureJob, ReferenceJob, ReferenceResult, TraceJob, TraceResult
from bakeoff.process.supervisor import Deadlines, Event, Outcome, run_job
from bakeoff.record.floor import below_floor
from bakeoff.record.provenance import code_hash, read_stamp
from bakeoff.record.schema import MEASURED, SCHEMA, Finding, Measurement, ProofRecord, Record, SelftestStamp, Status
from bakeoff.record.store import now
from bakeoff.sweep.ceilings import known_ceilings
from bakeoff.sweep.progress import Progress

_RECORDED_ENVIRONMENT = re.compile(
    r"^(OMP_|GOMP_|KMP_|MKL_|TORCH|PYTORCH_|CUDA_|NVIDIA_TF32|CUBLAS_|CUDNN_|TRITON_|MALLOC_|GLIBC_TUNABLES|LD_PRELOAD)"
)
_SLOW_CONV = re.compile("slow_conv_dilated|vol2col")
"""Kernels that run where no library takes a convolution (aten/src/ATen/native/NaiveDilatedConvolution.cpp)."""
LEAST_NAMED = 0.8
"""Share of a traced call that must be in named kernels."""
_PLACES = ("_DIR", "_PATH", "_HOME", "_PRELOAD")
"""Variables that hold a path say nothing about a number and something about a person."""


@dataclass(frozen=True, slots=True)
class Session:
    """What all records of one sweep, or of one comparison, share."""

    plan: Plan
    sweep: str
    note: str
    load: float
    """One-minute load average before it began; later it is its own."""
    cache: Path
    ceilings: tuple[Ceiling, ...]
    selftest: SelftestStamp | None
    progress: Progress

    def log_of(self, entry: Entry) -> Path:
        build = f"-build{entry.build_number}" if entry.build_number > 1 else ""
        process = f"-{entry.process}" if entry.process > 1 else ""
        name = f"{entry.variant.slug}-{digest(str(entry.variant))[:6]}{build}{process}.log"
        return self.cache / "logs" / self.sweep / name


def begin(plan: Plan, sweep: str, note: str, cache: Path, load: float, progress: Progress) -> Session:
    """Measure this machine's ceilings if that was not done before, and read what the last selftest said."""
    subject = plan.entries[0].subject if plan.entries else None
    ceilings: tuple[Ceiling, ...] = ()
    if plan.request.ceilings and subject is not None and any(entry.settled is None for entry in plan.entries):
        ceilings = known_ceilings(subject.device, subject.threads, cache, progress)
    return Session(plan, sweep, note, load, cache, ceilings, read_stamp(), progress)


def judge(session: Session, entry: Entry, folder: Path) -> Outcome:
    """Have the references of the entry's subject made where they are not cached.

    Raises BakeoffError when the request itself is wrong (a bad checkpoint).
    """
    paths.mark_used(folder)
    entries = session.plan.entries
    dtypes = {other.variant.dtype for other in entries if other.subject == entry.subject and not other.settled}
    if not entry.subject.checkpoint and all((folder / name).exists() for name in _judge_files(dtypes)):
        return Outcome("result")
    job = ReferenceJob(entry.subject, tuple(sorted(dtypes)), str(folder))
    # Not the entry's own environment: a judge has no compiler, and must not leave anything in a compiler's cache.
    environment = worker_environment(entry.subject.threads, user_code_environment(session.plan.request))
    log = session.log_of(entry).with_suffix(".judge.log")
    outcome = _work(job, ReferenceResult, session, entry, environment, log)
    if outcome.kind == "refused":
        raise BakeoffError(outcome.reason)
    if outcome.kind != "result":
        return replace(outcome, reason=f"no reference to compare with: the judge's worker: {outcome.reason}")
    return outcome


def _judge_files(dtypes: Collection[str]) -> list[str]:
    return ["reference.json", *(f"eager-{dtype}.json" for dtype in dtypes)]


def measure_job(session: Session, entry: Entry) -> MeasureJob:
    return MeasureJob(
        subject=entry.subject,
        variant=str(entry.variant),
        steps=entry.steps,
        dtype=entry.variant.dtype,
        policy=session.plan.request.policy,
        reference_folder=str(reference_folder(entry, session.plan.component)),
        cache_folder=str(entry.cache_folder),
        quantisation=entry.quantisation,
    )


def measure(session: Session, entry: Entry) -> Outcome:
    """Measure one entry in a worker of its own; then, in another, build it again where the caches were cold, and trace
    a twin of it."""
    job, log = measure_job(session, entry), session.log_of(entry)
    environment = entry_environment(entry)
    outcome = _work(job, Measurement, session, entry, environment, log)
    if outcome.kind == "refused":
        raise BakeoffError(outcome.reason)
    measurement: Measurement = outcome.value
    if outcome.kind != "result" or measurement.status not in MEASURED or measurement.build is None:
        return outcome
    rebuild = measurement.build.cache == "cold"
    if not rebuild and not job.policy.trace:
        return outcome
    session.progress.event(Event("twin"))
    again = _work(TraceJob(job, rebuild), TraceResult, session, entry, environment, log.with_suffix(".twin.log"))
    twin = again.value if again.kind == "result" else TraceResult(None, None, {}, {}, again.reason)
    measurement = with_trace(measurement, twin, job.policy.trace)
    if rebuild and twin.warm_s is None:
        findings = (*measurement.findings, Finding("rebuild", f"no warm build: {twin.problem}"))
        measurement = replace(measurement, findings=findings)
    return replace(outcome, value=measurement)


def with_trace(measurement: Measurement, twin: TraceResult, traced: bool) -> Measurement:
    """The measurement with what its twin showed: warm seconds, kernels, and operators that ran elsewhere than asked."""
    made = measurement
    if made.build is not None and twin.warm_s is not None:
        made = replace(made, build=replace(made.build, warm_s=twin.warm_s))
    if not traced or made.proof is None:
        return made
    incomplete = _lacking(made.proof, twin)
    proof = replace(
        made.proof,
        trace=twin.trace,
        incomplete=incomplete,
        operators_inside=twin.inside or made.proof.operators_inside,
        operators_outside=twin.outside or made.proof.operators_outside,
    )
    if twin.outside and made.status != "fell_back":
        elsewhere = ", ".join(f"{count} {name}" for name, count in twin.outside.items())
        proof = replace(proof, fell_back=f"partly another compiler or provider: {elsewhere}")
        made = replace(made, status="fell_back", reason=f"what ran is {proof.fell_back}")
    findings = list(made.findings)
    if incomplete:
        findings.append(Finding("proof.incomplete", f"incomplete certificate: {incomplete}"))
    slow = [kernel.name for kernel in twin.trace.kernels if _SLOW_CONV.search(kernel.name)] if twin.trace else []
    if slow:
        text = f"{slow[0]} is ATen's own slow convolution: cuDNN or oneDNN refused its shape, dtype or layout"
        findings.append(Finding("slow-conv", text))
    return replace(made, proof=proof, findings=tuple(findings))


def _lacking(proof: ProofRecord, twin: TraceResult) -> str:
    """What a certificate needs and this one has not; "" if it is complete."""
    trace = twin.trace
    if trace is None:
        return f"no traced twin: {twin.problem}"
    named = trace.named_ns / trace.total_ns if trace.total_ns else 0.0
    if named < LEAST_NAMED:
        return f"the trace names {named:.0%} of the time, {LEAST_NAMED:.0%} are due"
    if proof.graph_hash != trace.graph_hash:
        return f"the traced twin is another graph ({trace.graph_hash or 'none'}, measured {proof.graph_hash or 'none'})"
    return ""


def _work(job: Job, result: type, session: Session, entry: Entry, environment: Mapping[str, str], log: Path) -> Outcome:
    return run_job(job, result, environment, deadlines(session.plan, entry), log, session.progress.event)


def entry_environment(entry: Entry) -> dict[str, str]:
    """A worker's environment, the folder of its compiler's cache being made."""
    about = build_cache.About(
        variant=str(entry.variant),
        build_number=entry.build_number,
        batch=entry.subject.batch,
        threads=entry.subject.threads,
        checkpoint=checkpoint_label(entry.subject),
        versions=host.read_versions(),
        created=now(),
    )
    build_cache.open_folder(entry.cache_folder, about)
    return worker_environment(entry.subject.threads, dict(entry.environment))


def deadlines(plan: Plan, entry: Entry) -> Deadlines:
    policy = plan.request.policy
    return Deadlines(
        policy.phase_deadline_s,
        {
            "start": policy.startup_deadline_s,
            "import": policy.startup_deadline_s,
            "build": entry.build_deadline_s,
            "judge": entry.build_deadline_s,
            "weights": entry.build_deadline_s,
            "trace": entry.build_deadline_s,
        },
    )


def make_record(session: Session, entry: Entry, outcome: Outcome) -> Record:
    """The record of one try, whatever came of it."""
    plan, component, subject = session.plan, session.plan.component, entry.subject
    preset = component.preset(subject.preset)
    workload = component.workload(preset.config, subject.workload, subject.batch)
    environment = worker_environment(subject.threads, dict(entry.environment))
    commit, dirty = paths.commit()
    record = Record(
        schema=SCHEMA,
        created=now(),
        sweep=session.sweep,
        variant=entry.variant,
        config_id=entry.config_id,
        label=preset.label,
        config=asdict(preset.config),
        batch=subject.batch,
        weight_seed=subject.weight_seed,
        input_seed=subject.input_seed,
        checkpoint=checkpoint_label(subject),
        threads=subject.threads,
        frames_per_call=workload.frames_per_call,
        calls_per_frame=workload.calls_per_frame,
        parameters=component.parameters(preset.config),
        flops=workload.work.flops,
        policy=plan.request.policy,
        measurement=_measurement(outcome, session.load, entry),
        host=host.read_host(),
        load_before=round(session.load, 2),
        environment={
            name: _without_places(value)
            for name, value in sorted(environment.items())
            if _RECORDED_ENVIRONMENT.match(name) and not name.endswith(_PLACES)
        },
        versions=host.read_versions(),
        commit=commit,
        dirty=dirty,
        wall_s=round(outcome.wall_s, 3),
        log=str(session.log_of(entry).relative_to(session.cache)),
        note=session.note,
        baseline=entry.baseline,
        quantisation=entry.quantisation,
        minimum_bytes=workload.minimum_bytes(
            1 if entry.quantisation else element_bytes(entry.variant.dtype), element_bytes(entry.variant.dtype)
        ),
        ceilings=session.ceilings,
        code=code_hash(),
        selftest=session.selftest,
        process=entry.process,
        build_number=entry.build_number,
    )
    return _held_against_floor(record)


def _held_against_floor(record: Record) -> Record:
    """A figure that is better than can be is not ranked."""
    reason = below_floor(record) if record.status == "ok" else ""
    if not reason:
        return record
    made = record.measurement
    findings = (*made.findings, Finding("below_floor", reason))
    return replace(record, measurement=replace(made, status="unstable", reason=reason, findings=findings))


def _measurement(outcome: Outcome, load: float, entry: Entry) -> Measurement:
    """The worker's own report, or what its end means, with what the parent noticed added to the findings."""
    statuses: dict[str, Status] = {"timeout": "timeout", "oom": "oom", "crashed": "crashed"}
    measurement = Measurement(statuses[outcome.kind], outcome.reason) if outcome.kind in statuses else outcome.value
    findings = list(measurement.findings)
    if load > entry.subject.threads / 2:
        findings.append(Finding("busy-host", f"load average {load:.1f} before the sweep started"))
    if outcome.leftovers:
        findings.append(
            Finding("leftovers", f"processes that outlived the worker and were killed: {outcome.leftovers}")
        )
    if outcome.log_dropped:
        findings.append(Finding("log", f"{outcome.log_dropped} bytes of output are not in the log"))
    findings += [
        Finding(code, text)
        for code, text in known_issues(host.read_versions(), entry.subject.device, [entry.variant.dtype])
    ]
    return replace(
        measurement,
        reason=_without_places(measurement.reason),
        traceback=_without_places(measurement.traceback),
        findings=tuple(replace(finding, text=_without_places(finding.text)) for finding in findings),
    )


def _without_places(text: str) -> str:
    """Without the folders of this machine and its user: records are shown to others."""
    own = {str(paths.cache_folder()), str(paths.checkout() or ""), sys.prefix, os.path.expanduser("~")}
    with contextlib.suppress(FileNotFoundError):  # the working folder may have been deleted
        own.add(os.getcwd())
    for folder in sorted(own, key=len, reverse=True):
        if len(folder) > 1 and os.path.isabs(folder):
            text = text.replace(folder, "...")
    return text


@contextlib.contextmanager
def device_lock(cache: Path, device: str, progress: Progress) -> Iterator[None]:
    """One sweep measures on a device at a time; a second one says that it waits."""
    (cache / "locks").mkdir(exist_ok=True)
    lock = FileLock(cache / "locks" / f"{host.lock_name(device)}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress.say(f"Another sweep measures on this {device}; waiting for it to end.")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def nobody_measures(cache: Path) -> Iterator[None]:
    """Hold every device's lock meanwhile. Raises BakeoffError when somebody measures now."""
    with contextlib.ExitStack() as stack:
        for path in sorted((cache / "locks").glob("*.lock")):
            lock = FileLock(path)
            try:
                lock.acquire(timeout=0)
            except Timeout as error:
                text = f"a sweep or a comparison measures on {path.stem} now; try again when it has ended"
                raise BakeoffError(text) from error
            stack.callback(lock.release)
        yield
