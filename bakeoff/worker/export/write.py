"""Writes an artifact's programs and its sample: drawn inputs with the outputs of eager in high precision.

Each program is written by the backend that builds it. For a stream, several frames are run with state carried between
them, so that an artifact can be verified over a rollout from its folder alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
import torch
from msgspec import UNSET
from safetensors.torch import save_file
from torch import Tensor

from bakeoff.backends import resolve_backend
from bakeoff.backends.format import WriteRequest
from bakeoff.export.loader import State, carry
from bakeoff.export.manifest import HELD, SAMPLE, Port, Program, Sample, Span
from bakeoff.export.sample import BLOCK, MOST, every, key, repeated, sizes, thinned
from bakeoff.machine.processes import peak_bytes
from bakeoff.models.component import Stream, TensorSpec
from bakeoff.models.errors import BakeoffError
from bakeoff.models.options import options_of
from bakeoff.models.words import counted
from bakeoff.process.jobs import SampleJob, SampleResult, WriteJob, WriteResult
from bakeoff.record.regimes import BATCH
from bakeoff.worker.build import build_context, prepare
from bakeoff.worker.reference.error import MOST_NOISE, difference, expected_dtype, limits
from bakeoff.worker.reference.files import set_name
from bakeoff.worker.reference.make import check_outputs, run_eager
from bakeoff.worker.reference.precision import Precision, in_first_that_fits, in_high_precision, reference_precisions
from bakeoff.worker.reference.regimes import (
    counted_regimes,
    model_outputs,
    regime_names,
    regime_sets,
    scaled_inputs,
)
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import LoadedSubject, cast_input, cast_subject, load_subject, plain_eager
from bakeoff.worker.torch_flags import flags

_MOST_FLOPS = {"cpu": 6e12, "cuda": 1e16}
"""Most FLOPs of the sample's frames, and of its regimes, by device: about a minute of fp32 on a few cores."""
_VALUES = {"normal": "drawn from N(0, 1)", "uniform": "drawn from [0, 1)", "binary": "0 or 1"}
Drawn = dict[tuple[int, str], dict[str, Tensor]]
"""(frame, program) to the program's inputs in fp32; a large input is stored as one block, to be repeated."""


