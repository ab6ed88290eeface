"""From a plan to records: judge first, then one worker process per variant, each ending in exactly one record."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from bakeoff import host, places
from bakeoff.job import Job, JudgeJob, JudgeResult, MeasureJob
from bakeoff.models.errors import BakeoffError
from bakeoff.plan import Entry, Plan, checkpoint_label, judge_folder
from bakeoff.progress import Progress
from bakeoff.record import SCHEMA, Finding, Measurement, Record, Status
from bakeoff.store import Stored, digest, load_all, now, save, write_atomically
from bakeoff.supervisor import Deadlines, Event, Outcome, run_job

_RECORDED_ENVIRONMENT = re.compile(
    r"^(OMP_|GOMP_|KMP_|MKL_|TORCH|PYTORCH_|CUDA_|NVIDIA_TF32|CUBLAS_|CUDNN_|TRITON_|LD_PRELOAD)"
)
_PLACES = ("_DIR", "_PATH", "_HOME", "_PRELOAD")
"""Variables that hold a path say nothing about a number and something about a person."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a sweep leaves behind."""

    sweep: str
    stored: tuple[Stored, ...]
    interrupted: tuple[str, ...]
    """Variants that were not run to an end: `--resume` runs them."""


@dataclass(frozen=True, slots=True)
class _State:
    """What `--resume` needs, kept in the cache folder until a sweep is complete."""

    sweep: str
    key: str
    runs: str
    component: str
    finished: bool


def run_sweep(plan: Plan, runs: Path, note: str, resume: bool, progress: Progress) -> Done:
    """Run every entry of `plan` that has no record yet.

    Ctrl-C ends it cleanly: what is done is kept, the running worker is dead, the rest is in `interrupted`. Raises
    BakeoffError before anything is measured when records cannot be written or the weights' file is wrong.
    """
    places.ensure_writable(runs / "records", "records")
    cache = places.ensure_writable(places.cache_folder(), "caches")
    state, earlier = _continue(plan, runs, cache) if resume else (_begin(plan, runs, cache), {})
    stored: dict[str, Stored] = dict(earlier)
    load = host.load_average()
    if load > host.usable_cores() / 2:
        progress.say(f"This host is busy (load {load:.1f}): numbers will say so.")
    interrupted = False
    with _device_lock(cache, plan.entries[0].subject.device if plan.entries else "cpu", progress):
        try:
            for record in _run(plan, state.sweep, cache, note, load, set(stored), progress):
                stored[str(record.variant)] = Stored(save(runs, record), record)
        except KeyboardInterrupt:
            interrupted = True
    left = tuple(str(entry.variant) for entry in plan.entries if str(entry.variant) not in stored)
    if not left and not interrupted:
        _save_state(cache, replace(state, finished=True))
    order = {str(entry.variant): index for index, entry in enumerate(plan.entries)}
    return Done(state.sweep, tuple(sorted(stored.values(), key=lambda kept: order[str(kept.record.variant)])), left)


def _run(
    plan: Plan, sweep: str, cache: Path, note: str, load: float, done: set[str], progress: Progress
) -> Iterator[Record]:
    """Records of the entries not in `done`, in order, a judge being made when the first worker needs it.

    Judges are known by their folders: when somebody edits a component meanwhile, the rows that follow get a new one.
    """
    judged: dict[Path, Outcome] = {}
    for position, entry in enumerate(plan.entries, 1):
        if str(entry.variant) in done:
            continue
        progress.start(position, len(plan.entries), str(entry.variant))
        log = cache / "logs" / sweep / f"{entry.variant.slug}-{digest(str(entry.variant))[:6]}.log"
        if entry.settled is not None:
            outcome = Outcome("result", value=Measurement(*entry.settled))
        else:
            folder = judge_folder(entry, plan.component)
            if folder not in judged:
                judged[folder] = _judge(plan, entry, folder, log.with_suffix(".judge.log"), progress)
            outcome = judged[folder]
            if outcome.kind == "result":
                outcome = _measure(plan, entry, folder, log, progress)
        record = _record(plan, entry, sweep, note, load, outcome, log.relative_to(cache))
        progress.finish(record.status, _line(record))
        yield record


def _judge(plan: Plan, entry: Entry, folder: Path, log: Path, progress: Progress) -> Outcome:
    dtypes = {other.variant.dtype for other in plan.entries if other.subject == entry.subject and not other.settled}
    if not entry.subject.checkpoint and all((folder / name).exists() for name in _judge_files(dtypes)):
        return Outcome("result")
    job = JudgeJob(entry.subject, tuple(sorted(dtypes)), str(folder))
    outcome = _work(job, JudgeResult, plan, entry, log, progress)
    if outcome.kind == "refused":
        raise BakeoffError(outcome.reason)
    if outcome.kind != "result":
        return replace(outcome, reason=f"no reference to compare with: the judge's worker: {outcome.reason}")
    return outcome


def _judge_files(dtypes: set[str]) -> list[str]:
    return ["judge.json", *(f"noise-{dtype}.json" for dtype in dtypes)]


