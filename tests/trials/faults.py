"""What the test suite catches: deliberate faults in the product, each against the tests of its subject.

    make faults [ONLY="worker clocks"]

Copies the repository to temporary folders, one for each core, with environments of their own that import the copies,
and runs the tests of tests/support/source_faults.txt there: unchanged, when all must pass, and then with one fault
after the other. A fault is caught where an assertion fails within a minute, and again when that test is run once
more. Prints a table and writes tests/trials/faults.json and from it docs/trials/faults.md (with `--only`, which names
subjects, nothing). Exits 1 if a fault is not caught. Takes about twelve minutes on two cores.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from faults_page import LIMIT_S, PAGE, RECORD, page, table
from source_faults import FAULTS, ROOT, Fault

from bakeoff.machine import host
from bakeoff.machine.files import write_atomically

_FAILED = re.compile(r"^FAILED (.+?)(?: - (.*))?$", re.MULTILINE)
_ASSERTIONS = ("assert", "AssertionError", "Failed: DID NOT")
_UNCHANGED_LIMIT_S = 300
_FINDER = """
import sys
from importlib.util import spec_from_file_location

FOLDERS = {folders!r}


class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        folder = FOLDERS.get(name)
        if folder is None:
            return None
        return spec_from_file_location(name, folder + "/__init__.py", submodule_search_locations=[folder])


sys.meta_path.insert(0, Finder)
"""
"""In a module of the copy's environment: every package of the project is the copy's, also where a folder has another
place than its package's name says."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of pytest."""

    code: int | None
    """None where it was ended at the limit."""
    seconds: float
    failing: str
    """The first test that failed; "" without one."""
    why: str
    """How it failed, in pytest's words."""
    output: str

    @property
    def caught(self) -> bool:
        """Whether an assertion failed, and not an import or a fixture."""
        return self.code == 1 and self.why.startswith(_ASSERTIONS)


@dataclass(frozen=True, slots=True)
class Copy:
    """The repository in a temporary folder, and a Python that imports it."""

    folder: Path
    python: Path

    def run(self, tests: Iterable[str], limit_s: float) -> Ran:
        command = [self.python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=short"]
        command += [f"--basetemp={self.folder.parent / 'pytest'}", *tests]
        started = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, "COLUMNS": "400"},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = None
            seconds = time.monotonic() - started
            output.seek(0)
            text = output.read().decode(errors="replace")
        found = _FAILED.search(text)
        failing, why = (found[1], found[2] or "") if found is not None else ("", "")
        return Ran(code, seconds, failing, why, text)

    def write(self, file: str, text: str) -> None:
        """Write a source file, and drop what Python compiled of it: two texts may have one size and one second."""
        path = self.folder / file
        path.write_text(text, encoding="utf-8")
        Path(cache_from_source(str(path))).unlink(missing_ok=True)

    def with_fault(self, fault: Fault) -> Ran:
        text = (self.folder / fault.file).read_text(encoding="utf-8")
        self.write(fault.file, fault.changed(text))
        try:
            first = self.run(fault.tests, LIMIT_S)
            # The same test once more, since one that fails now and then would seem to catch anything.
            again = self.run([first.failing], LIMIT_S) if first.caught else first
            return replace(first, why=again.why)
        finally:
            self.write(fault.file, text)

    def check_imports(self, packages: Iterable[str]) -> None:
        """Raises RuntimeError where a package is imported from elsewhere, started as a worker is."""
        code = f"import importlib; [print(importlib.import_module(name).__file__) for name in {list(packages)!r}]"
        done = subprocess.run(
            [self.python, "-P", "-c", code], cwd=self.folder.parent, capture_output=True, text=True, check=True
        )
        for line in done.stdout.splitlines():
            if not Path(line).is_relative_to(self.folder):
                raise RuntimeError(f"{line} is imported, and it is not in the copy {self.folder}")


def copied(place: Path) -> Copy:
    """The tracked files as they are now, and an environment with this one's libraries."""
    folder = place / "copy"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, folder / name
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(source.stat().st_mode)
    venv.create(place / "venv", symlinks=True)
    python = place / "venv" / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(place / "venv")}))
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {name: str(folder / path) for name, path in project["tool"]["setuptools"]["package-dir"].items()}
    (site / "packages_of_the_copy.py").write_text(_FINDER.format(folders=folders), encoding="utf-8")
    # A path in a .pth file is searched, but .pth files within it (of an editable install) are not read. This
    # environment may itself take libraries from another one's folder.
    libraries = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (site / "copy.pth").write_text("\n".join([*libraries, "import packages_of_the_copy\n"]), encoding="utf-8")
    found = Copy(folder, python)
    found.check_imports(folders)
    return found


def _unchanged(copies: SimpleQueue[Copy], tests: tuple[str, ...]) -> tuple[tuple[str, ...], Ran]:
    copy = copies.get()
    try:
        return tests, copy.run(tests, _UNCHANGED_LIMIT_S)
    finally:
        copies.put(copy)


def _with_fault(copies: SimpleQueue[Copy], fault: Fault) -> tuple[Fault, Ran]:
    copy = copies.get()
    try:
        return fault, copy.with_fault(fault)
    finally:
        copies.put(copy)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="subjects")
    asked = parser.parse_args()
    faults = [fault for fault in FAULTS if fault.subject in asked.only or not asked.only]
    found: dict[str, Any] = {
        "recorded": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "host": {"cpu": host.read_host().cpu, "cores": host.usable_cores()},
        "load": {"start": os.getloadavg()[0], "end": os.getloadavg()[0]},
        "faults": [],
    }
    with ExitStack() as stack:
        copies: SimpleQueue[Copy] = SimpleQueue()
        jobs = host.usable_cores()
        for _ in range(jobs):
            copies.put(copied(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        for tests, ran in pool.map(partial(_unchanged, copies), dict.fromkeys(fault.tests for fault in faults)):
            print(f"unchanged: {' '.join(tests)}: {ran.seconds:.0f} s, exit code {ran.code}", flush=True)
            if ran.code != 0:
                print(ran.output)
                pool.shutdown(cancel_futures=True)
                return 1
        for fault, ran in pool.map(partial(_with_fault, copies), faults):
            found["faults"].append(
                {
                    "subject": fault.subject,
                    "fault": fault.words,
                    "file": fault.file,
                    "tests": list(fault.tests),
                    "seconds": round(ran.seconds, 1),
                    "failing": ran.failing,
                    "caught": ran.caught,
                }
            )
            word = "caught" if ran.caught else f"NOT CAUGHT (exit code {ran.code})"
            print(f"{fault.subject}: {fault.words}: {word}, {ran.seconds:.1f} s, {ran.failing} {ran.why}", flush=True)
    found["load"]["end"] = os.getloadavg()[0]
    print(table(found))
    if not asked.only:
        write_atomically(RECORD, json.dumps(found, indent=1).encode() + b"\n")
        write_atomically(PAGE, page(found).encode())
    return int(not all(one["caught"] for one in found["faults"]))


if __name__ == "__main__":
    sys.exit(main())
