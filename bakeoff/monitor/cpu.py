"""CPU time and memory of a process tree, memory and load of the machine, and CPU energy, by /proc, cgroups and RAPL.

When a process waits for a child, the child's CPU time is added to its own counters (proc(5), cutime and cstime). Here
the steps of counters are added up, so that processes that start and end between two readings count as well.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bakeoff.machine import cgroups
from bakeoff.models.grouping import grouped
from bakeoff.monitor.energy import Counter, device_energy
from bakeoff.monitor.request import MIB, CpuQuantity, Reading
from bakeoff.record.monitor import Monitored

ROOT = Path("/")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LEAST_SPAN_NS = 4 * _TICK_NS
"""Shortest time over which a CPU rate is computed, since the kernel counts CPU time in ticks of 10 ms."""
_FORGET_EVERY = 20
"""Number of readings after which processes outside the tree are checked again, because the kernel reuses process
ids."""


class _Process(NamedTuple):
    """A line of /proc/[pid]/stat; times in ticks."""

    parent: int
    started: int
    own: int
    waited_for: int
    """Time of ended children that the process has waited for, and of their children."""
    pages: int


class TreeReading(NamedTuple):
    """CPU time and memory of a process tree at one reading."""

    cpu_ns: int
    """CPU time of all its processes since the first reading."""
    resident_bytes: int
    """Sum over its processes; a page shared by several counts once for each."""


class ProcessTree:
    """A process and its descendants, including those whose parent has ended since the first reading."""

    def __init__(self, pid: int, without: Collection[int] = (), root: Path = ROOT) -> None:
        """`without` lists ids of processes to leave out, such as the monitor; `root` is the folder that contains
        /proc."""
        self._pid, self._without, self._proc = pid, frozenset(without), f"{root}/proc"
        self._members: dict[int, _Process] = {}
        self._outside: set[int] = set()
        self._owed = 0
        """Ticks of ended processes that were counted already and will show up again in the counters of the processes
        that wait for them."""
        self._ticks = 0
        self._readings = 0

    def read(self) -> TreeReading | None:
        """Return the tree's CPU time and memory; None if no process is left or /proc cannot be read."""
        found = self._scan()
        before = {
            pid: each for pid, each in self._members.items() if pid in found and found[pid].started == each.started
        }
        members = _below(found, before if self._readings else [self._pid])
        if self._readings:
            self._count(before, members)
        self._readings += 1
        self._outside = (self._outside | found.keys()) - members.keys()
        self._members = members
        if not members:
            return None
        return TreeReading(self._ticks * _TICK_NS, sum(each.pages for each in members.values()) * _PAGE_BYTES)

    def _scan(self) -> dict[int, _Process]:
        """Return all processes by id, except those known to be outside the tree."""
        try:
            present = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        except OSError:
            return {}
        if self._readings % _FORGET_EVERY == 0:
            self._outside.clear()
        self._outside &= present
        found = ((pid, self._stat(pid)) for pid in present - self._outside - self._without)
        return {pid: process for pid, process in found if process is not None}

    def _stat(self, pid: int) -> _Process | None:
        with suppress(OSError, ValueError, IndexError):
            descriptor = os.open(f"{self._proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
            try:
                columns = os.read(descriptor, 4096).rpartition(b") ")[2].split()
            finally:
                os.close(descriptor)
            user, system, children_user, children_system = map(int, columns[11:15])
            parent, started, pages = int(columns[1]), int(columns[19]), max(0, int(columns[21]))
            return _Process(parent, started, user + system, children_user + children_system, pages)
        return None

    def _count(self, before: Mapping[int, _Process], now: Mapping[int, _Process]) -> None:
        """Add the ticks used since the last reading.

        `before` contains the last readings of processes that still exist, `now` the present readings of the whole tree.
        """
        ended = {pid: process for pid, process in self._members.items() if pid not in before}
        for process in ended.values():
            heir = process.parent
            for _ in ended:
                heir = ended[heir].parent if heir in ended else heir
            self._owed += process.own + process.waited_for if heir in now else 0
        own = waited_for = 0
        for pid, process in now.items():
            own += max(0, process.own - (before[pid].own if pid in before else 0))
            waited_for += max(0, process.waited_for - (before[pid].waited_for if pid in before else 0))
        settled = min(waited_for, self._owed)
        self._owed -= settled
        self._ticks += own + waited_for - settled


def _below(found: Mapping[int, _Process], tops: Iterable[int]) -> dict[int, _Process]:
    """Return the processes in `tops` and their descendants, by id."""
    children = grouped((process.parent, pid) for pid, process in found.items())
    pending, inside = list(tops), dict[int, _Process]()
    while pending:
        pid = pending.pop()
        if pid in found and pid not in inside:
            inside[pid] = found[pid]
            pending += children.get(pid, ())
    return inside


class CpuProbe:
    """Probe of a process tree, and of the machine's memory and load."""

    def __init__(
        self, pid: int, quantities: Collection[CpuQuantity], without: Collection[int] = (), root: Path = ROOT
    ) -> None:
        """Probe the tree of process `pid`, reading /proc and cgroups below `root`; `without` is as in ProcessTree."""
        self._quantities, self._root = frozenset(quantities), root
        self._tree = ProcessTree(pid, without, root)
        self._limit = cgroups.tightest_limit(root) if "memory" in quantities else None
        self._before: tuple[int, int] | None = None
        """Time at which the last rate was computed, and the tree's CPU time then, in nanoseconds."""
        self._missing = {"cpu.process": f"process {pid} was not found"} if "process" in quantities else {}

    def sample(self, now_ns: int) -> Iterator[Reading]:
        if "process" in self._quantities:
            yield from self._process(now_ns)
        if "memory" in self._quantities:
            used = self._limit.used_bytes() if self._limit is not None else self._machine_bytes()
            yield from self._reading("cpu.memory", None if used is None else used / MIB)
        if "load" in self._quantities:
            yield from self._reading("cpu.load", self._load())

    def report(self) -> Monitored:
        return Monitored(missing=tuple(self._missing.values()))

    def _process(self, now_ns: int) -> Iterator[Reading]:
        tree = self._tree.read()
        if tree is None:
            return
        self._missing.pop("cpu.process", None)
        yield Reading("cpu.process_memory", "process", tree.resident_bytes / MIB)
        if self._before is None:
            self._before = now_ns, tree.cpu_ns
            return
        before_ns, before_cpu_ns = self._before
        if now_ns - before_ns >= _LEAST_SPAN_NS:
            self._before = now_ns, tree.cpu_ns
            yield Reading("cpu.process", "process", 100 * (tree.cpu_ns - before_cpu_ns) / (now_ns - before_ns))

    def _reading(self, name: str, value: float | None) -> Iterator[Reading]:
        if value is not None:
            yield Reading(name, "machine", value)
        else:
            self._missing[name] = f"{name} was not told by /proc at least once"

    def _machine_bytes(self) -> int | None:
        with suppress(OSError, ValueError, KeyError):
            lines = (self._root / "proc/meminfo").read_text().splitlines()
            kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines[:5])}
            return (kib["MemTotal"] - kib["MemAvailable"]) * 1024
        return None

    def _load(self) -> float | None:
        with suppress(OSError, ValueError, IndexError):
            return float((self._root / "proc/loadavg").read_text().split()[0])
        return None


