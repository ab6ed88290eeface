"""A variant that was built, proved and checked: what a measurement and a comparison both start from."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import Call, Proof, Unsupported
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import MeasureJob
from bakeoff.record.schema import Measurement
from bakeoff.worker.build import BuiltEngine, build_engine
from bakeoff.worker.checks.outputs import OutputWatch, call_twice
from bakeoff.worker.failures import StageError, call_stage, traceback_text
from bakeoff.worker.reference.error import Difference, not_comparable
from bakeoff.worker.reference.files import ReferenceFiles
from bakeoff.worker.reference.load import Reference
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import LoadedSubject, cast_subject, load_subject, plain_eager, synchronise
from bakeoff.worker.torch_flags import flags, settings

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class CheckedVariant:
    """Subject, inputs and built engine for one dtype and device, after the initial output checks."""

    loaded: LoadedSubject
    sets: tuple[dict[str, Tensor], ...]
    """Sets of inputs in the variant's dtype and on its device."""
    built: BuiltEngine
    proof: Proof
    """What the engine stated after its first call."""
    reference: Reference
    watch: OutputWatch
    differences: list[list[Difference]]
    """For each comparison so far, each output against its reference."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors of all sets."""
        return tuple(tensor for inputs in self.sets for tensor in inputs.values())


def with_failures(job: MeasureJob, report: Report, action: Callable[[LoadedSubject], _Made]) -> _Made | Measurement:
    """Load the job's subject and run `action`; an exception of the variant's own code becomes a measurement's status.

    Raises BakeoffError where the request itself is wrong (a bad checkpoint).
    """
    report("weights")
    loaded = load_subject(job.subject)
    runs_eagerly = resolve_backend(job.steps[-1].backend).evidence.runs_eagerly
    stance = plain_eager(loaded.component) if runs_eagerly else nullcontext()
    with flags(job.dtype, job.subject.threads, search=job.subject.device == "cuda"), stance:
        try:
            return action(loaded)
        except StageError as stage:
            return Measurement(
                status=stage.status,
                reason=stage.reason,
                settings=settings(),
                weights=loaded.weights,
                traceback=traceback_text(stage.error),
            )


def build_and_check(job: MeasureJob, loaded: LoadedSubject, report: Report) -> CheckedVariant:
    """Build and prove the job's variant, and compare two calls of each set of inputs with the reference.

    Raises StageError where the variant's own code fails.
    """
    device = job.subject.device
    reference, watch = _reference(job, loaded)
    sets = cast_subject(loaded, job.dtype, device)
    report("build")
    built = build_engine(job, loaded, sets)
    report("prove")
    proof = call_stage(built.engine.prove)
    report("check")
    checked = CheckedVariant(loaded, sets, built, proof, reference, watch, [])
    for index, call in enumerate(built.calls):
        checked.differences.extend(_compare_two_calls(checked, index, call, device))
    return checked


def _reference(job: MeasureJob, loaded: LoadedSubject) -> tuple[Reference, OutputWatch]:
    """Read before any code of the variant is imported, so that it cannot change what it is checked against."""
    files = ReferenceFiles(Path(job.reference_folder), job.reference_hashes)
    try:
        reference = Reference(files, loaded, job.dtype, job.quantisation)
        watch = reference.watch()
    except BakeoffError as error:
        if error.code != "bad-reference":
            raise
        raise StageError("crashed", error) from error
    if reference.not_survived:
        raise StageError("unsupported", Unsupported(reference.not_survived))
    return reference, watch


def _compare_two_calls(checked: CheckedVariant, index: int, call: Call, device: str) -> list[list[Difference]]:
    """Both calls' outputs against the reference; outputs that change after the first call count as not comparable."""
    kept = checked.inputs
    outputs, changed, again = call_stage(lambda: call_twice(call, lambda: synchronise(device), kept))
    first = checked.reference.differences(index, outputs)
    if changed:
        text = "the outputs changed after the call had returned"
        first = [replace(not_comparable(text), where=f"inputs {index}") for _ in first]
    return [first, checked.reference.differences(index, again, "after the first outputs were overwritten")]
