"""From a variant to a folder that loads elsewhere: its sample, its programs, its manifest, and a first verification."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bakeoff.artifact.staging import staged
from bakeoff.backends import backend_names, resolve_backend
from bakeoff.backends.format import ArtifactFormat
from bakeoff.export import requirements
from bakeoff.export.folder import hash_file, is_artifact
from bakeoff.export.manifest import MANIFEST, SAMPLE, SCHEMA, Manifest, Measured, Program, Weights, encode, seal
from bakeoff.machine import host, paths
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import (
    Entry,
    Plan,
    Request,
    checkpoint_label,
    element_bytes,
    make_plan,
    user_code_environment,
)
from bakeoff.process.environment import worker_environment
from bakeoff.process.jobs import (
    Job,
    MeasureJob,
    SampleJob,
    SampleResult,
    VerifyJob,
    VerifyResult,
    WriteJob,
    WriteResult,
)
from bakeoff.process.supervisor import Deadlines, Outcome, run_job
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, load_all, now
from bakeoff.sweep.progress import Progress
from bakeoff.sweep.row import device_lock, entry_environment

FRAMES = 10
"""Of a stream in the sample."""
_DEADLINE_S = 1800.0


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export left at `folder`."""

    folder: Path
    manifest: Manifest
    verified: VerifyResult


def plan_export(request: Request) -> Plan:
    """The variant that is exported, first, and those of the other programs of its stream.

    Raises BakeoffError where the request names no one variant, or one that cannot run here or has no form to leave in.
    """
    plan = make_plan(request)
    if not plan.entries:
        raise BakeoffError(f"{request.component}: nothing to export; name a back end")
    entry = plan.entries[0]
    form = _form(entry)
    if form is None:
        known = ", ".join(name for name in backend_names() if resolve_backend(name).form is not None)
        raise BakeoffError(f"{entry.variant.backends[-1].name} leaves nothing that could be deployed; take {known}")
    stream = plan.component.stream(plan.component.preset(entry.variant.preset).config, entry.variant.workload)
    others = tuple(name for name in (stream.workloads if stream else ()) if name != entry.variant.workload)
    again = make_plan(replace(request, workloads=(entry.variant.workload, *others)))
    chosen = [one for one in again.entries if (one.variant.backend, one.variant.dtype) == _how(entry)]
    for one in chosen:
        if one.settled is not None:
            raise BakeoffError(f"{one.variant}: {one.settled[0]}: {one.settled[1]}")
    return replace(again, entries=tuple(chosen))


def _how(entry: Entry) -> tuple[str, str]:
    return entry.variant.backend, entry.variant.dtype


def _form(entry: Entry) -> ArtifactFormat | None:
    reference = entry.steps[-1].backend
    return resolve_backend(reference).form if reference in backend_names() else None


def default_folder(plan: Plan) -> Path:
    """artifacts/COMPONENT-PRESET-BACKEND-DTYPE of the working folder."""
    variant = plan.entries[0].variant
    return Path("artifacts") / f"{variant.component}-{variant.preset}-{_safe(variant.backend)}-{variant.dtype}"


