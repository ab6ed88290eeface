"""One variant from build to numbers: build, prove, check, time, meter. An exception on the way is a status."""

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import Backend, BuildContext, Call, Engine, Unavailable, Unsupported
from bakeoff.host import nvml
from bakeoff.job import MeasureJob
from bakeoff.models.errors import BakeoffError
from bakeoff.record import BuildCost, Finding, Measurement, OutputParity, Parity, ProofRecord, Scalar, Status
from bakeoff.variant import options_of
from bakeoff.worker import memory
from bakeoff.worker.bench import Bench, Report, cast_inputs, open_bench, synchronise
from bakeoff.worker.failures import encodable, first_line, is_out_of_memory
from bakeoff.worker.judge import load_reference, read_about, read_noise
from bakeoff.worker.parity import Difference, difference, expected_dtype, limits, nothing, worst
from bakeoff.worker.precision import TORCH_DTYPES, flags, settings
from bakeoff.worker.timing import Timing, time_calls

_THERMAL = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
_POWER_CAP = 0x04

T = TypeVar("T")


class _StageError(Exception):
    """An exception of the variant's own code, with the status it means."""

    def __init__(self, status: Status, error: BaseException) -> None:
        super().__init__(str(error))
        self.status: Status = status
        self.error = error


@dataclass(frozen=True, slots=True)
class _Built:
    engine: Engine
    calls: tuple[Call, ...]
    cost: BuildCost
    facts: dict[str, Scalar]


def measure(job: MeasureJob, report: Report) -> Measurement:
    """Measure one variant. Raises BakeoffError only where the request itself is wrong (a bad checkpoint)."""
    report("weights", "")
    bench = open_bench(job.subject)
    device = job.subject.device
    with flags(job.dtype, job.subject.threads):
        context_bytes = _context_bytes(device)
        try:
            return _measure(job, bench, context_bytes, report)
        except _StageError as stage:
            return Measurement(
                status=stage.status,
                reason=_reason(stage.error),
                settings=settings(),
                weights=bench.weights,
                traceback=encodable("".join(traceback.format_exception(stage.error))[-8000:]),
            )


def _measure(job: MeasureJob, bench: Bench, context_bytes: int, report: Report) -> Measurement:
    device, dtype = job.subject.device, job.dtype
    module = bench.module.to(device=device, dtype=TORCH_DTYPES[dtype])
    sets = tuple(cast_inputs(bench.workload, inputs, dtype, device) for inputs in bench.sets)
    weights_bytes = memory.tensors_bytes(list(module.parameters()) + list(module.buffers()))

    report("build", "")
    built = _build(job, module, sets)
    if job.build_only:
        return Measurement(status="ok", build=built.cost)
    engine, calls = built.engine, built.calls

    report("prove", "")
    proof = _call_stage(engine.prove)

    report("check", "")
    judged = _Judged(job, bench)
    checked = [judged.differences(index, _call_stage(call)) for index, call in enumerate(calls)]

    flush = _flush(device, weights_bytes)
    timing = _call_stage(lambda: time_calls(calls, device, job.policy, engine.activity, report, flush))
    late = [judged.differences(index, outputs) for index, outputs in enumerate(timing.outputs)]
    device_state, throttled, capped = _device_state(device, timing)
    cold, flush = flush is not None, None  # its buffer must not be metered

    report("memory", "")
    io_bytes = memory.tensors_bytes(tensor for inputs in sets for tensor in inputs.values())
    metered = _call_stage(
        lambda: memory.meter(lambda: [call() for call in calls], device, weights_bytes, io_bytes, context_bytes)
    )
    recompiles = _call_stage(engine.prove).recompiles
    _call_stage(engine.close)

    parity = judged.parity([*checked, *late])
    findings = list(timing.findings)
    if cold:
        findings.append(Finding("cold", "caches are flushed before each timed call: the weights would fit in them"))
    if capped:
        findings.append(Finding("power-cap", "the GPU was at its power cap in the timed window"))
    if timing.others > job.policy.contention / 4:
        findings.append(Finding("contention", f"other processes took {timing.others:.0%} of all cores while timing"))
    status, reason = _verdict(proof.fell_back, parity, timing, recompiles, throttled, job)
    return Measurement(
        status=status,
        reason=reason,
        findings=tuple(findings),
        build=built.cost,
        proof=ProofRecord(
            fell_back=proof.fell_back,
            graphs=proof.graphs,
            graph_breaks=proof.graph_breaks,
            recompiles=recompiles,
            operators_inside=dict(proof.operators_inside),
            operators_outside=dict(proof.operators_outside),
            facts={**built.facts, **proof.facts},
            graph_hash=proof.graph_hash,
        ),
        parity=parity,
        latency=timing.latency,
        throughput=timing.throughput,
        memory=metered,
        settings=settings(),
        device_state=device_state,
        weights=bench.weights,
    )


