"""Exports a variant to a folder that loads elsewhere: its sample, its programs, its manifest, a first verification."""

import contextlib
import ctypes
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.backends.format import ArtifactFormat
from bakeoff.export import requirements
from bakeoff.export.folder import check_content, hash_file, is_artifact, read_manifest
from bakeoff.export.loader import Mismatch, check_here
from bakeoff.export.manifest import (
    MANIFEST,
    SAMPLE,
    SCHEMA,
    Condition,
    ConditionResult,
    Conditions,
    Manifest,
    MeasuredFigures,
    Program,
    Span,
    Weights,
    encode,
    seal,
)
from bakeoff.export.torch_flags import verified_flags
from bakeoff.machine import host, paths
from bakeoff.machine.build_cache import open_folder
from bakeoff.machine.files import slug, write_atomically
from bakeoff.machine.identity import this_machine
from bakeoff.machine.locks import device_lock, entry_lock
from bakeoff.models.brought.about import read_about
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.memory import weights_bytes
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.plan.rows import Row
from bakeoff.process.environment import worker_environment
from bakeoff.process.jobs import (
    CONDITIONS,
    ConditionJob,
    Job,
    SampleJob,
    SampleResult,
    VerifyJob,
    VerifyResult,
    WriteJob,
    WriteResult,
)
from bakeoff.process.supervisor import Deadlines, Launch, Outcome, run_job
from bakeoff.record.source import component_hash
from bakeoff.record.store import Stored, load_all, now, of_one_host
from bakeoff.sweeps.progress import Progress
from bakeoff.sweeps.row import measure_job

FRAMES = 10
"""Number of frames in the sample of a stream."""
DEADLINE_S = 1800.0
CONDITION_S, _OPENED, _CALLED = 60.0, 4, 500
"""Limit of one condition: seconds, and what it takes to open the artifact and to call it, so many times."""
_HERE, _RENAME_EXCHANGE = -100, 2
"""AT_FDCWD and RENAME_EXCHANGE of renameat2(2)."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """Result of an export: the artifact's folder and manifest, and its first verification.

    None if it is for a GPU that is not here: then only its files were checked.
    """

    folder: Path
    manifest: Manifest
    verified: VerifyResult | None


def export(plan: Plan, target: Path, force: bool, runs: Path, command: str, progress: Progress) -> ExportResult:
    """Write the artifact of `plan` to `target`, whole or not at all; with `force`, replace an artifact that is there.

    `command` is recorded in the manifest. Raises BakeoffError if anything fails, or if the written programs differ from
    the reference by more than the limit.
    """
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    first = plan.rows[0]
    device = first.subject.device
    with ExitStack() as stack:
        part = stack.enter_context(staged(target, force, is_artifact))
        _refuse_little_room(plan, part)
        stack.enter_context(device_lock(device, progress.say, cache))
        for row in plan.rows:
            obstacle = row.obstacle()
            if obstacle is not None:
                raise BakeoffError(f"{row.variant}: {obstacle}", "not-exportable")

        def work(job: Job, result: type, what: str, environment: Mapping[str, str]) -> Any:
            """Do a job in a worker; the workers of an export run one after the other."""
            running = progress.start(0, 0, f"{first.variant}: {what}")
            log = cache / "logs" / "export" / f"{part.name.strip('.')}-{what.partition(',')[0].replace(' ', '-')}.log"
            outcome = run_job(job, result, Launch(environment, Deadlines(DEADLINE_S), log, running.event))
            value = outcome.result_of(what, log)
            running.finish("ok", f"{outcome.wall_s:.0f} s, peak {value.peak_bytes >> 20} MiB")
            return value

        subjects = tuple(row.subject for row in plan.rows)
        sample = SampleJob(subjects, first.variant.dtype, first.quantisation, FRAMES, str(part / SAMPLE))
        sampled: SampleResult = work(sample, SampleResult, "sample", plan.environment)
        written: list[WriteResult] = []
        for number, row in enumerate(plan.rows, 1):
            what = f"program {number} of {len(plan.rows)}, {row.variant.workload}"
            with entry_lock(cache, row.cache_folder, progress.say):
                open_folder(row.cache_folder)
                write = WriteJob(measure_job(row, plan.request.policy, None), str(part))
                written.append(work(write, WriteResult, what, row.environment))
        manifest = make_manifest(plan, part, sampled, written, command)
        manifest = seal(replace(manifest, measured=measured_figures(first, runs)))
        (part / MANIFEST).write_bytes(encode(manifest))
        if first.target:
            check_content(part, manifest)
            return ExportResult(target, manifest, None)
        threads = first.subject.threads
        verify_job = VerifyJob(str(part), device, threads, allow_mismatch=False, timed=False)
        verified: VerifyResult = work(verify_job, VerifyResult, "verification", worker_environment(threads))
        manifest = seal(replace(manifest, parity=verified.checked, programs=_with_spans(manifest, verified.spans)))
        (part / MANIFEST).write_bytes(encode(manifest))
        wrong = next((one for one in verified.checked if not one.passed), None)
        if wrong is not None:
            problem = wrong.problem or f"differs by {wrong.rel_l2:.2e} relative L2, over {wrong.limit:.2e}"
            text = f"{wrong.name}: {problem}; nothing was exported"
            raise BakeoffError(text, "wrong-output")
    return ExportResult(target, manifest, verified)


def _refuse_little_room(plan: Plan, part: Path) -> None:
    """Raise BakeoffError if the disk lacks space for the weights, which each program stores separately."""
    variant = plan.rows[0].variant
    needed = weights_bytes(plan.component.preset(variant.preset), variant.dtype) * len(plan.rows)
    free = shutil.disk_usage(part).free
    if needed > free:
        text = f"{part.parent} has {free >> 20} MiB free, the artifact may take {needed >> 20}"
        raise BakeoffError(f"{text}; make room or choose another folder", "not-writable")


@contextlib.contextmanager
def staged(target: Path, force: bool, replaceable: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield a new folder beside `target`; it replaces `target` if the block succeeds, otherwise it is removed.

    Raises BakeoffError before anything is written if `target` exists and `force` is false, if `target` is neither an
    empty folder nor one that `replaceable` accepts, or if nothing can be written beside it. An OSError of the block
    becomes a BakeoffError.
    """
    target = target.absolute()
    refuse_target(target, force, replaceable)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    except OSError as error:
        text = f"{target} cannot be written: {error.strerror}; choose another folder"
        raise BakeoffError(text, "not-writable") from error
    try:
        yield part
        _publish(part, target, force, replaceable)
    except OSError as error:
        text = f"{target} cannot be written: {error.strerror}; make room or choose another folder"
        raise BakeoffError(text, "not-writable") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def refuse_target(target: Path, force: bool, replaceable: Callable[[Path], bool]) -> None:
    """Raise BakeoffError if `staged` would not replace what is at `target`."""
    if not os.path.lexists(target):
        return
    if not force:
        raise BakeoffError(f"{target} exists; choose another folder, or --force to replace it", "target-exists")
    if target.is_symlink() or not target.is_dir() or (any(target.iterdir()) and not replaceable(target)):
        text = f"{target} is not an artifact alone, and --force replaces nothing else; remove it by hand"
        raise BakeoffError(text, "target-exists")


