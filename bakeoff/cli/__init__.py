"""The command line: reads what was typed, calls the library, prints. Only this folder prints.

An error is one line on stderr that ends with its code in brackets.

Exit codes: 0 something was measured or the check passed, 1 a check failed, 2 usage or bad input, 3 nothing measured,
130 interrupted. Heavy imports are inside the commands, so that --help answers at once.
"""

import os
import sys

from bakeoff.cli import artifacts, cache, check, compare, reports, sweep
from bakeoff.cli.common import app, error_line, say
from bakeoff.models.errors import BakeoffError

__all__ = ["app", "artifacts", "cache", "check", "compare", "main", "reports", "sweep"]


def main() -> None:
    """Run the command line. A BakeoffError or OSError is printed on one line, and the exit code is 2."""
    try:
        for argument in sys.argv[1:]:
            if any("\udc80" <= letter <= "\udcff" for letter in argument):
                raise BakeoffError(f"argument {argument!a} is not UTF-8; type it as UTF-8", "bad-option")
        try:
            app(standalone_mode=True)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BakeoffError as error:
        say(error_line(str(error), error.code))
        code = 2
    except KeyboardInterrupt:
        say("interrupted")
        code = 130
    except BrokenPipeError:
        _drop_stdout()
        code = 0
    except OSError as error:
        _drop_stdout()
        what = error.filename or ("the working folder" if isinstance(error, FileNotFoundError) else "output")
        text = f"{what}: {error.strerror or error}; check the path, permissions and free space"
        say(error_line(text, "os-error"))
        code = 2
    else:
        return
    sys.exit(code)


def _drop_stdout() -> None:
    """Send what is still buffered for stdout to /dev/null, because Python's flush at exit would fail again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