def _verdict(
    fell_back: str,
    parity: Parity,
    timing: Timing,
    recompiles: Sequence[str],
    throttled: Sequence[str],
    job: MeasureJob,
) -> tuple[Status, str]:
    if fell_back:
        return "fell_back", f"what ran is {fell_back}"
    if not parity.passed:
        return "parity_failed", next(output.problem for output in parity.outputs if not output.passed)
    if timing.moved:
        because = f": {recompiles[-1]}" if recompiles else ""
        return "unstable", f"compiled in the timed window ({', '.join(timing.moved)}){because}"
    if throttled:
        return "unstable", f"the GPU was throttled in the timed window: {', '.join(throttled)}"
    if timing.others > job.policy.contention:
        return "unstable", f"other processes took {timing.others:.0%} of all cores in the timed window"
    return "ok", ""


def _build(job: MeasureJob, module: nn.Module, sets: Sequence[Mapping[str, Tensor]]) -> _Built:
    """Prepare, build and call once. Anything that goes wrong here is `build_failed` or what the backend itself says."""
    steps = [(resolve_backend(step.backend), step.options) for step in job.steps]
    cache = Path(job.cache_folder)
    warm = cache.is_dir() and any(cache.iterdir())
    context = BuildContext(
        variant=job.variant,
        device="cuda" if job.subject.device == "cuda" else "cpu",
        dtype=job.dtype,
        threads=job.subject.threads,
        work_dir=Path.cwd(),
        cache_dir=cache,
    )
    facts: dict[str, Scalar] = {}
    before = memory.resident_bytes()
    memory.reset_host_peak()
    started = time.monotonic()
    try:
        for backend, options in steps[:-1]:
            assert backend.prepare is not None, "the plan settles what cannot be composed"
            module, learned = backend.prepare(module, sets[0], options_of(backend, options), context)
            facts.update(learned)
        engine = _build_last(*steps[-1], module, sets[0], context)
        calls = tuple(engine.bind(inputs) for inputs in sets)
        calls[0]()
        synchronise(job.subject.device)
        seconds = time.monotonic() - started
        artifact_bytes = engine.prove().artifact_bytes
    except Exception as error:
        raise _StageError(_status_of(error, "build_failed"), error) from error
    caches = any(backend.caches for backend, _ in steps)
    cost = BuildCost(
        cache=("warm" if warm else "cold") if caches else "none",
        build_s=seconds,
        peak_bytes=max(0, memory.host_peak_bytes() - before),
        children_peak_bytes=memory.children_peak_bytes() or None,
        artifact_bytes=artifact_bytes,
    )
    return _Built(engine, calls, cost, facts)


def _build_last(
    backend: Backend, options: Mapping[str, Any], module: nn.Module, inputs: Mapping[str, Tensor], context: BuildContext
) -> Engine:
    assert backend.build is not None, "the plan settles what cannot be composed"
    return backend.build(module, inputs, options_of(backend, dict(options)), context)


