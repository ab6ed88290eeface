"""Faults of tables and pages."""

from source_faults.fault import Fault

FAULTS = (
    Fault(
        "report",
        "speed-ups are inverted",
        "bakeoff/report/speedups.py",
        "theirs.median_ms / ours.median_ms",
        "ours.median_ms / theirs.median_ms",
        ("tests/bakeoff/report/test_standings.py",),
    ),
    Fault(
        "report",
        "an unstable row can be a finalist and be recommended",
        "bakeoff/record/finalists.py",
        'return record.status == "ok" and record.latency is not None',
        'return record.status in ("ok", "unstable") and record.latency is not None',
        ("tests/bakeoff/report/test_recommendation.py",),
    ),
    Fault(
        "report",
        "a stale row gets a ratio to the current baseline",
        "bakeoff/report/columns.py",
        "own = {} if stale is not None else bases",
        "own = bases",
        ("tests/bakeoff/report/test_comparable.py",),
    ),
    Fault(
        "report",
        "the interval beside a median is the range of all samples",
        "bakeoff/report/format.py",
        "(figures.median_ms, figures.low_ms, figures.high_ms)",
        "(figures.median_ms, figures.min_ms, figures.max_ms)",
        ("tests/bakeoff/report/test_pages.py::TestThreeRecords",),
    ),
)
