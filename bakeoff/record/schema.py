"""The record: everything about one run of one variant, as immutable, versioned data.

Bytes and integer nanoseconds are stored; means, medians and intervals are computed from the samples and never stored.
Fields that are added within a schema have a default, so that records made before them are still read.
"""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from statistics import median
from typing import Annotated, Any, Literal

import msgspec

from bakeoff.machine.floors import Ceiling
from bakeoff.machine.host import Host
from bakeoff.machine.identity import Machine
from bakeoff.models.component import Quantisation
from bakeoff.models.types import Scalar
from bakeoff.record.finding import Finding
from bakeoff.record.monitor import Monitored
from bakeoff.record.objective import LATENCY, Objective
from bakeoff.record.policy import Policy
from bakeoff.record.regimes import Regime, range_text
from bakeoff.record.statistics import Mode, Summary, modes, summarise_ns
from bakeoff.variant import Variant

SCHEMA = 2
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]

Status = Literal[
    "ok",
    "unavailable",
    "unsupported",
    "timeout",
    "oom",
    "crashed",
    "build_failed",
    "call_failed",
    "fell_back",
    "parity_failed",
    "unstable",
    "built",
]
MEASURED: tuple[Status, ...] = ("ok", "fell_back", "parity_failed", "unstable")
"""Statuses of rows that were timed and checked; only `ok` is ranked. `oom` keeps its numbers if a check after the
timing ran out of memory. A row that is `built` has engines for a GPU that its machine lacks, and no times."""
NEVER_RUN: tuple[Status, ...] = ("unavailable", "unsupported")
"""Statuses of rows that cannot run on their machine."""


class Samples(array):  # type: ignore[type-arg]
    """Positive integer nanoseconds in the order they were taken.

    Eight bytes each, so that ten thousand records fit in memory.
    """

    __slots__ = ()

    def __new__(cls, values: Iterable[int] = ()) -> "Samples":
        return super().__new__(cls, "q", values)  # type: ignore[return-value]  # typeshed: array, not the subclass


@dataclass(frozen=True)
class Clock:
    """Samples of one clock, nanoseconds per call."""

    samples_ns: Samples
    warmup_ns: Samples = field(default_factory=Samples)
    calls_per_sample: int = 1
    """A sample covers fewer calls if they became so slow that its block was ended early; `calls` counts them all."""
    stopped: str = ""
    """Reason why sampling ended: `steady` (a narrow interval of calls of one kind), `narrow` (the interval alone, after
    the full time), `modes` (two kinds of calls, after the full time), `cap` (the time) or `samples` (the maximum of
    2,000)."""
    after_pause_ns: Samples = field(default_factory=Samples)
    """Times of calls before which the instrument paused or overwrote memory; not part of any statistic."""
    calls: int = 0
    """All calls in the window, including those whose samples were not kept; 0 in records that lack it."""

    @cached_property
    def figures(self) -> Summary | None:
        """Mean, median and other statistics, computed once; None for a clock without samples."""
        return summarise_ns(self.samples_ns) if self.samples_ns else None

    @cached_property
    def modes(self) -> tuple[Mode, Mode] | None:
        """The two modes of the samples, computed once; None if there is only one."""
        return modes(self.samples_ns)

    def without_samples(self) -> "Clock":
        """Return the clock with its figures, but without the samples that they are computed from."""
        made = replace(self, samples_ns=Samples(), warmup_ns=Samples(), after_pause_ns=Samples())
        made.__dict__["figures"] = self.figures  # as `cached_property` keeps them
        return made


@dataclass(frozen=True, slots=True)
class Overhead:
    """Time of the clocks themselves per call: the median over calls that do nothing and return as many tensors."""

    latency_ns: int
    throughput_ns: int


@dataclass(frozen=True, slots=True)
class SelftestStamp:
    """Result of the newest selftest on this machine when a record was made."""

    passed: bool
    quick: bool
    created: str
    code: str
    """Hash of the code that was tested; see bakeoff.record.source."""


