"""Every figure of a rank by name, its time by phase and collective, and each figure's spread over ranks.

Every nanosecond counts once: a phase's time is without the phases and collectives within it, so that waiting for other
ranks in a collective does not count as work. Steps belong to their phase; time in no phase is `unattributed`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from bakeoff.profile.ranks.reading import RankFile
from bakeoff.record.account import UNATTRIBUTED, pieces_of, pieces_of_steady
from bakeoff.record.monitor import SeriesRecord
from bakeoff.record.ranks import Clock, DeviceMemory, RanksEnergy, Spread, UnitSpread
from bakeoff.record.session import RangeTotal, SessionRecord

_Path = tuple[str, ...]
Figures = dict[str, tuple[float, str]]
"""Value and unit by name."""
MS = 1e6
MEMORY = "gpu.memory"


@dataclass(slots=True)
class Parts:
    """Times of one rank in nanoseconds, by name."""

    work: dict[str, float] = field(default_factory=dict)
    collectives: dict[str, float] = field(default_factory=dict)
    """Times by path within the unit, such as `denoise/all_reduce`."""

    def over(self, units: int) -> "Parts":
        """Return these times divided by a number of units."""
        return Parts(
            {name: ns / units for name, ns in self.work.items()},
            {name: ns / units for name, ns in self.collectives.items()},
        )


def parts_of(record: SessionRecord, clock: Clock, steady_alone: bool) -> Parts:
    """Return the times of all units of a record together; without units, those of the session.

    With `steady_alone`, return those of its steady units by the host's clock; `tells_units_apart` must be true.
    """
    pieces = pieces_of_steady(record) if steady_alone else pieces_of(record, clock, whole=True)
    parts = Parts()
    for path, _, ns in sorted(pieces, key=lambda piece: len(piece[0])):
        depths = [depth for depth, (_, kind) in enumerate(path, 1) if kind != "step"]
        named = path[: depths[-1] if depths else 1]
        is_collective = bool(named) and named[-1][1] == "collective"
        into = parts.collectives if is_collective else parts.work
        name = "/".join(name for name, _ in named) if is_collective else named[-1][0] if named else UNATTRIBUTED
        into[name] = into.get(name, 0) + ns
    return parts


def has_device_times(record: SessionRecord) -> bool:
    """Return whether units have phases or collectives, and the device's time of each of these is known."""
    units = _unit_paths(record)
    times = [
        each.device_ns for each in record.ranges if each.kind in ("phase", "collective") and _depth(units, each.path)
    ]
    return bool(times) and None not in times


def _unit_paths(record: SessionRecord) -> set[_Path]:
    return {each.path for each in record.ranges if each.kind == "unit"}


def _depth(units: set[_Path], path: _Path) -> int:
    """Return how many names of a path lead to its unit; 0 for a path outside units."""
    return next((depth for depth in range(1, len(path) + 1) if path[:depth] in units), 0)


def spreads_of(figures: Mapping[int, Figures]) -> tuple[Spread, ...]:
    """Return one spread for each figure that any rank has, in the order in which they first occur."""
    units: dict[str, str] = {}
    for of_rank in figures.values():
        for name, (_, unit) in of_rank.items():
            units.setdefault(name, unit)
    return tuple(
        spread(name, unit, {rank: each[name][0] for rank, each in figures.items() if name in each}, figures)
        for name, unit in units.items()
    )


def spread(name: str, unit: str, values: Mapping[int, float], ranks: Mapping[int, object]) -> Spread:
    """Return minimum, median and maximum of a figure over ranks, and which of `ranks` lack it.

    `values` is not empty.
    """
    least = min(values, key=lambda rank: (values[rank], rank))
    greatest = max(values, key=lambda rank: (values[rank], -rank))
    middle = median(values.values())
    return Spread(
        name=name,
        unit=unit,
        least=values[least],
        median=middle,
        greatest=values[greatest],
        least_rank=least,
        greatest_rank=greatest,
        count=len(values),
        skew=(values[greatest] - middle) / middle if middle > 0 else None,
        lacking=tuple(sorted(set(ranks) - set(values))),
    )


def unit_spreads(files: Sequence[RankFile]) -> tuple[UnitSpread, ...]:
    """Return the spread over ranks of each unit that any rank kept in full, by index, with the ranks that lack it."""
    times: dict[int, dict[int, float]] = {}
    for file in files:
        for unit in file.record.spans:
            times.setdefault(unit.index, {})[file.facts.rank] = unit.ns / MS
    ranks = {file.facts.rank: file for file in files}
    return tuple(UnitSpread(index, spread(f"unit {index}", "ms", times[index], ranks)) for index in sorted(times))


