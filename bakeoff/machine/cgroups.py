"""Reads the limits and pressure of this process's control groups: containers share a host's CPUs and memory.

Both versions are read: cgroup v2 (Linux' Documentation/admin-guide/cgroup-v2.rst) and v1 (admin-guide/cgroup-v1). The
limits of all groups up to the root of the mounted tree apply; a container sees the tree from its own group on.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path("/")
_LEAST_LIMIT_BYTES = 1 << 60
"""Least number of bytes that counts as no limit: v1 writes the largest number of pages if there is none."""


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return how many CPUs' worth of time this process may use (cpu.max or cpu.cfs_quota_us); None without a limit."""
    found = []
    for group in _groups("cpu", root):
        with suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = (group / "cpu.max").read_text().split()
            found.append(float(quota) / float(period))  # "max" is no number
        with suppress(OSError, ValueError, ZeroDivisionError):
            quota_us = int((group / "cpu.cfs_quota_us").read_text())
            if quota_us > 0:
                found.append(quota_us / int((group / "cpu.cfs_period_us").read_text()))
    return min(found, default=None)


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A control group whose memory is limited."""

    group: Path
    limit_bytes: int

    def used_bytes(self) -> int | None:
        """Return the bytes that the group's processes use now; None if the kernel does not report them.

        Pages of files that were not used lately are left out: the kernel drops them before it refuses memory.
        """
        used = [_bytes_of(self.group / name) for name in ("memory.current", "memory.usage_in_bytes")]
        taken = next((value for value in used if value is not None), None)
        return None if taken is None else max(0, taken - _droppable_bytes(self.group))


def available_bytes(root: Path = ROOT) -> int | None:
    """Return the bytes that this process may still take before its groups' limits; None without a limit."""
    return min((left for left, _ in _limits(root)), default=None)


def tightest_limit(root: Path = ROOT) -> MemoryLimit | None:
    """Return the memory limit that this process would meet first; None without a limit."""
    return min(_limits(root), key=lambda found: found[0], default=(0, None))[1]


def _limits(root: Path) -> Iterator[tuple[int, MemoryLimit]]:
    """Yield each limited group's remaining bytes and its limit.

    In v2, the limit is the lower of memory.max (allocations fail) and memory.high (they are throttled).
    """
    for group in _groups("memory", root):
        limits = [_bytes_of(group / name) for name in ("memory.max", "memory.high", "memory.limit_in_bytes")]
        known = [limit for limit in limits if limit is not None and limit < _LEAST_LIMIT_BYTES]
        if known:
            found = MemoryLimit(group, min(known))
            used = found.used_bytes()
            if used is not None:
                yield max(0, found.limit_bytes - used), found


def cpu_wait_us(root: Path = ROOT) -> int | None:
    """Return the microseconds so far in which a task of this process's own group waited for a CPU; None if unknown.

    Source: the line "some" of cpu.pressure (Documentation/accounting/psi.rst), which v2 has for each group.
    """
    for group in _groups("", root):
        with suppress(OSError, ValueError, StopIteration):
            lines = (group / "cpu.pressure").read_text().splitlines()
            some = next(line for line in lines if line.startswith("some "))
            return int(next(part for part in some.split() if part.startswith("total=")).partition("=")[2])
    return None


def _bytes_of(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        text = path.read_text().strip()
        return None if text == "max" else int(text)
    return None


def _droppable_bytes(group: Path) -> int:
    with suppress(OSError, ValueError):
        facts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return int(facts.get("total_inactive_file", facts.get("inactive_file", 0)))  # v1 counts inner groups apart
    return 0


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """Yield the folders of this process's groups that may limit `controller`, each followed by the groups around it.

    If both versions are mounted, a controller belongs to one of them (cgroups(7)); both are searched.
    """
    for names, group in _memberships(root):
        version = "cgroup" if names else "cgroup2"
        if names and controller not in names.split(","):
            continue
        for kind, mounted, mount, options in _mounts(root):
            if kind == version and (kind == "cgroup2" or controller in options):
                top = root / mount.lstrip("/")
                inner = PurePosixPath(group)
                inside = inner.relative_to(mounted) if inner.is_relative_to(mounted) else PurePosixPath()
                yield from (top / part for part in (inside, *inside.parents))
                break


def _memberships(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each group of this process as the names of its controllers (empty for v2) and its path (cgroups(7),
    /proc/[pid]/cgroup)."""
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, names, group = line.split(":", 2)
            yield names, group


def _mounts(root: Path) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield the type, root group, mount point and options of each mounted tree of groups (proc(5),
    /proc/[pid]/mountinfo)."""
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/mountinfo").read_text().splitlines():
            fields, _, rest = line.partition(" - ")
            kind, _, options = rest.split(" ", 2)
            if kind in ("cgroup", "cgroup2"):
                _, _, _, mounted, mount, *_ = fields.split(" ")
                yield kind, mounted, mount, tuple(options.split(","))
