"""Limits of control groups, read from made-up trees of both versions."""

import os
from pathlib import Path

import pytest

from bakeoff.machine import cgroups, host

GIB = 1 << 30
NO_LIMIT_V1 = "9223372036854771712"
V2 = "30 29 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"


class Tree:
    """A root folder with /proc/self and /sys/fs/cgroup."""

    def __init__(self, root: Path, mounts: str, membership: str) -> None:
        self.root = root
        self.write("proc/self/mountinfo", f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n{mounts}\n")
        self.write("proc/self/cgroup", membership)

    def write(self, path: str, text: str | int) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def group(self, path: str, **files: str | int) -> None:
        for name, text in files.items():
            self.write(f"sys/fs/cgroup/{path}/{name.replace('__', '.')}", text)


def test_v2_takes_the_tightest_of_nested_groups(tmp_path: Path) -> None:
    tree = Tree(tmp_path, V2, "0::/a/b/c")
    tree.group("a/b/c", cpu__max="max 100000", memory__max="max", memory__high="max", memory__current=GIB)
    tree.group("a/b", cpu__max="250000 100000", memory__max=6 * GIB, memory__high=4 * GIB, memory__current=2 * GIB)
    tree.group("a", cpu__max="800000 100000", memory__max=5 * GIB, memory__high="max", memory__current=2 * GIB)
    assert cgroups.cpu_quota(tmp_path) == 2.5
    assert cgroups.available_bytes(tmp_path) == 2 * GIB, "memory.high of a/b"
    tree.group("a", memory__current=4 * GIB)
    assert cgroups.available_bytes(tmp_path) == GIB, "what others in a took"


def test_the_tightest_limit_is_the_one_that_is_met_first(tmp_path: Path) -> None:
    """Not the lowest one: what others in an outer group took counts."""
    tree = Tree(tmp_path, V2, "0::/a/b")
    tree.group("a/b", memory__max=4 * GIB, memory__current=GIB)
    tree.group("a", memory__max=6 * GIB, memory__current=5 * GIB)
    tightest = cgroups.tightest_limit(tmp_path)
    assert tightest is not None
    assert (tightest.limit_bytes, tightest.used_bytes()) == (6 * GIB, 5 * GIB)


def test_pages_of_files_that_can_be_dropped_are_free(tmp_path: Path) -> None:
    tree = Tree(tmp_path, V2, "0::/a")
    tree.group("a", memory__max=4 * GIB, memory__current=3 * GIB, memory__stat=f"anon 1\ninactive_file {2 * GIB}")
    assert cgroups.available_bytes(tmp_path) == 3 * GIB
    tree.group("a", memory__current=5 * GIB, memory__stat="anon 1")
    assert cgroups.available_bytes(tmp_path) == 0


def test_a_container_of_v1_sees_its_own_group_mounted(tmp_path: Path) -> None:
    """As in Docker without a cgroup namespace: the path in /proc/self/cgroup is the host's."""
    mounts = (
        "40 35 0:30 /docker/f00 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
        "41 35 0:31 /docker/f00 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory"
    )
    tree = Tree(tmp_path, mounts, "4:memory:/docker/f00\n3:cpu,cpuacct:/docker/f00\n0::/")
    tree.group("cpu,cpuacct", cpu__cfs_quota_us=150000, cpu__cfs_period_us=50000)
    tree.group("memory", memory__limit_in_bytes=8 * GIB, memory__usage_in_bytes=2 * GIB)
    assert cgroups.cpu_quota(tmp_path) == 3.0
    assert cgroups.available_bytes(tmp_path) == 6 * GIB


def test_v1_nested_and_without_limits(tmp_path: Path) -> None:
    controllers = enumerate(("cpu", "memory"))
    mounts = "\n".join(f"4{n} 35 0:3{n} / /sys/fs/cgroup/{c} rw - cgroup cgroup rw,{c}" for n, c in controllers)
    tree = Tree(tmp_path, mounts, "4:memory:/jobs/7\n3:cpu:/jobs/7")
    for group in ("memory/jobs/7", "memory"):
        tree.group(group, memory__limit_in_bytes=NO_LIMIT_V1, memory__usage_in_bytes=GIB)
    tree.group("cpu/jobs/7", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100000)
    assert cgroups.cpu_quota(tmp_path) is None
    assert cgroups.available_bytes(tmp_path) is None
    tree.group("memory/jobs", memory__limit_in_bytes=3 * GIB, memory__usage_in_bytes=GIB)
    assert cgroups.available_bytes(tmp_path) == 2 * GIB


def test_pressure_is_of_the_own_group(tmp_path: Path) -> None:
    tree = Tree(tmp_path, V2, "0::/a/b")
    tree.group("a", cpu__pressure="some avg10=9.00 avg60=9.00 avg300=9.00 total=999\nfull avg10=0.00 total=0")
    tree.group("a/b", cpu__pressure="some avg10=1.00 avg60=0.50 avg300=0.10 total=123456\nfull avg10=0.00 total=7")
    assert cgroups.cpu_wait_us(tmp_path) == 123456


@pytest.mark.parametrize("text", ["", "nonsense", "0::", "::::"])
def test_trees_that_cannot_be_read_set_no_limit(tmp_path: Path, text: str) -> None:
    Tree(tmp_path, text, text)
    assert cgroups.cpu_quota(tmp_path) is None
    assert cgroups.available_bytes(tmp_path) is None
    assert cgroups.cpu_wait_us(tmp_path / "absent") is None


@pytest.mark.parametrize(("quota", "cores"), [(None, 4), (2.5, 2), (0.5, 1), (64.0, 4)])
def test_usable_cores_respect_the_quota(monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: int) -> None:
    monkeypatch.setattr(cgroups, "cpu_quota", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    monkeypatch.setattr(host, "read_host", lambda: type("Facts", (), {"cores": 8}))
    assert host.usable_cores() == cores
