"""Faults of clocks, samples and their statistics."""

from source_faults.fault import Fault

_TIMING = "tests/bakeoff/worker/test_timing.py"
_STATISTICS = "tests/bakeoff/record/test_statistics.py"
_USAGE = "tests/bakeoff/worker/test_cpu_usage.py"
_DRIFT = "tests/bakeoff/worker/test_drift.py"

FAULTS = (
    Fault(
        "clocks",
        "the latency clock is read before the device has done its work",
        "bakeoff/worker/clocks/clock.py",
        "    outputs = call()\n    synchronise(config.device)\n    return now_ns() - started, outputs",
        "    outputs = call()\n    elapsed_ns = now_ns() - started\n    synchronise(config.device)\n"
        "    return elapsed_ns, outputs",
        (f"{_TIMING}::test_a_sample_lasts_until_the_device_is_done",),
    ),
    Fault(
        "clocks",
        "the last call of each part of a throughput block is not counted",
        "bakeoff/worker/clocks/clock.py",
        "made += len(others) + 1",
        "made += len(others) or 1",
        (f"{_TIMING}::test_no_block_is_of_a_single_call",),
    ),
    Fault(
        "clocks",
        "the 99th percentile is the 95th",
        "bakeoff/record/statistics.py",
        "np.percentile(ordered, [90, 99])",
        "np.percentile(ordered, [90, 95])",
        (f"{_STATISTICS}::test_a_p99_takes_a_hundred_samples",),
    ),
    Fault(
        "clocks",
        "the median is the mean of the samples",
        "bakeoff/record/statistics.py",
        "median_ms=float(np.median(ordered))",
        "median_ms=float(ordered.mean())",
        (f"{_STATISTICS}::test_figures_by_hand",),
    ),
    Fault(
        "clocks",
        "a few outliers are a second speed, and the row is not ranked",
        "bakeoff/record/statistics.py",
        "max(_LEAST_SHARE * count, _outliers(count))",
        "_LEAST_SHARE * count",
        (f"{_STATISTICS}::test_one_mode_is_not_taken_for_two",),
    ),
    Fault(
        "clocks",
        "a row's samples are those of its warm-up",
        "bakeoff/worker/clocks/timing.py",
        "            Samples(window.latency.samples_ns),\n",
        "            Samples(warmup_ns),\n",
        (f"{_TIMING}::test_the_cap_ends_the_clock_after_five_samples",),
    ),
    Fault(
        "clocks",
        "warm-up ends after its least time, though its samples do not agree",
        "bakeoff/worker/clocks/timing.py",
        "elif agree(samples, policy.settle_ratio):",
        "else:",
        (f"{_TIMING}::test_warm_up_lasts_until_samples_agree",),
    ),
    Fault(
        "clocks",
        "the call after the instrument's own work is a sample",
        "bakeoff/worker/clocks/timing.py",
        "            self._disturbed = False\n            return\n        self.latency.seconds",
        "            self._disturbed = False\n        self.latency.seconds",
        (f"{_TIMING}::test_the_call_after_the_instruments_own_work_is_no_sample",),
    ),
    Fault(
        "clocks",
        "one clock runs to its end before the other begins",
        "bakeoff/worker/clocks/timing.py",
        "_SEGMENTS = 10",
        "_SEGMENTS = 1",
        (f"{_TIMING}::test_the_phases_are_reported_in_order",),
    ),
    Fault(
        "clocks",
        "the window ends after its least time, however wide the median's interval is",
        "bakeoff/worker/clocks/timing.py",
        "if half_width(samples) >= policy.narrow_ratio:",
        "if not samples:",
        (f"{_TIMING}::test_a_drifting_interval_runs_into_the_cap",),
    ),
    Fault(
        "clocks",
        "of very short calls only the first ones are samples",
        "bakeoff/worker/clocks/timing.py",
        "max(1, math.ceil(max(policy.min_s, policy.full_s) * 1e9 / self.expected_ns / policy.max_samples))",
        "1",
        (f"{_TIMING}::test_samples_are_bounded",),
    ),
    Fault(
        "clocks",
        "emptying the caches before a call is part of its time",
        "bakeoff/worker/clocks/clock.py",
        "    if config.flush is not None:\n        config.flush()\n        synchronise(config.device)\n"
        "    started = now_ns()\n",
        "    started = now_ns()\n    if config.flush is not None:\n        config.flush()\n"
        "        synchronise(config.device)\n",
        (f"{_TIMING}::test_caches_are_flushed_before_each_call_and_outside_the_clock",),
    ),
    Fault(
        "clocks",
        "a block that ended early is divided by the calls that it was to make",
        "bakeoff/worker/clocks/clock.py",
        "    return elapsed_ns // made, outputs, made",
        "    return elapsed_ns // len(calls), outputs, made",
        (f"{_TIMING}::test_a_block_ends_early_where_calls_are_far_slower_than_in_warm_up",),
    ),
    Fault(
        "clocks",
        "the clock that times calls is one that a backend can replace",
        "bakeoff/worker/clocks/clock.py",
        "    started = now_ns()\n    outputs = call()\n    synchronise(config.device)\n    return now_ns() - started, ",
        "    started = time.perf_counter_ns()\n    outputs = call()\n    synchronise(config.device)\n"
        "    return time.perf_counter_ns() - started, ",
        (f"{_TIMING}::test_the_clock_that_is_read_is_none_that_other_code_put_in_its_place",),
    ),
    Fault(
        "clocks",
        "what is compiled in the window goes unseen, since the counters are read after it",
        "bakeoff/worker/clocks/timing.py",
        "    before = dict(activity())\n    with measure_cpu_usage() as usage:\n        window.run()\n",
        "    with measure_cpu_usage() as usage:\n        window.run()\n    before = dict(activity())\n",
        (f"{_TIMING}::test_counters_that_move_in_the_window_are_named",),
    ),
    Fault(
        "clocks",
        "work of the processes that a backend started counts as that of others",
        "bakeoff/worker/clocks/cpu_usage.py",
        "own_s = spent.own_s + spent.helpers_s",
        "own_s = spent.own_s",
        (f"{_USAGE}::test_in_a_group_with_a_quota_only_waiting_counts",),
    ),
    Fault(
        "clocks",
        "in a container the work of its neighbours on shared CPUs unranks a row that never waited",
        "bakeoff/worker/clocks/cpu_usage.py",
        "contention = waited_share if shares_cpus and waited_share is not None else other_share",
        "contention = other_share",
        (f"{_USAGE}::test_in_a_group_with_a_quota_only_waiting_counts",),
    ),
    Fault(
        "clocks",
        "a host that became slower is a drift of the row",
        "bakeoff/worker/checks/growth.py",
        "grown = climb(samples) / max(1.0, host_slowdown)",
        "grown = climb(samples)",
        (f"{_DRIFT}::test_a_slower_host_is_no_drift_and_a_steady_window_is_not_measured_again",),
    ),
    Fault(
        "clocks",
        "a drift is believed though calls are fast again",
        "bakeoff/worker/checks/growth.py",
        "return grown if _lower_quartile(later) / first > (1 + grown) / 2 else 1.0",
        "return grown if _lower_quartile(later) else 1.0",
        (f"{_DRIFT}::test_calls_that_are_fast_again_did_not_drift",),
    ),
    Fault(
        "clocks",
        "the sides of a comparison come in the same order in every round",
        "bakeoff/race.py",
        "drawn = order.sample(racing, len(racing))",
        "drawn = racing",
        ("tests/bakeoff/sweeps/test_compare.py::test_blocks_are_of_their_sides_in_whatever_order_they_ran",),
    ),
    Fault(
        "clocks",
        "the first call of a comparison's block, which finds the caches of the other side, is a sample",
        "bakeoff/worker/compare.py",
        "count, samples, made = int(line), list[int](), 1",
        "count, samples, made = int(line), [call_once()[0]], 1",
        ("tests/bakeoff/worker/test_blocks.py",),
    ),
)