@dataclass(frozen=True, slots=True)
class BuildCost:
    """Cost of building an engine. `build_s` runs from the start of the build until the first call returned.

    Precompiling torch's own C++ headers, for which only a user's first build waits, is no part of it.
    """

    cache: Literal["none", "cold", "warm", "stored"]
    """State of the cache folder when the build began; `stored`: an earlier build had stored the engine itself."""
    build_s: float | None
    """Seconds of the build; None if other builds ran at the same time (`overlapped`)."""
    warm_s: float | None = None
    """Seconds of a build in a fresh process with the caches of a cold build."""
    peak_bytes: int | None = None
    """Peak resident size of the worker minus its resident size before the build."""
    children_peak_bytes: int | None = None
    """Upper bound of the peak resident size of any compiler process. Linux keeps the peak of the forking process over
    exec, so with large weights this is the worker's own peak."""
    artifact_bytes: int | None = None
    untimed_s: float | None = None
    """Seconds of this project's own work within the build that `build_s` leaves out, such as hashing all weights for
    the key of its cache. None if `build_s` is None, and in records that lack it, whose `build_s` includes these
    seconds."""
    cpu_s: float | None = None
    """CPU seconds of the worker and of all that it started within the time of `build_s`; None in records that lack
    it."""
    overlapped: bool = False
    """Whether other builds ran at the same time."""
    warm_cpu_s: float | None = None
    """CPU seconds of the warm build; None if there was none, and in records that lack it."""

    @property
    def shown_as_cpu(self) -> bool:
        """Whether CPU seconds are shown for one of the two builds, because other builds ran at the same time."""
        return self.overlapped or (self.warm_s is None and self.warm_cpu_s is not None)


@dataclass(frozen=True, slots=True)
class Memory:
    """Peak memory in bytes, measured in a separate pass. None: this host has no such meter."""

    weights_bytes: int
    io_bytes: int
    host_peak_bytes: int | None = None
    """Peak resident size of the worker during the calls."""
    host_call_bytes: int | None = None
    """`host_peak_bytes` minus the resident size before the calls."""
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    device_peak_bytes: int | None = None
    """Peak reported by the device; the only figure that includes allocations outside torch's allocator."""
    device_meter: str = ""
    """Source of the device's figures, and whether they are peaks: the parent polls NVML during the calls; if NVML has
    no figure, the worker reads the level after the calls."""
    unexplained_bytes: int | None = None
    """Device peak minus the bytes that torch reserved and those of the CUDA context at start."""
    context_bytes: int | None = None
    """Device memory when only the CUDA context existed."""
    device_build_peak_bytes: int | None = None
    """Device peak while the engine was built, up to its first call."""
    allocator: str = ""
    """Handling of freed memory by malloc during the calls: `kept` as in the timed window, or `returned` to the kernel.
    Empty in records that lack it, which were metered with freed memory returned."""
    helpers_peak_bytes: int = 0
    """Peak resident size of processes that the backend started and that lived during the calls; included in
    `host_peak_bytes`."""
    unseen_bytes: int = 0
    """Upper bound of what `host_peak_bytes` may lack: the largest process that ended within the calls, whose figure
    also counts the worker's size at the fork (getrusage(2), RUSAGE_CHILDREN), and files in memory that were held
    open."""


LEAST_SENSITIVITY = 10.0
"""Least ratio between the difference of outputs for different inputs and the limit of their error."""


