"""Minutes of hardship, by hand: `python tests/trials/endurance.py [--kills N] [--torch-kills N] [--seed S]`.

The parent of a sweep is killed at random moments and at its steps, a worker in each phase; two sweeps share a folder,
disks are full, read-only or broken, and ten thousand records are read. Ends with a table; exit code 1 if the lab did
not keep its word anywhere. The suite runs a short version of the same, tests/bakeoff/sweeps/test_endurance.py.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import many
from endure import (
    SIX,
    TWO,
    Kill,
    Place,
    break_fsync,
    cannot_mount,
    cost_of,
    fill_other,
    fill_records,
    kill_a_worker,
    kill_at_step,
    kill_until_done,
    lose_write_permission,
    resume_twice_at_once,
    two_at_once,
)

HISTORY_LIMIT_S = 20.0
MEMORY_LIMIT_BYTES = 1 << 30
_LANES = 2
_PHASES = (
    *("start", "import", "weights", "build", "prove", "check", "warm-up", "latency", "throughput", "memory"),
    *("fresh inputs", "reference"),
)
"""Of a measuring worker, and of one that makes references."""
_RESUME_KILLED = 0.3
"""The share of kills after which the resumption is killed too."""


@dataclass
class Trials:
    """What was tried, in a folder of its own for each, and how it went."""

    folder: Path
    console: Console
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    """What, `ok` or `FAILED` or `skipped`, and figures or the reason."""
    _numbers: Iterator[int] = field(default_factory=count)

    def place(self, arguments: tuple[str, ...] = SIX, torchless: bool = True) -> Place:
        folder = self.folder / str(next(self._numbers))
        folder.mkdir()
        return Place(folder, arguments, torchless)

    def add(self, what: str, trial: Callable[[], str]) -> None:
        self.console.print(f"{what} ...", markup=False, highlight=False)
        started = time.monotonic()
        try:
            text, verdict = trial(), "ok"
        except (AssertionError, subprocess.CalledProcessError, OSError) as error:
            text, verdict = f"{type(error).__name__}: {error}"[-2000:], "FAILED"
            self.console.print(text, markup=False, highlight=False)
        self.rows.append((what, verdict, f"{text}  ({time.monotonic() - started:.0f} s)"))

    def skip(self, what: str, reason: str) -> None:
        self.rows.append((what, "skipped", reason))

    def table(self) -> Table:
        found = Table("trial", "verdict", "figures")
        for what, verdict, text in self.rows:
            found.add_row(what, verdict, text[:400], style={"FAILED": "red", "skipped": "dim"}.get(verdict))
        return found


def kill_often(trials: Trials, kills: int, seed: int, arguments: tuple[str, ...] = SIX, torchless: bool = True) -> str:
    """Kill sweeps at moments drawn evenly from their length, in two lanes, until `kills` have been survived."""
    whole = trials.place(arguments, torchless)
    started = time.monotonic()
    ended = whole.sweep()
    assert ended.code == 0, ended.err
    length_s = 1.05 * (time.monotonic() - started)
    survived: list[Kill] = []
    lock, failures = threading.Lock(), []
    with _bar(trials.console) as bar:
        task = bar.add_task("kill -9", total=kills)

        def lane(number: int) -> None:
            draw = random.Random(seed * 1000 + number)
            while not failures:
                with lock:
                    left = kills - len(survived)
                if left <= number:  # what the other lane has in hand will do
                    return
                moments = [draw.random() * length_s]
                if draw.random() < _RESUME_KILLED and left > _LANES:
                    moments.append(draw.random() * length_s)
                place = trials.place(arguments, torchless)
                try:
                    found = kill_until_done(place, moments)
                except AssertionError as error:
                    failures.append(f"at {moments} in {place.folder}: {error}")
                    return
                shutil.rmtree(place.folder)
                with lock:
                    survived.extend(found)
                    bar.update(task, completed=len(survived))

        with ThreadPoolExecutor(_LANES) as pool:
            list(pool.map(lane, range(_LANES)))
    assert not failures, failures[0]
    return (
        f"{len(survived)} kills within {length_s:.1f} s of a sweep, all gone after {_most(survived)} s at most, "
        f"{sum(kill.recorded for kill in survived)} records kept, "
        f"{sum(not kill.recorded for kill in survived)} kills before there was one"
    )


def _most(kills: Sequence[Kill]) -> str:
    return f"{max(kill.gone_s for kill in kills):.2f}"


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def kill_at_steps(trials: Trials, every: int) -> str:
    """Let a sweep kill itself before each change of a file and after each message of a worker, or `every` so many."""
    for number, step in enumerate(count(1, every)):
        if not kill_at_step(trials.place(TWO), step):
            return f"{number} kills, at steps 1 to {step - every} of a sweep with its final"
    raise AssertionError


def kill_workers(trials: Trials) -> str:
    """Kill a real worker in each of its phases: its row has a record, and the other one is measured, unless both wait
    for the reference that was killed."""
    told = []
    for phase in _PHASES:
        statuses = kill_a_worker(trials.place(TWO, torchless=False), phase)
        right = [["crashed", "crashed"]] if phase == "reference" else [["crashed", "ok"], ["ok", "ok"]]
        assert statuses in right, (phase, statuses)
        told.append(f"{phase} {' '.join(statuses)}")
    return "; ".join(told)


def fail_each_fsync(trials: Trials) -> str:
    """Let the first fsync of a sweep fail, then the second, until a sweep asks for no more."""
    for call in count(1):
        if not break_fsync(trials.place(), call):
            return f"each of {call - 1} fsync calls of a sweep failed once"
    raise AssertionError


def fill_disks(trials: Trials) -> str:
    """Disks from one that takes nothing to one that takes nearly all."""
    taken = [fill_records(trials.place(), kib) for kib in (8, 12, 16, 20)]
    codes = []
    for kib in (0, 4, 8, 16):
        place = trials.place()
        codes.append(fill_other(place, place.cache, kib))
        place = trials.place()
        codes.append(fill_other(place, place.temporary, kib))
    return f"records kept {taken}; exit codes with full caches and temporary folders {sorted(codes)}"


def fill(runs: Path, records: int, seed: int) -> str:
    many.fill(runs, records, seed)
    size = sum(path.stat().st_size for path in runs.glob("*/records/*"))
    return f"{size >> 20} MiB"


def read_many(trials: Trials, runs: Path, *command: str) -> str:
    cost = cost_of("--runs", str(runs), *command, cwd=trials.folder)
    figures = f"{cost.seconds:.1f} s, {cost.peak_bytes >> 20} MiB"
    assert cost.seconds < HISTORY_LIMIT_S, figures
    assert cost.peak_bytes < MEMORY_LIMIT_BYTES, figures
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=190, help="of sweeps whose workers need no torch")
    parser.add_argument("--torch-kills", type=int, default=10, help="of sweeps with real workers")
    parser.add_argument("--steps", type=int, default=5, help="kill a sweep at every such step; 0 for none")
    parser.add_argument("--workers", type=int, default=1, help="0 to kill no worker")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1000))
    asked = parser.parse_args()
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="endurance-") as folder:
        trials = Trials(Path(folder), console)
        console.print(f"seed {asked.seed}, in {folder}", highlight=False)
        if asked.kills:
            trials.add(f"{asked.kills} kills", lambda: kill_often(trials, asked.kills, asked.seed))
        if asked.torch_kills:
            with_torch = f"{asked.torch_kills} kills with torch"
            trials.add(with_torch, lambda: kill_often(trials, asked.torch_kills, asked.seed, TWO, False))
        if asked.steps:
            trials.add("kills at steps", lambda: kill_at_steps(trials, asked.steps))
        if asked.workers:
            trials.add("workers killed", lambda: kill_workers(trials))
        trials.add("two sweeps at once", lambda: f"{two_at_once(trials.place()):.2f} s between them")
        trials.add("one sweep resumed twice at once", lambda: resume_twice_at_once(trials.place()))
        reason = cannot_mount(trials.folder)
        for what, trial in (
            ("full disk", lambda: fill_disks(trials)),
            ("read-only disk", lambda: f"{lose_write_permission(trials.place())} records before it"),
        ):
            if reason:
                trials.skip(what, reason)
            else:
                trials.add(what, trial)
        trials.add("fsync fails", lambda: fail_each_fsync(trials))
        if asked.records:
            runs = trials.folder / "many"
            trials.add(f"make {asked.records} records", lambda: fill(runs, asked.records, asked.seed))
            page = str(trials.folder / "report.html")
            for command in (("history",), ("history", "--check"), ("table",), ("report", "--html", page)):
                what = f"bakeoff {' '.join(command[:2])}"
                if _exists(command[0]):
                    trials.add(what, lambda command=command: read_many(trials, runs, *command))  # type: ignore[misc]
                else:
                    trials.skip(what, "there is no such command")
    Console(width=max(120, os.get_terminal_size().columns) if sys.stdout.isatty() else 160).print(trials.table())
    return any(verdict == "FAILED" for _, verdict, _ in trials.rows)


def _exists(command: str) -> bool:
    return subprocess.run([sys.executable, "-m", "bakeoff", command, "--help"], capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
