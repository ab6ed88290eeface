"""What each line of the fast sequence is expected to take, by records of the same kind of card where there are any."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from bakeoff.machine import host, paths
from bakeoff.machine.build_cache import is_warm
from bakeoff.machine.files import digest, write_atomically
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.plan.rows import Row, reference_folder
from bakeoff.record.policy import Policy
from bakeoff.record.schema import MEASURED, Record
from bakeoff.record.store import load_all
from gpu_evidence.order import (
    BEST,
    BUILDS_LIMIT_S,
    FINAL,
    REFERENCES_LIMIT,
    REFERENCES_S,
    STARTS_S,
    Line,
    backends_of,
)

POLICY = Policy(
    warmup_s=0.3, warmup_cap_s=3.0, min_s=1.0, full_s=2.0, cap_s=4.0, throughput_s=0.5, trace=False
)  # fmt: skip
"""Of rows in about 12 s, without a trace."""
GUESS = "guess"
SEEN_FILE = "seconds.json"
"""In the folder of evidence: seconds of what has no record, by card and line."""
_MEMORY_SHARE = 0.6
"""Share of the free memory that what is done beside each other may take by its estimates."""
_REFERENCE_COPIES = 4
"""Memory of a reference in fp64 over that of a row in 16 bits."""
_WINDOW = ("latency", "throughput")
_NOT_ALONE = ("turn", "trace")


@dataclass(frozen=True, slots=True)
class Planned:
    """The rows of one component, which are one sweep whatever call runs them."""

    plan: Plan
    rows: Mapping[Line, Row]

    @property
    def name(self) -> str:
        return self.plan.rows[0].variant.subject


@dataclass(frozen=True, slots=True)
class Expected:
    """Seconds of a line, and the record or file that showed them, or `GUESS`."""

    seconds: float
    source: str

    def slower(self, factor: float) -> "Expected":
        return replace(self, seconds=self.seconds * factor) if self.source == GUESS else self

    def at_most(self, seconds: float) -> "Expected":
        return replace(self, seconds=min(self.seconds, seconds))


def make_planned(
    lines: Sequence[Line], subjects: Mapping[str, str], device: str, anywhere: bool = False
) -> dict[str, Planned]:
    """Return the plan of each component. Raises BakeoffError for a name that does not exist.

    With `anywhere`, as on a host that has all libraries.
    """
    found = {}
    for component, subject in subjects.items():
        _, _, inside = subject.partition(":")
        preset, _, workload = inside.partition(".")
        rows, keys, request = {}, [], Request(component, (preset,), (workload,), device=device, policy=POLICY)
        request = replace(request, final_s=0.0)
        for dtype, backends in backends_of(lines, component).items():
            for backend in backends:
                plan = make_plan(replace(request, backends=(backend,), dtypes=(dtype,)))
                line = next(one for one in lines if (one.component, one.what, one.dtype) == (component, backend, dtype))
                row = plan.rows[0]
                lacks = row.precheck is not None and row.precheck.status == "unavailable"
                rows[line] = replace(row, precheck=None) if lacks and anywhere else row
                keys.append(plan.key)
        found[component] = Planned(replace(plan, request=request, rows=tuple(rows.values()), key=digest(keys)), rows)
    return found


def card_of(facts: host.Host, device: str) -> str:
    """Return the name of the kind of card, or of CPU, by which seconds are comparable."""
    return str(facts.gpus[0]["name"]) if device == "cuda" and facts.gpus else facts.cpu


class Clock:
    """Estimates by the records of this kind of card, and by what earlier calls noted in the folder of evidence."""

    def __init__(self, planned: Mapping[str, Planned], runs: Path, folder: Path, device: str) -> None:
        self.planned, self.device, self._file = planned, device, folder / SEEN_FILE
        self.card = card_of(host.read_host(), device)
        self._seen = self._read()
        entries = load_all(*paths.with_published(runs)).current
        self._known = {
            str(entry.record.variant): entry
            for entry in entries
            if entry.record.status in MEASURED and card_of(entry.record.host, self.device) == self.card
        }

    def of(self, line: Line, will_be_warm: bool = True) -> Expected:
        """Return what a row, a rebuilt best row or a final takes by itself."""
        if line.what in (BEST, FINAL):
            return self.noted(f"{line.component} {line.what}", line.seconds)
        row = self.planned[line.component].rows[line]
        if row.never_runs is not None:
            return Expected(0.0, "")
        entry = self._known.get(str(row.variant))
        cold_s = line.build_s if row.caches and not (will_be_warm or is_warm(row.cache_folder)) else 0.0
        if entry is not None:
            return Expected(_row_s(entry.record) + cold_s, entry.id)
        return Expected(line.seconds + cold_s, GUESS)

    def noted(self, name: str, guess: float) -> Expected:
        seen = self._seen.get(self.card, {}).get(name)
        return Expected(guess, GUESS) if seen is None else Expected(seen, SEEN_FILE)

    def note(self, name: str, seconds: float) -> None:
        """Keep what something took; it is expected of the next call on a card of this kind."""
        self._seen.setdefault(self.card, {})[name] = round(seconds, 1)
        write_atomically(self._file, json.dumps(self._seen, indent=1).encode())

    def _read(self) -> dict[str, dict[str, float]]:
        try:
            found: dict[str, dict[str, float]] = json.loads(self._file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return found


def _row_s(record: Record) -> float:
    """Return the seconds of a row by a record's phases, with the window of `POLICY` and warm caches."""
    phases, build = record.phase_s, record.measurement.build
    window_s = min(sum(phases.get(phase, 0.0) for phase in _WINDOW), POLICY.cap_s + POLICY.throughput_s)
    caps = {"warm-up": POLICY.warmup_cap_s}
    if build is not None and build.cache == "cold" and build.warm_s is not None:
        caps["build"] = build.warm_s
    others = {phase: seconds for phase, seconds in phases.items() if phase not in (*_WINDOW, *_NOT_ALONE)}
    return window_s + sum(min(seconds, caps.get(phase, inf)) for phase, seconds in others.items())


