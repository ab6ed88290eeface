"""Artifact formats: what a backend writes into a folder, what a host must have to open it, and how it is opened.

A backend whose engines can be deployed has an `ArtifactFormat`. Writing happens in a worker of the lab, with the module
at hand; checking and opening need only the files and the manifest, on any host.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bakeoff.backends.backend import BuildContext

Run = Callable[["Sequence[Tensor]"], "Sequence[Tensor]"]
"""An opened program: tensors in the order of its inputs to tensors in the order of its outputs. Checks nothing."""


class BadArtifact(BakeoffError):
    """A file of an artifact is not what it should be; the message says which and how."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "bad-artifact")


@dataclass(frozen=True, slots=True)
class Need:
    """Something a host must have to open an artifact. `what` names a fact of bakeoff.export.requirements."""

    what: str
    rule: Literal["is", "at least", "has"]
    """`has`: all the words of `value` are among those of the fact."""
    value: str = ""
    """Empty: what the host has that writes the artifact; the exporter fills it in."""


@dataclass(frozen=True, slots=True)
class Written:
    """One program as it was left in a folder."""

    file: str
    """What is opened; the files beside it are found by it."""
    constants: tuple[str, ...] = ()
    """Weights kept apart from it (.safetensors), where they are: of a name in two files the first counts."""
    needs: tuple[Need, ...] = ()
    facts: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """What a reader wants to know of it: opset, instruction set, where the weights are."""


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One program to write: what is built and how, and where it goes."""

    module: "nn.Module"
    inputs: "Mapping[str, Tensor]"
    options: Any
    """The backend's options."""
    context: "BuildContext"
    folder: Path
    """The artifact's folder; its other files are earlier programs of the same artifact."""
    name: str
    """The program's name, which its files begin with."""


@dataclass(frozen=True, slots=True)
class Opening:
    """For what and how a program is opened."""

    device: str
    dtype: str
    threads: int
    options: Any
    """The backend's options."""


@dataclass(frozen=True, slots=True)
class ArtifactFormat:
    """How a backend's engines are stored in files, checked, and opened on another host."""

    name: str
    summary: str
    write: Callable[[WriteRequest], Written]
    """Build a program and write it into the artifact's folder."""
    check: Callable[[Path, Mapping[str, int]], None]
    """(file, sizes of all files of the folder by name): raise BadArtifact where opening it would read anything else, or
    unpickle anything. Opens nothing."""
    read: Callable[[Path, Sequence[Path], Opening], Run]
    """(file, constants): open it. Raises whatever the library raises."""