def _publish(part: Path, target: Path, force: bool, replaceable: Callable[[Path], bool]) -> None:
    """Sync the files of `part` to disk and rename it to `target`.

    A folder that was at `target` gets the temporary name and is removed with it.
    """
    for path in part.rglob("*"):
        os.chmod(path, 0o755 if path.is_dir() else 0o644)
        _sync(path)
    os.chmod(part, 0o755)
    _sync(part)
    refuse_target(target, force, replaceable)  # another process may have created it meanwhile
    if not target.exists():
        part.rename(target)
    elif not _exchange(part, target):
        aside = part.with_suffix(".before")
        target.rename(aside)
        part.rename(target)
        shutil.rmtree(aside)
    _sync(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders atomically (renameat2(2)); return False if the system or file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):  # glibc 2.28
        return False
    return bool(libc.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _RENAME_EXCHANGE) == 0)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_manifest(plan: Plan, part: Path, sampled: SampleResult, written: list[WriteResult], command: str) -> Manifest:
    """Return the manifest of the files in `part`, without the record's figures, the parity of outputs and the seal."""
    row = plan.rows[0]
    variant, subject = row.variant, row.subject
    last = resolve_backend(row.steps[-1].backend)
    assert last.artifact is not None
    here = requirements.facts()
    wanted = [need for result in written for need in result.written.needs]
    commit, dirty = paths.commit()
    label, config = plan.component.preset(variant.preset).label, sampled.config
    if plan.component.folder:
        source = read_about(Path(plan.component.folder)).source
        label, config = label.replace(source.shown, source.shipped), {**config, "source": source.shipped}
    return Manifest(
        schema=SCHEMA,
        artifact=last.artifact.name,
        variant=str(variant),
        component=variant.component,
        preset=variant.preset,
        label=label,
        config=config,
        credit=plan.component.credit,
        backend=last.name,
        options=dict(row.steps[-1].options),
        device="cuda" if row.target else variant.device,
        dtype=variant.dtype,
        quantisation=row.quantisation,
        batch=subject.batch,
        threads=subject.threads,
        main=variant.workload,
        programs=tuple(map(_with_files, sampled.programs, written)),
        stream=sampled.stream,
        files={path.name: hash_file(part, path.name) for path in sorted(part.iterdir()) if path.name != MANIFEST},
        needs=requirements.with_host_values(wanted, here),
        built_on=here,
        versions=host.read_versions(),
        created=now(),
        commit=f"{commit}{', dirty' if dirty else ''}",
        command=command,
        weights=Weights(row.checkpoint or f"random, seed {subject.weight_seed}", sampled.weights),
        measured=None,
        sample=sampled.sample,
        parity=(),
        flags=verified_flags(variant.device, variant.dtype) if last.artifact.runs_torch else {},
        export_peak_bytes=max(sampled.peak_bytes, *(result.peak_bytes for result in written)),
        place=plan.component.place or msgspec.UNSET,
    )


