"""Replaces the findings that, on a CPU, follow from the shortness of a call alone by a single one."""

from bakeoff.record.finding import Finding, new_finding

SHORT_NS = 1_000_000
"""A call below this time is short. The two times below are what the usual limits, 5 % and 20 %, allow such a call."""
APART_NS = 50_000
"""Time by which one call by itself may take longer than within a block of calls: it follows a check of outputs, with
other data in the caches and threads that sleep. Calls of 0.03 to 0.2 ms took 13 to 33 us longer, on 2 cores."""
CLOCKS_APART = 3.0
"""Ratio of the clocks above which neither is the time of a call. Of 387 published rows the largest is 1.27."""
UNNAMED_NS = 200_000
"""Time of a traced call in no kernel: Python, guards, the profiler. Calls of 0.03 to 0.2 ms had 17 to 190 us of it."""


def short_call() -> Finding:
    """Return the finding; its text is the same for all rows, so that a table has one line for it."""
    text = (
        f"calls are shorter than {SHORT_NS / 1e6:g} ms: one by itself takes up to {APART_NS / 1e6:g} ms longer than in "
        f"a block of calls, and up to {UNNAMED_NS / 1e6:g} ms of a traced one are in no kernel"
    )
    return new_finding("short-call", text)
