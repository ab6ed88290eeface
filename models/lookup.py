"""Finds objects by name in a table or a user's module or file, and makes errors of what the user's code raises."""

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
"""Environment variable of workers: the folder in which the command ran, for imports of a user's modules. PYTHONPATH
would put it before Python's own modules."""
_LONGEST = 300
"""Most characters of a message from the user's code."""
_STDLIB = Path(sysconfig.get_path("stdlib"))


def look_up(reference: str, table: Mapping[str, str], kind: type[T], own: str) -> T:
    """Import and return the object that `reference` names, an instance or a subclass of `kind`.

    `table` maps names to `module:ATTRIBUTE`; `own` is an example of a user's own reference, for error messages.
    Raises BakeoffError if the name is unknown, the import fails, or the object is of another kind.
    """
    what = kind.__name__.lower()
    target = table.get(reference, reference)
    typed = _FILE.fullmatch(target)
    if typed is not None:
        return _from_file(typed, kind, own.rpartition(":")[2])
    owner, _, preset = reference.partition(":")
    if what == "component" and preset and owner in table:
        raise BakeoffError(
            f"no component '{reference}'; for a preset of {owner} give --preset {preset}", code="unknown-name"
        )
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
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # importing a user's module may raise anything, as pytest.skip does
        raise BakeoffError(
            f"{what} '{reference}' cannot be loaded: {type(error).__name__}: {error}", code="bad-user-code"
        ) from error
    return _checked(reference, found, kind)


def module_name(reference: str) -> str:
    """Return the name of the module in `module:ATTRIBUTE` or `FILE.py:ATTRIBUTE`; a file is imported to find it."""
    typed = _FILE.fullmatch(reference)
    return reference.partition(":")[0] if typed is None else import_file(file_of(typed["path"])).__name__


def _from_file(typed: re.Match[str], kind: type[T], usual: str) -> T:
    reference, file, name = typed[0], typed["path"], typed["name"]
    if not name:
        raise BakeoffError(f"{file}: name the {kind.__name__.lower()} too, as in {file}:{usual}", "bad-user-code")
    return _checked(reference, take_from_file(file_of(typed["path"]), name, kind), kind)


def file_of(typed: str) -> Path:
    """Return the absolute path of a file that was typed relative to the folder in which the command ran.

    Raises BakeoffError if there is no such file.
    """
    path = Path(os.environ.get(USER_CODE, ""), typed).expanduser().absolute()
    if not path.is_file():
        raise BakeoffError(f"there is no file {typed}; give another path", "bad-user-code")
    return path


def _checked(reference: str, found: Any, kind: type[T]) -> T:
    if not (issubclass(found, kind) if isinstance(found, type) else isinstance(found, kind)):
        wanted = f"a {kind.__module__}.{kind.__name__}"
        given = "a class of another kind" if isinstance(found, type) else a_type(type(found))
        raise BakeoffError(f"'{reference}' is {given}, not {wanted}", "bad-user-code")
    return found


@contextlib.contextmanager
def as_script(path: Path) -> Iterator[None]:
    """Set sys.argv as for `python FILE` during the block, so that user code does not read a worker's arguments."""
    own, sys.argv = sys.argv, [str(path)]
    try:
        yield
    finally:
        sys.argv = own


def user_error(what: str, error: BaseException) -> BakeoffError:
    """Return an error that states an exception of the user's code in one sentence, with that code's innermost line."""
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
    text = f"{what} raised {type(error).__name__}{users or other}: {one_line(error)}"
    if "does not require grad" in text:
        text += "; calls are made without gradients: compute yours within torch.enable_grad()"
    return BakeoffError(text.removesuffix(": "), "bad-user-code")


def is_users(file: Path) -> bool:
    """Return whether a file is the user's own: neither Python's own library nor installed."""
    return not {"site-packages", "dist-packages"}.intersection(file.parts) and _STDLIB not in file.parents


def without_colours(text: str) -> str:
    """Return a text without the codes that set a terminal's colours."""
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def one_line(error: BaseException) -> str:
    """Return an exception's message on one line, cut if it is long."""
    text = " ".join(without_colours(str(error)).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def take_from_file(path: Path, name: str, kind: type = FunctionType) -> Any:
    """Return `name` of a user's file. Raises BakeoffError, listing its objects of `kind`, if there is none."""
    module = import_file(path)
    if not hasattr(module, name):
        own = {key: one for key, one in vars(module).items() if one is not kind}
        known = [
            key
            for key, one in own.items()
            if isinstance(one, kind) or (isinstance(one, type) and issubclass(one, kind))
        ]
        near = meant(name, known or [*own, ""])
        listed = f"; it has {', '.join(known)}" if known else "" if near else f"; write a {kind.__name__} there"
        raise BakeoffError(f"{path.name}: the file has no '{name}'{near}{listed}", "bad-user-code")
    return getattr(module, name)


def import_file(path: Path) -> ModuleType:
    """Import a user's file and return the module, named by the file's stem or, if that name is taken, by a new name.

    Raises BakeoffError with file and line if the import fails.
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
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise user_error(path.name, error) from error
    return module