@dataclass(frozen=True, slots=True)
class OutputParity:
    """Error of one output against the reference; each figure is the worst over all input sets."""

    name: str
    rel_l2: float | None
    limit: float
    passed: bool
    max_abs: float | None = None
    cosine: float | None = None
    sqnr_db: float | None = None
    signal_db: float | None = None
    """PSNR of pictures, SNR of audio."""
    problem: str = ""
    sensitivity: float | None = None
    """Least relative L2 between the references of two different sets of inputs: how much an engine that ignores its
    inputs would be off. None in records that lack it."""
    small_sensitivity: float | None = None
    """Least relative L2 between the references of a set of inputs and of the same set slightly changed."""
    lossless: bool | None = None
    """Whether the output equals eager's in the same dtype bit for bit in each call that was compared. None if that is
    unknown: two runs of eager differ, or the record lacks it."""

    @property
    def insensitive(self) -> bool:
        """Whether outputs of different inputs differ by less than ten times the limit."""
        return self.sensitivity is not None and self.sensitivity < LEAST_SENSITIVITY * self.limit

    @property
    def of_limit(self) -> float:
        """The error as a share of its limit; infinity if it could not be compared."""
        return inf if self.rel_l2 is None else self.rel_l2 / self.limit


def all_known(found: Iterable[bool | None]) -> bool | None:
    """Return False if any value is False, else None if any is unknown, else True."""
    kinds = set(found)
    return False if False in kinds else None if None in kinds else True


@dataclass(frozen=True, slots=True)
class Parity:
    """The check of all outputs against the reference."""

    reference: str
    """Id of the reference: the name of its folder in the cache."""
    reference_dtype: str
    """Dtype that eager computed the reference in: fp64 or fp32."""
    sets: int
    """Number of input sets that were compared."""
    outputs: tuple[OutputParity, ...]
    reference_device: str = ""
    """Device that eager computed the reference on; empty in records that lack it."""
    own_change: float | None = None
    """Factor by which every second changed value of input set 0 was scaled, drawn anew for each sweep; None where the
    changed values are those of every run."""
    regimes: tuple[Regime, ...] = ()
    """Comparisons on inputs of another kind; () in records that lack them, and where no input may be scaled."""
    repeats: bool | None = None
    """Whether two equal calls, the second after freed memory was overwritten, gave equal bits; None in records that
    lack it."""

    @property
    def passed(self) -> bool:
        return all(output.passed for output in self.outputs) and not any(regime.wrong for regime in self.regimes)

    @property
    def problem(self) -> str:
        """Why the row fails: its first wrong output, or else the first regime in which it must be right."""
        wrong = (*(one.problem for one in self.outputs if not one.passed), *(one.wrong for one in self.regimes))
        return next(filter(None, wrong), "")

    @property
    def range_text(self) -> str:
        return range_text(self.regimes)

    @property
    def sqnr_db(self) -> float | None:
        """The worst output's signal-to-quantisation-noise ratio in dB; None if it is not defined."""
        if any(output.rel_l2 is None for output in self.outputs):
            return None
        return min((output.sqnr_db for output in self.outputs if output.sqnr_db is not None), default=None)

    @property
    def sqnr_text(self) -> str:
        """`sqnr_db` as text for tables; `exact` if every output equals the reference."""
        if self.sqnr_db is not None:
            return f"{self.sqnr_db:.1f}"
        return "exact" if all(output.rel_l2 == 0 for output in self.outputs) else ""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Time of one kernel, operator or node in one call of a traced build."""

    name: str
    calls: float
    ns: int
    own: bool
    """Whether the compiler generated it; False for operators of the framework and kernels of vendor libraries."""


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """Time of a call by kernel, from a traced build; its times are never used in tables."""

    kernels: tuple[KernelTime, ...]
    """The ten longest kernels."""
    kernel_count: int
    total_ns: int
    """Time of one traced call: wall time on a CPU; on CUDA the time between events around a call that never waits for
    the host, whether or not the profiler saw its kernels (in records without `span_ns`, the total of the kernels)."""
    named_ns: int
    """Total of all kernels that have a name; on CUDA the time in which at least one ran, with the pauses up to 5 us
    between one kernel and the next."""
    own_ns: int
    """Total of the compiler's own kernels."""
    graph_hash: str = ""
    fp8_ns: int = 0
    """Total of kernels with float8 operands, recognised by name; float8 weights alone multiply in the dtype."""
    span_ns: int = 0
    """On CUDA, time between events around an ordinary call that is not profiled; 0 elsewhere."""
    busy_ns: int = 0
    """On CUDA, time of a traced call in which at least one kernel ran; in the rest of `span_ns` the GPU is idle."""


