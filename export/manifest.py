"""The manifest of an artifact, manifest.json: fields, reading, writing. Its JSON Schema is manifest.schema.json."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal

import msgspec

from bakeoff.backends.format import BadArtifact, HostRequirement
from bakeoff.models.component import Quantisation, Stream
from bakeoff.models.signature import Node, Signature
from bakeoff.models.types import Device, Dtype, Scalar

SCHEMA = 2
"""Version of the manifest; no other is read. Schema 1 had the stream's field `prime` instead of `opening`: one
program, or "" for none."""
MANIFEST = "manifest.json"
SAMPLE = "sample.safetensors"
LARGEST_MANIFEST = 8 << 20
MIX: Final = "mix"
"""`kind` of the manifest of a mix, whose own schemas are read by bakeoff.export.mix."""
FLOATS = ("float64", "float32", "bfloat16", "float16")
"""Floating-point dtypes. A sample's values are cast from one to another; other dtypes must be equal."""
Span = tuple[float, float, float]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]
Shape = Annotated[tuple[Count, ...], msgspec.Meta(max_length=16)]
Limit = Annotated[float, msgspec.Meta(gt=0, le=1)]
"""Largest relative L2 error of an output, at most 1: an output of zeros has the error 1."""


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of a program; shapes are static."""

    name: str
    dtype: Literal["float64", "float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]
    shape: Shape
    values: str
    """For an input, how its values were drawn for the parity check; for an output, its range in the sample."""
    signal: Literal["", "picture", "audio"] = ""
    layout: Literal["row-major", "ordered"] = "row-major"
    """`row-major`: contiguous, with the last axis fastest. `ordered`: contiguous in the order of axes in `order`."""
    order: Annotated[tuple[Count, ...], msgspec.Meta(max_length=16)] | msgspec.UnsetType = msgspec.UNSET
    """For an ordered input, its axes from the slowest to the fastest in memory: (0, 2, 3, 1) is channels last."""
    checked: Span | msgspec.UnsetType = msgspec.UNSET
    """Of an input of the main program that regimes change, the values on which outputs were within their limits: least
    and largest root mean square, and largest absolute value."""


@dataclass(frozen=True, slots=True)
class Program:
    """One callable of an artifact."""

    name: str
    """The workload that it computes."""
    summary: str
    file: str
    constants: tuple[str, ...]
    """Files with separate weights, if any. If two files contain the same name, the first file's tensor is used."""
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    frames_per_call: int
    facts: dict[str, Scalar] = field(default_factory=dict)
    call: Signature | msgspec.UnsetType = msgspec.UNSET
    """The arguments of the module's own call; its tensors are the inputs, by name. Absent if the module takes the
    inputs as positional arguments, in their order."""
    result: Node | msgspec.UnsetType = msgspec.UNSET
    """Structure of the module's result; its tensors are the outputs, by name. Absent for a tuple of the outputs."""


@dataclass(frozen=True, slots=True)
class File:
    bytes: Count
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class Weights:
    source: str
    """Name and content hash of a checkpoint, or the seed of random weights."""
    fingerprint: str
    """Hash of the fp32 weights, before casting and quantisation."""


@dataclass(frozen=True, slots=True)
class MeasuredFigures:
    """The record that measured this variant; times of one call in milliseconds."""

    record: str
    host: str
    created: str
    threads: int
    median_ms: float
    p1_ms: float
    p99_ms: float
    calls_per_s: float
    rel_l2: dict[str, float | None]
    """Relative L2 of each output against the reference, over all sets of inputs."""
    range: str | msgspec.UnsetType = msgspec.UNSET
    """Inputs of other kinds on which the variant was right, and on which not, in words; absent if unknown."""


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """One output of the artifact compared with the reference on the sample; errors are relative L2."""

    program: str
    output: str
    rel_l2: float | None
    limit: Limit
    passed: bool
    """Whether it is within its limit; in a regime far from the sample, and of a quantised variant, always."""
    frame: int
    """Frame of the sample with the largest error."""
    problem: str = ""
    regime: str | msgspec.UnsetType = msgspec.UNSET
    """The regime of the inputs; absent for the sample as it is."""

    @property
    def name(self) -> str:
        return f"{self.program}/{self.output}{f' at {self.regime}' if self.regime else ''}"


HELD: Final = "given"
"""`Port.values` of an input that must keep its values."""
ConditionResult = Literal["right", "refused", "slower", "wrong", "crashed", "unchecked"]


