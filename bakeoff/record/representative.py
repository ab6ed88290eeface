"""The run that represents a variant in tables if a sweep ran it several times, in fresh builds or fresh processes."""

from collections.abc import Sequence

from bakeoff.record.basis import same_code
from bakeoff.record.store import Stored


def representative(tries: Sequence[Stored]) -> Stored:
    """The middle process of the fastest build; or the last run that is not ok, if there is one.

    Processes of a build are ranked by their median latency, and the middle one (the lower of two) represents the build.
    The build with the lowest such latency represents the variant. Where the code changed between the runs (a sweep
    that was resumed after an edit) only those with the code of the newest run count.
    """
    newest = max(tries, key=lambda entry: entry.record.created)
    tries = [entry for entry in tries if same_code(entry.record, newest.record)]
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
