"""The g++ of a run of the tests: what one test compiled is copied for the next, and kernels are optimised less.

    python -IS compile_once.py COMPILER ARGUMENT ...

Each test has a cache folder of its own, so inductor compiles and preprocesses the same texts for dozens of tests. The
outputs are kept in the run's shared folder by the hash of the command and of all files it names, wherever these are.
Precompiled headers are not kept: shared_headers.py shares them. A test without a shared folder compiles all itself.
"""

import hashlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SHARED = "BAKEOFF_TEST_SHARED"
"""The folder that all processes of a run of the tests share."""
COMPILED = "BAKEOFF_TEST_COMPILED"
"""A file that gets a line for each header that is precompiled, and for each check of vector instructions."""
_SCRIPT = """#!/bin/sh
test $# = 1 && exec "{compiler}" "$@"  # its version
exec "{python}" -IS "{this}" "{compiler}" "$@"
"""


def put_on_path(shared: Path, compiler: str) -> Path:
    """Write a `g++` that calls this file; returns its folder, which is the same for all processes of a run."""
    place = shared / "bin" / "g++"
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f"g++.{os.getpid()}")
    part.write_text(_SCRIPT.format(python=sys.executable, this=__file__, compiler=compiler), encoding="utf-8")
    part.chmod(0o755)
    part.replace(place)
    return place.parent


def _key(words: Sequence[str]) -> str:
    """Return the hash of what is compiled and how; "" for a command whose output is not kept."""
    one_output = words.count("-o") == 1 and "c++-header" not in words and not any(word[:2] == "-M" for word in words)
    if not one_output:
        return ""
    found = hashlib.sha256()
    for before, word in zip(("", *words), words, strict=False):
        if before == "-o":
            continue
        if before == "-include":  # inductor names a precompiled header by the hash of its content
            word = os.path.basename(word)
        elif os.path.isfile(word):
            word = hashlib.sha256(Path(word).read_bytes()).hexdigest() + os.path.splitext(word)[1]
        found.update(word.encode() + b"\0")
    return found.hexdigest()


def _note(words: Sequence[str]) -> None:
    if log := os.environ.get(COMPILED):
        checks = [word for word in words if word.endswith(".cpp") and "_chk_kernel" in Path(word).read_text("utf-8")]
        with open(log, "a", encoding="ascii") as file:
            file.write("header\n" * ("c++-header" in words) + "check\n" * len(checks))


def main(compiler: str, *words: str) -> int:
    """Copy the output of an equal command, or run this one; returns its exit code."""
    words = tuple("-O1" if word == "-O3" else word for word in words)
    _note(words)
    shared = os.environ.get(SHARED)
    key = _key(words) if shared else ""
    if not shared or not key:
        os.execv(compiler, [compiler, *words])
    target, kept = Path(words[words.index("-o") + 1]), Path(shared, "compiled", key)
    with suppress(FileNotFoundError):
        part = target.with_name(f"{target.name}.{os.getpid()}")
        part.write_bytes(kept.read_bytes())
        part.chmod(0o755)
        part.replace(target)  # a process may have loaded what lies there
        return 0
    code = os.spawnv(os.P_WAIT, compiler, [compiler, *words])
    if code == 0:
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_name(f"{key}.{os.getpid()}")
        part.write_bytes(target.read_bytes())
        part.replace(kept)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
