"""Energy of CPU packages from a made-up tree of RAPL counters."""

from pathlib import Path

import pytest

from bakeoff.monitor.cpu import RaplProbe

SECOND = 1_000_000_000
RANGE_UJ = 262_143_328_850


class Zones:
    """A root folder with counters of one package, its cores and its memory, and of the platform."""

    def __init__(self, root: Path) -> None:
        self.root = root
        named = {"0": "package-0", "0:0": "core", "0:1": "dram", "1": "psys"}
        for zone, name in named.items():
            folder = root / f"sys/class/powercap/intel-rapl:{zone}"
            folder.mkdir(parents=True)
            (folder / "name").write_text(f"{name}\n")
            (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
            self.set(zone, 1_000_000)

    def file(self, zone: str) -> Path:
        return self.root / f"sys/class/powercap/intel-rapl:{zone}/energy_uj"

    def set(self, zone: str, uj: int) -> None:
        self.file(zone).write_text(f"{uj}\n")


def test_packages_and_their_memory_are_told_and_parts_of_them_are_not(tmp_path: Path) -> None:
    zones = Zones(tmp_path)
    probe = RaplProbe(tmp_path)
    probe.sample(0)
    zones.set("0", 1_000_000 + 45_000_000)
    zones.set("0:1", 1_000_000 + 5_000_000)
    probe.sample(SECOND)
    report = probe.report()
    assert {each.device: each.mj for each in report.energy} == {"package-0": 45_000, "package-0 dram": 5_000}
    assert all(each.integral_mj is None and each.note == "" for each in report.energy)
    assert report.missing == ()


def test_a_counter_wraps_around(tmp_path: Path) -> None:
    zones = Zones(tmp_path)
    zones.set("0", RANGE_UJ - 20_000_000)
    probe = RaplProbe(tmp_path)
    for second, uj in enumerate((RANGE_UJ - 20_000_000, 10_000_000, 40_000_000)):
        zones.set("0", uj)
        probe.sample(second * SECOND)
    package = probe.report().energy[0]
    assert package.mj == pytest.approx(60_000)


def test_a_counter_that_was_read_too_seldom_is_unknown(tmp_path: Path) -> None:
    """262 kJ at one kilowatt are 262 s, in which it may have wrapped around unseen."""
    zones = Zones(tmp_path)
    probe = RaplProbe(tmp_path)
    probe.sample(0)
    zones.set("0", 900_000_000)
    probe.sample(300 * SECOND)
    package = probe.report().energy[0]
    assert package.mj is None
    assert "300 s" in package.note


def test_counters_that_nobody_may_read_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modes do not stop root, so the error is made."""
    Zones(tmp_path)
    read = Path.read_text

    def refused(path: Path, *arguments: str) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return read(path, *arguments)

    monkeypatch.setattr(Path, "read_text", refused)
    probe = RaplProbe(tmp_path)
    probe.sample(0)
    report = probe.report()
    assert report.energy == ()
    assert report.missing == (
        "energy of package-0 is unknown (root alone may read its counter)",
        "energy of package-0 dram is unknown (root alone may read its counter)",
    )
