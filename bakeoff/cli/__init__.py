"""The command line: reads what was typed, calls the library, prints. Only this folder prints.

An error is one line on stderr that ends with its code in brackets.

Exit codes: 0 something was measured or the check passed, 1 a check failed, 2 usage or bad input, 3 nothing measured,
130 interrupted (128 and the number of any other signal). Heavy imports are inside the commands, so that --help answers
at once.
"""

import contextlib
import os
import sys

from bakeoff.cli import (  # noqa: F401
    artifacts,
    budget,
    check,
    compare,
    deadline,
    explain,
    gate,
    inspect,
    pages,
    pipeline,
    records,
    reports,
    rollout,
    session,
    sweep,
)
from bakeoff.cli.common import app, error_line, say
from bakeoff.models.errors import BakeoffError
from bakeoff.process.signals import ending_signals


def main() -> None:
    """Run the command line and exit. After a signal the exit code is 128 and its number."""
    with ending_signals() as received:
        code = _run()
    sys.exit(128 + received[0] if received else code)


def _run() -> int | str | None:
    """Run the command and return its exit code. A BakeoffError or OSError is printed on one line, and the code is 2."""
    try:
        for argument in sys.argv[1:]:
            if any("\udc80" <= letter <= "\udcff" for letter in argument):
                raise BakeoffError(f"argument {argument!a} is not UTF-8; type it as UTF-8", "bad-option")
        try:
            app(standalone_mode=True)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # as in `bakeoff list | head -1`, which typer calls an error
            _drop_stdout()
            return 0
        # typer ends the command when it is interrupted; sweep catches the interrupt and has said what is left to do.
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
            _say_if_possible("interrupted")
        return end.code
    except BakeoffError as error:
        say(error_line(str(error), error.code))
    except KeyboardInterrupt:
        _say_if_possible("interrupted")
        return 130
    except BrokenPipeError:
        _drop_stdout()
        return 0
    except OSError as error:
        _drop_stdout()
        what = error.filename or ("the working folder" if isinstance(error, FileNotFoundError) else "output")
        text = f"{what}: {error.strerror or error}; check the path, permissions and free space"
        _say_if_possible(error_line(text, "os-error"))
    return 2


def _say_if_possible(text: str) -> None:
    """Print the text; after SIGHUP there is no terminal any more."""
    with contextlib.suppress(OSError):
        say(text)


def _drop_stdout() -> None:
    """Send what is still buffered for stdout to /dev/null, because Python's flush at exit would fail again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