def _with_files(program: Program, result: WriteResult) -> Program:
    written = result.written
    return replace(program, file=written.file, constants=written.constants, facts=dict(written.facts))


def _with_spans(manifest: Manifest, spans: Mapping[str, Span]) -> tuple[Program, ...]:
    """Return the programs; the main one's inputs have these values as `checked`."""
    main = manifest.program(manifest.main)
    inputs = tuple(replace(port, checked=spans.get(port.name, port.checked)) for port in main.inputs)
    return tuple(replace(one, inputs=inputs) if one is main else one for one in manifest.programs)


def measured_figures(row: Row, runs: Path) -> MeasuredFigures | None:
    """Return the figures of the newest `ok` record of the row's configuration; None if there is none.

    Only records that this machine made from the component's present source count.
    """
    component = component_hash(row.subject.component)
    fitting = [
        stored
        for stored in load_all(*paths.with_published(runs)).current
        if stored.record.config_id == row.config_id
        and stored.record.status == "ok"
        and stored.record.source.component == component
    ]
    own = of_one_host(fitting, this_machine(row.subject.device))
    return _figures(own[-1]) if own else None


def _figures(stored: Stored) -> MeasuredFigures:
    record = stored.record
    clock, parity = record.measurement.latency, record.measurement.parity
    assert clock is not None
    assert record.latency is not None
    assert parity is not None
    p1, p99 = (float(value) / 1e6 for value in np.percentile(clock.samples_ns, (1, 99)))
    return MeasuredFigures(
        record=stored.id,
        host=record.host.name(record.variant.device),
        created=record.created,
        threads=record.threads,
        median_ms=record.latency.median_ms,
        p1_ms=p1,
        p99_ms=p99,
        calls_per_s=1000 / record.latency.median_ms,
        rel_l2={output.name: output.rel_l2 for output in parity.outputs},
        range=parity.range_text or msgspec.UNSET,
    )


def verify(
    folder: Path, manifest: Manifest, allow_mismatch: bool, progress: Progress, *, seconds: float = DEADLINE_S
) -> VerifyResult:
    """Compare an artifact with its sample in a fresh process, limited to `seconds`.

    Raises BakeoffError if the artifact is refused, or if its process ends without a result; Mismatch, after its files
    were checked, if it is for another host.
    """
    try:
        check_here(folder.absolute(), manifest, allow_mismatch)
    except Mismatch as error:
        text = f"{folder}: the files are those of the export, their outputs were not compared: {error}"
        raise Mismatch(text) from error
    threads = min(manifest.threads, host.usable_cores())
    job = VerifyJob(str(folder.absolute()), manifest.device, threads, allow_mismatch, True)
    outcome, log = _run_alone(job, VerifyResult, manifest, seconds, progress)
    value: VerifyResult = outcome.result_of("verification", log)
    return value