@dataclass(frozen=True, slots=True)
class ProofRecord:
    """Proof that the backend ran: facts from the engine (bakeoff.backends.backend.Proof) and from the traced build."""

    fell_back: str = ""
    graphs: int | None = None
    graph_breaks: int | None = None
    recompiles: tuple[str, ...] = ()
    operators_inside: dict[str, int] = field(default_factory=dict)
    operators_outside: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Scalar] = field(default_factory=dict)
    graph_hash: str = ""
    quantised: dict[str, str] = field(default_factory=dict)
    """Layers or nodes that compute or store in less precision than the dtype, each with the method."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Layers or nodes that were not quantised, each with the reason."""
    trace: TraceRecord | None = None
    incomplete: str = ""
    """Facts that are missing; empty if the proof is complete."""


@dataclass(frozen=True, slots=True)
class WindowChecks:
    """Checks within the timed windows, at moments that an engine cannot foresee; their calls are in no sample."""

    compared: int
    """Number of calls whose outputs were compared with the reference in full, and overwritten afterwards."""
    changed: int
    """Number of calls on inputs whose values were changed in place, each compared in full."""
    seed: int
    """Seed of the random moments, and of the new values with which calls are timed after the window."""
    seconds: float
    """Time that the checks took, within the window but in none of its samples."""


@dataclass(frozen=True, slots=True)
class InputCopy:
    """Cost of copying inputs at each step, which a captured graph needs because it reads fixed buffers."""

    in_call: bool
    """Whether the call copies its inputs itself, so that its times include the copies; otherwise the caller copies them
    before the call."""
    bytes: int
    """Size of one set of inputs, including state that is carried from step to step."""
    samples_ns: Samples = field(default_factory=Samples)
    """Times of copying one set into the buffers that the calls read, synchronised, taken after the timed window; empty
    with `in_call`."""

    @property
    def median_ms(self) -> float | None:
        return median(self.samples_ns) / 1e6 if self.samples_ns else None


SizeStatus = Literal["ok", "parity_failed", "refused", "recompiled", "padded"]
"""`refused`: the engine raised. `recompiled`: it was compiled again for this size. `padded`: it takes as long as at the
largest size, although eager takes at most half as long."""


@dataclass(frozen=True)
class SizeResult:
    """Result at one size of an engine that was built for a range of sizes."""

    name: str
    """For example `x.0=8`."""
    which: Literal["usual", "seen", "unseen"]
    """The row's other figures are those of the usual size. An unseen size was not requested, but lies in the range."""
    inputs: dict[str, tuple[int, ...]]
    """Shape of each input."""
    status: SizeStatus
    reason: str = ""
    samples_ns: Samples = field(default_factory=Samples)
    """Samples of the latency clock; empty for the usual size, whose samples are the row's, and for a refused size."""
    first_call_ns: int = 0
    """Time of the first call at this size, compilation included; 0 for the usual one."""
    compilations: int = 0
    """Compilations or captures from binding the size to the end of its samples."""
    rel_l2: float | None = None
    """Error of the output that is nearest to its limit, or exceeds it the most."""
    limit: float | None = None
    lossless: bool | None = None
    """Whether all outputs equal eager's bit for bit, as in `OutputParity`; None for the usual size."""
    eager_ns: int = 0
    """Median of eager's calls in the same dtype at this size, made with the references."""

    @cached_property
    def figures(self) -> Summary | None:
        """Statistics of the samples; None without samples."""
        return summarise_ns(self.samples_ns) if self.samples_ns else None


