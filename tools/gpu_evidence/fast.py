"""Runs the fast sequence of `order.py`, or prints it with the seconds of each line; see `gpu-evidence --fast`.

Each row is in the archive before its line is printed. The rows of a component are one sweep, which later calls add to.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any

from tabulate import tabulate

from bakeoff.machine import host, paths
from bakeoff.machine.build_cache import delete_earlier_build, is_warm
from bakeoff.machine.host import Host, usable_device
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.plan.request import FINAL_S
from bakeoff.plan.rows import Row
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, load_all, now
from bakeoff.record.verdict import verdict_of
from bakeoff.sweeps.finals import best_of
from bakeoff.sweeps.resume import find_newest, key_of
from bakeoff.sweeps.run import run_sweep
from gpu_evidence.archive import write_archive
from gpu_evidence.beside import Silent
from gpu_evidence.order import BESIDE, BEST, BUILDS_LIMIT_S, CEILINGS_S, FINAL, Line, order_of
from gpu_evidence.processes import Ended, end_with_reader, interrupt_on_signals, run
from gpu_evidence.seconds import GUESS, SEEN_FILE, Beside, Clock, Expected, Planned, beside, make_planned
from gpu_evidence.state import load

EAGER_AGE_S = 1800.0
"""A row that is measured later than this after its eager comes with eager measured again."""
TIME_IS_UP, INTERRUPTED = 75, 130
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Asked:
    """What main.py asks for."""

    device: str
    subjects: dict[str, str]
    """component:preset.workload of each component."""
    folder: str
    archive: str
    note: str
    budget_s: float | None = None
    dry_run: bool = False
    card: str = ""
    """A card to pretend, as nvidia-smi prints it: name, memory, compute capability."""


def pretend(card: str) -> None:
    """Have this process find this card, with all libraries, and enough host memory. Raises BakeoffError for a line that
    `nvidia-smi --query-gpu=name,memory.total,compute_cap --format=csv,noheader` would not print."""
    try:
        name, memory, capability = (part.strip() for part in card.split(","))
        size = int(memory.removesuffix("MiB")) << 20
        float(capability)
    except ValueError as error:
        text = f"--card '{card}': give name, memory and capability as nvidia-smi prints them"
        raise BakeoffError(text, "bad-option") from error
    gpu: dict[str, str | int | float | bool | None] = {
        "name": name,
        "uuid": "GPU-0",
        "driver": "580",
        "memory_bytes": size,
        "compute_capability": capability,
    }
    facts: Host = replace(host.read_host(), gpus=(gpu,), cores=16, logical_cores=16)
    version = host._version
    vars(host)["read_host"] = lambda: facts
    host.available_bytes = lambda device: size if device == "cuda" else 1 << 50
    host.usable_cores = lambda: facts.cores
    host._version = lambda distribution: version(distribution).removesuffix("+cpu")


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the plan."""

    at_s: float | None
    """When it is expected to begin; None if the time does not suffice for it."""
    expected: Expected
    what: str
    row: Row | None = None

    @property
    def is_row(self) -> bool:
        """Whether it is a row that will be measured."""
        return self.at_s is not None and self.row is not None and self.row.precheck is None


def simulate(clock: Clock, order: Sequence[Line], budget_s: float, slower: float, anew: bool) -> Iterator[Step]:
    """Yield what would run within `budget_s`, in order, where every guess takes `slower` times as long."""
    at_s, referenced, rows = 0.0, set[str](), 0

    def step(expected: Expected, what: str, row: Row | None = None, limit_s: float = inf) -> Step:
        nonlocal at_s
        expected = expected.slower(slower).at_most(limit_s)
        fits = at_s + expected.seconds <= budget_s
        made = Step(at_s if fits else None, expected, what, row)
        at_s += expected.seconds * fits
        return made

    for block in blocks(order):
        found = beside(clock, block, anew)
        if lacking := set(found.components) - referenced:
            what = f"references of {counted(len(lacking), 'component')}"
            yield step(found.references, what, limit_s=found.references_limit_s)
            referenced |= lacking
        if found.builds:
            yield step(found.building, f"{len(found.builds)} builds beside each other", limit_s=BUILDS_LIMIT_S)
        cold = found.cold(slower)
        for line in sorted(block, key=lambda line: line in cold):
            made = step(clock.of(line, line not in cold), title(line), clock.planned[line.component].rows.get(line))
            yield made
            rows += made.is_row
            if rows == 1 and made.is_row and clock.device == "cuda":
                yield step(clock.noted("ceilings", CEILINGS_S), "this card's ceilings")


def blocks(order: Sequence[Line]) -> list[list[Line]]:
    """Return the lines between one BESIDE and the next."""
    found: list[list[Line]] = []
    for line in order:
        if line == BESIDE:
            found.append([])
        else:
            found[-1].append(line)
    return found


