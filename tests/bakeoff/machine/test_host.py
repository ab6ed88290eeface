"""Facts that are read from the kernel's files."""

import math
from pathlib import Path

import pytest

from bakeoff.machine import host


@pytest.mark.parametrize("chosen", ["always", "madvise", "never"])
def test_when_memory_lies_in_huge_pages(chosen: str, tmp_path: Path) -> None:
    setting = tmp_path / "enabled"
    setting.write_text(" ".join(f"[{one}]" if one == chosen else one for one in ("always", "madvise", "never")) + "\n")
    assert host.huge_pages(str(setting)) == chosen


@pytest.mark.parametrize(("idle_s", "load"), [(0.0, 0.1), (60.0, 0.1), (200.0, 2.5), (math.inf, 2.5)])
def test_the_load_of_the_measurement_before_is_not_counted(
    idle_s: float, load: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "load_average", lambda: 2.5)
    monkeypatch.setattr(host, "busy_cpus", lambda: 0.1)
    found = host.present_load(idle_s)
    assert (found.others, found.average) == (load, 2.5)
