"""Writes one program of an artifact into its folder, by the backend that builds it."""

from pathlib import Path

from bakeoff.backends import resolve_backend
from bakeoff.backends.format import WriteRequest
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import WriteJob, WriteResult
from bakeoff.variant import options_of
from bakeoff.worker.build import build_context, prepare
from bakeoff.worker.checks import memory
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import cast_subject, load_subject
from bakeoff.worker.torch_flags import flags


def write_program(job: WriteJob, report: Report) -> WriteResult:
    """Prepare the module and have the last backend write the program; returns the files with the peak memory.

    Raises BakeoffError where the backend cannot write it, the folder cannot be written, or no layer was quantised.
    """
    asked = job.measure
    report("weights")
    loaded = load_subject(asked.subject)
    steps = [(resolve_backend(step.backend), step.options) for step in asked.steps]
    last, options = steps[-1]
    assert last.artifact is not None, "the parent refuses a backend without an artifact format"
    with flags(asked.dtype, asked.subject.threads, search=asked.subject.device == "cuda"):
        inputs = cast_subject(loaded, asked.dtype, asked.subject.device)[0]
        report("build")
        context = build_context(asked, loaded)
        prepared = prepare(steps[:-1], loaded.module, inputs, context)
        if asked.quantisation and len(steps) > 1 and not prepared.quantised:
            raise BakeoffError(
                f"{asked.variant}: no layer was quantised. Export the variant without the quantising backend.",
                code="not-exportable",
            )
        try:
            program = asked.subject.workload
            request = WriteRequest(
                prepared.module, inputs, options_of(last, options), context, Path(job.folder), program
            )
            written = last.artifact.write(request)
        except OSError as error:
            raise BakeoffError(
                f"{asked.subject.workload} cannot be written to {job.folder}: {error.strerror or error}.",
                code="not-writable",
            ) from error
    return WriteResult(written, memory.host_peak_bytes(), memory.children_peak_bytes())
