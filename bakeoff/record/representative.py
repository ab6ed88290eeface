"""Several tries of one variant in one sweep, in fresh builds and fresh processes: which of them stands for it."""

from collections.abc import Sequence

from bakeoff.record.store import Stored


def representative(tries: Sequence[Stored]) -> Stored:
    """The best build's process with the median of that build's medians.

    A build is as good as the median of its processes' medians (of an even number the lower one in the middle), and the
    best is the lowest. One try that is not ok stands for all, since a variant that fails sometimes fails.
    """
    failed = [entry for entry in tries if entry.record.status != "ok"]
    if failed:
        return failed[-1]
    builds: dict[int, list[Stored]] = {}
    for entry in tries:
        builds.setdefault(entry.record.build_number, []).append(entry)
    return min((_middle(processes) for processes in builds.values()), key=_median_ms)


def _middle(processes: Sequence[Stored]) -> Stored:
    return sorted(processes, key=_median_ms)[(len(processes) - 1) // 2]


def _median_ms(entry: Stored) -> float:
    return entry.record.latency.median_ms if entry.record.latency else 0.0
