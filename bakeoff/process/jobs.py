"""Defines the jobs that the parent gives to a worker and their results, stored as JSON in the worker's own folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bakeoff.backends.format import WrittenProgram
from bakeoff.export.manifest import OutputCheck, Program, Sample, Span
from bakeoff.export.warmup import WarmCall
from bakeoff.machine.floors import Ceiling
from bakeoff.models.brought.about import Source
from bakeoff.models.component import Quantisation, Stream, Work
from bakeoff.models.errors import ErrorCode
from bakeoff.models.options import OptionValue
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.models.sizes import Dimension
from bakeoff.models.types import Device, Dtype
from bakeoff.record.pipeline import Sustained
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
    """Path of a weights file; empty for seeded random weights."""
    device: Device
    threads: int
    checkpoint_hash: str = ""
    """Hash of the weights file's content when the sweep was planned."""
    python: str = ""
    """Interpreter of its workers; "" for the one of this lab."""


@dataclass(frozen=True, slots=True)
class BackendStep:
    """One backend of a composition; all but the last prepare, the last builds."""

    backend: str
    """Name in the table or package.module:BACKEND."""
    options: dict[str, OptionValue]


@dataclass(frozen=True, slots=True)
class DescribeJob:
    """Job to run a user's own model and write its description into `folder`."""

    DONE_BY: ClassVar[str] = "brought.describe.describe_model"
    source: Source
    name: str
    preset: str
    seed: int
    threads: int
    folder: str
    sizes: tuple[Dimension, ...] = ()
    batches: tuple[int, ...] = ()
    """Multiples of the given batch to describe as well, other than 1."""
    device: str = "cpu"
    """Device of the model's calls."""


@dataclass(frozen=True, slots=True)
class CountJob:
    """Job to count the work of calls of a component, and check the number of parameters of its presets."""

    DONE_BY: ClassVar[str] = "work.count_works"
    component: str
    """Name in the table or package.module:SPEC."""
    calls: tuple[tuple[str, str, int], ...]
    """Preset, workload and batch of each call."""


@dataclass(frozen=True, slots=True)
class CountResult:
    works: tuple[Work | None, ...]
    """Work of each call, in the order of the job; None if the network raised."""
    problems: tuple[str, ...]
    """Errors that networks raised, each in one sentence."""


@dataclass(frozen=True, slots=True)
class ReferenceJob:
    """Job to write a subject's reference outputs, and the error of plain eager in each dtype, into `folder`."""

    DONE_BY: ClassVar[str] = "reference.make.make_reference"
    subject: Subject
    dtypes: tuple[str, ...]
    folder: str
    own_folder: str = ""
    """Folder for the outputs of the sweep's own changed values; "" if it has none."""
    own_seed: int = 0
    """Seed of the factor of these values."""
    regimes: bool = True
    """Whether the model is also called on inputs of other kinds."""


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """Job to build, prove, check, time and meter one variant."""

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
    """Whether other builds run at the same time, so that the seconds of this one would say little."""
    engine: str = ""
    """Key under which the build stores its engine: a hash of all that decides it except weights and inputs; "" to store
    none."""
    opens: bool = False
    """Whether to open the engine that an earlier build stored; it is built if there is none."""
    target: str = ""
    """Architecture of another GPU for which the engine is built; it is then not called, and has no references."""
    next_slot: str = ""
    """The module that the row's loop calls next, after which calls are timed too; "" for a row of no loop."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """Job to build a variant without timing it, to be traced if the policy asks for a trace."""

    DONE_BY: ClassVar[str] = "trace.trace_build"
    measure: MeasureJob


@dataclass(frozen=True, slots=True)
class TraceResult:
    trace: TraceRecord | None
    outside: dict[str, int]
    """Number of calls by operator that ran outside the compiler's code, according to the trace."""
    inside: dict[str, int]
    problem: str = ""
    """Reason why there is no trace."""
    instead: str = ""
    """What the traced call ran instead of what was prepared, as a noun phrase; "" if nothing shows that."""


NOTHING_TRACED = TraceResult(None, {}, {})


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """A measurement, and the trace of the engine that was timed or of one that was then built for it."""

    measurement: Measurement
    traced: TraceResult | None = None
    """None if no trace was requested, or if the variant could not be measured."""