def write_program(job: WriteJob, report: Report) -> WriteResult:
    """Prepare the module and let the last backend write the program; return the files and the peak memory.

    Raises BakeoffError if the backend cannot write it, if the folder cannot be written, or if no layer was quantised.
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
    return WriteResult(written, peak_bytes())


def make_sample(job: SampleJob, report: Report) -> SampleResult:
    """Write the sample's file, and return facts on the sample, its programs and their limits.

    Raises BakeoffError as `load_subject` does, if weights of programs differ, or if eager's outputs are not finite.
    """
    report("weights")
    loaded_subjects = _open(job)
    main = next(iter(loaded_subjects.values()))
    subject = job.subjects[0]
    stream = main.component.stream(main.config, main.workload.name)
    frames = _frames(job, loaded_subjects, stream)
    drawn = _draw(loaded_subjects, stream, frames, subject.input_seed)
    first = drawn[0, main.workload.name]
    main = replace(main, sets=({spec.name: repeated(first[spec.name], spec.shape) for spec in main.workload.inputs},))
    regimes = tuple(name for name in regime_names(main) if name not in BATCH)
    if len(regimes) * main.work.flops > _MOST_FLOPS[subject.device]:
        regimes = ()
    calls = [(loaded_subjects[name].work, 1) for _, name in drawn] + [(main.work, len(regimes))]
    elements = 2 * sum(loaded.work.io_elements for loaded in loaded_subjects.values())

    def compute(precision: Precision) -> dict[str, Tensor]:
        found = _run(loaded_subjects, stream, drawn, precision, job)
        sets = regime_sets(main, regimes)
        for name, outputs in run_eager(main, precision.dtype, precision.device, subject.threads, sets):
            for spec, output in zip(main.workload.outputs, outputs, strict=True):
                found[key(name, main.workload.name, "out", spec.name)] = thinned(output, every(spec.elements)).double()
        return found

    def run(chosen: Precision) -> tuple[str, dict[str, Tensor]]:
        report("reference", f"eager {chosen.dtype} on {chosen.device}, {counted(frames, 'frame')}")
        return in_high_precision(chosen.dtype, lambda dtype: compute(Precision(dtype, chosen.device)))

    ways = reference_precisions(main.module, elements, calls, subject.device, main.component.runs_on_host)
    precision, wanted = in_first_that_fits(ways, run)
    report("reference", f"noise floor of eager {job.dtype}")
    own = compute(Precision(job.dtype, subject.device))
    usual = {
        f"{name}/{output}": min(limit, 1.0)
        for name, loaded in loaded_subjects.items()
        for output, limit in limits(
            loaded.workload.outputs,
            _noise(loaded, wanted, own, range(frames)),
            loaded.component.tolerance_fp32,
            job.dtype,
            job.quantisation,
        ).items()
    }
    in_regimes = _regime_limits(main, wanted, own, regimes, usual)
    tensors = {
        key(frame, name, "in", port): tensor for (frame, name), given in drawn.items() for port, tensor in given.items()
    }
    specs = {
        f"{name}/{spec.name}": spec for name, loaded in loaded_subjects.items() for spec in loaded.workload.outputs
    }
    unused = {model_outputs(name) for name in regimes if name not in in_regimes}
    for name, tensor in wanted.items():
        frame, program, _, output = name.split("/", 3)
        if frame not in unused:
            spec = specs[f"{program}/{output}"]
            tensors[name] = tensor.to(
                getattr(torch, "float32" if spec.floating else spec.dtype), copy=True
            ).contiguous()
    save_file(tensors, job.file)
    sample = Sample(
        file=SAMPLE,
        frames=frames,
        reference=precision,
        every={name: every(spec.elements) for name, spec in specs.items() if every(spec.elements) > 1},
        limits=usual,
        regimes=in_regimes or UNSET,
    )
    spans = {name: _span(main.sets[0][name]) for name in scaled_inputs(main)}
    programs = tuple(
        _about(loaded, job.dtype, wanted, spans if name == main.workload.name else {})
        for name, loaded in loaded_subjects.items()
    )
    return SampleResult(sample, programs, stream, asdict(main.config), main.weights, peak_bytes())


def _open(job: SampleJob) -> dict[str, LoadedSubject]:
    """Load all programs' modules by workload, sharing one set of weights. Raises BakeoffError if weights differ."""
    loaded_subjects: dict[str, LoadedSubject] = {}
    for subject in job.subjects:
        loaded = load_subject(subject)
        for first in list(loaded_subjects.values())[:1]:
            if first.weights != loaded.weights:
                raise BakeoffError(
                    f"{subject.workload} and {first.workload.name} have different weights, so they are not one model.",
                    code="not-exportable",
                )
            loaded.module.load_state_dict(first.module.state_dict(keep_vars=True), assign=True)
        loaded_subjects[subject.workload] = replace(loaded, sets=())
    return loaded_subjects


def _frames(job: SampleJob, loaded_subjects: Mapping[str, LoadedSubject], stream: Stream | None) -> int:
    if stream is None:
        return 1
    flops = sum(loaded_subjects[name].work.flops for name in stream.each)
    return max(2, min(job.frames, int(_MOST_FLOPS[job.subjects[0].device] / max(1, flops))))


def _draw(loaded_subjects: Mapping[str, LoadedSubject], stream: Stream | None, frames: int, seed: int) -> Drawn:
    carried = {(one.to, one.input) for one in stream.carries} if stream else set()
    each = stream.each if stream else tuple(loaded_subjects)
    names = [(0, name) for name in stream.opening] if stream else []
    names += [(frame, name) for frame in range(frames) for name in each]
    drawn: Drawn = {}
    for frame, name in names:
        drawn[frame, name] = {}
        for spec in loaded_subjects[name].workload.inputs:
            shared = (name, spec.name) in carried  # programs that read the same state are given the same input
            if frame == 0 or not shared:
                asked = f"{seed}:sample:{frame}:{'' if shared else name}:{spec.name}"
                drawn[frame, name][spec.name] = loaded_subjects[name].source.one(_block(spec), asked)
    return drawn


def _block(spec: TensorSpec) -> TensorSpec:
    return spec if spec.elements <= MOST or spec.held else replace(spec, shape=(BLOCK,))


