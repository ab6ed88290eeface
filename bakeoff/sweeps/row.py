"""Prepares the workers of a row: references of its subject, job, environment, deadlines and log.

References that are not cached are made and sealed with hashes; they are made again if a file was changed. A sweep has
changed values of its own for one set of inputs, so that no engine can have their results from an earlier run: a folder
of the sweep holds the outputs for these, and hard links to the cached files.
"""

import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest
from bakeoff.machine.identity import this_machine
from bakeoff.machine.locks import device_lock
from bakeoff.models.errors import BakeoffError, ErrorCode
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Row, reference_folder
from bakeoff.process.environment import WEIGHTS
from bakeoff.process.jobs import MeasureJob, ReferenceJob
from bakeoff.process.phases import PHASES, DeadlineClass
from bakeoff.process.supervisor import Deadlines, Launch, Outcome, run_job
from bakeoff.record.policy import Policy
from bakeoff.record.source import backend_source, component_hash, instrument_hash
from bakeoff.sweeps.context import (
    Seal,
    SweepContext,
    changed_files,
    discard,
    hashes,
    make_context,
    read_seal,
    seal_folder,
)
from bakeoff.sweeps.progress import Progress, Running

_ABOUT = "reference.json"
_OF_A_SUBJECT: tuple[ErrorCode, ...] = ("insensitive", "wrong-output", "other-function", "bad-user-code")
"""Codes of refusals that concern one workload only; the other workloads of a sweep go on."""


@dataclass(frozen=True, slots=True)
class References:
    """A folder of reference outputs and the hashes of its files."""

    folder: Path
    seal: Seal

    @property
    def hashes(self) -> dict[str, str]:
        return hashes(self.seal)

    def changed(self) -> tuple[str, ...]:
        """Return the names of files that were changed or removed since this sweep sealed the folder.

        Files that another sweep added, for another dtype, do not count: no worker of this sweep reads them.
        """
        return tuple(name for name in changed_files(self.folder, self.seal, trust_stat=True) if name in self.seal)


NO_REFERENCES = References(Path(), {})
"""Of a row that is built for another GPU, whose outputs are not known here."""


def make_reference(context: SweepContext, row: Row, launch: Launch) -> tuple[Outcome, References]:
    """Make the references of the row's subject if they are not cached; return the outcome and the references.

    They are made once per sweep and dtype, again only if a file was changed: if eager crashes its worker in one
    dtype, rows of other dtypes are not affected. A component that is edited gets another folder, and so new references
    for the rows that follow. `launch` is the row's own. Raises BakeoffError if the request itself is wrong (a bad
    checkpoint), or if the plan's only subject has no references.
    """
    folder = reference_folder(row.subject, context.plan.component)
    own = folder if context.own is None else context.own / folder.name
    known = context.references.get((folder, row.variant.dtype))
    if known is not None:
        outcome, used, seal = known
        if outcome.kind != "result" or not changed_files(used, seal, trust_stat=True):
            return outcome, References(used, seal)
    with context.entry_lock(folder):
        _discard_changed(context, folder)
        if not folder.exists():
            discard(own)
        elif own != folder:
            _discard_changed(context, own)
        same = [other for other in context.plan.rows if other.subject == row.subject and other.never_runs is None]
        dtypes = {row.variant.dtype, *(other.variant.dtype for other in same)}
        outcome = _make(context, row, folder, own, launch, dtypes)
        if outcome.kind != "result" and len(dtypes) > 1 and (folder / _ABOUT).exists():
            outcome = _make(context, row, folder, own, launch, {row.variant.dtype})
        used, seal = folder, seal_folder(folder) if (folder / _ABOUT).exists() else {}
        if outcome.kind == "result" and own != folder:
            _link(seal, folder, own)
            used, seal = own, seal_folder(own)
    context.references[folder, row.variant.dtype] = outcome, used, seal
    return outcome, References(used, seal)


def refused_subjects(plan: Plan, runs: Path, progress: Progress) -> list[BakeoffError]:
    """Make the references of all of a plan's subjects that are not cached, before anything is measured.

    Returns why a subject has none, for each whose model or inputs are at fault. A worker that fails in another way is
    left to the subject's rows.
    """
    rows = {row.subject: row for row in reversed(plan.rows) if row.never_runs is None}
    found, cache = [], paths.ensure_writable(paths.cache_folder(), "caches")
    with device_lock(next(iter(rows)).device if rows else "cpu", progress.say, cache, bool(rows)):
        context = make_context(plan, "references", "", runs, cache, host.Load(0.0, 0.0), progress)
        for row in rows.values():
            running = progress.start(0, 0, f"references of {row.variant.component}.{row.variant.workload}")
            try:
                outcome, _ = make_reference(context, row, launch_of(context, row, running))
                refusal = BakeoffError(outcome.reason, outcome.code) if outcome.code in _OF_A_SUBJECT else None
            except BakeoffError as error:
                refusal = error
            running.finish("ok" if refusal is None else "refused", "")
            found += [refusal] if refusal is not None else []
        return found


