"""Facts that are read from the kernel's files."""

from pathlib import Path

import pytest

from bakeoff.machine import host


@pytest.mark.parametrize("chosen", ["always", "madvise", "never"])
def test_when_memory_lies_in_huge_pages(chosen: str, tmp_path: Path) -> None:
    setting = tmp_path / "enabled"
    setting.write_text(" ".join(f"[{one}]" if one == chosen else one for one in ("always", "madvise", "never")) + "\n")
    assert host.huge_pages(str(setting)) == chosen


def test_a_kernel_without_huge_pages(tmp_path: Path) -> None:
    assert host.huge_pages(str(tmp_path / "enabled")) == ""
