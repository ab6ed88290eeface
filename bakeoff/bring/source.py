"""What a user typed as a model of theirs."""

import re
from pathlib import Path

from bakeoff.models import ALIASES, component_names
from bakeoff.models.brought.about import Source
from bakeoff.models.errors import BakeoffError
from bakeoff.record.user_source import archive_hash, content_hash, file_hash

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
        source = Source("function", str(path), match["name"], file_hash(path), here)
        return source, _name(match["name"], reference), _preset(path.stem)
    if reference.endswith(".pt2"):
        path = _file(reference, reference)
        return Source("archive", str(path), "", archive_hash(path), here), _name(_preset(path.stem), reference), "pt2"
    folder = Path(reference).absolute()
    return Source("live", str(folder), "", content_hash(folder), here), _name(_preset(folder.name), reference), "live"


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