def _discard_changed(context: SweepContext, folder: Path) -> None:
    """Delete the reference folder if it is incomplete, or if its files were changed since they were sealed."""
    if not folder.exists():
        return
    seal = read_seal(folder)
    changed = changed_files(folder, seal, trust_stat=False) if seal is not None else ()
    if seal is not None and not changed:
        return
    what = f"{', '.join(changed)} changed since they were made" if changed else "they were not made to the end"
    context.progress.say(f"The references in {folder.name} cannot be used: {what}; making them anew.")
    discard(folder)


def _link(names: Iterable[str], cached: Path, own: Path) -> None:
    """Link the cached files that `own` lacks. Raises BakeoffError if one can be neither linked nor copied."""
    for name in names:
        if not (own / name).exists():
            try:
                with suppress(OSError):  # such as on a file system without hard links
                    os.link(cached / name, own / name)
                    continue
                shutil.copyfile(cached / name, own / name)
            except OSError as error:
                text = f"references cannot be written to {own}: {error.strerror}; make room or choose another cache"
                raise BakeoffError(text, code="not-writable") from error


def _make(context: SweepContext, row: Row, folder: Path, own: Path, launch: Launch, dtypes: Collection[str]) -> Outcome:
    # Eager's own error in a dtype sets the limits of rows of that dtype.
    files = [own / _ABOUT, folder / _ABOUT, *(folder / f"eager-{dtype}.json" for dtype in dtypes)]
    if not row.subject.checkpoint and all(file.exists() for file in files):
        return Outcome("result")
    # Not the row's own environment: no compiler runs here, and nothing may be left in a compiler's cache.
    weights = {name: value for name, value in launch.environment.items() if name == WEIGHTS}
    environment = {**context.plan.environment, **weights}
    launch = replace(launch, environment=environment, log=launch.log.with_suffix(".reference.log"))
    own_folder = "" if own == folder else str(own)
    job = ReferenceJob(row.subject, tuple(sorted(dtypes)), str(folder), own_folder, context.own_seed)
    anew = not (folder / _ABOUT).exists()
    outcome = run_job(job, NoneType, launch)
    if anew and (outcome.kind == "timeout" or (outcome.kind == "crashed" and row.subject.device == "cuda")):
        # Inputs of other kinds may take too long, or end the process: an index that is computed from them, on CUDA.
        discard(folder)
        outcome = run_job(replace(job, regimes=False), NoneType, launch)
    alone = all(other.subject == row.subject for other in context.plan.rows)
    if outcome.kind == "refused" and (alone or outcome.code not in _OF_A_SUBJECT):
        raise BakeoffError(outcome.reason, outcome.code)
    if outcome.kind == "refused":
        return replace(outcome, kind="crashed", reason=f"no reference to compare with: {outcome.reason}")
    if outcome.kind != "result":
        return replace(outcome, reason=f"no reference to compare with: its worker: {outcome.reason}")
    return outcome


def measure_job(row: Row, policy: Policy, references: References | None) -> MeasureJob:
    """Return the job that builds and measures the row's variant; without `references` its outputs are not checked."""
    sources = [component_hash(row.subject.component), *(backend_source(step.backend).hash for step in row.steps)]
    machine, versions = this_machine(row.subject.device).machine_class, host.read_versions(row.subject.python)
    return MeasureJob(
        subject=row.subject,
        variant=str(row.variant),
        steps=row.steps,
        dtype=row.variant.dtype,
        policy=policy,
        reference_folder="" if references is None else str(references.folder),
        reference_hashes={} if references is None else references.hashes,
        cache_folder=str(row.cache_folder),
        quantisation=row.quantisation,
        engine=digest([str(row.variant), row.config_id, sources, instrument_hash(), versions, machine]),
        target=row.target,
    )


def launch_of(context: SweepContext, row: Row, running: Running, beside: int = 0) -> Launch:
    """Return how to start the row's worker: environment, log, deadlines by phase, and receiver of its events.

    If `beside` other workers build at the same time, the deadlines of startup, builds and references are multiplied by
    1 + `beside`.
    """
    environment = row.environment
    if context.weights is not None:
        path = context.weights.path_of(reference_folder(row.subject, context.plan.component))
        environment = {**environment, WEIGHTS: path}
    policy, build_s = context.plan.request.policy, row.build_deadline_s
    made = made_launch(policy, build_s, environment, context.log_of(row), row.subject.device, running, beside)
    return replace(made, python=row.subject.python)


def made_launch(
    policy: Policy,
    build_s: float,
    environment: Mapping[str, str],
    log: Path,
    device: str,
    running: Running,
    beside: int = 0,
) -> Launch:
    """Return how to start any worker, as `launch_of` does; each of its builds may take `build_s` seconds."""
    seconds: dict[DeadlineClass, float] = {
        "startup": policy.startup_deadline_s * (1 + beside),
        "build": build_s * (1 + beside),
        "reference": max(build_s, policy.phase_deadline_s) * (1 + beside),
        "phase": policy.phase_deadline_s,
    }
    limits: dict[str, float] = {phase: seconds[info.deadline] for phase, info in PHASES.items()}
    gpu = str(host.read_host().gpus[0]["uuid"]) if device == "cuda" else ""
    return Launch(environment, Deadlines(policy.phase_deadline_s, limits), log, running.event, gpu)
