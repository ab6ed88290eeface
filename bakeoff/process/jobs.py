"""Requests of the parent to a worker and their results, as JSON in the worker's own folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bakeoff.backends.format import Written
from bakeoff.export.manifest import Checked, Program, Sample
from bakeoff.machine.floors import Ceiling
from bakeoff.models.brought.about import Source
from bakeoff.models.component import Quantisation, Stream, Work
from bakeoff.models.errors import ErrorCode
from bakeoff.models.options import OptionValue
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.models.sizes import AskedSizes
from bakeoff.models.types import Device, Dtype
from bakeoff.record.policy import Policy
from bakeoff.record.schema import Measurement, TraceRecord


@dataclass(frozen=True, slots=True)
class Subject:
    """Computation that rows share: a component's workload with its weights and inputs, whatever computes it."""

    component: str
    """Name in the table or package.module:SPEC."""
    preset: str
    workload: str
    batch: int
    weight_seed: int
    input_seed: int
    checkpoint: str
    """Path of a weights' file, or empty for seeded random weights."""
    device: Device
    threads: int
    checkpoint_hash: str = ""
    """Hash of that file's content when the sweep was planned."""


@dataclass(frozen=True, slots=True)
class BackendStep:
    """One backend of a composition; all but the last prepare, the last builds."""

    backend: str
    """Name in the table or package.module:BACKEND."""
    options: dict[str, OptionValue]


@dataclass(frozen=True, slots=True)
class DescribeJob:
    """Run a brought model and write what it is into `folder`."""

    DONE_BY: ClassVar[str] = "brought.describe.describe_model"
    source: Source
    name: str
    preset: str
    seed: int
    threads: int
    folder: str
    sizes: AskedSizes = ()
    batches: tuple[int, ...] = ()
    """Multiples of the given batch, other than 1."""
    device: str = "cpu"
    """Device of its calls."""


@dataclass(frozen=True, slots=True)
class CountJob:
    """Count the work of calls of a component, and check the number of parameters of its presets."""

    DONE_BY: ClassVar[str] = "work.count_works"
    component: str
    """Name in the table or package.module:SPEC."""
    calls: tuple[tuple[str, str, int], ...]
    """Preset, workload and batch."""


@dataclass(frozen=True, slots=True)
class CountResult:
    works: tuple[Work | None, ...]
    """In the order of the calls; None where the network raised."""
    problems: tuple[str, ...]
    """Errors that those raised, each in one sentence."""


@dataclass(frozen=True, slots=True)
class ReferenceJob:
    """Write the reference outputs of a subject, and the error of plain eager in each dtype, into `folder`."""

    DONE_BY: ClassVar[str] = "reference.make.make_reference"
    subject: Subject
    dtypes: tuple[str, ...]
    folder: str


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """Build, prove, check, time and meter one variant."""

    DONE_BY: ClassVar[str] = "measure.measure"
    subject: Subject
    variant: str
    steps: tuple[BackendStep, ...]
    dtype: Dtype
    policy: Policy
    reference_folder: str
    cache_folder: str
    quantisation: Quantisation = ""
    reference_hashes: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file in the reference folder, by name."""
    overlapped: bool = False
    """Other builds run at the same time, so that the seconds of this one would say little."""
    engine: str = ""
    """Hash of all that decides the engine but weights and inputs, under which its build keeps it; "": it does not."""
    opens: bool = False
    """Open the engine that an earlier build kept; built where there is none."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """Job to rebuild, in a fresh process, a measured variant where its caches were cold, then to build and trace it if
    its policy asks for a trace."""

    DONE_BY: ClassVar[str] = "trace.trace_build"
    measure: MeasureJob
    rebuild: bool


@dataclass(frozen=True, slots=True)
class TraceResult:
    warm_s: float | None
    """Seconds of the second build; None where none was asked for, and where others ran at the same time."""
    trace: TraceRecord | None
    outside: dict[str, int]
    """Operators that ran elsewhere than in the compiler, by the trace."""
    inside: dict[str, int]
    problem: str = ""
    """Reason why there is no trace, or no warm build."""
    instead: str = ""
    """What the traced call ran instead of what was prepared, as a noun phrase; "" if nothing shows that."""
    warm_cpu_s: float | None = None
    """CPU seconds of the second build; None where none was asked for."""

    @property
    def rebuilt(self) -> bool:
        """Whether there was a second build, and it succeeded."""
        return self.warm_s is not None or self.warm_cpu_s is not None


NOTHING_TRACED = TraceResult(None, None, {}, {})


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """A measurement, and the trace of the engine that was timed."""

    measurement: Measurement
    traced: TraceResult | None = None
    """None where no trace is asked for, or a build of its own is needed for it."""


@dataclass(frozen=True, slots=True)
class CompareJob:
    """Build and check one variant, then time a block of calls for each number received, until `stop`."""

    DONE_BY: ClassVar[str] = "compare.serve_blocks"
    measure: MeasureJob
    heap_offset_bytes: int = 0
    """Random heap offset allocated first, so that memory layout varies between processes."""
    queued: bool = False
    """Time each block as the throughput clock does, one sample of calls without a wait between them; otherwise each
    call alone, synchronised."""


@dataclass(frozen=True, slots=True)
class SlotProgramJob:
    """One program of a pipeline's slot: how it is built and what it is checked against, as in a sweep."""

    slot: str
    measure: MeasureJob


