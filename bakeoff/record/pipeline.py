"""Defines the record of a pipeline's run: the account of its units, what a traced pass saw, the measurement of a
mix."""

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from bakeoff.mix import Mix
from bakeoff.models.component import Quantisation
from bakeoff.models.types import Scalar
from bakeoff.record.finding import Finding
from bakeoff.record.objective import Objective
from bakeoff.record.schema import (
    BuildCost,
    Header,
    KernelTime,
    OutputParity,
    Parity,
    ProofRecord,
    Source,
    Status,
)
from bakeoff.record.session import LineKind, UnitKind
from bakeoff.variant import Variant


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the account of the units' time. The lines of a unit add up to its wall time exactly."""

    name: str
    """A phase's name, or `glue`, `copies`, `unattributed`."""
    kind: LineKind
    slot: str
    """Slot whose programs a phase calls; "" if the line calls none."""
    ns: tuple[int, ...]
    """Time in each unit, in order; 0 if a unit lacks the phase."""


@dataclass(frozen=True, slots=True)
class ProgramTime:
    """Time of the calls of one program, within the phases of their units."""

    slot: str
    program: str
    calls: tuple[int, ...]
    """Number of calls in each unit."""
    ns: tuple[int, ...]
    """Time of all its calls in each unit."""


@dataclass(frozen=True, slots=True)
class Units:
    """Measurements of all units; tuples have one entry per unit, in the order in which the units ran."""

    wall_ns: tuple[int, ...]
    started_ns: tuple[int, ...]
    """Start of each unit by the worker's clock, counted from the start of the first unit."""
    frames: tuple[int, ...]
    """Video frames delivered."""
    kinds: tuple[UnitKind, ...]
    """`opening` units differ in shape, `filling` units run until windows are full and times have settled, `resuming`
    units find threads asleep and caches cold after a pause, and figures are computed from `steady` units."""
    sessions: tuple[int, ...]
    """Number of the session that each unit belongs to, from 0."""
    lines: tuple[Line, ...]
    programs: tuple[ProgramTime, ...]
    copied_bytes: tuple[int, ...]
    """Bytes of inputs and state that were copied between buffers."""
    moved: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For a unit's number, the programs that were compiled or captured in it, as `slot.program`."""
    spans: tuple[int, ...] = ()
    """In a sustained run, how many units in a row each entry of `lines`, `programs` and `copied_bytes` is the sum of:
    of one kind, and within a minute. Empty if each entry is one unit's."""
    beside: tuple[Line, ...] = ()
    """The account of the second lane, whose lines add up to a unit's wall time too. Empty without one."""
    done_ns: tuple[int, ...] = ()
    """When within each unit the second lane was done. Empty without one."""


Sight = Literal["inside", "in its own build", "hidden"]
"""Where a program's kernels were seen: in the traced loop; in a traced build of the program alone, because its engine
shows nothing of itself in the loop; or nowhere."""


@dataclass(frozen=True, slots=True)
class LineTrace:
    """One line of the account in the traced units."""

    name: str
    kind: LineKind
    slot: str
    span_ns: int
    """Time by the same timestamps as in a timed unit; longer, because profiling takes time."""
    busy_ns: int
    """On CUDA, union of the intervals of the kernels that were launched in this line, whenever they ran. On a CPU,
    union over threads of the operators that began in it."""
    host_wait_ns: int
    """Idle time of the device before kernels of this line that were launched only after it had become idle."""
    gap_ns: int
    """Short pauses between kernels that had been queued in time."""
    other_ns: int
    """The rest of the device's idle time before kernels of this line: waits for other streams or copies."""
    launches: int
    """Kernels, copies and fills on CUDA; operators on a CPU."""
    programs: tuple[str, ...] = ()
    """The programs that a phase of a steady unit calls, as `slot.program`."""


@dataclass(frozen=True, slots=True)
class NamedTime:
    """A kernel or an operator in one line of the account, summed over the traced units."""

    name: str
    line: str
    calls: int
    ns: int
    """A kernel's duration; an operator's own time, without the operators it calls."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The longest kernels or operators, and the time of all of them."""

    top: tuple[NamedTime, ...]
    """The longest first."""
    total_ns: int
    """Time of all kernels or operators, including those that are not in `top`. With several streams or threads it may
    exceed the busy time."""
    names: int
    """Number of different pairs of name and line."""


@dataclass(frozen=True, slots=True)
class ProgramSight:
    """Kernels that were seen of one program, and the tracer that named them."""

    slot: str
    program: str
    sight: Sight
    tracer: str
    """For example `torch.profiler` or `openvino`; "" if there is none."""
    kernels: tuple[KernelTime, ...] = ()
    """Kernels per call of a traced build of the program alone; empty if the loop shows them."""
    kernel_count: int = 0
    total_ns: int = 0
    """Time of one call of that build, while it was traced."""
    named_ns: int = 0
    """Part of `total_ns` that was spent in kernels with a name."""
    problem: str = ""
    """Reason why there is no traced build."""


