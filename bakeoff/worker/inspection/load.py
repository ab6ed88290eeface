"""The user's callable: loads its file and finds out what one pass calls."""

import inspect
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MethodType
from typing import Any

from torch import nn

from bakeoff.models.errors import BakeoffError, a_type, meant
from bakeoff.models.user_code import import_file, user_error
from bakeoff.worker.failures import is_out_of_memory

_WANTED = "name a function without arguments that runs one pass, or returns the function that does"


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
    """Call what a user wrote. Raises BakeoffError with its message and its last line; the traceback goes to stderr.

    A failed allocation passes through.
    """
    try:
        return action()
    except BakeoffError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        traceback.print_exception(error)
        raise user_error(what, error) from error


def _find(file: Path, name: str) -> Callable[..., Any]:
    module = import_file(file)
    if not hasattr(module, name):
        functions = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        text = f"{file.name} has no '{name}'{meant(name, functions)}; functions there: {', '.join(functions) or 'none'}"
        raise BakeoffError(text, "unknown-name")
    found = getattr(module, name)
    if not callable(found):
        raise BakeoffError(f"{file.name}:{name} is {a_type(type(found))}; {_WANTED}", "bad-user-code")
    return found


def _check_arguments(found: Callable[..., Any], arguments: Mapping[str, Any], what: str) -> None:
    """Raises BakeoffError where a call with these keyword arguments is not possible."""
    try:
        signature = inspect.signature(found.forward if isinstance(found, nn.Module) else found)
    except ValueError:
        return  # of C, without a signature
    try:
        signature.bind(**arguments)
    except TypeError as error:
        given = f"with {', '.join(arguments)}" if arguments else "without arguments"
        raise BakeoffError(f"{what} cannot be called {given}: {error}; {_WANTED}", "bad-user-code") from error