def title(line: Line) -> str:
    if line.what == BEST:
        return f"{line.component}: the fastest row, built alone and traced"
    return f"{line.component}: final of the two fastest" if line.what == FINAL else " ".join(line[:3])


def print_plan(clock: Clock, order: Sequence[Line], budget_s: float | None, anew: bool) -> None:
    """Print the lines with begin, seconds, where these are from, and memory; at the end, how many rows fit."""
    within = inf if budget_s is None else budget_s
    print(f"{clock.card}: {', '.join(planned.name for planned in clock.planned.values())}")
    table, number = [], 0
    for step in simulate(clock, order, within, 1.0, anew):
        row, source = step.row, step.expected.source
        number += row is not None
        seen = source if source in (GUESS, SEEN_FILE) else source.rpartition("_")[2][:7]
        precheck = f": {row.precheck}" if row is not None and row.precheck is not None else ""
        at = "later" if step.at_s is None else f"{step.at_s:.0f}"
        figures = ["-"] * 3 if precheck else [at, f"{step.expected.seconds:.0f}", seen]
        memory = f"{row.memory.device / _GIB:.1f}" if row is not None else ""
        table.append([number if row is not None else "", *figures, memory, f"{step.what}{precheck}"])
    print(tabulate(table, ["", "at s", "s", "seen", "GiB", "what"], tablefmt="plain", disable_numparse=True))
    for text, slower in (("", 1.0), ("; with every guess doubled", 2.0)):
        rows = [step.row for step in simulate(clock, order, within, slower, anew) if step.is_row and step.row]
        names = {row.subject.component for row in rows}
        when = "in all" if budget_s is None else f"within {budget_s:.0f} s"
        print(f"{counted(len(rows), 'row')} of {counted(len(names), 'component')} {when}{text}", flush=True)


class Told(Silent):
    """A Progress that packs the archive for each finished row, and then prints it."""

    def __init__(self, driver: "Driver", expected_s: float) -> None:
        self._driver, self._expected_s = driver, expected_s
        self._since, self._begun = now(), time.monotonic()

    def result(self, record: Record) -> None:
        if record.created < self._since:  # of an earlier call
            return
        self._driver.pack()
        timed = f"{record.latency.median_ms:.3f} ms" if record.latency is not None else ""
        name = f"{record.variant.subject} {record.variant.backend} {record.variant.dtype}"
        reason = record.measurement.reason if record.status != "ok" else ""
        taken_s = time.monotonic() - self._begun
        print(told(f"{timed:>12} {record.status}", taken_s, self._expected_s, f"{name}  {reason}".rstrip()), flush=True)


def told(how: str, taken_s: float, expected_s: float, what: str) -> str:
    """The line of something that ended."""
    return f"{how:25} {taken_s:4.0f} s of {expected_s:<4.0f} {what}"


