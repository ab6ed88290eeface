"""Makes reference outputs of a subject, in fp64 where that is affordable, and eager's own error in each dtype."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import msgspec
import torch
from safetensors.torch import save_file
from torch import Tensor

from bakeoff.machine.files import write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import ReferenceJob, ReferenceResult, Subject
from bakeoff.worker.checks.dispatch import Dispatched, dispatched_by_eager
from bakeoff.worker.reference.eager_times import time_sizes
from bakeoff.worker.reference.error import difference, expected_dtype
from bakeoff.worker.reference.files import ABOUT, About, Eager, ReferenceFiles, eager_file, set_name, sized_name
from bakeoff.worker.reference.precision import Precision, reference_precision
from bakeoff.worker.reference.sensitivity import check_sensitivity, least_difference
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import (
    SIZED_SETS,
    LoadedSubject,
    cast_inputs,
    changed_inputs,
    changed_set_count,
    load_subject,
)
from bakeoff.worker.torch_flags import TORCH_DTYPES, flags


def _run(
    loaded: LoadedSubject, dtype: str, device: str, threads: int, search: bool = False
) -> dict[str, tuple[Tensor, ...]]:
    """Outputs of plain eager by `set_name`, for all sets and changed sets; leaves the module in that dtype.

    With `search` under the convolution search of measured rows, so that its error is that of the eager row.
    """
    with flags(dtype, threads, search):
        module = loaded.module.to(device=device, dtype=TORCH_DTYPES[dtype])
        return {
            name: tuple(output.cpu() for output in module(*cast_inputs(loaded.workload, given, dtype, device).values()))
            for name, given in _all_inputs(loaded)
        }


def _all_inputs(loaded: LoadedSubject) -> Iterator[tuple[str, Mapping[str, Tensor]]]:
    """(name, fp32 values) of all sets, changed sets and sets of other sizes, made one at a time."""
    for index, inputs in enumerate(loaded.sets):
        yield set_name(index), inputs
    for index in range(changed_set_count(loaded.workload)):
        yield set_name(index, changed=True), changed_inputs(loaded, index)
    for size, sets in enumerate(loaded.sized):
        for index, inputs in enumerate(sets):
            yield sized_name(size, index), inputs


def make_reference(job: ReferenceJob, report: Report) -> ReferenceResult:
    """Write the reference outputs and noise floors that `job.folder` lacks; reference.json is written last.

    Raises BakeoffError for a wrong checkpoint, or where eager's outputs are not as the component's spec states.
    """
    folder = Path(job.folder)
    subject = job.subject
    report("weights")
    loaded = load_subject(subject)
    if not (folder / ABOUT).exists():
        work = loaded.workload.work
        sizes = loaded.workload.sizes
        flops = work.flops * len(loaded.sets) + sum(size.work.flops for size in sizes) * SIZED_SETS
        elements = max([work.io_elements, *(size.work.io_elements for size in sizes)])
        chosen = reference_precision(loaded.module, elements, flops, subject.device)
        if not loaded.component.fp64:
            chosen = Precision("fp32", subject.device)
        report("reference", f"eager {chosen.dtype} on {chosen.device}")
        _write_outputs(folder, loaded, chosen, _run(loaded, chosen.dtype, chosen.device, subject.threads))
    files = ReferenceFiles(folder, None)
    about = files.about()
    if about.weights != loaded.weights:
        raise BakeoffError(
            f"The weights changed during the sweep: reference {folder.name} was made from others. Run the sweep again.",
            code="bad-checkpoint",
        )
    missing = [dtype for dtype in job.dtypes if not (folder / eager_file(dtype)).exists()]
    names = [name for name, _ in _all_inputs(loaded)] if missing else []
    references = {name: files.outputs(name) for name in names}
    rounded = False
    for dtype in sorted(missing, key=lambda name: TORCH_DTYPES[name].itemsize, reverse=True):
        report("reference", f"noise floor of eager {dtype}")
        if rounded:
            loaded = load_subject(subject)  # a cast to half precision cannot be undone, one to fp64 can
        outputs = _run(loaded, dtype, subject.device, subject.threads, search=subject.device == "cuda")
        rounded = TORCH_DTYPES[dtype].itemsize < 4
        sized = [[sized_name(size, index) for index in range(SIZED_SETS)] for size in range(len(loaded.sized))]
        usual = [name for name in outputs if not any(name in group for group in sized)]
        noise, *size_noise = (_noise(loaded, outputs, references, dtype, group) for group in [usual, *sized])
        times = time_sizes(loaded, dtype, subject) if sized else ()
        eager = Eager(noise, _operators(loaded, dtype, subject), tuple(size_noise), times)
        write_atomically(folder / eager_file(dtype), msgspec.json.encode(eager))
    return ReferenceResult(folder.name)


def _write_outputs(
    folder: Path, loaded: LoadedSubject, precision: Precision, outputs: Mapping[str, tuple[Tensor, ...]]
) -> None:
    """Check and write what eager computed for every set and changed set."""
    specs = loaded.workload.outputs
    names = [spec.name for spec in specs]
    sets = [outputs[set_name(index)] for index in range(len(loaded.sets))]
    changed_sets = [outputs[set_name(index, changed=True)] for index in range(changed_set_count(loaded.workload))]
    check_outputs(loaded, sets[0])
    constant = {spec.name for spec in specs if spec.held}
    sensitivity, small_sensitivity = (
        {name: apart for name, apart in least_difference(names, pairs).items() if name not in constant}
        for pairs in (combinations(sets, 2), zip(sets, changed_sets, strict=False))
    )
    check_sensitivity(loaded, sensitivity, small_sensitivity)
    folder.mkdir(parents=True, exist_ok=True)
    for inputs, tensors in outputs.items():
        kept = {name: tensor.contiguous() for name, tensor in zip(names, tensors, strict=True)}
        save_file(kept, folder / f"{inputs}.safetensors")
    made = About(
        folder.name,
        precision.dtype,
        precision.device,
        loaded.weights,
        len(sets),
        len(changed_sets),
        sensitivity,
        small_sensitivity,
    )
    write_atomically(folder / ABOUT, msgspec.json.encode(made))


def _noise(
    loaded: LoadedSubject,
    outputs: Mapping[str, tuple[Tensor, ...]],
    references: Mapping[str, dict[str, Tensor]],
    dtype: str,
    names: Sequence[str],
) -> dict[str, float]:
    """The largest error of each output in the sets of these names."""
    noise = {}
    for position, spec in enumerate(loaded.workload.outputs):
        entries = [
            difference(outputs[name][position], references[name][spec.name], expected_dtype(spec, TORCH_DTYPES[dtype]))
            for name in names
        ]
        largest = max(entry.rel_l2 for entry in entries)  # infinite where eager's own output is not finite
        noise[spec.name] = largest if math.isfinite(largest) else 0.0
    return noise


def _operators(loaded: LoadedSubject, dtype: str, subject: Subject) -> Dispatched:
    """The operators that one call of the module dispatches; the module is in that dtype already."""
    inputs = cast_inputs(loaded.workload, loaded.sets[0], dtype, subject.device)
    with flags(dtype, subject.threads):
        return dispatched_by_eager(lambda: loaded.module(*inputs.values()))


def check_outputs(loaded: LoadedSubject, outputs: tuple[Tensor, ...]) -> None:
    """Raises BakeoffError where eager's outputs are not of the shapes that the component states, or not finite."""
    specs = loaded.workload.outputs
    found, stated = [tuple(tensor.shape) for tensor in outputs], [spec.shape for spec in specs]
    if found != stated:
        raise BakeoffError(
            f"{loaded.component.name}.{loaded.workload.name} returns shapes {found}, but its spec states {stated}. "
            f"Correct the spec or the network.",
            code="wrong-output",
        )
    for spec, tensor in zip(specs, outputs, strict=True):
        if not torch.isfinite(tensor).all():
            raise BakeoffError(
                f"{loaded.component.name}.{loaded.workload.name}: {spec.name} is not finite in the reference. "
                f"Check the weights and the network.",
                code="wrong-output",
            )
