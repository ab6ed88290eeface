"""Processes that this one started, directly or not: servers and pools that do part of a backend's work."""

import os
import resource
from collections.abc import Iterator
from contextlib import suppress

from bakeoff.process import guard

_TICKS = os.sysconf("SC_CLK_TCK")


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that `helper_cpu_s` finds them (prctl(2))."""
    guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)


def helper_cpu_s() -> float:
    """CPU seconds so far of all descendants, those included that have ended, if their parent waited for them.

    A process's time moves to its parent's counters when the parent waits for it, so the sum only grows. In steps of
    10 ms.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    total_s = used.ru_utime + used.ru_stime
    for pid in guard.descendants(os.getpid(), zombies=True):
        with suppress(OSError, ValueError), open(f"/proc/{pid}/stat", "rb") as stat:
            columns = stat.read().rpartition(b") ")[2].split()
            total_s += sum(int(column) for column in columns[11:15]) / _TICKS  # utime, stime, cutime, cstime of proc(5)
    return total_s


def reset_helper_peaks() -> None:
    """Start a new high-water mark of each descendant's resident size (proc(5), clear_refs)."""
    for pid in guard.descendants(os.getpid()):
        with suppress(OSError), open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")


def helper_peak_bytes() -> int:
    """Sum of the descendants' peak resident sizes since `reset_helper_peaks`, or since they started.

    Pages that several processes map, as those of a forked process and of libraries, count by their share (smaps_rollup,
    Pss), as far as they are resident now.
    """
    return sum(_peak_bytes(pid) for pid in guard.descendants(os.getpid()))


def _peak_bytes(pid: int) -> int:
    with suppress(OSError, ValueError, KeyError):
        peak = dict(_sizes(f"/proc/{pid}/status"))["VmHWM"]
        shared = 0
        with suppress(OSError, KeyError):
            now = dict(_sizes(f"/proc/{pid}/smaps_rollup"))
            shared = now["Rss"] - now["Pss"]
        return max(0, peak - shared)
    return 0  # it has just ended


def _sizes(path: str) -> Iterator[tuple[str, int]]:
    with open(path, encoding="ascii", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            parts = value.split()
            if parts[1:] == ["kB"]:
                yield name, int(parts[0]) * 1024
