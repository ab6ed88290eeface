"""Replay golden files through their components and print the error of every output.

    python -m tests.golden FILE [FILE ...]

A file is a .safetensors with a .json beside it. Exits 1 where an output is past its tolerance, and 2 where a file
cannot be replayed.
"""

import argparse
import sys
from pathlib import Path

from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from golden_replay import replay_file

from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted


def main(files: list[Path]) -> int:
    """Print a table for each file; what is wrong with one does not keep the others from being replayed."""
    return max([_replay(file) for file in files])


def _replay(file: Path) -> int:
    try:
        outputs = replay_file(file)
    except BakeoffError as error:
        text = str(error)
        print(text if text.startswith(f"{file.stem}.") else f"{file.name}: {text}", file=sys.stderr)
        return 2
    words = {True: "pass", False: "FAIL", None: ""}
    rows = [(one.name, one.error, one.relative, one.tolerance, words[one.passed]) for one in outputs]
    print(tabulate(rows, headers=("output", "max abs", "relative", "tolerance", ""), disable_numparse=True))
    passed, failed = (sum(one.passed is word for one in outputs) for word in (True, False))
    said = f"{passed} of {counted(len(outputs), 'output passes', 'outputs pass')}"
    print(f"{file.name}: {said}{f', {failed} FAIL' if failed else ''}\n")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description="Replay golden files.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    sys.exit(main(parser.parse_args().files))
