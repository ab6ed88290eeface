"""Imports of users' Python files, and what their code raises as one sentence."""

import contextlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from bakeoff.models.errors import BakeoffError, meant

USER_CODE = "BAKEOFF_USER_CODE"
"""Set in workers: the folder that the command ran in, and a worker imports a user's modules from. PYTHONPATH would put
it before Python's own modules."""
_LONGEST = 300
"""Characters of a message of the user's code."""
_STDLIB = Path(sysconfig.get_path("stdlib"))


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
    """The file as a module, by its stem or, where another module has that name, one that nobody has.

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
