"""Faults of clocks, samples and their statistics."""

from source_faults.fault import Fault

FAULTS = (
    Fault(
        "clocks",
        "the latency clock is read before the device has done its work",
        "bakeoff/worker/clocks/clock.py",
        "    outputs = call()\n    synchronise(config.device)\n    return now_ns() - started, outputs",
        "    outputs = call()\n    elapsed_ns = now_ns() - started\n    synchronise(config.device)\n"
        "    return elapsed_ns, outputs",
        ("tests/bakeoff/worker/test_timing.py",),
    ),
    Fault(
        "clocks",
        "the last call of each part of a throughput block is not counted",
        "bakeoff/worker/clocks/clock.py",
        "made += len(others) + 1",
        "made += len(others) or 1",
        ("tests/bakeoff/worker/test_timing.py",),
    ),
    Fault(
        "clocks",
        "the 99th percentile is the 95th",
        "bakeoff/record/statistics.py",
        "np.percentile(ordered, [90, 99])",
        "np.percentile(ordered, [90, 95])",
        ("tests/bakeoff/record/test_statistics.py",),
    ),
)