def _run(
    loaded_subjects: Mapping[str, LoadedSubject],
    stream: Stream | None,
    drawn: Drawn,
    precision: Precision,
    job: SampleJob,
) -> dict[str, Tensor]:
    """Run eager in one dtype on one device, and return its outputs, thinned, as fp64.

    The modules stay in that dtype and on that device.
    """
    dtype, device = precision.dtype, precision.device
    state: State = {}
    kept: dict[str, Tensor] = {}
    component = next(iter(loaded_subjects.values())).component
    with flags(dtype, job.subjects[0].threads), plain_eager(component):
        for (frame, name), given in drawn.items():
            workload = loaded_subjects[name].workload
            module = loaded_subjects[name].cast(dtype, device)
            held = {
                spec.name: cast_input(spec, repeated(given[spec.name], spec.shape), dtype, device)
                for spec in workload.inputs
                if spec.name in given
            }
            opening = stream is not None and name in stream.opening
            if stream is not None and frame == 0 and not opening:
                state.update({(one.to, one.input): held[one.input] for one in stream.carries if one.to == name})
            inputs = (held[one.name] if one.name in held else state[name, one.name] for one in workload.inputs)
            outputs = module(*inputs)
            check_outputs(loaded_subjects[name], outputs)
            named = {spec.name: output for spec, output in zip(workload.outputs, outputs, strict=True)}
            for port, output in named.items():
                kept[key(frame, name, "out", port)] = thinned(output, every(output.numel())).cpu().double()
            if stream is not None and not opening:
                carry(state, stream.carries, name, named)
    return kept


def _regime_limits(
    loaded: LoadedSubject,
    wanted: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
    names: Sequence[str],
    usual: Mapping[str, float],
) -> dict[str, dict[str, float]]:
    """Return limits of floating outputs by regime, where the model's own answer says something and eager is right."""
    main, specs, outputs = loaded.workload.name, loaded.workload.outputs, dict[str, tuple[Tensor, ...]]()
    frames: list[int | str] = [0, *map(model_outputs, names)]
    for frame in frames:
        keys = [key(frame, main, "out", spec.name) for spec in specs]
        if wanted.keys() & own.keys() >= {*keys}:
            outputs[str(frame or set_name(0))] = tuple(wanted[one] for one in keys)
    noise = {name: _noise(loaded, wanted, own, [model_outputs(name)]) for name in counted_regimes(loaded, outputs)}
    ports = [spec.name for spec in specs if spec.floating]
    return {
        name: {port: min(max(2 * errors[port], usual[f"{main}/{port}"]), 1.0) for port in ports}
        for name, errors in noise.items()
        if errors.keys() >= {*ports}
    }


def _span(values: Tensor) -> Span:
    size, largest = map(float, sizes(values))
    return size, size, largest


def _noise(
    loaded: LoadedSubject, wanted: Mapping[str, Tensor], own: Mapping[str, Tensor], frames: Iterable[int | str]
) -> dict[str, float]:
    """Return the relative L2 error of eager in the variant's own dtype, by output: the largest of all frames.

    Outputs whose error is so large that eager is no measure of them are left out.
    """
    found = {}
    for spec in loaded.workload.outputs:
        keys = [key(frame, loaded.workload.name, "out", spec.name) for frame in frames]
        errors = [difference(own[one], wanted[one], torch.float64).rel_l2 for one in keys if one in own]
        largest = max(errors, default=0.0)
        if largest <= MOST_NOISE:
            found[spec.name] = largest
    return found


def _about(loaded: LoadedSubject, dtype: str, wanted: Mapping[str, Tensor], spans: Mapping[str, Span]) -> Program:
    workload = loaded.workload

    def ports(specs: Sequence[TensorSpec], values: Mapping[str, str]) -> tuple[Port, ...]:
        return tuple(
            Port(
                spec.name,
                str(expected_dtype(spec, dtype)).removeprefix("torch."),  # type: ignore[arg-type]
                spec.shape,
                values[spec.name],
                spec.signal,
                "ordered" if spec.order else "row-major",
                spec.order or UNSET,
                spans.get(spec.name, UNSET) if specs is workload.inputs else UNSET,
            )
            for spec in specs
        )

    first = {spec.name: wanted[key(0, workload.name, "out", spec.name)] for spec in workload.outputs}
    ranges = {
        name: f"{float(tensor.min()):.3g} to {float(tensor.max()):.3g} in the sample" if tensor.numel() else "none"
        for name, tensor in first.items()
    }
    return Program(
        name=workload.name,
        summary=workload.summary,
        file="",
        constants=(),
        inputs=ports(workload.inputs, {spec.name: _values(spec) for spec in workload.inputs}),
        outputs=ports(workload.outputs, ranges),
        frames_per_call=workload.frames_per_call,
        call=workload.call or msgspec.UNSET,
        result=workload.result or msgspec.UNSET,
    )


def _values(spec: TensorSpec) -> str:
    if spec.draw == "given":
        return HELD if spec.held else "given, or drawn from the given values"
    if isinstance(spec.draw, tuple):
        return " or ".join(f"{value:.6g}" for value in spec.draw)
    return _VALUES[spec.draw]
