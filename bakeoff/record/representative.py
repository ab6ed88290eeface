"""Which of several runs of one variant in one sweep (fresh builds, fresh processes) represents it in tables."""

from collections.abc import Sequence

from bakeoff.record.store import Stored


def representative(tries: Sequence[Stored]) -> Stored:
    """The middle process of the best build; if any run is not ok, the last one that is not.

    Processes of a build are ranked by their median latency, and the middle one (the lower of two) represents the build.
    The build with the lowest such latency represents the variant.
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
