"""Faults of building, measuring and describing in the worker."""

from source_faults.fault import Fault

FAULTS = (
    Fault(
        "worker",
        "seconds of a build include its pauses, which do not count as building",
        "bakeoff/worker/build.py",
        "_Spent(time.monotonic() - started - pauses.wall_s, ",
        "_Spent(time.monotonic() - started, ",
        ("tests/bakeoff/worker/test_build_cost.py",),
    ),
    Fault(
        "worker",
        "warm-up ends at the first samples that agree, though something was compiled just before",
        "bakeoff/worker/clocks/warm_up.py",
        "len(samples) - quiet_since >= enough:",
        "len(samples) >= enough:",
        ("tests/bakeoff/worker/test_timing.py",),
    ),
    Fault(
        "worker",
        "the check with fresh inputs writes values that the engine was called with before",
        "bakeoff/worker/checks/fresh_inputs.py",
        "altered(values, 1 - step, held), config, outputs)",
        "values, config, outputs)",
        ("tests/bakeoff/worker/test_fresh_inputs.py",),
    ),
)
