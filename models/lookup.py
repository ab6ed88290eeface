"""Find an object by its name in a table, or by a user's own `package.module:ATTRIBUTE` or `FILE.py:ATTRIBUTE`."""

import os
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from bakeoff.models.errors import BakeoffError, a_type, meant
from bakeoff.models.user_code import USER_CODE, import_file, take_from_file

T = TypeVar("T")
_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<name>[^\W\d]\w*)?)?")


def look_up(reference: str, table: Mapping[str, str], kind: type[T], own: str) -> T:
    """Import the object that `reference` names and check that it is a `kind`, or a class of its kind.

    `table` maps names to `module:ATTRIBUTE`; `own` is what error messages show as an example of a user's own.
    Raises BakeoffError when the name is unknown, the import fails, or the object is not a `kind`.
    """
    what = kind.__name__.lower()
    target = table.get(reference, reference)
    typed = _FILE.fullmatch(target)
    if typed is not None:
        return _from_file(typed, kind, own.rpartition(":")[2])
    if not _PATH.fullmatch(target):
        raise BakeoffError(
            f"no {what} '{reference}'{meant(reference, table)}; known: {', '.join(table)}; for your own give {own}",
            code="unknown-name",
        )
    module_name, _, name = target.partition(":")
    try:
        found = getattr(import_module(module_name), name)
    except (ImportError, AttributeError, BakeoffError) as error:
        raise BakeoffError(f"{what} '{reference}' cannot be loaded: {error}", code="bad-user-code") from error
    except (Exception, SystemExit) as error:  # importing a user's module may raise anything
        raise BakeoffError(
            f"{what} '{reference}' cannot be loaded: {type(error).__name__}: {error}", code="bad-user-code"
        ) from error
    return _checked(reference, found, kind)


def module_name(reference: str) -> str:
    """Name of the module that a user's own reference names an attribute of; a file's is known once it is imported."""
    typed = _FILE.fullmatch(reference)
    return reference.partition(":")[0] if typed is None else import_file(file_of(typed["path"])).__name__


def _from_file(typed: re.Match[str], kind: type[T], usual: str) -> T:
    reference, file, name = typed[0], typed["path"], typed["name"]
    if not name:
        raise BakeoffError(f"{file}: name the {kind.__name__.lower()} too, as in {file}:{usual}", "bad-user-code")
    return _checked(reference, take_from_file(file_of(typed["path"]), name, kind), kind)


def file_of(typed: str) -> Path:
    """The file, relative to the folder that the command ran in. Raises BakeoffError where there is none."""
    path = Path(os.environ.get(USER_CODE, ""), typed).expanduser().absolute()
    if not path.is_file():
        raise BakeoffError(f"there is no file {typed}; give another path", "bad-user-code")
    return path


def _checked(reference: str, found: Any, kind: type[T]) -> T:
    if not (issubclass(found, kind) if isinstance(found, type) else isinstance(found, kind)):
        wanted = f"a {kind.__module__}.{kind.__name__}"
        given = "a class of another kind" if isinstance(found, type) else a_type(type(found))
        raise BakeoffError(f"'{reference}' is {given}, not {wanted}", "bad-user-code")
    fits: T = found
    return fits
