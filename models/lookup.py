"""Find an object by its name in a table or in a user's module or file, and say in a sentence what that raises."""

import contextlib
import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from bakeoff.models.errors import BakeoffError, a_type, meant

T = TypeVar("T")
_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<name>[^\W\d]\w*)?)?")
USER_CODE = "BAKEOFF_USER_CODE"
"""Set in workers: the folder that the command ran in, and a worker imports a user's modules from. PYTHONPATH would put
it before Python's own modules."""
_LONGEST = 300
"""Characters of a message of the user's code."""
_STDLIB = Path(sysconfig.get_path("stdlib"))


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
    """Return the file, relative to the folder that the command ran in. Raises BakeoffError where there is none."""
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


@contextlib.contextmanager
def as_script(path: Path) -> Iterator[None]:
    """The command line of `python FILE`, for code that reads it: a worker's own arguments are none of its."""
    own, sys.argv = sys.argv, [str(path)]
    try:
        yield
    finally:
        sys.argv = own


def user_error(what: str, error: BaseException) -> BakeoffError:
    """An exception of the user's code as one sentence, with the innermost line of that code."""
    trace, users, other = error.__traceback__, "", ""
    while trace is not None:
        path = Path(trace.tb_frame.f_code.co_filename)
        top = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if top not in ("bakeoff", "torch") and path.exists():
            other = f" ({path.name}, line {trace.tb_lineno})"
            users = other if is_users(path) else users
        trace = trace.tb_next
    if isinstance(error, SystemExit) and other != users:
        text = "which is empty here; do so below if __name__ == '__main__', or give each argument a default"
        return BakeoffError(f"{what} reads the command line{users}, {text}", "bad-user-code")
    return BakeoffError(f"{what} raised {type(error).__name__}{users or other}: {one_line(error)}", "bad-user-code")


def is_users(file: Path) -> bool:
    """Return whether it is neither of Python's own library nor installed."""
    return not {"site-packages", "dist-packages"}.intersection(file.parts) and _STDLIB not in file.parents


def one_line(error: BaseException) -> str:
    """An exception's message on one line, cut where it is long."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def take_from_file(path: Path, name: str, kind: type = FunctionType) -> Any:
    """Return what a user's file calls `name`. Raises BakeoffError, with what it has of this kind, where it lacks it."""
    module = import_file(path)
    if not hasattr(module, name):
        own = {key: one for key, one in vars(module).items() if one is not kind}
        known = [
            key
            for key, one in own.items()
            if isinstance(one, kind) or (isinstance(one, type) and issubclass(one, kind))
        ]
        listed = f"it has {', '.join(known)}" if known else f"write a {kind.__name__} there"
        raise BakeoffError(f"{path.name}: the file has no '{name}'{meant(name, known)}; {listed}", "bad-user-code")
    return getattr(module, name)


def import_file(path: Path) -> ModuleType:
    """Return the file as a module, by its stem or, where another module has that name, one that nobody has.

    Raises BakeoffError with the file and line where the import fails.
    """
    name = path.stem
    other = None if name in sys.modules else importlib.util.find_spec(name)
    if other is not None and other.origin != str(path):
        name = f"bakeoff_brought_{name}"
    while name in sys.modules:
        if getattr(sys.modules[name], "__file__", None) == str(path):
            return sys.modules[name]
        name = f"bakeoff_brought_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BakeoffError(f"{path} is no Python file; give FILE.py:NAME", "bad-user-code")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last: a profile.py there hides none of Python's own
    try:
        with as_script(path):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise user_error(path.name, error) from error
    return module