@dataclass(frozen=True, slots=True)
class PartTime:
    """A part of a network in the traced loop: one tag of level 4 or 5."""

    tag: str
    level: int
    slot: str
    path: str
    """Path of the module, as in `blocks.3.self_attn`."""
    calls: int
    ns: int
    """Time from start to end on the host, nested parts included; summed over the traced units."""


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """Allocated memory at one time of the traced units."""

    t_ns: int
    """Time since the start of the first traced unit."""
    bytes: int


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace file next to the record's log, in the cache folder of the machine that made it."""

    path: str
    """Relative to the cache folder."""
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Profile:
    """The traced pass of a mix, made after its last timed unit."""

    level: int
    """1 units, 2 phases, 3 calls and steps, 4 parts of networks, 5 parts of these."""
    units: int
    """Number of traced units that count. Units that were disturbed are left out, and a finding names them."""
    wall_ns: int
    """Wall time of these units. The fields below refer to these units too, except `memory`, `compiled` and `trace`."""
    cpu_ns: int
    """CPU time of the process in these units, over all its threads; divided by `wall_ns`, the number of busy cores."""
    busy_ns: int
    """Busy time over all lines as a union, because kernels of different lines may overlap."""
    lines: tuple[LineTrace, ...]
    kernels: Ranking | None
    """Kernels by time; None on a CPU, which has operators only. Kernels of opaque programs are in `programs`."""
    operators: Ranking | None
    programs: tuple[ProgramSight, ...]
    parts: tuple[PartTime, ...] = ()
    stamps: int = 0
    """Number of timestamps in one unit."""
    stamps_ns: tuple[int, ...] = ()
    """Time of one timestamp: the mean of each of several blocks of them."""
    stepped_ns: tuple[int, ...] = ()
    """Wall times of units with a synchronisation at each border between lines. Their mean minus that of the timed units
    is the time that overlapping calls save. Empty on a CPU, where calls are synchronous."""
    compiled: tuple[str, ...] = ()
    """Events of a compiler, of captures or of loading modules within the traced units; there should be none."""
    synchronisations: tuple[NamedTime, ...] = ()
    """Calls that made the host wait for the device, by line."""
    memory: tuple[MemoryPoint, ...] = ()
    trace: TraceFile | None = None
    snapshot: TraceFile | None = None
    """CUDA's memory snapshot, for pytorch.org/memory_viz; it is a pickle, which nothing here opens."""
    compiler: str = ""
    """Folder of the compiler's log, relative to the cache folder; "" if none was requested."""
    note: str = ""
    """Reason why something that was requested is missing."""


@dataclass(frozen=True, slots=True)
class SlotProgram:
    """One built program of a slot."""

    slot: str
    variant: Variant
    """Component, preset and workload, with the slot's backends, dtype and device."""
    batch: int
    status: Status
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    build: BuildCost | None = None
    proof: ProofRecord | None = None
    parity: Parity | None = None
    """Checked as in a sweep, before the first unit."""
    quantisation: Quantisation = ""
    weights: str = ""
    """Fingerprint of the fp32 weights."""
    source: Source | None = None
    shares_weights: bool = False
    """Whether the engine reads the tensors of the slot's first program, so that the weights are in memory only once."""
    part: str = ""
    """Id of the record that its time was promised by; "" if there is none of the same machine and code."""

    @property
    def name(self) -> str:
        return f"{self.slot}.{self.variant.workload}"


@dataclass(frozen=True, slots=True)
class UnitParity:
    """Errors of one unit that starts from the reference's state: of its outputs and new state against the
    reference's."""

    unit: int
    """Number of the unit; -1 for the state that opening a session makes."""
    outputs: tuple[OutputParity, ...]
    """All outputs of the loop and, as `state.NAME`, the value of the new state that is nearest to its limit."""


@dataclass(frozen=True, slots=True)
class LoopParity:
    """Parity of the first units of the whole loop, teacher-forced: each unit starts from the state of the reference
    loop, which eager computes in high precision. Limits are those of a sweep: twice the error of an eager loop in the
    same dtypes."""

    reference: str
    """Id of the reference."""
    reference_dtype: str
    units: tuple[UnitParity, ...]
    """Outputs that a quantised slot contributes to are limited by the least SQNR of its class."""

    @property
    def outputs(self) -> tuple[OutputParity, ...]:
        """The outputs of all these units."""
        return tuple(output for unit in self.units for output in unit.outputs)

    @property
    def passed(self) -> bool:
        return all(output.passed for output in self.outputs)


