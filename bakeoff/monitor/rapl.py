"""Energy of CPU packages and of their memory by RAPL counters, which Linux shows as files.

Source: its Documentation/power/powercap/powercap.rst. Since CVE-2020-8694 only root may read them. Cores and graphics
are parts of a package; memory is not.
"""

from pathlib import Path

from bakeoff.monitor.energy import Counter, device_energy
from bakeoff.monitor.probe import ProbeReport, Reading

ROOT = Path("/")
_ZONES = "sys/class/powercap"
_PERIOD_NS = 1_000_000
"""Between two steps (Intel SDM volume 3, "RAPL Interfaces")."""


class RaplProbe:
    """Counters of all packages; it has energy and no series."""

    def __init__(self, root: Path = ROOT) -> None:
        self._files: dict[str, Path] = {}
        self._counters: dict[str, Counter] = {}
        """Of domains that were read at least once."""
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

    def report(self) -> ProbeReport:
        energy = tuple(device_energy(name, counter) for name, counter in self._counters.items())
        return ProbeReport(energy, missing=tuple(self._missing))

    def _give_up(self, name: str, error: Exception) -> None:
        reason = "root alone may read its counter" if isinstance(error, PermissionError) else f"no counter: {error}"
        since = "from some time on " if name in self._counters else ""
        self._missing.append(f"energy of {name} is unknown {since}({reason})")


def _domain(zone: Path) -> str:
    """As in `package-0`, or `package-0 dram` for its memory; "" for what is a part of these or holds them."""
    name = (zone / "name").read_text().strip()
    if name == "dram":
        package = zone.with_name(zone.name.rpartition(":")[0])
        return f"{(package / 'name').read_text().strip()} {name}"
    return name if name.startswith("package-") else ""