@dataclass(frozen=True, slots=True)
class DescribeLoopJob:
    """Run the first units of a pipeline, and say what they do."""

    DONE_BY: ClassVar[str] = "pipeline.describe.describe_loop"
    pipeline: str
    """Name in the table, FILE.py:CLASS or package.module:CLASS."""
    preset: str
    """"": the device's."""
    options: dict[str, OptionValue]
    device: Device
    threads: int
    seed: int
    folder: str
    """Folder in which the modules of its author are written."""


@dataclass(frozen=True, slots=True)
class LoopSubject:
    """Computation of a pipeline, whatever computes it: its loop, weights and inputs."""

    loop: Loop
    """With the preset and options that were asked for."""
    weight_seed: int
    input_seed: int
    checkpoints: dict[str, str]
    """Slot to the path of its weights file; a slot without one has seeded random weights."""
    device: Device
    threads: int


@dataclass(frozen=True, slots=True)
class LoopReferenceJob:
    """Run the first units of a loop in eager and high precision, and in eager at each of `dtypes`, and write both."""

    DONE_BY: ClassVar[str] = "pipeline.reference.make_loop_reference"
    subject: LoopSubject
    dtypes: tuple[dict[str, str], ...]
    """Slot to dtype, one for each combination that a mix has."""
    units: int
    folder: str


def floor_file(dtypes: Mapping[str, str]) -> str:
    """Return the file in which such a job writes the error of eager in these dtypes of the slots."""
    return f"floor-{','.join(f'{slot}={dtype}' for slot, dtype in sorted(dtypes.items()))}.json"


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """Options of a traced pass after the timed units."""

    level: int = 3
    """1 to 5, as bakeoff.trace.tags describes them."""
    units: int = 5
    """Traced ones."""
    top: int = 20
    """Kernels and operators that are listed."""
    memory: bool = False
    """Record allocations, and on CUDA a memory snapshot."""
    compiler: bool = False
    """Build all programs once more with the compiler's log."""
    capture: bool = False
    """Leave the tracing to Nsight: NVTX ranges within a capture window, and no trace of our own."""


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """A traced pass after the last timed unit of a mix."""

    options: ProfileOptions
    folder: str
    """The cache folder; files are recorded by their paths within it."""
    file: str
    """File of the trace."""
    snapshot: str = ""
    """File of CUDA's memory snapshot; "": none."""


@dataclass(frozen=True, slots=True)
class PipelineJob:
    """Build all programs of a mix, check them and the loop, then run a unit for each command, until `stop`."""

    DONE_BY: ClassVar[str] = "pipeline.serve.serve_units"
    subject: LoopSubject
    mix: str
    programs: tuple[SlotProgramJob, ...]
    policy: Policy
    reference_folder: str
    """Folder of the loop's references."""
    reference_hashes: dict[str, str]
    cache_folder: str
    heap_offset_bytes: int = 0
    profile: ProfileRequest | None = None


@dataclass(frozen=True, slots=True)
class HeadersJob:
    """Build a trivial module with a backend on the CPU, and keep what was compiled before its graph: C++ headers, and
    libraries that show which vector instructions can be used."""

    DONE_BY: ClassVar[str] = "headers.make_headers"
    step: BackendStep
    folder: str
    threads: int


@dataclass(frozen=True, slots=True)
class HeadersResult:
    names: tuple[str, ...]
    """Names of the files that are now in the folder of the job; empty where nothing was compiled that can be shared."""