def _safe(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._=" else "-" for letter in text).strip("-")


def export(plan: Plan, target: Path, force: bool, runs: Path, command: str, progress: Progress) -> Exported:
    """Write the artifact of `plan` to `target`, whole or not at all.

    Raises BakeoffError where anything fails, or what was written does not compute what the judge's eager does.
    """
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    device = plan.entries[0].subject.device
    with device_lock(cache, device, progress), staged(target, force, is_artifact) as part:
        _refuse_little_room(plan, part)
        work = _Work(plan, part, cache, progress)
        sampled = work.sample()
        written = [work.write(number, entry) for number, entry in enumerate(plan.entries, 1)]
        manifest = seal(_manifest(plan, part, sampled, written, _measured(plan.entries[0], runs), command))
        (part / MANIFEST).write_bytes(encode(manifest))
        verified = work.verify()
        manifest = seal(replace(manifest, parity=verified.checked))
        (part / MANIFEST).write_bytes(encode(manifest))
        wrong = next((one for one in verified.checked if not one.passed), None)
        if wrong is not None:
            problem = wrong.problem or f"differs by {wrong.rel_l2:.2e} relative L2, over {wrong.limit:.2e}"
            raise BakeoffError(f"{wrong.program}'s {wrong.output} {problem}; nothing was exported")
    return Exported(target, manifest, verified)


@dataclass(frozen=True, slots=True)
class _Work:
    """The workers of one export, one after the other."""

    plan: Plan
    part: Path
    cache: Path
    progress: Progress

    def sample(self) -> SampleResult:
        first = self.plan.entries[0]
        subjects = tuple(entry.subject for entry in self.plan.entries)
        job = SampleJob(subjects, first.variant.dtype, first.quantisation, FRAMES, str(self.part / SAMPLE))
        environment = worker_environment(first.subject.threads, user_code_environment(self.plan.request))
        result: SampleResult = self._run(job, SampleResult, "sample", environment)
        return result

    def write(self, number: int, entry: Entry) -> WriteResult:
        job = WriteJob(
            MeasureJob(
                subject=entry.subject,
                variant=str(entry.variant),
                steps=entry.steps,
                dtype=entry.variant.dtype,
                policy=self.plan.request.policy,
                reference_folder="",
                cache_folder=str(entry.cache_folder),
                quantisation=entry.quantisation,
            ),
            str(self.part),
        )
        what = f"program {number} of {len(self.plan.entries)}, {entry.variant.workload}"
        result: WriteResult = self._run(job, WriteResult, what, entry_environment(entry))
        return result

    def verify(self) -> VerifyResult:
        subject = self.plan.entries[0].subject
        job = VerifyJob(
            str(self.part), subject.device, subject.threads, allow_mismatch=False, timed=False, memory_bytes=0
        )
        result: VerifyResult = self._run(job, VerifyResult, "verification", worker_environment(subject.threads))
        return result

    def _run(self, job: Job, result: type, what: str, environment: Mapping[str, str]) -> Any:
        self.progress.start(0, 0, f"{self.plan.entries[0].variant}: {what}")
        name = f"{self.part.name.strip('.')}-{what.partition(',')[0].replace(' ', '-')}.log"
        log = self.cache / "logs" / "export" / name
        outcome = run_job(job, result, environment, Deadlines(_DEADLINE_S), log, self.progress.event)
        value = _value(outcome, what, log)
        peak = f"peak {value.peak_bytes >> 20} MiB"
        self.progress.finish("ok", f"{outcome.wall_s:.0f} s, {peak}")
        return value


def _value(outcome: Outcome, what: str, log: Path) -> Any:
    if outcome.kind == "refused":
        raise BakeoffError(outcome.reason)
    if outcome.kind != "result":
        raise BakeoffError(f"{what}: {outcome.kind}: {outcome.reason}; see {log}")
    return outcome.value


def _refuse_little_room(plan: Plan, part: Path) -> None:
    """Raises BakeoffError where the weights alone would not fit, each program holding its own."""
    variant = plan.entries[0].variant
    weights = plan.component.parameters(plan.component.preset(variant.preset).config) * element_bytes(variant.dtype)
    needed, free = weights * len(plan.entries), shutil.disk_usage(part).free
    if needed > free:
        raise BakeoffError(
            f"{part.parent} has {free >> 20} MiB free, the artifact may take {needed >> 20}; make room or go elsewhere"
        )


def _manifest(
    plan: Plan, part: Path, sampled: SampleResult, written: list[WriteResult], measured: Measured | None, command: str
) -> Manifest:
    entry = plan.entries[0]
    variant, subject = entry.variant, entry.subject
    last = resolve_backend(entry.steps[-1].backend)
    assert last.form is not None
    here = requirements.facts()
    wanted = [need for result in written for need in result.written.needs]
    commit, dirty = paths.commit()
    return Manifest(
        schema=SCHEMA,
        artifact=last.form.name,
        variant=str(variant),
        component=variant.component,
        preset=variant.preset,
        label=plan.component.preset(variant.preset).label,
        config=sampled.config,
        credit=plan.component.credit,
        backend=last.name,
        options=dict(entry.steps[-1].options),
        device=variant.device,
        dtype=variant.dtype,
        quantisation=entry.quantisation,
        batch=subject.batch,
        threads=subject.threads,
        main=variant.workload,
        programs=tuple(map(_placed, sampled.programs, written)),
        stream=sampled.stream,
        files={path.name: hash_file(part, path.name) for path in sorted(part.iterdir()) if path.name != MANIFEST},
        needs=requirements.filled(wanted, here),
        built_on=here,
        versions=host.read_versions(),
        created=now(),
        commit=f"{commit}{', dirty' if dirty else ''}",
        command=command,
        weights=Weights(checkpoint_label(subject) or f"random, seed {subject.weight_seed}", sampled.weights),
        measured=measured,
        sample=sampled.sample,
        parity=(),
        export_peak_bytes=max(sampled.peak_bytes, *(result.peak_bytes for result in written)),
    )


def _placed(program: Program, result: WriteResult) -> Program:
    written = result.written
    return replace(program, file=written.file, constants=written.constants, facts=dict(written.facts))


def _measured(entry: Entry, runs: Path) -> Measured | None:
    """The newest record of the variant that was measured well on this host; None where there is none."""
    machine = host.read_host()
    fitting = [
        stored
        for stored in load_all(runs).current
        if stored.record.config_id == entry.config_id
        and stored.record.status == "ok"
        and stored.record.host.name(entry.subject.device) == machine.name(entry.subject.device)
    ]
    return _figures(fitting[-1]) if fitting else None


def _figures(stored: Stored) -> Measured:
    record: Record = stored.record
    clock, parity = record.measurement.latency, record.measurement.parity
    assert clock is not None
    assert record.latency is not None
    assert parity is not None
    p1, p99 = (float(value) / 1e6 for value in np.percentile(clock.samples_ns, (1, 99)))
    return Measured(
        record=stored.id,
        host=record.host.name(record.variant.device),
        created=record.created,
        threads=record.threads,
        median_ms=record.latency.median_ms,
        p1_ms=p1,
        p99_ms=p99,
        calls_per_s=1000 / record.latency.median_ms,
        rel_l2={output.name: output.rel_l2 for output in parity.outputs},
    )


def verify(
    folder: Path, manifest: Manifest, allow_mismatch: bool, seconds: float, memory_bytes: int, progress: Progress
) -> VerifyResult:
    """Open the artifact in a fresh process, within limits, and hold it against its sample.

    Raises BakeoffError where it is refused, or its process does not come back with an answer.
    """
    threads = min(manifest.threads, host.usable_cores())
    job = VerifyJob(str(folder.absolute()), manifest.device, threads, allow_mismatch, True, memory_bytes)
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    log = cache / "logs" / "verify" / f"{folder.absolute().name}-{manifest.digest[:12]}.log"
    with device_lock(cache, manifest.device, progress):
        progress.start(0, 0, manifest.variant)
        outcome = run_job(job, VerifyResult, worker_environment(threads), Deadlines(seconds), log, progress.event)
        progress.finish("ok" if outcome.kind == "result" else outcome.kind, f"{outcome.wall_s:.0f} s")
    value: VerifyResult = _value(outcome, "verification", log)
    return value