def _call_stage(action: Callable[[], T]) -> T:
    try:
        return action()
    except Exception as error:
        raise _StageError(_status_of(error, "call_failed"), error) from error


def _status_of(error: BaseException, otherwise: Status) -> Status:
    if isinstance(error, Unavailable):
        return "unavailable"
    if isinstance(error, Unsupported):
        return "unsupported"
    return "oom" if is_out_of_memory(error) else otherwise


def _reason(error: BaseException) -> str:
    line = first_line(error)
    return line.partition(": ")[2] if isinstance(error, BakeoffError) else line


class _Judged:
    """The references of the job's subject, read when a set is compared."""

    def __init__(self, job: MeasureJob, bench: Bench) -> None:
        self._folder = Path(job.judge_folder)
        self._about = read_about(self._folder)
        if self._about["weights"] != bench.weights:
            raise BakeoffError(f"the judge {self._folder.name} saw other weights than this worker; run the sweep again")
        self._specs = bench.workload.outputs
        self._dtype = TORCH_DTYPES[job.dtype]
        self._limits = limits(self._specs, read_noise(self._folder, job.dtype), bench.component.tolerance_fp32)

    def differences(self, index: int, outputs: object) -> list[Difference]:
        reference = load_reference(self._folder, index)
        if not isinstance(outputs, tuple | list) or len(outputs) != len(self._specs):
            found = f"{len(outputs)} outputs" if isinstance(outputs, tuple | list) else f"a {type(outputs).__name__}"
            problem = f"is not there to compare: a call gave {found}, the workload states {len(self._specs)}"
            return [nothing(problem) for _ in self._specs]
        return [
            difference(output, reference[spec.name], expected_dtype(spec, self._dtype))
            for spec, output in zip(self._specs, outputs, strict=True)
        ]

    def parity(self, rounds: Sequence[Sequence[Difference]]) -> Parity:
        outputs: list[OutputParity] = [
            worst(spec, [entries[position] for entries in rounds], self._limits[spec.name])
            for position, spec in enumerate(self._specs)
        ]
        return Parity(
            judge=self._folder.name,
            judge_dtype=str(self._about["dtype"]),
            sets=int(self._about["sets"]),
            outputs=tuple(outputs),
        )


def _context_bytes(device: str) -> int:
    """Start the device's runtime and say what it takes by itself."""
    if device == "cpu":
        return 0
    torch.cuda.init()
    torch.ones(1, device="cuda")
    synchronise(device)
    return memory.device_meter().used_bytes() - torch.cuda.memory_reserved()


def _flush(device: str, weights_bytes: int) -> Callable[[], None] | None:
    """On CUDA, what empties the L2 for components whose weights fit it; None where nothing is flushed."""
    if device == "cpu":
        return None
    cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    if weights_bytes > cache_bytes:
        return None
    buffer = torch.empty(4 * cache_bytes, dtype=torch.int8, device=device)

    def flush() -> None:
        buffer.zero_()

    return flush


def _device_state(device: str, timing: Timing) -> tuple[dict[str, Scalar], list[str], bool]:
    """What the device said right after timing, the throttle reasons that make a row unstable, and the power cap."""
    state: dict[str, Scalar] = {"other_cpu_share": round(timing.others, 4)}
    if device == "cpu":
        return state, [], False
    with nvml() as library:
        if library is None:
            return state, [], False
        handle = library.nvmlDeviceGetHandleByUUID(memory.device_uuid())
        reasons = int(library.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        state |= {
            "sm_mhz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM),
            "memory_mhz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM),
            "power_w": library.nvmlDeviceGetPowerUsage(handle) / 1000,
            "temperature_c": library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU),
            "throttle_reasons": reasons,
        }
    return state, [name for bit, name in _THERMAL.items() if reasons & bit], bool(reasons & _POWER_CAP)