@dataclass(frozen=True, slots=True)
class Beside:
    """What is done beside each other before the rows of some lines, as far as it is not in the caches."""

    components: tuple[str, ...]
    """Those that lack references."""
    groups: tuple[tuple[Line, ...], ...]
    """The rows to build, by when they are built."""
    alone: tuple[Line, ...]
    """Those whose builds time many kernels, and so wait until their row has the machine to itself."""
    references: Expected
    references_limit_s: float
    building: Expected

    @property
    def builds(self) -> tuple[Line, ...]:
        return tuple(line for group in self.groups for line in group)

    @property
    def names(self) -> tuple[str, str]:
        """The names under which the seconds of both are noted."""
        return f"references of {len(self.components)}", f"builds of {len(self.builds)}"

    def cold(self, slower: float) -> tuple[Line, ...]:
        """Return the lines that are expected to build in their row: the others were stopped at their limit."""
        begun_s, cold = 0.0, list(self.alone)
        for group in self.groups:
            ends = {line: begun_s + STARTS_S + line.build_s * slower for line in group}
            cold += [line for line, end_s in ends.items() if end_s > BUILDS_LIMIT_S]
            begun_s = max(ends.values())
        return tuple(cold)


def beside(clock: Clock, lines: Sequence[Line], anew: bool = False) -> Beside:
    """Return what is to be prepared for these rows; with `anew`, as if no cache had anything."""
    rows = {line: clock.planned[line.component].rows[line] for line in lines if line.what not in (BEST, FINAL)}
    able = {line: row for line, row in rows.items() if row.precheck is None}
    cold = [line for line, row in able.items() if row.caches and (anew or not is_warm(row.cache_folder))]
    builds = tuple(line for line in cold if not able[line].searches)
    alone = tuple(line for line in cold if able[line].searches)
    plans = {line.component: clock.planned[line.component].plan for line in able}
    lacking = tuple(name for name, plan in plans.items() if anew or _lacks_references(plan))
    groups = tuple(map(tuple, build_groups(clock.planned, builds)))
    group_s, each_s = REFERENCES_S[clock.device]
    references_s = sum(group_s + each_s * len(group) for group in reference_groups(clock.planned, lacking))
    found = Beside(lacking, groups, alone, Expected(0.0, ""), REFERENCES_LIMIT * references_s, Expected(0.0, ""))
    of_references, of_builds = found.names
    building_s = sum(STARTS_S + max(line.build_s for line in group) for group in groups)
    references = clock.noted(of_references, references_s) if lacking else found.references
    building = clock.noted(of_builds, building_s) if builds else found.building
    return replace(found, references=references, building=building)


def reference_groups(planned: Mapping[str, Planned], components: Sequence[str]) -> list[list[str]]:
    """Return the components whose references are made at the same time, as far as cores and memory allow."""
    needs = {name: planned[name].plan.rows[0].memory.device * _REFERENCE_COPIES for name in components}
    return _groups(needs, max(1, host.usable_cores() // 3), planned)


def build_groups(planned: Mapping[str, Planned], lines: Sequence[Line]) -> list[list[Line]]:
    """Return the rows that are built at the same time, as far as cores and memory allow."""
    needs = {line: planned[line.component].rows[line].memory.device for line in lines}
    return _groups(needs, max(1, host.usable_cores() * 2 // 3), planned)


def _groups(needs: Mapping[Any, int], most: int, planned: Mapping[str, Planned]) -> list[list[Any]]:
    device = next(iter(planned.values())).plan.rows[0].subject.device
    free, found = host.available_bytes(device) * _MEMORY_SHARE, list[list[Any]]()
    for each, need in needs.items():
        if not found or len(found[-1]) == most or sum(needs[one] for one in found[-1]) + need > free:
            found.append([])
        found[-1].append(each)
    return found


def _lacks_references(plan: Plan) -> bool:
    """Return whether a file is lacking of the subject's references, or of eager's error in a dtype of its rows."""
    folder = reference_folder(plan.rows[0].subject, plan.component)
    dtypes = {row.variant.dtype for row in plan.rows if row.never_runs is None}
    return not all((folder / name).exists() for name in ("reference.json", *(f"eager-{one}.json" for one in dtypes)))