@dataclass(frozen=True, slots=True)
class Curve:
    """Error of one output by unit in a loop that runs free: it starts as the reference does, and is never reset."""

    run: str
    """`mix`, what an equivalent run of eager has changed, as in `1 thread`, or the slot that alone is as in the mix, as
    in `only wm`."""
    output: str
    """Name of an output, or `state`: in each unit, the tensor of the state with the largest error."""
    errors: tuple[float | None, ...]
    """Relative L2 against the reference; None where a value is not finite or has another shape."""
    decibels: tuple[float | None, ...]
    """PSNR of pictures, else the ratio of signal to error; None where there is no error, or `errors` has None."""
    changes: tuple[float | None, ...] = ()
    """Relative L2 of an output's change from the unit before against the reference's change, from the second unit on:
    flicker, which errors of single units do not show. None where either does not change; () in older records."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """Free-running curves of a mix, beside those of equivalents of eager in the same dtypes and of each of its slots
    alone, if several are not eager. They are not judged."""

    horizon_db: float
    """A curve's horizon is its first unit below this."""
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class PipelineMemory:
    """Memory in bytes with all components loaded."""

    host_peak_bytes: int | None
    """Peak resident size of the worker over the units."""
    device_peak_bytes: int | None

    @property
    def meter(self) -> Literal["device", "resident"]:
        return "resident" if self.device_peak_bytes is None else "device"

    @property
    def peak_bytes(self) -> int | None:
        """Peak by that meter."""
        return self.host_peak_bytes if self.device_peak_bytes is None else self.device_peak_bytes


@dataclass(frozen=True, slots=True)
class Sustained:
    """A run of one mix for minutes, unit after unit and never in turns with another mix."""

    fps: float
    """Frames a second by which the run is judged."""
    paced: bool
    """Whether units were asked for at that rate; otherwise each began as soon as the last one was ready."""
    buffer: int
    """Units that are ready when the playback starts. A paced run begins a unit once the unit so many before it is
    shown."""


Caches = Literal["warmed", "artifact", "none", "compiler"]
"""What a fresh process finds of its mix: exported artifacts, whose warm-up plan it plays or not, nothing, or the caches
that an earlier build left."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """A mix as artifacts."""

    bytes: int
    """Size of all their files."""
    needs: tuple[str, ...]
    """What a machine must be or have to load them, beside libraries."""


@dataclass(frozen=True, slots=True)
class Started:
    """What cold starts of a mix measured, as its later runs and budgets state it."""

    record: str
    """Id of their record."""
    good_ns: dict[Caches, tuple[int, int | None, int | None]]
    """Median of the time to the first good frame, and the ends of its 95 % interval."""
    compile_ns: dict[Caches, int]
    """Median time to build all programs."""
    shipped: Shipped | None

    @property
    def caches(self) -> Caches:
        """The state of caches in which it would be deployed: as artifacts, where it can be."""
        return min(self.good_ns, key=get_args(Caches).index)


@dataclass(frozen=True, slots=True)
class Start:
    """A fresh process of a mix, from its start to its last unit; units lie end to end."""

    caches: Caches
    wall_ns: int = 0
    """Time from the start of the process until its first unit was reported, by the parent's clock, without what only
    the lab does: reading references, comparing outputs. 0 if no unit ran."""
    parts_ns: dict[str, int] = field(default_factory=dict)
    """Parts of that time before the first unit: import, weights, load, compile, opening."""
    units_ns: tuple[int, ...] = ()
    """Wall time of each unit; those after the first include that of opening their session."""
    frames: tuple[int, ...] = ()
    wrong: tuple[int, ...] = ()
    """Units whose outputs or new state are beyond the limits. The reference's units start from its state; later ones
    count as its last one does."""
    moved: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For a unit's number, the programs that were compiled or captured in it, as in `Units`."""
    problem: str = ""
    """Why it has no units, or how it ended if not with a result."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is promised of a mix in a steady unit, or of its part in one slot. None: a record lacks the figure."""

    slots: str
    """Slots with their backends and dtypes, as in `wm=inductor/bf16,image=eager/fp32`, and a schedule of their own."""
    ms: float
    """Mean time of a unit: the calls of each program times the mean of its record, and the time between programs."""
    memory_bytes: int | None
    """Peak memory with all slots in place; of a part, what it takes beyond the process; of a promise by the mix's own
    process, the buffers that its schedule adds."""
    sqnr_db: float | None
    """The least SQNR of any program's output; 999 if all are exact."""
    interval: tuple[float, float] | None = None
    """Ends in ms within which the mean of a run lies, by how far earlier runs lie from their promises. None: an earlier
    version promised it, by medians, or the mix's own process did, before its timed units."""
    parts_ms: dict[str, float] = field(default_factory=dict)
    """By slot the time of its calls, and `between programs`; they add up to `ms`."""
    first_ms: tuple[float, float | None, float | None] | None = None
    """Median time to the first good frame in cold starts of the mix, and the ends of its interval. None: no start of
    it was measured, or half of them had none."""
    anchored: bool = False
    """Whether units of the mix were timed in turns with those of others, just before it ran."""
    latency_ms: float | None = None
    """From the beginning of a unit until its outputs are ready; None if only the unit's time was promised."""
    alone_ms: dict[str, float] = field(default_factory=dict)
    """Of a promise by the mix's own process: the time of a call of each `slot.program` in units whose lanes run one
    after the other, and as "" all else of a unit."""
    slowdowns: dict[str, float] = field(default_factory=dict)
    """How many times as long a program takes beside another one, as in `wm.step beside image.decode`."""


