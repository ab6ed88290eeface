"""Checks archives of torch.export programs before they are opened, so that opening one does not run code.

torch.export.load unpickles everything that is not a plain tensor, older layouts and example inputs
(torch/export/__init__.py and pt2_archive/_package.py), and passes a size that is an expression to sympy, which
evaluates it. So an archive may have only members with the exact names that an export writes. torch reads archives with
miniz, which ignores case in names and reads the directory at the offset that the end record states; Python's zipfile
searches for the directory. Both must find the same one.
"""

import json
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from bakeoff.backends.format import BadArtifact

_PROGRAM = re.compile(
    r"\.data/(version|serialization_id)|archive_(format|version)|byteorder|models/model\.json|"
    r"data/weights/(weight_\d+|model_weights_config\.json)|"
    r"data/constants/(tensor_\d+|custom_obj_\d+|model_constants_config\.json)|data/sample_inputs/model\.pt"
)
_TENSOR = re.compile(r"(weight|tensor)_\d+")
_CPP_OBJECT = re.compile(r"custom_obj_\d+")
_LARGEST_JSON = 256 << 20
_TAIL = 98
"""Bytes of zip64's end record, its locator and the end record (APPNOTE.TXT 4.3.14 to 4.3.16)."""
_EXPORT_AGAIN = "do not open it; export the artifact again"
_UNREADABLE = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError)


def check_program(path: Path, torchbind: bool = False, operators: Collection[str] = ()) -> None:
    """Check a torch.export program. Raises BadArtifact if it contains anything but ATen operators and plain tensors.

    With `torchbind` it may also contain TensorRT's engines and call them. An engine is an object of a C++ class, which
    torch's C++ code reads without unpickling. The program may also call `operators`, given by their full names.
    """
    members = _members(path)
    with zipfile.ZipFile(path) as archive:
        for member in members:
            name = member.filename.partition("/")[2]
            leaf = name.rpartition("/")[2]
            if leaf == "model.pt" and member.file_size:
                raise BadArtifact(f"{path.name} holds '{name}', a pickle, which can run code; {_EXPORT_AGAIN}")
            if _CPP_OBJECT.fullmatch(leaf) and not torchbind:
                raise BadArtifact(f"{path.name} holds '{name}', an object of a C++ class; {_EXPORT_AGAIN}")
            if leaf.endswith("_config.json"):
                _check_tensor_list(path, name, _json(path, archive, member), torchbind)
            if leaf == "model.json":
                _check_graph(path, _json(path, archive, member), torchbind, operators)


def _members(path: Path) -> list[zipfile.ZipInfo]:
    """Return the members of an archive.

    Raises BadArtifact unless all are in one folder, uncompressed, with names that export writes.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members, start = archive.infolist(), archive.start_dir
        _check_directory(path, start)
    except _UNREADABLE as error:
        raise BadArtifact(f"{path.name} is not a complete archive: {error}; copy or export it again") from error
    top = members[0].filename.partition("/")[0] if members else ""
    names = {member.filename.casefold() for member in members}
    if len(names) != len(members):
        raise BadArtifact(f"{path.name} holds two members of the same name; {_EXPORT_AGAIN}")
    for member in members:
        folder, _, name = member.filename.partition("/")
        if folder != top or not _PROGRAM.fullmatch(name):
            raise BadArtifact(f"{path.name} holds '{member.filename}', which export never writes; {_EXPORT_AGAIN}")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise BadArtifact(f"{path.name} holds '{member.filename}' compressed or encrypted; {_EXPORT_AGAIN}")
    if sum(member.file_size for member in members) > path.stat().st_size:
        raise BadArtifact(
            f"{path.name} states members of more bytes than the {path.stat().st_size} of the file; {_EXPORT_AGAIN}"
        )
    return members


def _check_directory(path: Path, start: int) -> None:
    """Raise BadArtifact unless the archive's directory is at the offset that the end of the file states.

    `start` is where Python's zipfile found the directory.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _TAIL))
        tail = file.read().rjust(_TAIL, b"\0")
    wide = tail[56:60] == b"PK\6\7"
    stated = int.from_bytes(tail[48:56] if wide else tail[92:96], "little")
    record = int.from_bytes(tail[64:72], "little")
    if tail[76:80] != b"PK\5\6" or stated != start or (wide and record != size - _TAIL):
        raise BadArtifact(f"{path.name} is not a complete archive, or has a second directory; {_EXPORT_AGAIN}")


def _json(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    if member.file_size > _LARGEST_JSON:
        raise BadArtifact(
            f"{path.name} holds {member.filename} of {member.file_size} bytes, more than {_LARGEST_JSON}; "
            f"{_EXPORT_AGAIN}"
        )
    try:
        return json.loads(archive.read(member) or b"{}")
    except (*_UNREADABLE, RecursionError) as error:
        raise BadArtifact(
            f"{path.name} holds {member.filename}, which cannot be read: {error!r}; {_EXPORT_AGAIN}"
        ) from error


def _check_tensor_list(path: Path, name: str, config: Any, torchbind: bool) -> None:
    """Raise BadArtifact if an entry of the list of weights or constants is pickled or is not a known tensor file."""
    entries = config.get("config", {}) if isinstance(config, dict) else None
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise BadArtifact(f"{path.name} holds {name}, which is not a list of tensors; {_EXPORT_AGAIN}")
    for entry in entries.values():
        file = str(entry.get("path_name"))
        if torchbind and _CPP_OBJECT.fullmatch(file):
            continue
        if entry.get("use_pickle") is not False or not _TENSOR.fullmatch(file):
            raise BadArtifact(
                f"{path.name} has '{file[:60]}' in {name}, which may be a pickle and run code; {_EXPORT_AGAIN}"
            )


def _check_graph(path: Path, model: Any, torchbind: bool, operators: Collection[str]) -> None:
    """Raise BadArtifact if a graph has an expression, reads a file, or calls anything but ATen operators.

    With `torchbind` it may also call TensorRT's operators; it may always call the `operators` given by their full
    names.
    """
    known = ("torch.ops.aten.", "torch.ops.tensorrt.") if torchbind else ("torch.ops.aten.",)
    for part in _objects(model):
        target = str(part.get("target", known[0]))
        if "expr_str" in part:
            raise BadArtifact(
                f"{path.name} has a size that is an expression, which torch would evaluate as code; {_EXPORT_AGAIN}"
            )
        if target in operators:
            continue
        if not target.startswith(known) or target.startswith("torch.ops.aten.from_file"):
            raise BadArtifact(f"{path.name} calls '{target[:60]}', which is not an ATen operator; {_EXPORT_AGAIN}")


def _objects(value: Any) -> "Iterator[dict[str, Any]]":
    """Yield all JSON objects in a JSON value, at any depth."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            yield part
            pending += part.values()
        elif isinstance(part, list):
            pending += part
