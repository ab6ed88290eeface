"""What an artifact says of itself: manifest.json, with a JSON Schema beside this file (manifest.schema.json)."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import msgspec

from bakeoff.backends.format import BadArtifact, HostRequirement
from bakeoff.models.component import Quantisation, Stream
from bakeoff.models.types import Device, Dtype, Scalar

SCHEMA = 1
MANIFEST = "manifest.json"
SAMPLE = "sample.safetensors"
LARGEST_MANIFEST = 8 << 20
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]
Shape = Annotated[tuple[Count, ...], msgspec.Meta(max_length=16)]
Limit = Annotated[float, msgspec.Meta(gt=0, le=1)]
"""Relative L2 that an output may differ by; what differs by 1 is another output."""


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of a program; shapes are static."""

    name: str
    dtype: Literal["float32", "bfloat16", "float16"]
    shape: Shape
    values: str
    """Of an input: how what it was judged with was drawn; of an output: the range that the judge's sample has."""
    signal: Literal["", "picture", "audio"] = ""
    layout: Literal["row-major"] = "row-major"
    """Contiguous, the last dimension next to itself in memory."""


@dataclass(frozen=True, slots=True)
class Program:
    """One callable of an artifact."""

    name: str
    """The workload that it computes."""
    summary: str
    file: str
    constants: tuple[str, ...]
    """Files of the weights, where they lie apart: of a name in two files the first counts."""
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    frames_per_call: int
    facts: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class File:
    bytes: Count
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class Weights:
    source: str
    """Name and size of a checkpoint, or the seed of random weights."""
    fingerprint: str
    """Of the fp32 weights, before anything was cast or quantised."""


@dataclass(frozen=True, slots=True)
class Measured:
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
    """Of each output against the judge, over all sets of inputs."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One output of the artifact, held against the judge's on the sample; relative L2."""

    program: str
    output: str
    rel_l2: float | None
    limit: Limit
    passed: bool
    frame: int
    """In which frame of the sample it differed most."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """sample.safetensors: `FRAME/PROGRAM/in/NAME` and `FRAME/PROGRAM/out/NAME`, all fp32.

    An input of more elements than its tensor holds is that tensor repeated, as by `numpy.resize`; of an output with
    more elements every k-th of the flattened tensor is held, from the first, k being `every` of it. In frame 0 all
    inputs are given; later ones lack what is carried. A stream's prime is called in frame 0 alone, and what it gives
    is not carried: the first caches are given too.
    """

    file: str
    frames: Annotated[int, msgspec.Meta(ge=1, le=10_000)]
    reference: str
    """What computed the outputs: eager in this dtype."""
    every: dict[str, Annotated[int, msgspec.Meta(ge=1)]]
    """`PROGRAM/NAME` of an output to k; 1 where nothing is said."""
    limits: dict[str, Limit]
    """`PROGRAM/NAME` of an output to the relative L2 that it may differ by: the variant's budget."""


@dataclass(frozen=True, slots=True)
class Manifest:
    schema: int
    artifact: str
    """Name of the format (bakeoff.backends.format.ArtifactFormat)."""
    variant: str
    component: str
    preset: str
    label: str
    """What is said beside a preset that is not the published size."""
    config: dict[str, Any]
    credit: str
    backend: str
    """The one that opens it."""
    options: dict[str, Scalar]
    device: Device
    dtype: Dtype
    quantisation: Quantisation
    batch: int
    threads: int
    main: str
    """The program that the variant names."""
    programs: tuple[Program, ...]
    stream: Stream | None
    files: dict[str, File]
    needs: tuple[HostRequirement, ...]
    built_on: dict[str, str]
    """The host's facts when it was built (bakeoff.export.requirements)."""
    versions: dict[str, str]
    created: str
    commit: str
    command: str
    weights: Weights
    measured: Measured | None
    sample: Sample
    parity: tuple[Checked, ...]
    """Of the artifact, loaded from its folder in a fresh process before it was published."""
    export_peak_bytes: Count
    """Largest resident size of any process of the export."""
    digest: str = ""
    """Of this manifest with `digest` empty: an edit shows."""

    def program(self, name: str) -> Program:
        return next(program for program in self.programs if program.name == name)


def seal(manifest: Manifest) -> Manifest:
    """The same with its own digest."""
    return replace(manifest, digest=_digest(manifest))


def encode(manifest: Manifest) -> bytes:
    """The manifest's bytes."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def unseal(data: bytes) -> Manifest:
    """Read a manifest. Raises BadArtifact where it is no manifest, of another schema, or not as it was sealed."""
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.schema is None:
            raise BadArtifact(f"{MANIFEST} is no manifest of an artifact: it has no schema")
        if head.schema != SCHEMA:
            newer = "a newer bakeoff wrote it: update yours" if head.schema > SCHEMA else "export it anew"
            raise BadArtifact(f"{MANIFEST} has schema {head.schema}, this version reads {SCHEMA}; {newer}")
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise BadArtifact(f"{MANIFEST} cannot be read: {error}; copy or export the artifact again") from error
    if _digest(manifest) != manifest.digest or encode(manifest) != data:
        raise BadArtifact(f"{MANIFEST} was edited: it is not what it was sealed as; copy or export the artifact again")
    if not all(text.isprintable() for text in _texts(msgspec.to_builtins(manifest))):
        raise BadArtifact(f"{MANIFEST} holds letters that cannot be printed; export writes none")
    return manifest


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for part in (
        [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    ):
        yield from _texts(part)


class _Head(msgspec.Struct):
    schema: int | None = None


def _digest(manifest: Manifest) -> str:
    return hashlib.sha256(msgspec.json.encode(replace(manifest, digest=""))).hexdigest()


def json_schema() -> bytes:
    """JSON Schema (2020-12) of a manifest."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Manifest)}
    return msgspec.json.format(msgspec.json.encode(schema), indent=1) + b"\n"
