"""What a user typed as a model of theirs, and the hash of its code."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from bakeoff.models import ALIASES, component_names
from bakeoff.models.brought.about import Source
from bakeoff.models.errors import BakeoffError
from bakeoff.record.source import imports

LIVE = "live.json"
"""The file that makes a folder a live module's."""
_FUNCTION = re.compile(r"(?P<path>.+\.py):(?P<name>[^\W\d]\w*)")


def is_brought(reference: str) -> bool:
    """Whether this is FILE.py:FUNCTION, FILE.pt2, or the folder of a live module, by its form alone."""
    return bool(
        _FUNCTION.fullmatch(reference) or reference.endswith((".py", ".pt2")) or (Path(reference) / LIVE).is_file()
    )


def read_source(reference: str) -> tuple[Source, str, str]:
    """(source, component's name, preset's name) of what `is_brought` says yes to.

    Raises BakeoffError where the file is missing, or a name is taken or cannot be part of a variant's.
    """
    match = _FUNCTION.fullmatch(reference)
    if reference.endswith(".py"):
        text = f"{reference}: name the function too, as in {reference}:model; it returns (module, inputs)"
        raise BakeoffError(text, "bad-user-code")
    here = str(Path.cwd())
    if match is not None:
        path = _file(match["path"], reference)
        source = Source("function", str(path), match["name"], _hash(_code(path)), here)
        return source, _name(match["name"], reference), _preset(path.stem)
    if reference.endswith(".pt2"):
        path = _file(reference, reference)
        return Source("archive", str(path), "", _hash([("", path)]), here), _name(_preset(path.stem), reference), "pt2"
    folder = Path(reference).absolute()
    files = [(path.name, path) for path in sorted(folder.iterdir()) if path.is_file()]
    return Source("live", str(folder), "", _hash(files), here), _name(_preset(folder.name), reference), "live"


def _file(typed: str, reference: str) -> Path:
    path = Path(typed).absolute()
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "there is no such file"
        raise BakeoffError(f"{reference}: {typed}: {found}; give a file", "bad-user-code")
    return path


def _name(name: str, reference: str) -> str:
    plain = name.strip("_-")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", plain):
        raise BakeoffError(
            f"{reference}: '{name}' cannot be part of a variant's name; use ASCII letters", "bad-user-code"
        )
    if plain in component_names() or plain in ALIASES:
        raise BakeoffError(
            f"{reference}: '{plain}' is a component of this lab; give yours another name", "bad-user-code"
        )
    return plain


def _preset(stem: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_") or "mine"


def _code(path: Path) -> Iterator[tuple[str, Path]]:
    """The file and what it imports of its own folder, each with its name there."""
    waiting, found = [path], dict[Path, str]()
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found[file] = file.relative_to(path.parent).as_posix()
        try:
            names = list(imports(file, ".".join(file.relative_to(path.parent).with_suffix("").parts)))
        except SyntaxError as error:
            raise BakeoffError(f"{file.name}, line {error.lineno}: {error.msg}; correct it", "bad-user-code") from error
        for name in names:
            place = path.parent.joinpath(*name.split("."))
            waiting += [one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file()]
    return iter(sorted((name, file) for file, name in found.items()))


def _hash(files: "Iterator[tuple[str, Path]] | list[tuple[str, Path]]") -> str:
    digest = hashlib.sha256()
    for name, path in files:
        try:
            with path.open("rb") as file:
                digest.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        except OSError as error:
            raise BakeoffError(f"{path}: {error.strerror}; make it readable", "bad-user-code") from error
    return digest.hexdigest()[:16]
