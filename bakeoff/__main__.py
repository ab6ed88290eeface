"""The command `bakeoff`, and `python -m bakeoff`."""

import os
import signal
import sys
from contextlib import suppress


def _end(number: int, _frame: object) -> None:
    os.write(2, b"bakeoff: interrupted\n")
    os._exit(128 + number)


def main() -> None:
    """Run the command line, or say which library of the package's own dependencies is not installed.

    Until the command line handles signals itself, one ends the process without a traceback.
    """
    with suppress(FileNotFoundError):  # a working folder that was deleted holds nothing to import
        if not sys.flags.safe_path and sys.path[0] == os.getcwd():
            sys.path.append(sys.path.pop(0))  # of `python -m`: a profile.py there must not hide Python's own
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup(1) sets SIGHUP
            signal.signal(number, _end)
    try:
        from bakeoff.process.guard import end_with_caller

        end_with_caller()
        from bakeoff.cli import main as run  # imports libraries for a tenth of a second

        run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "bakeoff":
            raise
        print(
            f"bakeoff: the library '{error.name}' is not installed. Install bakeoff with its dependencies: "
            "make install (in a checkout), or pip install with no --no-deps [missing-library]",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
