"""The manifest of an export: what was written, on what it was measured, and what a host needs to open it."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from bakeoff.backends import resolve_backend
from bakeoff.export import requirements
from bakeoff.export.folder import hash_file
from bakeoff.export.manifest import MANIFEST, SCHEMA, Manifest, Measured, Program, Weights
from bakeoff.export.torch_flags import verified_flags
from bakeoff.machine import host, paths
from bakeoff.machine.identity import this_machine
from bakeoff.models.brought.about import read_about
from bakeoff.models.component import Component
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Row
from bakeoff.process.jobs import SampleResult, WriteResult
from bakeoff.record.source import component_hash
from bakeoff.record.store import Stored, load_all, now


def make_manifest(plan: Plan, part: Path, sampled: SampleResult, written: list[WriteResult], command: str) -> Manifest:
    """The manifest of the files in `part`, not sealed, without what was measured or verified."""
    row = plan.rows[0]
    variant, subject = row.variant, row.subject
    last = resolve_backend(row.steps[-1].backend)
    assert last.artifact is not None
    here = requirements.facts()
    wanted = [need for result in written for need in result.written.needs]
    commit, dirty = paths.commit()
    return Manifest(
        schema=SCHEMA,
        artifact=last.artifact.name,
        variant=str(variant),
        component=variant.component,
        preset=variant.preset,
        label=plan.component.preset(variant.preset).label,
        config=sampled.config,
        credit=plan.component.credit,
        backend=last.name,
        options=dict(row.steps[-1].options),
        device=variant.device,
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
        place=_place(plan.component),
    )


def _place(component: Component) -> str | msgspec.UnsetType:
    """Where a brought model's user has it."""
    if not component.folder:
        return msgspec.UNSET
    return read_about(Path(component.folder)).place or msgspec.UNSET


def _with_files(program: Program, result: WriteResult) -> Program:
    written = result.written
    return replace(program, file=written.file, constants=written.constants, facts=dict(written.facts))


def measured_figures(row: Row, runs: Path) -> Measured | None:
    """Figures of the newest `ok` record of the row's configuration, made on this machine from the component's present
    source; None where there is none."""
    machine, component = this_machine(row.subject.device), component_hash(row.subject.component)
    fitting = [
        stored
        for stored in load_all(*paths.with_published(runs)).current
        if stored.record.config_id == row.config_id
        and stored.record.status == "ok"
        and stored.machine.id == machine.id
        and stored.record.source.component == component
    ]
    return _figures(fitting[-1]) if fitting else None


def _figures(stored: Stored) -> Measured:
    record = stored.record
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