@dataclass(frozen=True, slots=True)
class Measurement:
    """A worker's report on one variant; the parent makes a record from it."""

    status: Status
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    build: BuildCost | None = None
    proof: ProofRecord | None = None
    parity: Parity | None = None
    latency: Clock | None = None
    throughput: Clock | None = None
    memory: Memory | None = None
    overhead: Overhead | None = None
    settings: dict[str, Scalar] = field(default_factory=dict)
    device_state: dict[str, Scalar] = field(default_factory=dict)
    """Clocks, power and throttle reasons of the device, and the share of the CPU that other processes took."""
    weights: str = ""
    """Fingerprint of the weights."""
    traceback: str = ""
    window_checks: WindowChecks | None = None
    input_copy: InputCopy | None = None
    """None for engines that replay no captured graph, and in records that lack it."""
    sizes: tuple[SizeResult, ...] = ()
    """Results by size, from the smallest; empty if shapes are static."""
    in_loop_ns: Samples = field(default_factory=Samples)
    """Times of calls in a loop's sweep, each after an eager call of the loop's next module and 0.3 ms of other work;
    empty for a row of no loop."""

    @property
    def lossless(self) -> bool | None:
        """Whether all outputs equal eager's in the same dtype bit for bit, at each size; None if unknown."""
        if self.parity is None or not self.parity.outputs:
            return None
        others = (one.lossless for one in self.sizes if one.which != "usual")
        return all_known([*(output.lossless for output in self.parity.outputs), *others])


@dataclass(frozen=True, slots=True)
class BackendSource:
    """Source code of one backend of a variant."""

    name: str
    reference: str
    """Its name in the table, or the user's package.module:ATTRIBUTE."""
    file: str
    """Name of the file that defines it, without folders."""
    hash: str
    """Hash of that file and of the files of its package that it imports."""


@dataclass(frozen=True, slots=True)
class Source:
    """Hashes of the code that decides a row's numbers; two rows are compared only if these agree."""

    component: str
    """Hash of the component's files and of what they import from `models`."""
    backends: tuple[BackendSource, ...]
    instrument: str
    """Hash of the measuring side: the worker and the process that starts it."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Times of one row, eager fp32 of the subject, on each of several machines of one class."""

    sweep: str
    """The sweep whose rows are spread over these machines."""
    medians_ns: dict[str, int] = field(default_factory=dict)
    """Median of the latency clock by the machine's id; empty in the records of these rows themselves."""

    @property
    def spread(self) -> float:
        """Largest median over the smallest."""
        medians = self.medians_ns.values()
        return max(medians) / min(medians) if medians else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the record of a row and that of a mix have in common."""

    schema: int
    created: str
    """UTC, ISO 8601 with microseconds."""
    config_id: str
    """Hash of the variant or mix, the config, batch, seeds, weights and threads."""
    label: str
    """Text that tables show beside the name of a preset that does not have the published size."""
    threads: Positive
    weight_seed: int
    input_seed: int
    host: Host
    load_before: float
    """Number of other processes running before the sweep or run started: the one-minute load average, or the number of
    busy CPUs if that is less and the average still includes an earlier measurement of bakeoff."""
    environment: dict[str, str]
    versions: dict[str, str]
    commit: str
    dirty: bool
    wall_s: float
    log: str
    """The worker's log, relative to the cache folder."""
    machine: Machine
    """The machine and device that ran it."""
    code: str = ""
    """Hash of all code that determines numbers and statuses; the selftest's stamp has the same kind of hash."""
    note: str = ""
    selftest: SelftestStamp | None = None
    phase_s: dict[str, float] = field(default_factory=dict)
    """Seconds of each phase of the measuring worker, by the parent's clock."""
    monitored: Monitored | None = None
    """Recording of a monitor beside the worker (`--monitor`), of the worker's processes and of the whole GPU, which
    mixes that take turns share; None if none was requested or none ran."""
    monitored_window_ns: tuple[int, int] | None = None
    """Start and end of the timed window on the time axis of `monitored`, for a mix from the end of its first unit until
    its units were over; None if nothing was timed."""

    @property
    def libraries(self) -> dict[str, str]:
        """Version of each library; without bakeoff, whose code has hashes of its own."""
        return libraries(self.versions)


