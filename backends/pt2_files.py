"""PyTorch's .pt2 archives as files of an artifact: nothing in one is unpickled, evaluated, or unpacked elsewhere.

torch.export.load unpickles what is no plain tensor, older layouts and example inputs (torch/export/__init__.py and
pt2_archive/_package.py), and hands a size that is an expression to sympy, which evaluates it. So an archive may hold
what is written here, by exact names, and nothing else. torch reads archives with miniz, which ignores case and takes
the directory where the end record says; Python's zipfile looks for it. Both must see the same one.
"""

import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bakeoff.backends.format import BadArtifact

_FORM = r"\.data/(version|serialization_id)|archive_(format|version)|byteorder"
_PROGRAM = re.compile(
    rf"{_FORM}|models/model\.json|data/weights/(weight_\d+|model_weights_config\.json)|"
    r"data/constants/(tensor_\d+|custom_obj_\d+|model_constants_config\.json)|data/sample_inputs/model\.pt"
)
_PACKAGE = re.compile(rf"{_FORM}|data/aotinductor/model/[\w-][\w.-]*\.(cpp|so|o|json|cubin|fatbin|ptx)")
_PAYLOAD = re.compile(r"(weight|tensor)_\d+")
_BOUND = re.compile(r"custom_obj_\d+")
_LARGEST_JSON = 256 << 20
_TAIL = 98
"""Bytes of zip64's end record, its locator, and the end record (APPNOTE.TXT 4.3.14 to 4.3.16)."""
_UNREADABLE = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError)


def check_package(path: Path) -> None:
    """An AOTInductor package: its libraries and sources. Raises BadArtifact for anything else in it."""
    _members(path, _PACKAGE)


def check_program(path: Path, torchbind: bool = False) -> None:
    """A torch.export program of ATen operators and plain tensors. Raises BadArtifact for anything else in it.

    `torchbind`: TensorRT's engines may be there too, objects of a C++ class that torch's own reader in C++ makes.
    """
    members = _members(path, _PROGRAM)
    with zipfile.ZipFile(path) as archive:
        for member in members:
            name = member.filename.partition("/")[2]
            leaf = name.rpartition("/")[2]
            if leaf == "model.pt" and member.file_size:
                raise BadArtifact(f"{path.name} holds '{name}', a pickle: that is code")
            if _BOUND.fullmatch(leaf) and not torchbind:
                raise BadArtifact(f"{path.name} holds '{name}', an object of a C++ class")
            if leaf.endswith("_config.json"):
                _refuse_pickles(path, name, _json(path, archive, member), torchbind)
            if leaf == "model.json":
                _refuse_code(path, _json(path, archive, member), torchbind)


def _members(path: Path, known: "re.Pattern[str]") -> list[zipfile.ZipInfo]:
    """The members of an archive that holds what is known alone, stored as it is, in one folder."""
    try:
        with zipfile.ZipFile(path) as archive:
            members, start = archive.infolist(), archive.start_dir
        _refuse_second_directory(path, start)
    except _UNREADABLE as error:
        raise BadArtifact(f"{path.name} is no whole archive: {error}") from error
    top = members[0].filename.partition("/")[0] if members else ""
    names = {member.filename.casefold() for member in members}
    if len(names) != len(members):
        raise BadArtifact(f"{path.name} holds a name twice")
    for member in members:
        folder, _, name = member.filename.partition("/")
        if folder != top or not known.fullmatch(name):
            raise BadArtifact(f"{path.name} holds '{member.filename}', which no archive written by export has")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise BadArtifact(
                f"{path.name} holds '{member.filename}' compressed or encrypted, which export writes none"
            )
    if sum(member.file_size for member in members) > path.stat().st_size:
        raise BadArtifact(f"{path.name} says it unpacks to more than its {path.stat().st_size} bytes")
    return members


def _refuse_second_directory(path: Path, start: int) -> None:
    """Raises BadArtifact where the directory does not lie where the end of the file says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _TAIL))
        tail = file.read().rjust(_TAIL, b"\0")
    wide = tail[56:60] == b"PK\6\7"
    stated = int.from_bytes(tail[48:56] if wide else tail[92:96], "little")
    record = int.from_bytes(tail[64:72], "little")
    if tail[76:80] != b"PK\5\6" or stated != start or (wide and record != size - _TAIL):
        raise BadArtifact(f"{path.name} is no whole archive, or has a second directory")


def _json(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    if member.file_size > _LARGEST_JSON:
        raise BadArtifact(f"{path.name} holds {member.filename} of {member.file_size} bytes")
    try:
        return json.loads(archive.read(member) or b"{}")
    except (*_UNREADABLE, RecursionError) as error:
        raise BadArtifact(f"{path.name} holds {member.filename}, which cannot be read: {error!r}") from error


def _refuse_pickles(path: Path, name: str, config: Any, torchbind: bool) -> None:
    """Raises BadArtifact where the list of weights or constants says that one is pickled, or lies elsewhere."""
    entries = config.get("config", {}) if isinstance(config, dict) else None
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise BadArtifact(f"{path.name} holds {name}, which is no list of tensors")
    for entry in entries.values():
        place = str(entry.get("path_name"))
        if torchbind and _BOUND.fullmatch(place):
            continue
        if entry.get("use_pickle") is not False or not _PAYLOAD.fullmatch(place):
            raise BadArtifact(f"{path.name} has '{place[:60]}' in {name}, which is or names a pickle: that is code")


def _refuse_code(path: Path, model: Any, torchbind: bool) -> None:
    """Raises BadArtifact where a graph has an expression, reads a file, or calls anything but ATen's operators."""
    known = ("torch.ops.aten.", "torch.ops.tensorrt.") if torchbind else ("torch.ops.aten.",)
    for part in _objects(model):
        target = str(part.get("target", known[0]))
        if "expr_str" in part:
            raise BadArtifact(f"{path.name} has a size that is an expression, which is evaluated: that is code")
        if not target.startswith(known) or target.startswith("torch.ops.aten.from_file"):
            raise BadArtifact(f"{path.name} calls '{target[:60]}', which is no operator of a model")


def _objects(value: Any) -> "Iterator[dict[str, Any]]":
    """All objects of a JSON value, however deep."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            yield part
            pending += part.values()
        elif isinstance(part, list):
            pending += part