def _measure(plan: Plan, entry: Entry, folder: Path, log: Path, progress: Progress) -> Outcome:
    job = MeasureJob(
        subject=entry.subject,
        variant=str(entry.variant),
        steps=entry.steps,
        dtype=entry.variant.dtype,
        policy=plan.request.policy,
        judge_folder=str(folder),
        cache_folder=str(entry.cache_folder),
    )
    outcome = _work(job, Measurement, plan, entry, log, progress)
    if outcome.kind == "refused":
        raise BakeoffError(outcome.reason)
    measurement = outcome.value
    if outcome.kind != "result" or measurement.build is None or measurement.build.cache != "cold":
        return outcome
    progress.event(Event("rebuild"))
    again = _work(replace(job, build_only=True), Measurement, plan, entry, log.with_suffix(".rebuild.log"), progress)
    if again.kind == "result" and again.value.build is not None:
        build = replace(measurement.build, warm_s=again.value.build.build_s)
        return replace(outcome, value=replace(measurement, build=build))
    text = f"no warm build: {again.reason or again.value.reason}"
    return replace(outcome, value=replace(measurement, findings=(*measurement.findings, Finding("rebuild", text))))


def _work(job: Job, result: type, plan: Plan, entry: Entry, log: Path, progress: Progress) -> Outcome:
    policy = plan.request.policy
    deadlines = Deadlines(
        policy.phase_deadline_s,
        {
            "start": policy.startup_deadline_s,
            "import": policy.startup_deadline_s,
            "build": entry.build_deadline_s,
            "judge": entry.build_deadline_s,
            "weights": entry.build_deadline_s,
        },
    )
    if isinstance(job, MeasureJob):
        with contextlib.suppress(OSError):
            entry.cache_folder.mkdir(parents=True, exist_ok=True)
    return run_job(
        job, result, worker_environment(entry.subject.threads, dict(entry.environment)), deadlines, log, progress.event
    )


def worker_environment(threads: int, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with what must be set before torch is imported.

    OpenMP threads that spin between calls make a call fifteen times slower on a busy host, so they wait passively
    unless the user says otherwise.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    environment.setdefault("OMP_WAIT_POLICY", "passive")
    environment["PYTHONUNBUFFERED"] = "1"
    return environment | dict(extra or {})


def _record(plan: Plan, entry: Entry, sweep: str, note: str, load: float, outcome: Outcome, log: Path) -> Record:
    component, subject = plan.component, entry.subject
    preset = component.preset(subject.preset)
    workload = component.workload(preset.config, subject.workload, subject.batch)
    environment = worker_environment(subject.threads, dict(entry.environment))
    commit, dirty = places.commit()
    return Record(
        schema=SCHEMA,
        created=now(),
        sweep=sweep,
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
        measurement=_measurement(outcome, load, entry),
        host=host.read_host(),
        load_before=round(load, 2),
        environment={
            name: _without_places(value)
            for name, value in sorted(environment.items())
            if _RECORDED_ENVIRONMENT.match(name) and not name.endswith(_PLACES)
        },
        versions=host.read_versions(),
        commit=commit,
        dirty=dirty,
        wall_s=round(outcome.wall_s, 3),
        log=str(log),
        note=note,
        baseline=entry.baseline,
    )


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
        for code, text in host.known_bad(host.read_versions(), entry.subject.device, [entry.variant.dtype])
    ]
    return replace(
        measurement,
        reason=_without_places(measurement.reason),
        traceback=_without_places(measurement.traceback),
        findings=tuple(replace(finding, text=_without_places(finding.text)) for finding in findings),
    )


def _without_places(text: str) -> str:
    """Without the folders of this machine and its user: records are shown to others."""
    own = {str(places.cache_folder()), str(places.checkout() or ""), sys.prefix, os.path.expanduser("~")}
    with contextlib.suppress(FileNotFoundError):  # the working folder may have been deleted
        own.add(os.getcwd())
    for folder in sorted(own, key=len, reverse=True):
        if len(folder) > 1 and os.path.isabs(folder):
            text = text.replace(folder, "...")
    return text


def _line(record: Record) -> str:
    figures = record.latency
    if figures is None:
        return record.measurement.reason
    text = f"{figures.median_ms:.2f} ms [{figures.low_ms:.2f}, {figures.high_ms:.2f}]"
    return f"{text}  {record.measurement.reason}".rstrip()


def _begin(plan: Plan, runs: Path, cache: Path) -> _State:
    created = now()
    sweep = f"{created[:19].replace('-', '').replace(':', '')}-{digest([plan.key, created, os.getpid()])[:6]}"
    state = _State(sweep, plan.key, str(runs.resolve()), plan.component.name, finished=False)
    _save_state(cache, state)
    return state


def _save_state(cache: Path, state: _State) -> None:
    write_atomically(cache / "sweeps" / f"{state.sweep}.json", msgspec.json.encode(state))


def _continue(plan: Plan, runs: Path, cache: Path) -> tuple[_State, dict[str, Stored]]:
    """The newest unfinished sweep of the same plan, and its records so far."""
    states = []
    for path in sorted((cache / "sweeps").glob("*.json"), reverse=True):
        with contextlib.suppress(msgspec.MsgspecError, OSError):
            states.append(msgspec.json.decode(path.read_bytes(), type=_State))
    unfinished = [state for state in states if not state.finished and state.runs == str(runs.resolve())]
    for state in unfinished:
        if state.key == plan.key:
            kept = [entry for entry in load_all(runs).current if entry.record.sweep == state.sweep]
            return state, {str(entry.record.variant): entry for entry in kept}
    if any(state.component == plan.component.name for state in unfinished):
        raise BakeoffError(
            "--resume: the unfinished sweep had another plan, host, version or commit; run without --resume"
        )
    raise BakeoffError(f"--resume: no unfinished sweep of {plan.component.name} writes to {runs}; run without --resume")


@contextlib.contextmanager
def _device_lock(cache: Path, device: str, progress: Progress) -> Iterator[None]:
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