def check_conditions(
    folder: Path, manifest: Manifest, verified: VerifyResult, allow_mismatch: bool, idle_s: float, progress: Progress
) -> Conditions:
    """Call the main program of an artifact under each of CONDITIONS, in processes of their own with a time limit.

    The results are written into the manifest. Raises BakeoffError if the folder was changed meanwhile, or cannot be
    written.
    """
    paths.ensure_writable(folder, "results of conditions")
    threads = min(manifest.threads, host.usable_cores())
    call_s = max(verified.samples_ns, default=0) / 1e9
    rows = []
    for name in CONDITIONS:
        job = ConditionJob(str(folder.absolute()), manifest.device, threads, allow_mismatch, name, idle_s)
        seconds = CONDITION_S + idle_s + _OPENED * verified.open_s + _CALLED * call_s
        outcome, log = _run_alone(job, Condition, manifest, seconds, progress)
        if outcome.kind != "result":
            progress.say(f"{name}: {outcome.reason}; see {log}")
        result: ConditionResult = "unchecked" if outcome.kind == "oom" else "crashed"
        ended = Condition(name, result, outcome.code or f"{outcome.kind}: {outcome.reason}")
        rows.append(outcome.value or ended)
    conditions = Conditions(now(), requirements.facts(), idle_s, tuple(rows))
    if read_manifest(folder).digest != manifest.digest:
        raise BakeoffError(f"{folder} was changed meanwhile, so nothing was written; verify it again", "bad-artifact")
    write_atomically(folder / MANIFEST, encode(seal(replace(manifest, conditions=conditions))))
    return conditions


def _run_alone(
    job: VerifyJob | ConditionJob, result: type, manifest: Manifest, seconds: float, progress: Progress
) -> tuple[Outcome, Path]:
    """Run a job on an artifact in a fresh process while nothing else uses its device. Return its outcome and log."""
    what = getattr(job, "condition", "")
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    log = cache / "logs" / "verify" / f"{slug(f'{Path(job.folder).name} {manifest.digest[:12]} {what}')}.log"
    with device_lock(manifest.device, progress.say, cache):
        running = progress.start(0, 0, f"{manifest.variant}{what and f': {what}'}")
        launch = Launch(worker_environment(job.threads), Deadlines(seconds, total=seconds), log, running.event)
        outcome = run_job(job, result, launch)
        running.finish("ok" if outcome.kind == "result" else outcome.kind, f"{outcome.wall_s:.0f} s")
    return outcome, log


def plan_export(request: Request) -> Plan:
    """Return a plan whose first row is the variant to export, followed by the other programs of its stream.

    Raises BakeoffError if the request names no variant, or one that cannot run here, has no artifact format or has
    inputs of several sizes.
    """
    plan = make_plan(request)
    if not plan.rows:
        raise BakeoffError(f"{request.component}: nothing to export; name a backend", "not-exportable")
    main = plan.rows[0] if request.dtypes else _usual(plan)
    if _artifact_format(main) is None:
        known = ", ".join(name for name in backend_names() if resolve_backend(name).artifact is not None)
        text = f"{main.variant.backends[-1].name} has no artifact format; backends that have one: {known}"
        raise BakeoffError(text, "not-exportable")
    config = plan.component.preset(main.variant.preset).config
    if plan.component.workload(config, main.variant.workload, main.subject.batch).axes:
        text = f"{main.variant}: an artifact has one size of each input; sweep without --sizes, and export that"
        raise BakeoffError(text, "not-exportable")
    stream = plan.component.stream(config, main.variant.workload)
    others = tuple(name for name in (stream.workloads if stream else ()) if name != main.variant.workload)
    whole = make_plan(replace(request, workloads=(main.variant.workload, *others)))
    chosen = tuple(row for row in whole.rows if _built_alike(row, main))
    for row in chosen:
        if row.never_runs is not None:
            raise BakeoffError(f"{row.variant}: {row.never_runs}", "not-exportable")
    return replace(whole, rows=chosen)


def _usual(plan: Plan) -> Row:
    """Return the row if no dtype is asked for: the first that runs in the device's 16-bit dtype, else the first."""
    half = host.half_dtype(plan.rows[0].subject.device)
    return next((row for row in plan.rows if row.variant.dtype == half and row.never_runs is None), plan.rows[0])


def _artifact_format(row: Row) -> ArtifactFormat | None:
    """Return the artifact format of the row's last backend; None for a user's own backend, which other hosts lack."""
    reference = row.steps[-1].backend
    return resolve_backend(reference).artifact if reference in backend_names() else None


def default_folder(plan: Plan) -> Path:
    """Return artifacts/COMPONENT-PRESET[-WORKLOAD]-BACKEND-DTYPE, a path in the working folder.

    The workload is part of the name if the component has several, because each is an artifact of its own.
    """
    variant = plan.rows[0].variant
    several = len(plan.component.workload_names(plan.component.preset(variant.preset).config)) > 1
    workload = f"-{variant.workload}" if several else ""
    name = f"{variant.component}-{variant.preset}{workload}-{_safe(variant.backend)}-{variant.dtype}"
    return Path("artifacts") / name


def _built_alike(row: Row, other: Row) -> bool:
    return (row.variant.backend, row.variant.dtype) == (other.variant.backend, other.variant.dtype)


def _safe(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._=" else "-" for letter in text).strip("-")
