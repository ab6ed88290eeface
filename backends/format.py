"""Artifact formats: how a backend writes a program to files, what a host needs to open it, and how it is opened.

A backend whose engines can be deployed has an `ArtifactFormat`. `write` runs in a worker that has the module; `check`
and `read` need only the files and the manifest, and run on any host.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal

from bakeoff.models.errors import BakeoffError, ErrorCode

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bakeoff.backends.backend import BuildContext

Run = Callable[["Sequence[Tensor]"], "Sequence[Tensor]"]
"""An opened program: takes its input tensors in order and returns its outputs in order; checks neither dtypes nor
shapes."""


class BadArtifact(BakeoffError):
    """A file of an artifact is damaged, unsafe or of another artifact; the message names the file and the problem."""

    def __init__(self, message: str, code: ErrorCode = "bad-artifact") -> None:
        super().__init__(message, code)


def in_one_thread(run: Run, path: Path) -> Run:
    """Return the program opened from `path` for the thread of its first call alone, whichever thread opened it.

    For programs whose calls share what no lock protects. Raises BakeoffError in any other thread.
    """
    owner: dict[str, int] = {}

    def run_here(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        here = get_ident()
        first = owner.setdefault("thread", here)
        if first != here:
            raise BakeoffError(
                f"{path.parent.name}: {path.stem} was called in thread {here}, but belongs to thread {first}, which "
                "called it first; call it in that thread alone, or load the artifact once in each thread",
                "other-thread",
            )
        return run(tensors)

    return run_here


@dataclass(frozen=True, slots=True)
class HostRequirement:
    """A condition on the host that opens an artifact. `what` is a name from bakeoff.export.requirements.facts()."""

    what: str
    rule: Literal["is", "at least", "has"]
    """How the host's fact is compared with `value`; `has`: the fact contains every word of `value`."""
    value: str = ""
    """Empty: the value of the host that writes the artifact, which the exporter fills in; it drops the condition if
    that host does not know it."""


@dataclass(frozen=True, slots=True)
class WrittenProgram:
    """Description of one program that was written into a folder."""

    file: str
    """The file to open; it names any other files that it reads."""
    constants: tuple[str, ...] = ()
    """Files with separate weights (.safetensors), if any. If two files contain a name, the first file counts."""
    needs: tuple[HostRequirement, ...] = ()
    facts: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Facts for users: opset, instruction set, where the weights are."""


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One program to write: the module, how it is built, and the target folder."""

    module: "nn.Module"
    inputs: "Mapping[str, Tensor]"
    options: Any
    """The backend's options."""
    context: "BuildContext"
    folder: Path
    """The artifact's folder; it may already contain other programs of the same artifact."""
    name: str
    """The program's name, with which its file names begin."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The device, dtype, threads and options with which a program is opened."""

    device: str
    dtype: str
    threads: int
    options: Any
    """The backend's options."""


@dataclass(frozen=True, slots=True)
class ArtifactFormat:
    """Functions that store a backend's engines in files, check these, and open them on another host."""

    name: str
    summary: str
    write: Callable[[WriteRequest], WrittenProgram]
    """Builds a program and writes it into the artifact's folder."""
    read: Callable[[Path, Sequence[Path], Opening], Run]
    """Given (file, constants, opening), opens the program. Raises whatever the library raises."""
    check: Callable[[Path, Mapping[str, int]], None] = lambda _file, _sizes: None
    """Given (file, sizes of all files of the folder by name), raises BadArtifact if opening the file would read
    anything outside these files, or unpickle anything. Must not open the program itself. The default is for native
    libraries, which run code by design."""
    runs_torch: bool = False
    """Whether programs call torch's own operators, whose precision depends on torch's global flags."""
