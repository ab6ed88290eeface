"""What the traced pass of a mix saw: kernels and operators by phase, and how long the device ran and waited in each.

Times are integer nanoseconds, summed over the traced units. A traced pass is slower than the timed units, so its spans
are in no table; what a phase costs comes from the units of the same record, which ended before tracing began.
"""

from dataclasses import dataclass
from typing import Literal

from bakeoff.record.schema import KernelTime
from bakeoff.record.units import LineKind

Sight = Literal["inside", "in its own build", "hidden"]
"""Where the kernels of a program come from: the traced loop shows them; a traced build of the program alone does,
because its engine shows nothing of itself in the loop; or nothing does."""


@dataclass(frozen=True, slots=True)
class LineTrace:
    """One line of the account in the traced units."""

    name: str
    kind: LineKind
    slot: str
    span_ns: int
    """By the same stamps as in a timed unit; longer, because profiling costs time."""
    busy_ns: int
    """On CUDA, union of the intervals of the kernels that were launched in it, whenever they ran. On a CPU, union over
    threads of the operators that began in it."""
    host_wait_ns: int
    """The device was idle before kernels of this line, and they were launched after it had become idle."""
    gap_ns: int
    """Short pauses between kernels that were in the queue in time."""
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
    """Kernels, or operators: the longest, and the time of all."""

    top: tuple[NamedTime, ...]
    """The longest first."""
    total_ns: int
    """Of all, those that are not in `top` included. On several streams or threads it may exceed the busy time."""
    names: int
    """Number of different names and lines."""


@dataclass(frozen=True, slots=True)
class ProgramSight:
    """What a program showed of itself, and which tracer told it."""

    slot: str
    program: str
    sight: Sight
    tracer: str
    """As in `torch.profiler` or `openvino`; "" where there is none."""
    kernels: tuple[KernelTime, ...] = ()
    """Of a traced build alone, per call; empty where the loop shows them."""
    kernel_count: int = 0
    total_ns: int = 0
    """Of one call of that build, while it was traced."""
    named_ns: int = 0
    """The part of it that has a kernel's name."""
    problem: str = ""
    """Why there is no traced build."""


@dataclass(frozen=True, slots=True)
class PartTime:
    """A part of a network in the traced loop: one tag of level 4 or 5."""

    tag: str
    level: int
    slot: str
    path: str
    """Of the module, as in `blocks.3.self_attn`."""
    calls: int
    ns: int
    """From its start to its end on the host, parts within it included; summed over the traced units."""


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """Allocated memory at one time of the traced units."""

    t_ns: int
    """From the start of the first traced unit."""
    bytes: int


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A file beside the record's log, in the cache folder of the machine that made it."""

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
    """Traced ones that count: those that were disturbed are left out, and a finding names them."""
    wall_ns: int
    """Of these units, as all below but `memory`, `compiled` and `trace`."""
    cpu_ns: int
    """CPU time of the process in them, over all its threads; over `wall_ns` it is the cores that were
    busy."""
    busy_ns: int
    """Union over all lines: kernels of different lines may overlap."""
    lines: tuple[LineTrace, ...]
    kernels: Ranking | None
    """None on a CPU, which has operators only; kernels of opaque programs are in `programs`."""
    operators: Ranking | None
    programs: tuple[ProgramSight, ...]
    parts: tuple[PartTime, ...] = ()
    stamps: int = 0
    """In one unit."""
    stamps_ns: tuple[int, ...] = ()
    """Time of one stamp, the mean of each of several blocks of them."""
    stepped_ns: tuple[int, ...] = ()
    """Wall times of units with a synchronisation at each border; the mean less that of the timed units is what calls
    overlap. Empty on a CPU, where calls are synchronous."""
    compiled: tuple[str, ...] = ()
    """Events of a compiler, of captures or of loading modules within the traced units; there should be none."""
    synchronisations: tuple[NamedTime, ...] = ()
    """Calls that made the host wait for the device, by line."""
    memory: tuple[MemoryPoint, ...] = ()
    trace: TraceFile | None = None
    snapshot: TraceFile | None = None
    """CUDA's memory snapshot, for pytorch.org/memory_viz; it is a pickle, which nothing here opens."""
    compiler: str = ""
    """Folder of the compiler's log, relative to the cache folder; "" where none was asked for."""
    note: str = ""
    """Why something that was asked for is not here."""