@dataclass(frozen=True, slots=True)
class CeilingsJob:
    """Measure a device's ceilings: copies, reads, and products and convolutions of each of the dtypes."""

    DONE_BY: ClassVar[str] = "clocks.ceilings.measure_ceilings"
    device: str
    threads: int
    dtypes: tuple[str, ...]
    """Some of machine.floors.WORK_DTYPES."""


@dataclass(frozen=True, slots=True)
class CeilingsResult:
    ceilings: tuple[Ceiling, ...]
    others: float
    """Share of all cores that other processes took meanwhile."""


@dataclass(frozen=True, slots=True)
class ClockJob:
    """Compare the lab's clock with a busy wait and with torch's own timer."""

    DONE_BY: ClassVar[str] = "clocks.clock_check.check_clock"
    device: str


@dataclass(frozen=True, slots=True)
class ClockResult:
    probe_spread: float
    """Relative difference of two halves of a fixed-work probe: the host's own variation."""
    wait_ratio: float
    """Measured time of a busy wait of 5 ms over 5 ms; the median of all samples."""
    wait_samples: int
    timer_ratio: float
    """The throughput clock over torch.utils.benchmark.Timer.blocked_autorange, for one callable, alternating."""
    latency_overhead_ns: int
    throughput_overhead_ns: int
    attempts: int
    """Number of tries until the probe repeated."""


@dataclass(frozen=True, slots=True)
class SampleJob:
    """Make the sample of an artifact: inputs, and eager's outputs for them in high precision."""

    DONE_BY: ClassVar[str] = "export.write.make_sample"
    subjects: tuple[Subject, ...]
    """One for each program; the first is the artifact's main one."""
    dtype: str
    quantisation: Quantisation
    frames: int
    """Most frames of a stream; fewer where eager takes too long."""
    file: str


@dataclass(frozen=True, slots=True)
class SampleResult:
    sample: Sample
    programs: tuple[Program, ...]
    """Programs as the component states them; without files."""
    stream: Stream | None
    config: dict[str, Any]
    """The preset's, adapted to the checkpoint where there is one."""
    weights: str
    """Fingerprint of the weights."""
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class WriteJob:
    """Write the program of one workload into a folder, in the artifact format of the variant's last backend."""

    DONE_BY: ClassVar[str] = "export.write.write_program"
    measure: MeasureJob
    folder: str


@dataclass(frozen=True, slots=True)
class WriteResult:
    written: Written
    peak_bytes: int
    children_peak_bytes: int


@dataclass(frozen=True, slots=True)
class VerifyJob:
    """Open an artifact as a deployment would, call it with its sample, and time it."""

    DONE_BY: ClassVar[str] = "export.verify.verify_artifact"
    folder: str
    device: str
    threads: int
    allow_mismatch: bool
    timed: bool
    memory_bytes: int
    """Memory limit of its process; 0: the free memory."""


@dataclass(frozen=True, slots=True)
class VerifyResult:
    checked: tuple[Checked, ...]
    frames: int
    """Frames of the sample's stream that were computed and compared."""
    not_run: str
    """Reason why the others were not; "" if all were."""
    open_s: float
    """Until the main program is open, checking all hashes included."""
    samples_ns: tuple[int, ...]
    peak_bytes: int
    mismatches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InspectJob:
    """Call a user's callable, time the modules that it calls, and record the inputs of some of them."""

    DONE_BY: ClassVar[str] = "inspection.inspect.inspect_callable"
    file: str
    name: str
    """Name of the function in that file."""
    passes: int
    """Timed ones, with the instrumentation and without it alike."""
    cwd: str
    """Working folder while the user's code runs."""
    record: tuple[str, ...] = ()
    """Names of modules and methods whose calls are recorded."""
    folder: str = ""
    """Folder in which folders of recorded modules are written."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result file: a value of the job's result type, or why there is none."""

    refused: str = ""
    """Message of the worker's BakeoffError where the request is wrong; "" where it is not."""
    refused_code: ErrorCode = ""
    """The code of that error."""
    out_of_memory: str = ""
    value: Any = None


Job = (
    DescribeJob
    | DescribeLoopJob
    | CountJob
    | ReferenceJob
    | MeasureJob
    | TraceJob
    | CompareJob
    | LoopReferenceJob
    | PipelineJob
    | HeadersJob
    | CeilingsJob
    | ClockJob
    | SampleJob
    | WriteJob
    | VerifyJob
    | InspectJob
)
