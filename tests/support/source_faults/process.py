"""Faults of jobs, the supervisor and the guard."""

from source_faults.fault import Fault

_SUPERVISOR = "tests/bakeoff/process/test_supervisor.py"
"""Takes minutes as a whole."""

FAULTS = (
    Fault(
        "process",
        "what a worker left running is not killed when it ended by itself",
        "bakeoff/process/guard.py",
        "leftovers = kill_descendants() if finished else []",
        "leftovers = descendants(os.getpid()) if finished else []",
        (f"{_SUPERVISOR}::test_the_guard_kills_whoever_is_left",),
    ),
    Fault(
        "process",
        "a deadline of all phases together is not enforced",
        "bakeoff/process/supervisor.py",
        "self._late = min(self._deadline, self._started + self._deadlines.total) <= time.monotonic()",
        "self._late = self._deadline <= time.monotonic()",
        (f"{_SUPERVISOR}::test_phases_that_are_short_each_end_at_the_total_deadline",),
    ),
    Fault(
        "process",
        "a result is accepted by its last seal, though it was sealed before with other content",
        "bakeoff/process/supervisor.py",
        "if [hashlib.sha256(data).hexdigest()] != list(seals):",
        "if [hashlib.sha256(data).hexdigest()] != list(seals)[-1:]:",
        (f"{_SUPERVISOR}::test_only_a_result_that_was_sealed_once_counts",),
    ),
)
