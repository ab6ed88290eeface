"""Makes the reference of a loop: its first units in eager and high precision, and eager's own error in other dtypes.

One runner runs both the reference and a mix, so that an error of the runner would be in both and not be seen here. Only
tests show that the runner is right: loops written out in plain torch must give the same values, and faulty loops (a
window that is not shifted, a latent of the unit before) must be found.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import msgspec
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bakeoff.backends.backend import ModuleEngine
from bakeoff.machine.files import write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import Key, Pipeline
from bakeoff.models.types import parse_device
from bakeoff.models.weights import share_weights
from bakeoff.process.jobs import LoopReferenceJob, LoopSubject, floor_file
from bakeoff.record.pipeline import Curve
from bakeoff.worker.pipeline.feeder import ProgramEngine, call_of
from bakeoff.worker.pipeline.parity import (
    ABOUT,
    Begin,
    LoopAbout,
    LoopFiles,
    Noise,
    calls_of_first,
    first_units,
    pipeline_of,
    program_subject,
    unit_file,
)
from bakeoff.worker.pipeline.rollout import equivalents, free_curves, nudged
from bakeoff.worker.pipeline.runner import LoopRunner
from bakeoff.worker.reference.error import difference
from bakeoff.worker.reference.files import ReferenceFiles
from bakeoff.worker.reference.precision import Precision, Widened, in_first_that_fits, reference_precisions
from bakeoff.worker.reference.sensitivity import least_difference
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import LoadedSubject, cast_inputs, load_subject
from bakeoff.worker.torch_flags import flags, read_flags


def make_loop_reference(job: LoopReferenceJob, report: Report) -> None:
    """Write the reference's units and eager's errors in the job's dtypes, as far as `job.folder` lacks them.

    Raises BakeoffError for a wrong checkpoint, or if eager's outputs are not finite.
    """
    folder, subject = Path(job.folder), job.subject
    files = LoopFiles(ReferenceFiles(folder, None))
    eager: Eager | None = None

    def begin(run: str) -> Begin | None:
        """Return a function that reports each unit of a rollout, whose deadline then starts anew."""
        return (lambda unit: report("loop reference", f"{run}, unit {unit} of {job.units}")) if job.free else None

    if not (folder / ABOUT).exists():
        report("weights")
        eager = made = load_eager(subject, subject.loop.programs)

        def write(chosen: Precision) -> None:
            report("loop reference", f"eager {chosen.dtype} on {chosen.device}")
            _write_units(folder, made, job.units, chosen, begin(f"eager {chosen.dtype}"))

        in_first_that_fits(made.precisions(min(job.units, subject.loop.checked_units)), write)
    about = files.about()
    for dtypes in job.dtypes:
        if (folder / floor_file(dtypes)).exists():
            continue
        if eager is None:
            report("weights")
            eager = load_eager(subject, subject.loop.programs)
        if about.weights != eager.weights:
            raise BakeoffError(
                f"The weights changed: loop reference {folder.name} was made from others. Run the pipeline again.",
                code="bad-checkpoint",
            )
        of = f"eager {', '.join(sorted(set(dtypes.values())))}"
        report("loop reference", f"noise floor of {of}")
        if job.free:
            curves = _equivalents(eager, dtypes, files, of, begin)
            write_atomically(folder / floor_file(dtypes, free=True), msgspec.json.encode(curves))
        floor = _floor(eager, dtypes, files, begin(of))
        write_atomically(folder / floor_file(dtypes), msgspec.json.encode(floor))
        if any(one.given.rounds(dtypes[slot]) for (slot, _), one in eager.programs.items()):
            eager = None  # a cast that rounds cannot be undone, one to fp64 can


@dataclass(frozen=True, slots=True)
class Eager:
    """Programs of a loop as they were loaded, to be run in eager."""

    pipeline: Pipeline
    subject: LoopSubject
    programs: Mapping[Key, LoadedSubject]

    @property
    def weights(self) -> dict[str, str]:
        """Fingerprint of the weights of each `slot.program`."""
        return {str(key): one.weights for key, one in self.programs.items()}

    def precisions(self, units: int) -> tuple[Precision, ...]:
        """Return the ways in which the first `units` units can be computed, best first."""
        device, programs = self.subject.device, self.programs
        calls = calls_of_first(self.subject.loop, units)
        if not all(one.component.fp64 for one in programs.values()):
            return (Precision("fp32", device),)
        return reference_precisions(
            nn.ModuleList(one.module for one in programs.values()),
            2 * sum(one.work.io_elements for one in programs.values()),
            [(one.work, calls.get(key, 0)) for key, one in programs.items()],
            device,
            all(one.component.runs_on_host for one in programs.values()),
        )

    def runner(
        self,
        dtypes: Mapping[str, str],
        device: str,
        search: bool = False,
        wide: bool = False,
        built: Mapping[Key, ProgramEngine] | None = None,
    ) -> LoopRunner:
        """Return a runner of the loop, with the modules cast in place to the dtypes of their slots.

        `search` is that of `flags`. With `wide`, modules compute in their dtype even where their code casts to another
        one. Programs that are `built` take the place of those in eager.
        """
        subject, engines = self.subject, dict(built or {})
        for key, one in self.programs.items():
            if key in engines:
                continue
            dtype = dtypes[key.slot]
            module = one.cast(dtype, device)
            module = Widened(module, dtype) if wide else module
            inputs = cast_inputs(one.workload, one.sets[0], dtype, device)
            with flags(dtype, subject.threads, search):
                engine = ModuleEngine(module, rebinding=True)
                call = call_of(subject.loop, key, one.component)
                outputs = [spec.name for spec in one.workload.outputs]
                engines[key] = ProgramEngine(engine, outputs, inputs, read_flags(), call)
        return LoopRunner(self.pipeline, replace(subject, device=parse_device(device)), engines, dtypes)


def load_eager(subject: LoopSubject, keys: Collection[Key]) -> Eager:
    """Load the programs' modules with one set of inputs; the programs of a slot share their weights if they can."""
    found: dict[Key, LoadedSubject] = {}
    for key in keys:
        one = load_subject(program_subject(subject, key))
        first = next((other.module for other_key, other in found.items() if other_key.slot == key.slot), None)
        if first is not None:
            share_where_equal(first, one.module)
        found[key] = replace(one, sets=one.sets[:1])
    return Eager(pipeline_of(subject), subject, found)


