"""Makes reference outputs of a subject, in fp64 where that is affordable, and eager's own error in each dtype."""

import math
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bakeoff.machine.files import write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import ReferenceJob, ReferenceResult, Subject
from bakeoff.worker.checks.dispatch import Dispatched, dispatched
from bakeoff.worker.reference.error import difference, expected_dtype
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import LoadedSubject, cast_inputs, load_subject
from bakeoff.worker.torch_flags import TORCH_DTYPES, flags

_FP64_BYTES = 8 << 30
_FP64_SECONDS = 60.0
_FP64_FLOPS = {"cpu": 1e10, "cuda": 1e13}
"""Low estimates of fp64 FLOP/s, to decide beforehand whether a reference takes less than a minute."""


@dataclass(frozen=True, slots=True)
class Eager:
    """Plain eager in one dtype: its own error, and the operators it dispatches. Stored in the reference's folder."""

    noise: dict[str, float]
    """Relative L2 of each output against the reference."""
    runs: Dispatched
    """In one call."""


def reference_dtype(module: nn.Module, io_elements: int, flops: int, device: str) -> str:
    """fp64 where the module with its inputs and outputs fits in 8 GiB and the calls in a minute; else fp32."""
    needed = 8 * (sum(p.numel() for p in module.parameters()) + 2 * io_elements)
    seconds = flops / _FP64_FLOPS[device]
    return "fp64" if needed <= _FP64_BYTES and seconds <= _FP64_SECONDS else "fp32"


def _run(loaded: LoadedSubject, dtype: str, device: str, threads: int) -> list[tuple[Tensor, ...]]:
    """Plain eager on every set of inputs; leaves the module in that dtype."""
    with flags(dtype, threads):
        module = loaded.module.to(device=device, dtype=TORCH_DTYPES[dtype])
        return [
            tuple(output.cpu() for output in module(*cast_inputs(loaded.workload, inputs, dtype, device).values()))
            for inputs in loaded.sets
        ]


def make_reference(job: ReferenceJob, report: Report) -> ReferenceResult:
    """Write the reference outputs and noise floors that `job.folder` lacks; reference.json is written last.

    Raises BakeoffError for a wrong checkpoint, or where eager's outputs are not as the component's spec states.
    """
    started = time.monotonic()
    folder = Path(job.folder)
    subject = job.subject
    report("weights")
    loaded = load_subject(subject)
    about_file = folder / "reference.json"
    reused = about_file.exists()
    if not reused:
        work = loaded.workload.work
        dtype = reference_dtype(loaded.module, work.io_elements, work.flops * len(loaded.sets), subject.device)
        report("reference", f"eager {dtype}")
        outputs = _run(loaded, dtype, subject.device, subject.threads)
        check_outputs(loaded, outputs[0])
        names = [spec.name for spec in loaded.workload.outputs]
        folder.mkdir(parents=True, exist_ok=True)
        for index, tensors in enumerate(outputs):
            kept = {name: tensor.contiguous() for name, tensor in zip(names, tensors, strict=True)}
            save_file(kept, folder / f"set{index}.safetensors")
        made = {"dtype": dtype, "weights": loaded.weights, "sets": len(loaded.sets), "reference": folder.name}
        write_atomically(about_file, msgspec.json.encode(made))
    about = read_about(folder)
    if about["weights"] != loaded.weights:
        raise BakeoffError(
            f"The weights changed during the sweep: reference {folder.name} was made from others. Run the sweep again.",
            code="bad-checkpoint",
        )
    missing = [dtype for dtype in job.dtypes if not (folder / f"eager-{dtype}.json").exists()]
    references = [load_reference(folder, index) for index in range(len(loaded.sets))] if missing else []
    rounded = False
    for dtype in sorted(missing, key=lambda name: TORCH_DTYPES[name].itemsize, reverse=True):
        report("reference", f"noise floor of eager {dtype}")
        if rounded:
            loaded = load_subject(subject)  # a cast to half precision cannot be undone, one to fp64 can
        outputs = _run(loaded, dtype, subject.device, subject.threads)
        rounded = TORCH_DTYPES[dtype].itemsize < 4
        eager = Eager(_noise(loaded, outputs, references, dtype), _operators(loaded, dtype, subject))
        write_atomically(folder / f"eager-{dtype}.json", msgspec.json.encode(eager))
    return ReferenceResult(folder.name, str(about["dtype"]), time.monotonic() - started, reused and not missing)


def _noise(
    loaded: LoadedSubject, outputs: list[tuple[Tensor, ...]], references: list[dict[str, Tensor]], dtype: str
) -> dict[str, float]:
    noise = {}
    for position, spec in enumerate(loaded.workload.outputs):
        entries = [
            difference(tensors[position], reference[spec.name], expected_dtype(spec, TORCH_DTYPES[dtype]))
            for tensors, reference in zip(outputs, references, strict=True)
        ]
        largest = max(entry.rel_l2 for entry in entries)  # infinite where eager's own output is not finite
        noise[spec.name] = largest if math.isfinite(largest) else 0.0
    return noise


def _operators(loaded: LoadedSubject, dtype: str, subject: Subject) -> Dispatched:
    """The operators that one call of the module dispatches; the module is in that dtype already."""
    inputs = cast_inputs(loaded.workload, loaded.sets[0], dtype, subject.device)
    with flags(dtype, subject.threads):
        return dispatched(lambda: loaded.module(*inputs.values()))


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


def read_about(folder: Path) -> dict[str, str | int]:
    about: dict[str, str | int] = msgspec.json.decode((folder / "reference.json").read_bytes())
    return about


def load_reference(folder: Path, index: int) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = load_file(folder / f"set{index}.safetensors")
    return tensors


def read_eager(folder: Path, dtype: str) -> Eager:
    eager: Eager = msgspec.json.decode((folder / f"eager-{dtype}.json").read_bytes(), type=Eager)
    return eager