def weights_key(checkpoint: str) -> str:
    """Return the key of a weights file, the same whatever its name: its content hash, or its label if that has none."""
    return checkpoint.rpartition(", sha256 ")[2]


def libraries(versions: Mapping[str, str]) -> dict[str, str]:
    """Return the versions without bakeoff's own."""
    return {name: version for name, version in versions.items() if name != "bakeoff"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Header):
    """One run of one variant with any outcome; its fields follow those of `Header`."""

    kind: Literal["record"] = "record"
    sweep: str
    variant: Variant
    config: dict[str, Any]
    batch: Positive
    checkpoint: str
    """Name and content hash of the weights file; empty for random weights. `measurement.weights` is the fingerprint of
    the weights as they were loaded."""
    frames_per_call: int
    calls_per_frame: int | None
    parameters: Count
    flops: Count
    policy: Policy
    measurement: Measurement
    baseline: bool = False
    quantisation: Quantisation = ""
    """Class of a variant that computes in less than its dtype; each class has its own error budget."""
    minimum_bytes: int = 0
    """Least memory traffic of a call: weights, inputs and outputs, each moved once; 0 in records that lack it."""
    ceilings: tuple[Ceiling, ...] = ()
    """Peak rates of this machine that the row's status was decided with: the best known when it was made."""
    process: int = 1
    """Number of the fresh process (`--processes`), from 1; counted within each build if there are several."""
    build_number: int = 1
    """Number of the fresh build (`--builds`), from 1."""
    source: Source
    position: int = 0
    """Place in the order in which the rows of the sweep ran, from 1; 0 in records that lack it, and for a side of a
    comparison that is no row of the sweep."""
    order_seed: int | None = None
    """Seed of that order; None if it was not random: with a budget, rows expected to be the most informative run
    first."""
    convolution_flops: Count = 0
    """The part of `flops` in convolutions that fast algorithms can compute with fewer multiplications; 0 in records
    that lack it."""
    objective: Objective = LATENCY
    """Objective of its sweep (`--objective`)."""
    build_span_s: tuple[float, float] | None = None
    """Start and end of its worker's build, possibly beside other builds, in seconds since the sweep began; None in
    records that lack it."""
    alone_span_s: tuple[float, float] | None = None
    """Start and end of the time in which its worker had the machine to itself, in seconds since the sweep began; None
    in records that lack it."""
    node: str = ""
    """Name of the node that ran it, in a sweep over several nodes; otherwise empty."""
    asked: dict[str, Any] = field(default_factory=dict)
    """The named suite of its sweep as it was resolved: entries of bakeoff.toml, with what the command line replaced or
    added; empty without a suite."""
    calibration: Calibration | None = None
    """In a sweep that was spread over machines of one class: what they were compared by before; None otherwise."""

    @property
    def status(self) -> Status:
        return self.measurement.status

    @property
    def instrument(self) -> str:
        """Hash of the measuring side."""
        return self.source.instrument

    @property
    def backends(self) -> dict[str, str]:
        """Hash of the source of each backend, by name."""
        return {backend.name: backend.hash for backend in self.source.backends}

    @property
    def sources(self) -> dict[str, str]:
        """Hash of the source of the component and of each backend, by name."""
        return {"the component": self.source.component, **{f"backend {name}": of for name, of in self.backends.items()}}

    @property
    def weights_key(self) -> str:
        return weights_key(self.checkpoint)

    @property
    def latency(self) -> Summary | None:
        """Statistics of the latency clock; None if the row has no samples."""
        clock = self.measurement.latency
        return clock.figures if clock is not None else None

    @property
    def throughput(self) -> Summary | None:
        """Statistics of the throughput clock; None if the row has no samples."""
        clock = self.measurement.throughput
        return clock.figures if clock is not None else None

    @property
    def peak_bytes(self) -> int | None:
        """Peak device memory on CUDA; on a CPU the resident size of the worker and of what the backend started. None if
        it was not metered."""
        memory = self.measurement.memory
        if memory is None:
            return None
        return memory.device_peak_bytes if self.variant.device == "cuda" else memory.host_peak_bytes

    @property
    def video_fps(self) -> float | None:
        """Video frames per second if only this component ran; None if a call delivers no frame."""
        if self.latency is None or self.latency.median_ms <= 0 or not self.calls_per_frame:
            return None
        return self.frames_per_call * 1000.0 / self.latency.median_ms / self.calls_per_frame