def share_where_equal(source: nn.Module, target: nn.Module) -> bool:
    """Make `target` share the weights of `source`, and return True; return False if their parameters differ."""
    try:
        share_weights(source, target)
    except BakeoffError as error:
        if error.code != "bad-input":
            raise
        return False
    return True


def _write_units(folder: Path, eager: Eager, units: int, chosen: Precision, begin: Begin | None) -> None:
    loop = eager.subject.loop
    outputs: list[dict[str, Tensor]] = []
    folder.mkdir(parents=True, exist_ok=True)
    with flags(chosen.dtype, eager.subject.threads):
        runner = eager.runner(dict.fromkeys(loop.presets, chosen.dtype), chosen.device, wide=True)
        for unit, values in first_units(runner, units, begin=begin):
            kept = {name: value.to("cpu", copy=True).contiguous() for name, value in values.items()}
            bad = next((name for name, value in kept.items() if not torch.isfinite(value).all()), None)
            if bad is not None:
                raise BakeoffError(
                    f"unit {unit} of the eager loop: {bad} is not finite. Check the weights and the pipeline's code.",
                    code="wrong-output",
                )
            save_file(kept, folder / f"{unit_file(unit)}.safetensors")
            if unit < loop.checked_units:  # a scene may stand still later, which is no fault of a mix
                outputs.append({name: kept[name] for name in loop.outputs if name in kept})
    about = LoopAbout(folder.name, chosen.dtype, chosen.device, units, eager.weights, _sensitivity(outputs[1:]))
    write_atomically(folder / ABOUT, msgspec.json.encode(about))


def _sensitivity(units: list[dict[str, Tensor]]) -> dict[str, float]:
    """Return the smallest relative L2 between consecutive units, by output; outputs that never change are left out."""
    found: dict[str, float] = {}
    for name in units[0] if units else ():
        pairs = [((a[name],), (b[name],)) for a, b in pairwise(units) if a[name].shape == b[name].shape]
        if pairs and not all(torch.equal(*one, *other) for one, other in pairs):
            found |= least_difference([name], pairs)
    return found


def _floor(eager: Eager, dtypes: Mapping[str, str], files: LoopFiles, begin: Begin | None) -> Noise:
    subject, search = eager.subject, eager.subject.device == "cuda"
    noise: Noise = {}
    with flags("fp32", subject.threads, search):
        runner = eager.runner(dtypes, subject.device, search)
        for unit, values in first_units(runner, files.about().units, files.state_before, begin):
            reference = files.unit(unit)
            errors = {name: difference(value, reference[name], value.dtype).rel_l2 for name, value in values.items()}
            noise[str(unit)] = {name: error if math.isfinite(error) else 0.0 for name, error in errors.items()}
    return noise


def _equivalents(
    eager: Eager, dtypes: Mapping[str, str], files: LoopFiles, of: str, begin: Callable[[str], Begin | None]
) -> list[Curve]:
    """Return the curves of equivalents of eager in these dtypes, as `free_curves` does; `of` names them in reports."""
    subject, found = eager.subject, list[Curve]()
    search = subject.device == "cuda"
    for one in equivalents(subject.device, subject.threads):
        with flags("fp32", one.threads, search), one.attention:
            other = replace(eager, subject=replace(subject, threads=one.threads))
            runner = other.runner(dtypes, subject.device, search)
            start = None if one.nudge is None else nudged(runner, one.nudge)
            found += free_curves(one.name, runner, subject.loop, files, start, begin(f"{of}, {one.name}"))
    return found
