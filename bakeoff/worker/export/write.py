"""One program of an artifact, written into its folder by the back end that builds it."""

from pathlib import Path

from bakeoff.backends import resolve_backend
from bakeoff.backends.format import WriteRequest
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import WriteJob, WriteResult
from bakeoff.variant import options_of
from bakeoff.worker.build import build_context, prepare
from bakeoff.worker.checks import memory
from bakeoff.worker.measure import as_variant
from bakeoff.worker.subject import Report, open_bench
from bakeoff.worker.torch_flags import flags


def write_program(job: WriteJob, report: Report) -> WriteResult:
    """Raises BakeoffError where the back end cannot write it, the folder takes nothing, or nothing was quantised."""
    asked = job.measure
    report("weights", "")
    bench = open_bench(asked.subject)
    steps = [(resolve_backend(step.backend), step.options) for step in asked.steps]
    last, options = steps[-1]
    assert last.artifact is not None, "the parent refuses a back end without a form"
    with flags(asked.dtype, asked.subject.threads):
        inputs = as_variant(bench, asked)[0]
        report("build", "")
        context = build_context(asked, bench)
        prepared = prepare(steps[:-1], bench.module, inputs, context)
        if asked.quantisation and len(steps) > 1 and not prepared.quantised:
            raise BakeoffError(f"{asked.variant}: not one layer was quantised; nothing is exported under that name")
        try:
            program = asked.subject.workload
            request = WriteRequest(
                prepared.module, inputs, options_of(last, options), context, Path(job.folder), program
            )
            written = last.artifact.write(request)
        except OSError as error:
            raise BakeoffError(f"{asked.subject.workload} cannot be written: {error.strerror or error}") from error
    return WriteResult(written, memory.host_peak_bytes(), memory.children_peak_bytes())