class Driver:
    """Runs the lines in order, as far as the time suffices."""

    def __init__(self, asked: Asked, clock: Clock, order: Sequence[Line]) -> None:
        self.asked, self.clock, self.order = asked, clock, order
        self.runs, self.cache = paths.runs_folder(), paths.cache_folder()
        self._state = load(Path(asked.folder), ())
        self._ends = None if asked.budget_s is None else time.monotonic() + asked.budget_s
        self.left: list[Line] = []
        """What did not fit into the time."""

    def pack(self) -> None:
        write_archive(self._state, self.runs, self.cache, Path(self.asked.archive))

    def fits(self, seconds: float) -> bool:
        return self._ends is None or time.monotonic() + seconds <= self._ends

    def run(self) -> None:
        """Run all lines that are not done. Raises KeyboardInterrupt, as soon as what runs has ended."""
        for block in blocks(self.order):
            todo = [line for line in block if not self.is_done(line)]
            if not todo:
                continue
            self.prepare(beside(self.clock, todo))
            for line in sorted(todo, key=self.is_cold):
                expected = self.clock.of(line, will_be_warm=False)
                if self.fits(expected.seconds):
                    self.measure(line, expected.seconds)
                else:
                    self.left.append(line)
        self.pack()

    def is_cold(self, line: Line) -> bool:
        """Return whether the line's build was stopped, so that it comes after the others."""
        row = self.planned(line).rows.get(line)
        return row is not None and row.caches and not is_warm(row.cache_folder)

    def planned(self, line: Line) -> Planned:
        return self.clock.planned[line.component]

    def sweep_of(self, planned: Planned) -> str:
        """Return the id of the component's sweep; "" if none was begun."""
        newest = find_newest(planned.plan.key, self.runs, self.cache)
        return newest.sweep if newest is not None else ""

    def records(self, planned: Planned) -> dict[Any, Stored]:
        """Return the newest record of each row in the component's sweep."""
        sweep = self.sweep_of(planned)
        return {key_of(each.record): each for each in load_all(self.runs).current if each.record.sweep == sweep}

    def is_done(self, line: Line) -> bool:
        planned = self.planned(line)
        known = self.records(planned)
        if line.what == FINAL:
            sweep = self.sweep_of(planned)
            return any(each.record.sweep == sweep for each in load_all(self.runs).comparisons)
        if line.what == BEST:
            return any(each.record.policy.trace for each in known.values())
        return planned.rows[line].key in known

    def prepare(self, found: Beside) -> None:
        """Make references and builds beside each other, each for as long as its limit and the time allow."""
        asked = {"device": self.asked.device, "subjects": self.asked.subjects}
        parts: tuple[tuple[str, float, float, dict[str, object]], ...] = (
            ("references", found.references.seconds, found.references_limit_s, {"components": found.components}),
            ("builds", found.building.seconds, BUILDS_LIMIT_S, {"builds": found.builds}),
        )
        for name, (what, expected_s, limit_s, more) in zip(found.names, parts, strict=True):
            if not expected_s or not self.fits(expected_s):
                continue
            command = [sys.executable, "-P", "-m", "gpu_evidence.beside", what, json.dumps(asked | more)]
            begun, log = time.monotonic(), Path(self.asked.folder) / "logs/beside.log"
            ended: Ended = run(command, os.environ, Path.cwd(), log, limit_s, lambda _line: None)
            taken_s = time.monotonic() - begun
            if ended.code == 0:
                self.clock.note(name, taken_s)
            how = "stopped" if ended.late else "done" if ended.code == 0 else f"failed: {log.name}"
            print(told(how, taken_s, expected_s, f"{name}, beside each other"), flush=True)

    def measure(self, line: Line, expected_s: float) -> None:
        """Run one line: a row, after its eager where that is too old; the fastest row anew; or the final."""
        planned, begun = self.planned(line), time.monotonic()
        plan, known = planned.plan, self.records(planned)
        rows: tuple[Row, ...] = ()
        if line.what == FINAL:
            plan = replace(plan, request=replace(plan.request, final_s=FINAL_S))
        elif line.what == BEST:
            best = next(iter(best_of(plan, known).values()), [])
            for row in best[:1]:  # also what it was built from beside others
                delete_earlier_build(row.cache_folder)
                rows = (*self.eager_before(row, known), row)
            plan = replace(plan, request=replace(plan.request, policy=replace(plan.request.policy, trace=True)))
        else:
            rows = (*self.eager_before(planned.rows[line], known), planned.rows[line])
        done = run_sweep(plan, self.runs, self.asked.note, False, Told(self, expected_s), rows=rows)
        self.pack()
        if done.interrupted:
            raise KeyboardInterrupt
        if line.what in (BEST, FINAL):
            self.clock.note(f"{line.component} {line.what}", time.monotonic() - begun)
            verdict = verdict_of(done.finals[-1].record) if done.finals else None
            won = f"{verdict.ratio:.2f}x {verdict.word}" if verdict is not None else "no two rows"
            if line.what == FINAL:
                print(told(won, time.monotonic() - begun, expected_s, title(line)), flush=True)

    def eager_before(self, row: Row, known: dict[Any, Stored]) -> tuple[Row, ...]:
        """Return the eager row of this row's component and dtype if it must be measured first, else nothing."""
        rows = self.clock.planned[row.variant.component].rows.values()
        eager = next((one for one in rows if one.baseline and one.variant.dtype == row.variant.dtype), row)
        if eager.key == row.key:
            return ()
        before = known.get(eager.key)
        age_s = time.time() - datetime.fromisoformat(before.record.created).timestamp() if before else inf
        return (eager,) if age_s > EAGER_AGE_S else ()


def main() -> int:
    asked = Asked(**json.loads(sys.argv[1]))
    end_with_reader(asked.dry_run)
    try:
        if asked.card:
            pretend(asked.card)
        order = order_of(asked.device, asked.subjects, host.half_dtype(usable_device(asked.device)))
        planned = make_planned(order, asked.subjects, asked.device, anywhere=bool(asked.card))
        clock = Clock(planned, paths.runs_folder(), Path(asked.folder), asked.device)
        print_plan(clock, order, asked.budget_s, anew=bool(asked.card))
        if asked.dry_run:
            return 0
        interrupt_on_signals()
        driver = Driver(asked, clock, order)
        driver.run()
    except BakeoffError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    for line in driver.left:
        print(f"no time for {title(line)}", flush=True)
    return TIME_IS_UP if driver.left else 0


if __name__ == "__main__":
    sys.exit(main())
