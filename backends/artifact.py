"""Engines as files: what a back end leaves in a folder for another host, what that host must have, how it is opened.

A back end that can be deployed has a `Form`. Writing happens in a worker of the lab, with the module at hand; checking
and opening happen wherever the folder lies, with nothing but the files and what the manifest says of them.
"""

import json
import zipfile
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
_UNPACKED = 1.1
_UNPACKED_BYTES = 16 << 20
"""Of a zip archive: what it may say it unpacks to, over its own size. None that is written here is compressed."""


class BadArtifact(BakeoffError):
    """A file of an artifact is not what it should be; the message says which and how."""


@dataclass(frozen=True, slots=True)
class Need:
    """Something a host must have to open an artifact. `what` is the name of a host's fact (bakeoff.export.needs)."""

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
class Opening:
    """For what and how a program is opened."""

    device: str
    dtype: str
    threads: int
    options: Any
    """The back end's options."""
    outputs: tuple[tuple[str, tuple[int, ...]], ...]
    """Dtype (`float32`) and shape of each output, in order."""


@dataclass(frozen=True, slots=True)
class Form:
    """How what a back end builds is kept in files and opened elsewhere."""

    name: str
    summary: str
    loads_in: str
    """Who can open it, for the table of formats."""
    write: "Callable[[nn.Module, Mapping[str, Tensor], Any, BuildContext, Path, str], Written]"
    """(module, inputs, options, context, folder, program's name): leave the program in the folder, whose other files
    are earlier programs of the same artifact."""
    check: Callable[[Path, Mapping[str, int]], None]
    """(file, sizes of all files of the folder by name): raise BadArtifact where opening it would read anything else, or
    unpickle anything. Opens nothing."""
    read: Callable[[Path, Sequence[Path], Opening], Run]
    """(file, constants): open it. Raises whatever the library raises."""


def check_zip(path: Path) -> list[zipfile.ZipInfo]:
    """The members of an archive that unpacks into its own folder, and to about its own size. Raises BadArtifact."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise BadArtifact(f"{path.name} is no whole archive: {error}") from error
    for member in members:
        parts = member.filename.split("/")
        if member.filename.startswith("/") or ".." in parts or "\\" in member.filename or "\0" in member.filename:
            raise BadArtifact(f"{path.name} holds '{member.filename}', which would be unpacked outside of its folder")
        if (member.external_attr >> 16) & 0o170000 == 0o120000:
            raise BadArtifact(f"{path.name} holds the link '{member.filename}'")
    unpacked = sum(member.file_size for member in members)
    if unpacked > _UNPACKED * path.stat().st_size + _UNPACKED_BYTES:
        raise BadArtifact(f"{path.name} says it unpacks to {unpacked} bytes, and is {path.stat().st_size}")
    return members


def check_program(path: Path, torchbind: bool = False) -> None:
    """That torch.export.load would unpickle nothing (torch/export/pt2_archive/_package.py). Raises BadArtifact.

    `torchbind`: objects of C++ classes may be there, which torch's own reader in C++ makes; it knows no Python.
    """
    members = check_zip(path)
    with zipfile.ZipFile(path) as archive:
        for member in members:
            name = member.filename.partition("/")[2]
            leaf = name.rpartition("/")[2]
            bound = torchbind and leaf.startswith("custom_obj_")
            pickled = not bound and member.file_size > 0
            pickled = pickled and (leaf.endswith((".pt", ".pkl")) or leaf.startswith(("custom_obj_", "opaque_obj_")))
            if name.endswith("_config.json") and member.file_size:
                pickled = any(
                    entry.get("use_pickle") is not False
                    for entry in _payloads(path, archive, member)
                    if not (torchbind and str(entry.get("path_name")).startswith("custom_obj_"))
                )
            if pickled:
                raise BadArtifact(f"{path.name} holds '{name}', which is or names a pickle: that is code")


def _payloads(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> list[dict[str, Any]]:
    try:
        entries = list(json.loads(archive.read(member))["config"].values())
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, zipfile.BadZipFile) as error:
        raise BadArtifact(f"{path.name} holds {member.filename}, which cannot be read: {error!r}") from error
    if not all(isinstance(entry, dict) for entry in entries):
        raise BadArtifact(f"{path.name} holds {member.filename}, which is no list of tensors")
    return entries
