"""The user's callable: loads its file and finds out what one pass calls."""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MethodType
from typing import Any, NoReturn

from bakeoff.models.errors import BakeoffError
from bakeoff.worker.failures import encodable, first_line, is_out_of_memory

_MODULE = "bakeoff_inspected"
_SEE_DOCS = "name a function without arguments that runs one pass, or returns the function that does"


def load_pass(file: Path, name: str) -> tuple[Callable[[], Any], Any]:
    """A function that runs one pass, and the user's callable, where a search for modules begins.

    The named function is called once. What it returns runs a pass where that is callable, or a pair of a callable and
    its keyword arguments; else the named function itself does. Raises BakeoffError where there is none, it takes
    arguments, or user code raises.
    """
    what = f"{file.name}:{name}"
    found = _find(file, name)
    _check_arguments(found, {}, what)
    returned = call_user_code(found, what)
    subject: Callable[..., Any] = found
    arguments: dict[str, Any] = {}
    if isinstance(returned, tuple) and len(returned) == 2 and callable(returned[0]) and isinstance(returned[1], dict):
        subject, arguments = returned
    elif callable(returned):
        subject = returned
    _check_arguments(subject, arguments, what)

    def run() -> Any:
        return call_user_code(lambda: _bound(subject)(**arguments), what)

    return run, subject


def _bound(subject: Callable[..., Any]) -> Callable[..., Any]:
    """A method as its object has it now: one that was bound before its class was instrumented would not be seen."""
    if isinstance(subject, MethodType):
        found: Callable[..., Any] = getattr(subject.__self__, subject.__name__, subject)
        return found
    return subject


def call_user_code(action: Callable[[], Any], what: str) -> Any:
    """Call what a user wrote. Raises BakeoffError with its message and its last frame; the traceback goes to stderr.

    A failed allocation passes through.
    """
    try:
        return action()
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        traceback.print_exception(error)
        _refuse(error, what)


def _refuse(error: BaseException, what: str) -> NoReturn:
    if isinstance(error, BakeoffError):
        raise error
    if isinstance(error, SyntaxError):
        raise BakeoffError(f"{what}: {first_line(error, 300)}", "bad-user-code") from error
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_own(frame.filename)]
    last = f", {Path(frames[-1].filename).name} line {frames[-1].lineno} in {frames[-1].name}" if frames else ""
    raise BakeoffError(encodable(f"{what} raised {first_line(error, 300)}{last}"), "bad-user-code") from error


def _is_own(file: str) -> bool:
    """Whether a frame is of this package or of the import system, between the worker and the user's code."""
    return Path(file).parent == Path(__file__).parent or file.startswith("<frozen ")


def _find(file: Path, name: str) -> Callable[..., Any]:
    module = _import_file(file)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = ", ".join(key for key, value in vars(module).items() if inspect.isfunction(value)) or "none"
            text = f"{file.name} has no '{name}'; functions there: {known}"
            raise BakeoffError(text, "unknown-name")
        found = getattr(found, part)
    if not callable(found):
        text = f"{file.name}:{name} is a {type(found).__name__}; {_SEE_DOCS}"
        raise BakeoffError(text, "bad-user-code")
    return found


def _import_file(file: Path) -> Any:
    specification = importlib.util.spec_from_file_location(_MODULE, file)
    if specification is None or specification.loader is None:
        raise BakeoffError(f"{file.name} is no Python file; give FILE.py:NAME", "bad-user-code")
    module = importlib.util.module_from_spec(specification)
    sys.modules[_MODULE] = module
    sys.path.insert(0, str(file.parent))
    call_user_code(lambda: specification.loader.exec_module(module), file.name)  # type: ignore[union-attr]
    return module


def _check_arguments(found: Callable[..., Any], arguments: Mapping[str, Any], what: str) -> None:
    """Raises BakeoffError where a call with these keyword arguments is not possible."""
    try:
        signature = inspect.signature(found)
    except ValueError:
        return  # of C, without a signature
    try:
        signature.bind(**arguments)
    except TypeError as error:
        given = f"called with {', '.join(arguments)}" if arguments else "called without arguments"
        text = f"{what} cannot be {given}: {error}; {_SEE_DOCS}"
        raise BakeoffError(text, "bad-user-code") from error