@dataclass(frozen=True, slots=True)
class CompareJob:
    """Job to build and check one variant, then time a block of calls for each number received, until `stop`."""

    DONE_BY: ClassVar[str] = "compare.serve_blocks"
    measure: MeasureJob
    heap_offset_bytes: int = 0
    """Random heap offset allocated first, so that memory layout varies between processes."""
    queued: bool = False
    """Whether to time each block as the throughput clock does, one sample of calls without a wait between them;
    otherwise each call is timed alone, synchronised."""


@dataclass(frozen=True, slots=True)
class DescribeLoopJob:
    """Job to run the first units of a pipeline and describe what they do."""

    DONE_BY: ClassVar[str] = "pipeline.describe.describe_loop"
    pipeline: str
    """Name in the table, FILE.py:CLASS or package.module:CLASS."""
    preset: str
    """Name of the preset; empty for the device's default."""
    options: dict[str, OptionValue]
    device: Device
    threads: int
    seed: int
    folder: str
    """Folder into which the modules of the pipeline's author are written."""


@dataclass(frozen=True, slots=True)
class LoopSubject:
    """Computation of a pipeline, whatever computes it: its loop, weights and inputs."""

    loop: Loop
    """With the preset and options that were asked for."""
    weight_seed: int
    input_seed: int
    checkpoints: dict[str, str]
    """Path of each slot's weights file; a slot without one has seeded random weights."""
    device: Device
    threads: int


@dataclass(frozen=True, slots=True)
class LoopReferenceJob:
    """Job to run the first units of a loop in eager at high precision and in eager at each of `dtypes`, and write
    both."""

    DONE_BY: ClassVar[str] = "pipeline.reference.make_loop_reference"
    subject: LoopSubject
    dtypes: tuple[dict[str, str], ...]
    """Dtype of each slot, for each combination of dtypes that a mix has."""
    units: int
    folder: str
    free: bool = False
    """Whether to also write how equivalents of eager at each of `dtypes` drift from the reference when they run free.
    """


def floor_file(dtypes: Mapping[str, str], free: bool = False) -> str:
    """Return the name of the file in which a `LoopReferenceJob` writes eager's error in these dtypes of the slots.

    With `free`, the file of the equivalents of eager that run free.
    """
    by_slot = ",".join(f"{slot}={dtype}" for slot, dtype in sorted(dtypes.items()))
    return f"{'free' if free else 'floor'}-{by_slot}.json"


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """Options of a traced pass after the timed units."""

    level: int = 3
    """1 to 5, as bakeoff.trace.tags describes them."""
    units: int = 5
    """Number of traced units."""
    memory: bool = False
    """Whether to record allocations, and on CUDA a memory snapshot."""
    compiler: bool = False
    """Whether to build all programs once more with the compiler's log."""
    capture: bool = False
    """Whether to leave the tracing to Nsight: NVTX ranges within a capture window, and no trace of our own."""
    folder: str = ""
    """The cache folder, set with the following when the mix is run; files are recorded by their paths within it."""
    file: str = ""
    """File of the trace."""
    snapshot: str = ""
    """File of CUDA's memory snapshot; empty for none."""


@dataclass(frozen=True, slots=True)
class PipelineJob:
    """Job to build all programs of a mix, check them and the loop, then run a unit for each command, until `stop`."""

    DONE_BY: ClassVar[str] = "pipeline.serve.serve_units"
    subject: LoopSubject
    programs: tuple[tuple[str, MeasureJob], ...]
    """Slot of each program, and how it is built and what it is checked against, as in a sweep."""
    policy: Policy
    reference_folder: str
    """Folder of the loop's references."""
    reference_hashes: dict[str, str]
    heap_offset_bytes: int = 0
    profile: ProfileOptions | None = None
    horizon_db: float | None = None
    """Threshold of a rollout's horizon: all units of the reference are compared, and none is timed. None: no rollout.
    """
    sustained: Sustained | None = None
    """How to run units from the first command until `stop`, without a command for each."""
    cold: bool = False
    """Whether the time from the start of the process counts: nothing is called or checked before the first unit but
    what a deployment must."""
    artifacts: dict[str, str] = field(default_factory=dict)
    """Folder of the artifact with each `slot.program`, to be loaded instead of built; empty: all are built."""
    warm: tuple[WarmCall, ...] = ()
    """Calls to make before the first session is opened."""
    schedule: str = ""
    """`sequential` or a schedule as mixes name it: what a unit takes is then predicted first. "": neither."""


@dataclass(frozen=True, slots=True)
class WarmUpJob:
    """Job to load a mix's artifacts, make some calls, and find those of its units that are not warm after them."""

    DONE_BY: ClassVar[str] = "pipeline.warm.find_unwarmed"
    subject: LoopSubject
    dtypes: dict[str, str]
    """Dtype of each slot."""
    artifacts: dict[str, str]
    """As in a PipelineJob."""
    calls: tuple[WarmCall, ...]