_ZONES = "sys/class/powercap"
_PERIOD_NS = 1_000_000
"""Time between two steps of a counter (Intel SDM volume 3, "RAPL Interfaces")."""


class RaplProbe:
    """Probe of the energy of CPU packages and their memory, without series, by RAPL counters that Linux shows as files.

    Source: Documentation/power/powercap/powercap.rst. Since CVE-2020-8694 only root may read them. Cores and graphics
    are parts of a package; memory is not.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._files: dict[str, Path] = {}
        self._counters: dict[str, Counter] = {}
        """Counters of domains that were read at least once."""
        self._wraps_mj: dict[str, float] = {}
        self._missing: list[str] = []
        for zone in sorted((root / _ZONES).glob("intel-rapl:*")):
            try:
                name = _domain(zone)
                if name:
                    self._wraps_mj[name] = int((zone / "max_energy_range_uj").read_text()) / 1e3
                    self._files[name] = zone / "energy_uj"
            except (OSError, ValueError) as error:
                self._give_up(zone.name, error)
        if not self._files and not self._missing:
            self._missing.append(
                f"energy of the CPU is unknown: /{_ZONES} has no packages; virtual machines and containers hide them"
            )

    def sample(self, now_ns: int) -> tuple[Reading, ...]:
        for name, file in tuple(self._files.items()):
            try:
                energy_mj = int(file.read_text()) / 1e3
            except (OSError, ValueError) as error:
                del self._files[name]
                self._give_up(name, error)
                continue
            self._counters.setdefault(name, Counter(_PERIOD_NS, self._wraps_mj[name])).add(now_ns, energy_mj)
        return ()

    def report(self) -> Monitored:
        energy = tuple(device_energy(name, counter) for name, counter in self._counters.items())
        return Monitored(energy=energy, missing=tuple(self._missing))

    def _give_up(self, name: str, error: Exception) -> None:
        reason = "root alone may read its counter" if isinstance(error, PermissionError) else f"no counter: {error}"
        since = "from some time on " if name in self._counters else ""
        self._missing.append(f"energy of {name} is unknown {since}({reason})")


def _domain(zone: Path) -> str:
    """Return `package-0`, or `package-0 dram` for its memory; "" for domains that are parts or sums of these."""
    name = (zone / "name").read_text().strip()
    if name == "dram":
        package = zone.with_name(zone.name.rpartition(":")[0])
        return f"{(package / 'name').read_text().strip()} {name}"
    return name if name.startswith("package-") else ""