@dataclass(frozen=True, slots=True)
class PipelineMeasurement:
    """A worker's report on one mix; the parent makes a record from it."""

    status: Status
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    programs: tuple[SlotProgram, ...] = ()
    opened_ns: tuple[int, ...] = ()
    """Time to open each session, before its first unit."""
    units: Units | None = None
    parity: LoopParity | None = None
    memory: PipelineMemory | None = None
    stamp_ns: int = 0
    """Time of one timestamp: the overhead of the account for each phase."""
    settings: dict[str, Scalar] = field(default_factory=dict)
    device_state: dict[str, Scalar] = field(default_factory=dict)
    traceback: str = ""
    profile: Profile | None = None
    """Profile of a traced pass after the last timed unit; None if none was requested."""
    rollout: Rollout | None = None
    """Curves of a rollout, in which nothing is timed and `parity` has all units; None in any other run."""
    promised: Forecast | None = None
    """What the worker promised of a unit under its schedule; None if no schedule was asked for."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A request of `bakeoff budget`, and what it chose the mixes from."""

    objective: Objective
    classes: tuple[Quantisation, ...] | None
    """Kinds of quantisation that were allowed; None: all."""
    frames: int
    """Video frames of a steady unit."""
    mixes: int
    """Number of mixes that the records could answer for."""
    candidates: tuple[Forecast, ...]
    """Mixes that may meet the limits by their records, the fastest first; at most eight."""
    records: tuple[str, ...] = ()
    """Ids of the records of programs that all of this follows from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRecord(Header):
    """One run of one mix with any outcome; its fields follow those of `Header`."""

    kind: Literal["pipeline"] = "pipeline"
    run: str
    """Id of the run that made it. Mixes of one run took turns if `how` is `interleaved`; a `rollout` has no times; a
    `cold` one has `starts`, and as its measurement that of the first process that is not ok, else of the first."""
    how: Literal["alone", "interleaved", "in turn", "rollout", "cold"]
    mix: Mix
    subject_id: str
    """Hash of what is computed: pipeline, preset, options, configs, seeds and weights."""
    role: Literal["", "eager", "best", "best-full"]
    """Role by which the mix was requested; `best-full` is the best mix without quantised slots. "" if the mix was
    typed."""
    options: dict[str, Scalar]
    """All options of the pipeline, defaults included."""
    sizes: dict[str, int]
    """Facts to state with every number, such as the audio window or the number of steps."""
    calls: dict[str, int]
    """Calls of each `slot.program` in a steady unit."""
    phase_calls: dict[str, int]
    """Calls of programs within each phase of a steady unit."""
    configs: dict[str, dict[str, Any]]
    """Config of each slot's component."""
    unit: Literal["frame", "block", "call"]
    frame_rate: float
    checkpoints: dict[str, str]
    """Name and content hash of each slot's weights file, or of a model's own weights; empty for random weights."""
    measurement: PipelineMeasurement
    loop_hash: str
    """Hash of the pipeline's files: its facts and its loop."""
    instrument: str
    """Hash of the measuring side."""
    budget: Budget | None = None
    """The budget whose candidate this mix is; None for other runs."""
    forecast: Forecast | None = None
    """What was promised of the mix before it ran; None if records allow no promise."""
    sustained: Sustained | None = None
    """None for a run of a number of units."""
    starts: tuple[Start, ...] = ()
    """Fresh processes, in the order in which they ran; before them one with a problem for caches that cannot be had."""
    shipped: Shipped | None = None
    """The artifacts of a cold run; None if it had none."""
    started: Started | None = None
    """What cold starts of the same mix and code had measured before this run; None if nothing."""

    @property
    def status(self) -> Status:
        return self.measurement.status

    @property
    def sources(self) -> dict[str, str]:
        """Hash of the source of the pipeline, and of each component and backend, by name."""
        found = {"the pipeline": self.loop_hash}
        for program in self.measurement.programs:
            if program.source is not None:
                found[program.variant.component] = program.source.component
                found |= {f"backend {backend.name}": backend.hash for backend in program.source.backends}
        return found
