"""Reads CPU time and memory of this process and its helpers, and CPU time of all processes.

Helpers are the processes that this process started, directly or not, such as servers and pools that do part of a
backend's work.
"""

import os
import resource
from collections.abc import Collection, Iterator
from contextlib import suppress

import psutil

_BUSY = (1, 2, 3, 6, 7, 8)
"""Columns of /proc/stat that count as used: user, nice, system, irq, softirq and steal (proc(5)); user includes what
guests of this host took."""


def descendants(pid: int) -> list[psutil.Process]:
    """Return all processes below `pid`, including zombies; empty if there is no such process."""
    with suppress(psutil.Error):
        return list(psutil.Process(pid).children(recursive=True))
    return []


def helpers() -> list[psutil.Process]:
    """Return the descendants of this process. It must be a subreaper (PR_SET_CHILD_SUBREAPER), or orphans are
    missing."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # a search through /proc takes 200 times as long
    except ChildProcessError:
        return []
    return descendants(os.getpid())


def helper_cpu_s() -> float:
    """Return the CPU seconds so far of all descendants, including those that have ended if their parent waited for
    them.

    A process's time moves to its parent's counters when the parent waits for it, so the sum only grows. Its resolution
    is 10 ms.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    total_s = used.ru_utime + used.ru_stime
    for process in helpers():
        with suppress(psutil.Error):
            times = process.cpu_times()
            total_s += times.user + times.system + times.children_user + times.children_system
    return total_s


DRIVER = "BAKEOFF_DRIVER"
"""Environment variable with the process that drives a sweep on several machines, as `global_name` states it."""
_BOOT = "/proc/sys/kernel/random/boot_id"


def global_name(pid: int) -> str:
    """Return a text that names a process among those of many machines: boot, namespace of its number, and number."""
    with open(_BOOT, encoding="ascii") as file:
        return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}/{pid}"


def driver_cpu_s() -> float | None:
    """Return the CPU seconds so far of the process that `DRIVER` names; None if there is none on this machine."""
    name = os.environ.get(DRIVER, "")
    pid = name.rpartition("/")[2]
    with suppress(psutil.Error):
        if pid and name == global_name(int(pid)):
            times = psutil.Process(int(pid)).cpu_times()
            return times.user + times.system
    return None


def used_cpu_s(cpus: Collection[int], stat: str = "/proc/stat") -> float:
    """Return the CPU seconds so far that all processes and the hypervisor used on the CPUs with these numbers."""
    wanted, ticks = {f"cpu{number}" for number in cpus}, 0
    with open(stat, encoding="ascii") as file:
        for line in file:
            columns = line.split()
            if columns[0] in wanted:
                ticks += sum(int(columns[index]) for index in _BUSY if index < len(columns))
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_bytes() -> int:
    """Return the resident size of this process (proc(5), statm)."""
    with open("/proc/self/statm", "rb") as sizes:
        return int(sizes.read().split()[1]) * resource.getpagesize()


def reset_peaks() -> None:
    """Reset the high-water marks of the resident sizes of this process and its descendants (proc(5), clear_refs)."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    for process in helpers():
        with suppress(OSError), open(f"/proc/{process.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")


def peak_bytes() -> int:
    """Return the largest resident size of this process since `reset_peaks`, or since it started (proc(5), VmHWM)."""
    return dict(_sizes("self/status"))["VmHWM"]


def children_peak_bytes() -> int:
    """Return an upper bound of the peak resident size of any compiler process that has ended (getrusage(2),
    RUSAGE_CHILDREN).

    It is an upper bound, because a child's figure also counts this process's resident size at the time of the fork.
    """
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def helper_peak_bytes() -> int:
    """Return the sum of the descendants' peak resident sizes since `reset_peaks`, or since they started.

    Pages that several processes map, as those of a forked process and of libraries, count by their share (smaps_rollup,
    Pss), as far as they are resident now.
    """
    total = 0
    for process in helpers():
        with suppress(OSError, ValueError, KeyError):  # it has just ended
            peak, shared = dict(_sizes(f"{process.pid}/status"))["VmHWM"], 0
            with suppress(OSError, KeyError):
                now = dict(_sizes(f"{process.pid}/smaps_rollup"))
                shared = now["Rss"] - now["Pss"]
            total += max(0, peak - shared)
    return total


def memory_file_bytes() -> int:
    """Return the bytes of the files in memory (memfd_create(2), /dev/shm) that this process and its descendants hold
    open, each file once. Those of mapped pages are in the resident sizes too."""
    found = {}
    for pid in ("self", *(str(process.pid) for process in helpers())):
        with suppress(OSError):  # it has just ended
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    if os.readlink(entry).startswith(("/memfd:", "/dev/shm/")):
                        stat = os.stat(entry.path)
                        found[stat.st_dev, stat.st_ino] = 512 * stat.st_blocks
    return sum(found.values())


def _sizes(file: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the bytes of each line of a /proc file that states kB."""
    with open(f"/proc/{file}", encoding="ascii", errors="replace") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            parts = value.split()
            if parts[1:] == ["kB"]:
                yield name, int(parts[0]) * 1024
