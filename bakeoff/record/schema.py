"""The record: everything about one run of one variant, as immutable, versioned data.

Bytes and integer nanoseconds are stored; means, medians and intervals are computed from the samples and never stored.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from bakeoff.machine.floors import Ceiling
from bakeoff.machine.host import Host
from bakeoff.machine.known_issues import IssueCode
from bakeoff.models.component import Quantisation
from bakeoff.models.types import Scalar
from bakeoff.record.policy import Policy
from bakeoff.record.statistics import Summary, summarise_ns
from bakeoff.variant import Variant

SCHEMA = 1

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
]
MEASURED: tuple[Status, ...] = ("ok", "fell_back", "parity_failed", "unstable")
"""Statuses that keep their numbers; only `ok` is ranked."""


FindingCode = Literal[
    IssueCode,
    "below_floor",  # a median below the floor of the device
    "busy-host",  # load before the sweep started
    "cold",  # caches were flushed before each timed call
    "contention",  # other processes used the CPU in the timed window
    "drift",  # calls became slower within the timed window
    "gpu-shared",  # other processes used the GPU
    "leak",  # memory grew from call to call
    "leftovers",  # processes that outlived the worker
    "log",  # output that was not kept, because the log is bounded
    "not-idle",  # in a comparison, the side that waits used the CPU
    "power-cap",  # the GPU reached its power limit in the timed window
    "proof.incomplete",  # the certificate lacks a fact
    "rebuild",  # no traced build, and so no warm build time
    "recompiles",  # something was compiled in the timed window
    "settings",  # global torch settings that the backend left changed
    "slow-conv",  # a convolution kernel that is known to be slow
    "threads",  # more cores were busy than threads allowed
    "throttled",  # the GPU lowered its clock
    "unseen",  # results are stored from call to call instead of computed
    "warm-up",  # warm-up ended before samples were steady
]
"""What kind of observation a finding is: stable, for tests, reports and the selftest."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An observation on one run. `code` is stable, `text` is for people.

    `code` is any text when a record is read, so that records of other versions stay readable; `new_finding` takes
    only the codes of this version.
    """

    code: str
    text: str


def new_finding(code: FindingCode, text: str) -> Finding:
    """A finding to be stored; the type checker refuses a code that is not listed."""
    return Finding(code, text)


class Samples(array):  # type: ignore[type-arg]
    """Integer nanoseconds in the order they were taken; eight bytes each, so ten thousand records fit in memory."""

    __slots__ = ()

    def __new__(cls, values: Iterable[int] = ()) -> "Samples":
        return super().__new__(cls, "q", values)  # type: ignore[return-value]  # typeshed: array, not the subclass


@dataclass(frozen=True)
class Clock:
    """Samples of one clock, nanoseconds per call."""

    samples_ns: Samples
    warmup_ns: Samples = field(default_factory=Samples)
    calls_per_sample: int = 1
    stopped: str = ""
    """Why sampling ended: `narrow` (the interval), `cap` (the time) or `samples` (the maximum of 2,000)."""

    @cached_property
    def figures(self) -> Summary | None:
        """Mean, median and other statistics, computed once; None for a clock without samples."""
        return summarise_ns(self.samples_ns) if self.samples_ns else None


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
    """Hash of the code that was tested; see bakeoff.record.provenance."""


@dataclass(frozen=True, slots=True)
class BuildCost:
    """Cost of building an engine. `build_s` runs from the start of the build until the first call returned."""

    cache: Literal["none", "cold", "warm"]
    build_s: float
    warm_s: float | None = None
    """The same in a fresh process with the caches of a cold build."""
    peak_bytes: int | None = None
    """Peak resident size of the worker minus its resident size before the build."""
    children_peak_bytes: int | None = None
    """Upper bound of the peak resident size of any compiler process. Linux keeps the peak of the forking process over
    exec, so with large weights this is the worker's own peak."""
    artifact_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Peaks in bytes, measured in a separate pass. None: this host has no such meter."""

    weights_bytes: int
    io_bytes: int
    host_peak_bytes: int | None = None
    """Peak resident size of the worker during the calls."""
    host_call_bytes: int | None = None
    """The same minus the resident size before the calls."""
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    device_peak_bytes: int | None = None
    """As reported by the device; the only figure that includes allocations outside torch's allocator."""
    device_meter: str = ""
    unexplained_bytes: int | None = None
    """Device peak minus the bytes that torch reserved and those of the CUDA context at start."""


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


