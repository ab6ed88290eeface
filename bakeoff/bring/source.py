"""What a user typed as a model of theirs."""

import re
from pathlib import Path

from bakeoff.models import component_names
from bakeoff.models.brought.about import Source
from bakeoff.models.errors import BakeoffError
from bakeoff.record.user_source import archive_hash, content_hash, file_hash

LIVE = "live.json"
"""The file that makes a folder a live module's."""
USUAL = "model"
"""The function that a file of one model has: the model is named by the file alone."""
_FUNCTION = re.compile(r"(?P<path>.+\.py):(?P<name>[^\W\d]\w*)")


def is_brought(reference: str) -> bool:
    """Whether this is FILE.py:FUNCTION, FILE.pt2, or the folder of a live module, by its form alone."""
    return bool(
        _FUNCTION.fullmatch(reference) or reference.endswith((".py", ".pt2")) or (Path(reference) / LIVE).is_file()
    )


def read_source(reference: str) -> tuple[Source, str, str]:
    """(source, component's name, preset's name) of what `is_brought` says yes to.

    `unet.py:model` is `unet`, and any other function of that file is `unet.decoder`, so that one that is added later
    renames none. The preset says what it was: `py`, `pt2` or `live`. Raises BakeoffError where the file is missing, or
    a name is taken or cannot be part of a variant's.
    """
    match = _FUNCTION.fullmatch(reference)
    if reference.endswith(".py"):
        text = f"{reference}: name the function too, as in {reference}:model; it returns (module, inputs)"
        raise BakeoffError(text, "bad-user-code")
    here = str(Path.cwd())
    if match is not None:
        path = _file(match["path"])
        source = Source("function", str(path), match["name"], file_hash(path), here)
        stem, function = _plain(path.stem), _name(match["name"], reference)
        alone = match["name"] == USUAL and stem not in component_names()
        return source, stem if alone else f"{stem}.{function}", "py"
    if reference.endswith(".pt2"):
        path = _file(reference)
        return Source("archive", str(path), "", archive_hash(path), here), _free(_plain(path.stem), reference), "pt2"
    folder = Path(reference).absolute()
    name = ".".join(map(_plain, folder.name.split(".")))
    return Source("live", str(folder), "", content_hash(folder), here), _free(name, reference), "live"


def _file(typed: str) -> Path:
    path = Path(typed).absolute()
    if not path.is_file():
        text = f"{typed} is a folder; give a file" if path.is_dir() else f"there is no file {typed}; give another path"
        raise BakeoffError(text, "bad-user-code")
    return path


def _name(function: str, reference: str) -> str:
    plain = function.strip("_")
    if not plain.isascii() or not plain:
        raise BakeoffError(
            f"{reference}: '{function}' cannot be part of a variant's name; use ASCII letters", "bad-user-code"
        )
    return plain


def _free(name: str, reference: str) -> str:
    if name in component_names():
        raise BakeoffError(
            f"{reference}: '{name}' is a component of this lab; give yours another name", "bad-user-code"
        )
    return name


def _plain(stem: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_") or "mine"