def figures_of(file: RankFile, parts: Parts, wait_ns: float | None, start_ns: int | None) -> Figures:
    """Return a rank's figures except those of units, which the caller adds: times in milliseconds, shares in percent.

    `start_ns` is the session's start after rank 0's, by rank 0's clock.
    """
    record = file.record
    found: Figures = {"session": (record.ns / MS, "ms")}
    if start_ns is not None:
        found["start"] = (start_ns / MS, "ms after rank 0")
    for name, ns in parts.work.items():
        found[f"phase.{name}"] = (ns / MS, "ms a unit")
    for name, ns in parts.collectives.items():
        found[f"collective.{name}"] = (ns / MS, "ms a unit")
    if wait_ns is not None:
        found["wait"] = (wait_ns / MS, "ms a unit")
    found |= _stages("stage", record.ranges) | _stages("before", record.before)
    for curve in _own_series(record, file.facts.device):
        if curve.mean is not None and curve.greatest is not None:
            found[f"{curve.name}.mean"] = (curve.mean, curve.unit)
            found[f"{curve.name}.greatest"] = (curve.greatest, curve.unit)
    for model in record.parameters:
        found[f"parameters.{model.name}"] = (model.count, "")
    if record.cost is not None and record.ns > 0:
        found["recording"] = (100 * record.cost.ns / record.ns, "% of the session")
    return found


def _stages(word: str, ranges: Sequence[RangeTotal]) -> Figures:
    """Return the times of stages outside units, with names that begin with `word`."""
    units = {each.path for each in ranges if each.kind == "unit"}
    return {
        f"{word}.{'/'.join(each.path)}": (each.total_ns / MS, "ms")
        for each in ranges
        if each.kind == "stage" and not any(each.path[: len(unit)] == unit for unit in units)
    }


def _own_series(record: SessionRecord, device: str) -> list[SeriesRecord]:
    """Return the rank's series, without those of other GPUs that it sees, which are other ranks'.

    Series by unit and by phase are left out too, because units and phases have figures of their own.
    """
    own = [curve for curve in record.series if curve.name != "unit" and not curve.name.startswith("phase.")]
    for curve in record.monitored.series if record.monitored else ():
        is_gpu = curve.name.startswith("gpu.")
        if not is_gpu or curve.source == device:
            own.append(curve)
    return own


def memory_of(files: Sequence[RankFile]) -> tuple[DeviceMemory, ...]:
    """Return the largest memory in use on each GPU, by device."""
    most: dict[str, tuple[float, int]] = {}
    for file in files:
        for curve in file.record.monitored.series if file.record.monitored else ():
            greatest = curve.greatest
            if curve.name == MEMORY and greatest is not None and greatest > most.get(curve.source, (-1.0, 0))[0]:
                most[curve.source] = (greatest, file.facts.rank)
    return tuple(
        DeviceMemory(device, mib, rank, ranks_on(files, device)) for device, (mib, rank) in sorted(most.items())
    )


def energy_of(files: Sequence[RankFile]) -> tuple[RanksEnergy, ...]:
    """Return the energy of each device by the rank that measured most of it, because it watched the device longest.

    GPUs have unique names; a CPU's package has the same name on each host.
    """
    gpus = {file.facts.device for file in files} - {""}
    most: dict[tuple[str, str], tuple[float, int]] = {}
    for file in files:
        for energy in file.record.monitored.energy if file.record.monitored else ():
            is_gpu = energy.device in gpus or energy.device.startswith(("GPU-", "MIG-"))
            key = (energy.device, "" if is_gpu else file.facts.host)
            if energy.mj is not None and energy.mj > most.get(key, (-1.0, 0))[0]:
                most[key] = (energy.mj, file.facts.rank)
    hosts = {file.facts.rank: file.facts.host for file in files}
    return tuple(
        RanksEnergy(device, hosts[rank], mj, rank, ranks_on(files, device))
        for (device, _), (mj, rank) in sorted(most.items())
    )


def gpu_energy_mj(files: Sequence[RankFile], energy: Sequence[RanksEnergy]) -> float | None:
    """Return the energy of all GPUs that ranks run on; None if there is none, or one of them has no figure."""
    gpus = {file.facts.device for file in files} - {""}
    known = {each.device: each.mj for each in energy if each.device in gpus}
    return sum(known.values()) if gpus and len(known) == len(gpus) else None


def ranks_on(files: Sequence[RankFile], device: str) -> tuple[int, ...]:
    return tuple(sorted(file.facts.rank for file in files if device and file.facts.device == device))