@dataclass(frozen=True, slots=True)
class CeilingsRecord:
    """Peak rates of one machine and device, measured at one time with one number of threads."""

    kind: Literal["ceilings"] = field(default="ceilings", kw_only=True)
    schema: int
    created: str
    machine: Machine
    threads: int
    ceilings: tuple[Ceiling, ...]
    other_cpu_share: float
    """Share of all cores that other processes took during the measurement."""
    host: Host
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Supersede:
    """Entry that excludes a record from tables, with the reason. Records themselves are never deleted."""

    kind: Literal["supersede"] = field(default="supersede", kw_only=True)
    schema: int
    created: str
    supersedes: str
    reason: str


@dataclass(frozen=True, slots=True)
class SummaryRecord:
    """Records of one sweep or run, condensed to what the history reads, whose own files are gone."""

    kind: Literal["summary"] = field(default="summary", kw_only=True)
    schema: int
    created: str
    """That of its newest record."""
    machine: Machine
    sweep: str
    entries: dict[str, Any]
    """Each record by its id, which ends with the hash of its own file. In a file it lacks what it has in common with
    most; its clocks have `figures` and `modes` instead of samples, its parity the worst output, a round medians."""
    common: dict[str, Any] = field(default_factory=dict)
    """In a file, the values that most rows or mixes, and sides of finals, have; empty once it is read."""


@dataclass(frozen=True, slots=True)
class Round:
    """One block of calls of each side of a comparison, one after the other in random order."""

    order: tuple[int, ...]
    """Indices of the sides in the order they ran."""
    samples_ns: tuple[Samples, ...]
    """For each side, in the order of `Comparison.sides`, nanoseconds of its calls; the baseline of a final takes part
    until its speed-up is known."""
    pair: int = 0
    """Number of the set of fresh processes, one for each side."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two variants measured against each other, in a final with eager fp32 as a third side; figures are computed from
    the rounds."""

    kind: Literal["comparison"] = field(default="comparison", kw_only=True)
    schema: int
    created: str
    sweep: str
    """The sweep that made this comparison; empty for `bakeoff compare`."""
    how: Literal["interleaved", "in turn"]
    """`interleaved`: live workers in alternating blocks of calls. `in turn`: fresh processes one after the other,
    because they do not fit in memory together."""
    seed: int
    """Seed of the random order of blocks."""
    sides: tuple[Record, ...]
    """Records of the variants without samples: what ran, where, and how it was built and checked. The first two are
    compared; a third is the baseline of the speed-up that a final states."""
    rounds: tuple[Round, ...]
    findings: tuple[Finding, ...] = ()
    rows_ns: tuple[int, ...] = ()
    """Median time of a call of each side's row in the sweep by the goal's clock, in nanoseconds, 0 without one; empty
    for `bakeoff compare`. An early verdict whose size is far from theirs is not taken."""

    @property
    def a(self) -> Record:
        return self.sides[0]

    @property
    def b(self) -> Record:
        return self.sides[1]

    @property
    def machine(self) -> Machine:
        return self.a.machine

    @property
    def baseline(self) -> Record | None:
        """Record of eager fp32 if it ran as a third side; otherwise None."""
        return self.sides[2] if len(self.sides) > 2 else None

    @property
    def objective(self) -> Objective:
        """Objective of the comparison's sweep, or latency for `bakeoff compare`. Blocks are timed by the clock of its
        goal."""
        return self.a.objective
