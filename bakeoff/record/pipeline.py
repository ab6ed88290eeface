"""The record of a pipeline's run: every unit in integer nanoseconds by line, what was built, and how it was checked.

Shares, frames a second, percentiles and predictions are computed from these facts, never stored.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from bakeoff.machine.host import Host
from bakeoff.machine.identity import Machine
from bakeoff.mix import Mix
from bakeoff.models.component import Quantisation
from bakeoff.models.types import Scalar
from bakeoff.record.monitor import Monitored
from bakeoff.record.profile import Profile
from bakeoff.record.schema import (
    BuildCost,
    Finding,
    OutputParity,
    Parity,
    ProofRecord,
    Samples,
    SelftestStamp,
    Source,
    Status,
)
from bakeoff.record.units import Units
from bakeoff.variant import Variant


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
    weights_bytes: int = 0
    """Of the module that was built, in the variant's dtype."""
    shares_weights: bool = False
    """The engine reads the tensors of the slot's first program, so that these bytes are held once."""
    alone_ns: Samples = field(default_factory=Samples)
    """Calls of this program alone, in the same process, before the first unit."""
    part: str = ""
    """Id of the record that predicts its time; "" where there is none of the same machine and code."""
    part_median_ns: int = 0
    """Median of that record's latency samples."""


@dataclass(frozen=True, slots=True)
class UnitParity:
    """One unit, run from the reference's state: its outputs and new state against the reference's."""

    unit: int
    """-1 for the state that opening a session makes."""
    outputs: tuple[OutputParity, ...]
    """All outputs of the loop, and as `state.NAME` that value of the new state which is nearest to its limit."""


@dataclass(frozen=True, slots=True)
class LoopParity:
    """The first units of the whole loop, teacher-forced: each starts from the state of the reference loop, which eager
    computes in high precision. Limits are those of a sweep: twice the error of an eager loop in the same dtypes."""

    reference: str
    """Id of the reference."""
    reference_dtype: str
    units: tuple[UnitParity, ...]
    widened: dict[str, str] = field(default_factory=dict)
    """Quantised slot to its class: limits of what such a slot has a part in are the least SQNR of the class."""

    @property
    def passed(self) -> bool:
        return all(output.passed for unit in self.units for output in unit.outputs)


@dataclass(frozen=True, slots=True)
class PipelineMemory:
    """Bytes with all components in place, and of each program alone."""

    host_peak_bytes: int | None
    """Peak resident size of the worker over the units."""
    device_peak_bytes: int | None
    allocated_peak_bytes: int | None
    weights_bytes: int
    """Of all slots, shared ones counted once."""
    state_bytes: int
    """Buffers that hold the state of the stream."""
    parts_bytes: dict[str, int] = field(default_factory=dict)
    """`slot.program` to the peak that its own record states, where there is one; their sum is what adding up parts
    predicts."""


@dataclass(frozen=True, slots=True)
class PipelineMeasurement:
    """A worker's report on one mix; the parent makes a record from it."""

    status: Status
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    programs: tuple[SlotProgram, ...] = ()
    opened_ns: tuple[int, ...] = ()
    """Opening of each session, before its first unit."""
    units: Units | None = None
    parity: LoopParity | None = None
    memory: PipelineMemory | None = None
    stamp_ns: int = 0
    """Time of one stamp: what the account itself costs a phase."""
    settings: dict[str, Scalar] = field(default_factory=dict)
    device_state: dict[str, Scalar] = field(default_factory=dict)
    traceback: str = ""
    profile: Profile | None = None
    """What a traced pass after the last timed unit saw, where one was asked for."""


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    """One run of one mix with any outcome."""

    kind: Literal["pipeline"] = field(default="pipeline", kw_only=True)
    schema: int
    created: str
    """UTC, ISO 8601 with microseconds."""
    run: str
    """The run that made it; mixes of one run took turns unit by unit where `how` is `interleaved`."""
    how: Literal["alone", "interleaved", "in turn"]
    mix: Mix
    config_id: str
    """Hash of the mix, the configs, batch, seeds, weights and threads; comparable records have equal `subject_id`s."""
    subject_id: str
    """Hash of what is computed: pipeline, preset, options, configs, seeds and weights."""
    role: Literal["", "eager", "best", "best-full"]
    """What the mix was asked for as; `best-full` is the best without quantised slots. "" where it was typed."""
    label: str
    options: dict[str, Scalar]
    """All options of the pipeline, defaults included."""
    sizes: dict[str, int]
    """Facts to state beside every number: audio window, steps."""
    calls: dict[str, int]
    """`slot.program` to its calls in a steady unit."""
    phase_calls: dict[str, int]
    """Phase of a steady unit to the calls of programs within it."""
    configs: dict[str, dict[str, Any]]
    """Slot to the config of its component."""
    unit: Literal["frame", "block", "call"]
    frame_rate: float
    threads: int
    weight_seed: int
    input_seed: int
    checkpoints: dict[str, str]
    """Slot to name and content hash of its weights file; empty for random weights."""
    measurement: PipelineMeasurement
    host: Host
    load_before: float
    environment: dict[str, str]
    versions: dict[str, str]
    commit: str
    dirty: bool
    wall_s: float
    log: str
    machine: Machine
    code: str
    """Hash of all code that determines numbers and statuses."""
    loop_hash: str
    """Hash of the pipeline's files: its spec and its glue."""
    instrument: str
    """Hash of the measuring side."""
    note: str = ""
    selftest: SelftestStamp | None = None
    phase_s: dict[str, float] = field(default_factory=dict)
    monitored: Monitored | None = None
    """What a monitor beside the worker saw (`--monitor`), of its own processes and of the whole GPU, which mixes that
    take turns share; None where none was asked for or none ran."""
    monitored_window_ns: tuple[int, int] | None = None
    """From the end of the first unit until the units were over, by the times of `monitored`; None without units."""

    @property
    def status(self) -> Status:
        return self.measurement.status
