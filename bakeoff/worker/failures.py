"""Decides the status that an exception of a variant's code gives its row.

It does not import torch, which may be what fails to import.
"""

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from bakeoff.backends.backend import Unavailable, Unsupported
from bakeoff.models.errors import BakeoffError
from bakeoff.models.lookup import user_error, without_colours
from bakeoff.record.schema import Status

T = TypeVar("T")

_MEMORY_TEXTS = re.compile(
    r"can't allocate memory|failed to allocate (memory|\d+ bytes)|out ?of ?memory|bad_alloc|bad allocation|alloc_failed"
)
"""Out-of-memory messages of torch, C++ (via ONNX Runtime and OpenVINO), OpenVINO itself and cuBLAS, in lower case."""


class StageError(Exception):
    """An exception of the variant's own code, with the status that it gives the row."""

    def __init__(self, status: Status, error: BaseException) -> None:
        self.status: Status = status
        self.error = cause_of(error)
        super().__init__(str(self.error))

    @property
    def reason(self) -> str:
        """The exception's class and first line; of a BakeoffError, whose text is for users, without the class."""
        line = first_line(self.error)
        return line.partition(": ")[2] if isinstance(self.error, BakeoffError) else line


class UncheckedError(StageError):
    """A check after the timing ran out of memory: the timing is kept, and the row is not ranked."""

    def __init__(self, check: str, error: BaseException) -> None:
        super().__init__("oom", error)
        self.check = check

    @property
    def reason(self) -> str:
        return f"timed, but not all checked: out of memory in {self.check}: {super().reason}"


@contextmanager
def checking(check: str) -> Iterator[None]:
    """Run a check within this context; raise UncheckedError with its name if it runs out of memory."""
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise UncheckedError(check, error) from error
        raise


@contextmanager
def users_code(what: str) -> Iterator[None]:
    """Run a user's code within this context; turn what it raises into a BakeoffError with its message and last line.

    `what` names the code in the message. The traceback goes to stderr. A BakeoffError or a failed allocation passes
    through unchanged.
    """
    try:
        yield
    except BakeoffError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        traceback.print_exception(error)
        raise user_error(what, error) from error


def call_stage(action: Callable[[], T]) -> T:
    """Return `action()`, which uses a built engine. Raises StageError with `call_failed`, or the exception's status."""
    try:
        return action()
    except Exception as error:
        raise StageError(status_of(error, "call_failed"), error) from error


def status_of(error: BaseException, otherwise: Status) -> Status:
    """Return the status that an exception gives a row: `unavailable`, `unsupported` or `oom`; else `otherwise`."""
    cause = cause_of(error)
    if isinstance(cause, Unavailable):
        return "unavailable"
    if isinstance(cause, Unsupported):
        return "unsupported"
    return "oom" if is_out_of_memory(error) else otherwise


def cause_of(error: BaseException) -> BaseException:
    """Return the exception that a compiler raised, without torch.compile's wrappers; any other exception as it is.

    The text of a wrapper begins with two levels of class names (torch/_dynamo/exc.py, BackendCompilerFailed and
    InductorError).
    """
    inner = getattr(error, "inner_exception", None)
    return cause_of(inner) if isinstance(inner, BaseException) else error


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether this exception, or one in its chain, is a failed allocation of host or device memory.

    torch's CUDA allocator raises `OutOfMemoryError`. Errors of its CPU allocator, of CUDA's runtime and of ONNX
    Runtime's arena ("Failed to allocate memory for requested buffer of size") can only be recognised by their text.
    """
    return any(
        isinstance(each, MemoryError)
        or type(each).__name__ == "OutOfMemoryError"
        or _MEMORY_TEXTS.search(str(each).lower())
        for each in _chain(error, lambda each: each.__cause__ or each.__context__)
    )


def _chain(error: BaseException, before: Callable[[BaseException], BaseException | None]) -> Iterator[BaseException]:
    """Yield an exception and those `before` it, each once: a user's code can raise an exception from itself."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        yield each
        seen.add(id(each))
        each = before(each)


def first_line(error: BaseException, limit: int = 500) -> str:
    """Return the exception's class and the first line of its text that is not blank, at most `limit` characters.

    If that line ends in a comma or a colon, the lines up to the first without one are added, to complete the sentence.
    The last cause is added, since what torch.onnx says first is the same each time. A BakeoffError tells its own.
    """
    found = _sentence(error)
    *_, cause = _chain(error, lambda each: each.__cause__)
    if cause is not error and str(cause).strip() and not isinstance(error, BakeoffError):
        found = f"{found[: limit // 2]} (caused by {_sentence(cause)}"[: limit - 1] + ")"
    return found[:limit]


def _sentence(error: BaseException) -> str:
    lines = [line.strip() for line in without_colours(str(error)).splitlines() if line.strip()]
    last = next((place for place, line in enumerate(lines) if not line.endswith((",", ":"))), len(lines))
    said = " ".join(lines[: last + 1]) or "no message"
    return encodable(f"{type(error).__name__}: {said}")


def traceback_text(error: BaseException) -> str:
    """Return the last 8,000 characters of an exception's traceback."""
    return encodable("".join(traceback.format_exception(error))[-8000:])


def encodable(text: str) -> str:
    """Replace lone surrogates by `?`: they come from file names that are not UTF-8, and JSON cannot hold them."""
    return text.encode(errors="replace").decode()