@dataclass(frozen=True, slots=True)
class Condition:
    """How the main program behaves under one condition of use, compared with plain calls in the same process."""

    name: str
    result: ConditionResult
    """The worst that was seen: `wrong` outputs or growing memory; `crashed`, also by an exception that is none of
    bakeoff's or by no end in time; calls `refused` by an error with a code; `slower` by half; `unchecked` where memory
    ran out."""
    seen: str = ""
    """The code of a refusal or what was wrong, and the number of calls."""
    factor: float | None = None
    """Time of a call over that of a plain call, if all calls were right."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What `bakeoff verify --conditions` saw, on the host that ran it."""

    checked: str
    host: dict[str, str]
    """Facts of that host, as in `built_on`."""
    idle_s: float
    rows: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """sample.safetensors: tensors `FRAME/PROGRAM/in/NAME` and `FRAME/PROGRAM/out/NAME`. Floats are fp32; integers and
    booleans have the dtype of their input or output.

    An input with more elements than its stored tensor is that tensor repeated, as by `numpy.resize`. Of an output,
    every k-th element of the flattened tensor is stored, beginning with the first, where k is its entry in `every`.
    Frame 0 has all inputs; later frames have no inputs that are carried state. The programs of a stream's opening are
    called in frame 0 only, and their outputs are not carried: all state of frame 0 is among its inputs.
    """

    file: str
    frames: Annotated[int, msgspec.Meta(ge=1, le=10_000)]
    reference: str
    """Dtype in which eager computed the outputs."""
    every: dict[str, Annotated[int, msgspec.Meta(ge=1)]]
    """The k of an output, by `PROGRAM/NAME`; outputs without an entry have k = 1."""
    limits: dict[str, Limit]
    """Largest allowed relative L2 error of an output, by `PROGRAM/NAME`: the variant's parity budget."""
    regimes: dict[str, dict[str, Limit]] | msgspec.UnsetType = msgspec.UNSET
    """By regime, such as `x4`, the largest allowed error of outputs of the main program for frame 0's inputs, of which
    those with `checked` are changed; outputs are stored as `regime-NAME/PROGRAM/out/NAME`. Absent if there is none."""


@dataclass(frozen=True, slots=True)
class Manifest:
    schema: int
    artifact: str
    """Name of the format (bakeoff.backends.format.ArtifactFormat)."""
    variant: str
    component: str
    preset: str
    label: str
    """A note on a preset that is not the published size; else empty."""
    config: dict[str, Any]
    credit: str
    backend: str
    """Name of the backend that opens it."""
    options: dict[str, Scalar]
    device: Device
    dtype: Dtype
    quantisation: Quantisation
    batch: int
    threads: int
    main: str
    """Name of the main program: the variant's workload."""
    programs: tuple[Program, ...]
    stream: Stream | None
    files: dict[str, File]
    needs: tuple[HostRequirement, ...]
    built_on: dict[str, str]
    """Facts of the host that built it (bakeoff.export.requirements)."""
    versions: dict[str, str]
    created: str
    commit: str
    command: str
    weights: Weights
    measured: MeasuredFigures | None
    sample: Sample
    parity: tuple[OutputCheck, ...]
    """Results of the parity check before the export finished, with the artifact loaded in a fresh process."""
    export_peak_bytes: Count
    """Largest resident memory of any process of the export."""
    flags: dict[str, Scalar] | msgspec.UnsetType = msgspec.UNSET
    """torch's global flags that the programs were verified under and that decide their precision, by their names in a
    record's settings (bakeoff.export.torch_flags). Absent in older manifests."""
    place: str | msgspec.UnsetType = msgspec.UNSET
    """Path of the module in its user's pipeline, such as `unet`, or of its method, such as `vae.decode`; absent if
    unknown."""
    conditions: Conditions | msgspec.UnsetType = msgspec.UNSET
    """Behaviour under conditions of use; absent until it was checked. The digests in a mix leave it out."""
    digest: str = ""
    """Hash of this manifest with an empty `digest`; shows whether the manifest was edited."""

    def program(self, name: str) -> Program:
        return next(program for program in self.programs if program.name == name)


def seal(manifest: Manifest) -> Manifest:
    """Return the manifest with its digest set."""
    return replace(manifest, digest=digest_of(msgspec.json.decode(msgspec.json.encode(manifest))))


def exported_digest(manifest: Manifest) -> str:
    """Return the digest that the manifest had when it was exported, before conditions of use were checked."""
    return seal(replace(manifest, conditions=msgspec.UNSET)).digest


def encode(manifest: Manifest) -> bytes:
    """Encode a manifest as the bytes of manifest.json."""
    return formatted(manifest)


def unseal(data: bytes) -> Manifest:
    """Decode a manifest.

    Raises BadArtifact if it is not a manifest, has another schema, or differs from its digest.
    """
    try:
        head = msgspec.json.decode(data, type=Head)
        if head.kind == MIX:
            text = "the folder is a mix of artifacts; load one of those in it, or put them all into your pipeline with "
            raise BadArtifact(f"{text}bakeoff.apply")
        if head.schema is None:
            raise BadArtifact(f"{MANIFEST} has no schema, so it is not a manifest of an artifact; give another folder")
        if head.schema != SCHEMA:
            advice = "update bakeoff" if head.schema > SCHEMA else "export the artifact again"
            raise BadArtifact(f"{MANIFEST} has schema {head.schema}, but this version reads {SCHEMA}; {advice}")
        content = msgspec.json.decode(data)
        manifest = msgspec.json.decode(data, type=Manifest)
        edited = (encode(manifest), digest_of(content)) != (data, manifest.digest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise BadArtifact(f"{MANIFEST} cannot be read: {error}; copy or export the artifact again") from error
    if edited:
        raise BadArtifact(f"{MANIFEST} was edited: its digest does not match; copy or export the artifact again")
    return manifest


class Head(msgspec.Struct):
    """What tells manifests apart, whatever their schema."""

    schema: int | None = None
    kind: str = ""


def digest_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode({**content, "digest": ""})).hexdigest()


def formatted(content: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
