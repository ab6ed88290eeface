"""From a variant to a folder that loads elsewhere: its sample, its programs, its manifest, a first verification."""

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bakeoff.artifact.manifest import make_manifest, measured_figures
from bakeoff.artifact.staging import staged
from bakeoff.artifact.verify import value_of
from bakeoff.export.folder import is_artifact
from bakeoff.export.manifest import MANIFEST, SAMPLE, Manifest, encode, seal
from bakeoff.machine import paths
from bakeoff.machine.locks import device_lock, entry_lock
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.memory import weights_bytes
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Row
from bakeoff.process.environment import worker_environment
from bakeoff.process.jobs import Job, SampleJob, SampleResult, VerifyJob, VerifyResult, WriteJob, WriteResult
from bakeoff.process.supervisor import Deadlines, Launch, run_job
from bakeoff.sweeps.progress import Progress
from bakeoff.sweeps.row import measure_job, open_cache

FRAMES = 10
"""Of a stream in the sample."""
_DEADLINE_S = 1800.0


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export left at `folder`."""

    folder: Path
    manifest: Manifest
    verified: VerifyResult


def export(plan: Plan, target: Path, force: bool, runs: Path, command: str, progress: Progress) -> Exported:
    """Write the artifact of `plan` to `target`, whole or not at all.

    Raises BakeoffError where anything fails, or the written programs differ from the reference by more than the limit.
    """
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    device = plan.rows[0].subject.device
    with ExitStack() as stack:
        part = stack.enter_context(staged(target, force, is_artifact))
        _refuse_little_room(plan, part)
        stack.enter_context(device_lock(device, progress.say, cache))
        for row in plan.rows:
            obstacle = row.obstacle()
            if obstacle is not None:
                raise BakeoffError(f"{row.variant}: {obstacle}", "not-exportable")
        workers = _Workers(plan, part, cache, progress)
        sampled = workers.sample()
        written = [workers.write(number, row) for number, row in enumerate(plan.rows, 1)]
        manifest = make_manifest(plan, part, sampled, written, command)
        manifest = seal(replace(manifest, measured=measured_figures(plan.rows[0], runs)))
        (part / MANIFEST).write_bytes(encode(manifest))
        verified = workers.verify()
        manifest = seal(replace(manifest, parity=verified.checked))
        (part / MANIFEST).write_bytes(encode(manifest))
        wrong = next((one for one in verified.checked if not one.passed), None)
        if wrong is not None:
            problem = wrong.problem or f"differs by {wrong.rel_l2:.2e} relative L2, over {wrong.limit:.2e}"
            text = f"{wrong.program}'s {wrong.output}: {problem}; nothing was exported"
            raise BakeoffError(text, "wrong-output")
    return Exported(target, manifest, verified)


@dataclass(frozen=True, slots=True)
class _Workers:
    """The workers of one export, one after the other."""

    plan: Plan
    part: Path
    cache: Path
    progress: Progress

    def sample(self) -> SampleResult:
        first = self.plan.rows[0]
        subjects = tuple(row.subject for row in self.plan.rows)
        job = SampleJob(subjects, first.variant.dtype, first.quantisation, FRAMES, str(self.part / SAMPLE))
        result: SampleResult = self._run(job, SampleResult, "sample", self.plan.environment)
        return result

    def write(self, number: int, row: Row) -> WriteResult:
        job = WriteJob(measure_job(row, self.plan.request.policy, None), str(self.part))
        what = f"program {number} of {len(self.plan.rows)}, {row.variant.workload}"
        with entry_lock(self.cache, row.cache_folder, self.progress.say):
            open_cache(row)
            result: WriteResult = self._run(job, WriteResult, what, row.environment)
        return result

    def verify(self) -> VerifyResult:
        subject = self.plan.rows[0].subject
        job = VerifyJob(
            str(self.part), subject.device, subject.threads, allow_mismatch=False, timed=False, memory_bytes=0
        )
        result: VerifyResult = self._run(job, VerifyResult, "verification", worker_environment(subject.threads))
        return result

    def _run(self, job: Job, result: type, what: str, environment: Mapping[str, str]) -> Any:
        running = self.progress.start(0, 0, f"{self.plan.rows[0].variant}: {what}")
        name = f"{self.part.name.strip('.')}-{what.partition(',')[0].replace(' ', '-')}.log"
        log = self.cache / "logs" / "export" / name
        outcome = run_job(job, result, Launch(environment, Deadlines(_DEADLINE_S), log, running.event))
        value = value_of(outcome, what, log)
        running.finish("ok", f"{outcome.wall_s:.0f} s, peak {value.peak_bytes >> 20} MiB")
        return value


def _refuse_little_room(plan: Plan, part: Path) -> None:
    """Raises BakeoffError where the weights alone would not fit, each program holding its own."""
    variant = plan.rows[0].variant
    config = plan.component.preset(variant.preset).config
    needed = weights_bytes(plan.component, config, variant.dtype) * len(plan.rows)
    free = shutil.disk_usage(part).free
    if needed > free:
        text = f"{part.parent} has {free >> 20} MiB free, the artifact may take {needed >> 20}"
        raise BakeoffError(f"{text}; make room or choose another folder", "not-writable")
