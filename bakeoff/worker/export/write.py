"""One program of an artifact, written into its folder by the back end that builds it."""

from pathlib import Path

from bakeoff.backends import resolve_backend
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import WriteJob, WriteResult
from bakeoff.variant import options_of
from bakeoff.worker.build import build_context, prepare
from bakeoff.worker.checks import memory
from bakeoff.worker.measure import cast_subject
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import load_subject
from bakeoff.worker.torch_flags import flags


def write_program(job: WriteJob, report: Report) -> WriteResult:
    """Raises BakeoffError where the back end cannot write it, the folder takes nothing, or nothing was quantised."""
    asked = job.measure
    report("weights")
    loaded = load_subject(asked.subject)
    steps = [(resolve_backend(step.backend), step.options) for step in asked.steps]
    last, options = steps[-1]
    assert last.form is not None, "the parent refuses a back end without a form"
    with flags(asked.dtype, asked.subject.threads):
        inputs = cast_subject(loaded, asked)[0]
        report("build")
        context = build_context(asked, loaded)
        prepared = prepare(steps[:-1], loaded.module, inputs, context)
        if asked.quantisation and len(steps) > 1 and not prepared.quantised:
            raise BakeoffError(f"{asked.variant}: not one layer was quantised; nothing is exported under that name")
        try:
            written = last.form.write(
                prepared.module, inputs, options_of(last, options), context, Path(job.folder), asked.subject.workload
            )
        except OSError as error:
            raise BakeoffError(f"{asked.subject.workload} cannot be written: {error.strerror or error}") from error
    return WriteResult(written, memory.host_peak_bytes(), memory.children_peak_bytes())