@dataclass(frozen=True, slots=True)
class Parity:
    """The check of all outputs against the reference."""

    judge: str
    """Id of the reference: the name of its folder in the cache."""
    judge_dtype: str
    """Dtype that eager computed the reference in: fp64 or fp32."""
    sets: int
    """Number of input sets that were compared."""
    outputs: tuple[OutputParity, ...]

    @property
    def passed(self) -> bool:
        return all(output.passed for output in self.outputs)

    @property
    def sqnr_db(self) -> float | None:
        """The worst output's signal-to-quantisation-noise ratio in dB; None where it is not defined."""
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
    """Generated by the compiler; False for operators of the framework and kernels of vendor libraries."""


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """Time of a call by kernel, from a traced build; its times are never used in tables."""

    kernels: tuple[KernelTime, ...]
    """The ten longest."""
    kernel_count: int
    total_ns: int
    """Of one traced call: wall time on a CPU, busy time of the device on CUDA."""
    named_ns: int
    """Total of all kernels that have a name."""
    own_ns: int
    """Total of the compiler's own kernels."""
    graph_hash: str = ""
    fp8_ns: int = 0
    """Total of kernels with float8 operands, recognised by name; float8 weights alone multiply in the dtype."""


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


@dataclass(frozen=True, slots=True)
class Record:
    """One run of one variant with any outcome."""

    schema: int
    created: str
    """UTC, ISO 8601 with microseconds."""
    sweep: str
    variant: Variant
    config_id: str
    """Hash of the variant, the config, batch, seeds, weights and threads; comparable records have equal hashes."""
    label: str
    """Text in tables beside a preset that does not have the published size."""
    config: dict[str, Any]
    batch: int
    weight_seed: int
    input_seed: int
    checkpoint: str
    """Name and size of the weights file (its content hash is `measurement.weights`); empty for random weights."""
    threads: int
    frames_per_call: int
    calls_per_frame: int | None
    parameters: int
    flops: int
    policy: Policy
    measurement: Measurement
    host: Host
    load_before: float
    """One-minute load average before the sweep started (during the sweep it would include the sweep itself)."""
    environment: dict[str, str]
    versions: dict[str, str]
    commit: str
    dirty: bool
    wall_s: float
    log: str
    """The worker's log, relative to the cache folder."""
    note: str = ""
    baseline: bool = False
    quantisation: Quantisation = ""
    """Class of a variant that computes in less than its dtype; each class has its own error budget."""
    minimum_bytes: int = 0
    """Least memory traffic of a call: weights, inputs and outputs, each moved once; 0 in records that lack it."""
    ceilings: tuple[Ceiling, ...] = ()
    """Peak rates that were measured on this machine."""
    code: str = ""
    """Hash of the code that measured this record; see bakeoff.record.provenance."""
    selftest: SelftestStamp | None = None
    process: int = 1
    """Number of the fresh process (`--processes`), from 1; counted within each build where there are several."""
    build_number: int = 1
    """Number of the fresh build (`--builds`), from 1."""

    @property
    def status(self) -> Status:
        return self.measurement.status

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
    def video_fps(self) -> float | None:
        """Video frames per second if only this component ran; None if a call delivers no frame."""
        if self.latency is None or self.calls_per_frame is None:
            return None
        return self.frames_per_call * 1000.0 / self.latency.median_ms / self.calls_per_frame


@dataclass(frozen=True, slots=True)
class Supersede:
    """Excludes a record from tables, with the reason. Records themselves are never deleted."""

    schema: int
    created: str
    supersedes: str
    reason: str


@dataclass(frozen=True, slots=True)
class Round:
    """One block of calls of each of two variants, one after the other in random order; nanoseconds per call."""

    a_first: bool
    a_ns: Samples
    b_ns: Samples
    pair: int = 0
    """Number of the pair of processes."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two variants measured against each other; all figures are computed from the rounds."""

    schema: int
    created: str
    sweep: str
    """The sweep that made this comparison; empty for `bakeoff compare`."""
    how: Literal["interleaved", "in turn"]
    """`interleaved`: two live workers in alternating blocks of calls. `in turn`: fresh processes one after the other,
    because both do not fit in memory."""
    seed: int
    """Seed of the random order of blocks."""
    a: Record
    """Record of variant A without samples: what ran, where, and how it was built and checked."""
    b: Record
    rounds: tuple[Round, ...]
    findings: tuple[Finding, ...] = ()


Entry = Record | Supersede | Comparison