@dataclass(frozen=True, slots=True)
class CeilingsJob:
    """Job to measure a device's ceilings: copies, reads, and products and convolutions of each of the dtypes."""

    DONE_BY: ClassVar[str] = "clocks.ceilings.measure_ceilings"
    device: str
    threads: int
    dtypes: tuple[str, ...]
    """Subset of machine.floors.WORK_DTYPES."""


@dataclass(frozen=True, slots=True)
class CeilingsResult:
    ceilings: tuple[Ceiling, ...]
    others: float
    """Share of all cores that other processes took during the measurement."""


@dataclass(frozen=True, slots=True)
class ClockJob:
    """Job to compare the lab's clock with a busy wait and with torch's own timer."""

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
    """Job to make the sample of an artifact: inputs, and eager's outputs for them in high precision."""

    DONE_BY: ClassVar[str] = "export.write.make_sample"
    subjects: tuple[Subject, ...]
    """One for each program; the first is the artifact's main one."""
    dtype: str
    quantisation: Quantisation
    frames: int
    """Most frames of a stream; fewer are made if eager takes too long."""
    file: str


@dataclass(frozen=True, slots=True)
class SampleResult:
    sample: Sample
    programs: tuple[Program, ...]
    """Programs as the component states them, without files."""
    stream: Stream | None
    config: dict[str, Any]
    """Config of the preset, adapted to the checkpoint if there is one."""
    weights: str
    """Fingerprint of the weights."""
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class WriteJob:
    """Job to write the program of one workload into a folder, in the artifact format of the variant's last backend."""

    DONE_BY: ClassVar[str] = "export.write.write_program"
    measure: MeasureJob
    folder: str


@dataclass(frozen=True, slots=True)
class WriteResult:
    written: WrittenProgram
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class VerifyJob:
    """Job to open an artifact as a deployment would, call it with its sample, and time it."""

    DONE_BY: ClassVar[str] = "export.verify.verify_artifact"
    folder: str
    device: str
    threads: int
    allow_mismatch: bool
    timed: bool


@dataclass(frozen=True, slots=True)
class VerifyResult:
    checked: tuple[OutputCheck, ...]
    frames: int
    """Frames of the sample's stream that were computed and compared."""
    not_run: str
    """Reason why the remaining frames were not computed; empty if all were."""
    open_s: float
    """Seconds until the main program is open, including the check of all hashes."""
    samples_ns: tuple[int, ...]
    peak_bytes: int
    mismatches: tuple[str, ...]
    spans: dict[str, Span] = field(default_factory=dict)
    """`Port.checked` of the main program's inputs, by this verification."""


CONDITIONS = (
    "four threads at once",
    "four threads in turn",
    "fork",
    "spawn",
    "asyncio's executor",
    "a second artifact alive",
    "another number of threads",
    "grad modes",
    "strides and aliases",
    "files changed under it",
    "10,000 calls",
    "idle",
)
"""Conditions under which deployments call a program, in the order of their table."""


@dataclass(frozen=True, slots=True)
class ConditionJob:
    """Job to call an artifact's main program plainly, and then under one of CONDITIONS."""

    DONE_BY: ClassVar[str] = "export.conditions.check_condition"
    folder: str
    device: str
    threads: int
    allow_mismatch: bool
    condition: str
    idle_s: float
    """Seconds without a call, of the condition "idle"."""


@dataclass(frozen=True, slots=True)
class InspectJob:
    """Job to call a user's callable, time the modules that it calls, and record the inputs of some of them."""

    DONE_BY: ClassVar[str] = "inspection.inspect.inspect_callable"
    file: str
    name: str
    """Name of the function in that file."""
    passes: int
    """Number of timed passes with instrumentation, and as many without it."""
    cwd: str
    """Working folder while the user's code runs."""
    record: tuple[str, ...] = ()
    """Names of modules and methods whose calls are recorded."""
    folder: str = ""
    """Folder into which the folders of recorded modules are written."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Content of the result file: a value of the job's result type, or why there is none."""

    refused: str = ""
    """Message of the worker's BakeoffError if the request is wrong; otherwise empty."""
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
    | WarmUpJob
    | CeilingsJob
    | ClockJob
    | SampleJob
    | WriteJob
    | VerifyJob
    | ConditionJob
    | InspectJob
)
