"""The description (about.json) of a model that a user brings: what a worker found out by running it.

A described folder contains `about.json` and `given.safetensors`, the tensors of every recorded call as `SET/CALL/NAME`.
A live module's folder contains the module too.
"""

import hashlib
from pathlib import Path
from typing import Literal

import msgspec

from bakeoff.models.component import DynamicAxis, Layer, Size, TensorSpec, Work
from bakeoff.models.errors import BakeoffError, no_such
from bakeoff.models.plain_file import read_plain
from bakeoff.models.signature import Node, Signature

OWN_WEIGHTS = "its own weights"
"""Name of a brought model's weights in records, before their hash."""
ABOUT, GIVEN = "about.json", "given.safetensors"
LIVE = "live.json"
"""File by which the folder of a live module is recognised."""
LOOPS, LOOP = "loops", "loop.json"
"""Folder in the cache for descriptions of pipelines, each with its modules' folders beside it."""
SCHEMA = 5


class Source(msgspec.Struct, frozen=True):
    """Source from which workers load the module."""

    kind: Literal["function", "archive", "live"]
    path: str
    """Absolute path of the Python file, of the .pt2 file, or of a live module's folder."""
    function: str = ""
    """Name in the Python file."""
    hash: str = ""
    """Hash of the content: the file and what it imports of its own folder, the archive, or the live module's files."""
    working_folder: str = ""
    """Folder in which the command ran and the factory runs, so that relative paths in the factory refer to it. For a
    module of a pipeline's file: the file's folder."""
    pipeline: str = ""
    """The pipeline that a live module is of, as FILE.py:CLASS with an absolute path; "" if it is of none."""

    @property
    def typed(self) -> str:
        """The source as a command takes it in any folder: path and function, the path, or the pipeline."""
        if self.pipeline:
            return self.pipeline
        return f"{self.place}:{self.function}" if self.function else str(self.place)

    @property
    def place(self) -> Path:
        """Path of the file, with links in its folder resolved. For a live module that bakeoff stored in its cache: the
        folder in which the command ran."""
        path = Path(self.path)
        if self.kind == "live" and (path.parent.name == self.hash or path.parents[1].name == LOOPS):
            return Path(self.working_folder).resolve()
        return path.parent.resolve() / path.name

    @property
    def shown(self) -> str:
        """`typed` as records and tables print it: with ~ for the home folder, and marked if it is a live module."""
        home = f"{Path.home()}/"
        typed = f"~/{self.typed.removeprefix(home)}" if self.typed.startswith(home) else self.typed
        return f"a live module in {typed}" if self.kind == "live" and not self.pipeline else typed

    @property
    def shipped(self) -> str:
        """`shown` as artifacts name it, which are read elsewhere: without folders."""
        return "a live module" if self.kind == "live" else self.typed.rpartition("/")[2]


class InputSet(msgspec.Struct, frozen=True):
    """One way to call the model; it becomes a workload."""

    name: str
    call: Signature
    result: Node
    """Structure of a call's result; parts that are not tensors are constants."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    work: Work
    calls: int
    """Number of calls that were given or recorded."""
    held: tuple[str, ...] = ()
    """Inputs that keep their given values in every drawn set."""
    axes: tuple[DynamicAxis, ...] = ()
    """Axes of inputs that have several sizes; (): the given sizes only."""
    usual: str = ""
    """The given size as tables print it, such as `x.0=8`."""
    sizes: tuple[Size, ...] = ()
    batches: tuple[Size, ...] = ()
    """Sizes at the requested multiples of the given batch, named by `batch_name`."""


class About(msgspec.Struct, frozen=True):
    """All that is known about a brought model."""

    name: str
    preset: str
    summary: str
    source: Source
    weights: str
    """Fingerprint of the parameters and buffers; a worker refuses to measure a model with another one."""
    seed: int
    """Seed of torch's global generator when the factory ran."""
    given: str
    """Hash of the given inputs' values."""
    parameters: int
    layers: tuple[Layer, ...]
    tolerance_fp32: float
    fp64: bool
    """True if it can compute in fp64, so that references are in fp64."""
    sets: tuple[InputSet, ...]
    state: dict[str, str]
    notes: tuple[str, ...] = ()
    """Facts about the model that a user should know, each in one sentence."""
    place: str = ""
    """Path of the module in its user's pipeline, such as `unet`, or of a method, such as `vae.decode`; "": unknown."""
    keep_fp32: tuple[str, ...] = ()
    """Parts of the module that half precision leaves in fp32."""
    buffers: tuple[str, ...] = ()
    """Buffers that calls change; each is an input and an output of every call."""
    compiles: bool = False
    """True if its code calls torch.compile."""
    mixed: bool = False
    """True if it was given with several floating dtypes."""
    schema: int = SCHEMA

    @property
    def hash(self) -> str:
        """Hash of all that decides the outputs: code, weights, inputs and form of the calls, but not file locations."""
        facts = [
            self.name,
            self.source.kind,
            self.source.function,
            self.source.hash,
            self.weights,
            self.given,
            tuple(msgspec.structs.replace(one, batches=()) for one in self.sets),
            self.state,
            *filter(None, [self.keep_fp32, self.buffers]),
        ]
        return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()[:12]

    def input_set(self, name: str) -> InputSet:
        """Return the input set of this name. Raises BakeoffError if there is none."""
        for one in self.sets:
            if one.name == name:
                return one
        raise no_such(self.name, "input set", name, [one.name for one in self.sets])


def batch_name(batch: int) -> str:
    """Return the name of the size at which axis 0 of the inputs is `batch` times as long as given."""
    return f"batch={batch}"


def read_about(folder: Path) -> About:
    """Read the description in a folder. Raises BakeoffError if there is none, or it is of another version."""
    try:
        return msgspec.json.decode(read_plain(folder / ABOUT), type=About)
    except OSError as error:
        raise BakeoffError(f"{folder / ABOUT}: {error.strerror}; sweep the model anew", "not-readable") from error
    except msgspec.MsgspecError as error:
        raise BakeoffError(f"{folder / ABOUT}: {error}; sweep the model anew", "not-readable") from error
