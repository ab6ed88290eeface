"""Faults of building, measuring and describing in the worker."""

from source_faults.fault import Fault

_MEASURE = "tests/bakeoff/worker/test_measure.py"
_TIMING = "tests/bakeoff/worker/test_timing.py"

FAULTS = (
    Fault(
        "worker",
        "seconds of a build include its pauses, which do not count as building",
        "bakeoff/worker/build.py",
        "_BuildTime(time.monotonic() - started - pauses.wall_s, ",
        "_BuildTime(time.monotonic() - started, ",
        ("tests/bakeoff/worker/test_build_cost.py",),
    ),
    Fault(
        "worker",
        "warm-up ends at the first samples that agree, though something was compiled just before",
        "bakeoff/worker/clocks/timing.py",
        "len(samples) - quiet_since >= enough:",
        "len(samples) >= enough:",
        (f"{_TIMING}::test_warm_up_lasts_until_no_counter_moves",),
    ),
    Fault(
        "worker",
        "the check with fresh inputs writes values that the engine was called with before",
        "bakeoff/worker/checks/fresh_inputs.py",
        "altered(values, 1 - step, held), config, outputs)",
        "values, config, outputs)",
        ("tests/bakeoff/worker/test_fresh_inputs.py",),
    ),
    Fault(
        "worker",
        "each build counts as warm, since it is asked for its cache when it has ended",
        "bakeoff/worker/build.py",
        'spent, cache if opened is None else "stored", resident, proof)',
        'spent, "warm" if is_warm(context.cache_dir) else "cold", resident, proof)',
        ("tests/bakeoff/worker/test_build_cost.py::test_a_build_is_warm_where_one_has_succeeded_before_it",),
    ),
    Fault(
        "worker",
        "an engine is opened that was built with other weights",
        "bakeoff/worker/build.py",
        "digest([job.engine, loaded.weights, input_layouts(example)])",
        "digest([job.engine, input_layouts(example)])",
        ("tests/backends/test_kept_engines.py::test_an_engine_is_built_where_anything_differs",),
    ),
    Fault(
        "worker",
        "CPU time of the compilers that a build starts does not count as its own",
        "bakeoff/worker/build.py",
        "return time.process_time() + helper_cpu_s()",
        "return time.process_time()",
        ("tests/bakeoff/worker/test_build_cost.py::test_cpu_seconds_are_those_of_all_processes_without_the_pauses",),
    ),
    Fault(
        "worker",
        "weights of a quantised row are stated as they were before its quantisation",
        "bakeoff/worker/build.py",
        'prepared, after_bytes[""], fallback,',
        'prepared, before_bytes[""], fallback,',
        (f"{_MEASURE}::test_weights_are_those_of_the_module_as_it_was_prepared",),
    ),
    Fault(
        "worker",
        "a quantised weight takes the bytes of the dtype that it shows",
        "bakeoff/worker/checks/memory.py",
        'parts = getattr(tensor, "__tensor_flatten__", None)',
        "parts = None",
        ("tests/bakeoff/worker/test_quantisation.py",),
    ),
    Fault(
        "worker",
        "the peak of a call's memory is that of the process since it began",
        "bakeoff/worker/checks/memory.py",
        "    reset_peaks()\n",
        "",
        ("tests/bakeoff/worker/test_memory.py::test_memory_is_metered_as_timed_and_stays_so",),
    ),
    Fault(
        "worker",
        "memory of the processes that a backend started is left out of the peak",
        "bakeoff/worker/checks/memory.py",
        "host_peak_bytes=peak + helpers",
        "host_peak_bytes=peak",
        ("tests/bakeoff/worker/test_memory.py::test_memory_of_started_processes_counts",),
    ),
    Fault(
        "worker",
        "a row is timed before it is its turn, while others build",
        "bakeoff/worker/measure.py",
        "    checked = build_and_check(job, loaded, report, turn)\n"
        "    chosen = {**before, **checked.built.prepared.settings}\n"
        "    with watching(job.subject.device) as watch:\n        timed = _time(job, checked, watch, report)\n",
        "    checked = build_and_check(job, loaded, report)\n"
        "    chosen = {**before, **checked.built.prepared.settings}\n"
        "    with watching(job.subject.device) as watch:\n        timed = _time(job, checked, watch, report)\n"
        "    turn()\n",
        (f"{_MEASURE}::test_nothing_is_checked_or_timed_before_its_turn",),
    ),
    Fault(
        "worker",
        "a row that ran out of memory before all was checked is ok",
        "bakeoff/worker/measure.py",
        '    if status == "ok":\n        status, reason = stage.status, stage.reason\n',
        "",
        (f"{_MEASURE}::test_what_was_timed_and_not_all_checked_is_kept_and_not_ok",),
    ),
    Fault(
        "worker",
        "global settings that a build leaves changed are compared with those after it",
        "bakeoff/worker/measure.py",
        "chosen = {**before, **checked.built.prepared.settings}",
        "chosen = {**settings(), **checked.built.prepared.settings}",
        (f"{_MEASURE}::test_settings_that_a_build_leaves_changed_unrank_the_row",),
    ),
    Fault(
        "worker",
        "a fallback that an engine states after its first call alone counts",
        "bakeoff/worker/checked_variant.py",
        "built.fallback or checked.proof.fell_back or final.fell_back",
        "built.fallback or checked.proof.fell_back",
        (f"{_MEASURE}::test_a_fallback_that_the_engine_states_after_its_last_call_counts",),
    ),
    Fault(
        "worker",
        "graphs that inductor compiled for a call of another compiler count as that one's",
        "bakeoff/worker/checked_variant.py",
        "if not fallback and ran.inductor_calls and not built.uses_inductor:",
        "if not fallback and ran.inductor_calls and built.uses_inductor:",
        (f"{_MEASURE}::test_graphs_that_inductor_compiled_for_a_call_of_another_compiler_are_a_fallback",),
    ),
    Fault(
        "worker",
        "a quantised row that is as exact as eager counts as quantised",
        "bakeoff/worker/measure.py",
        "    proof = with_precision(job, proof, parity, checked)\n    problem =",
        "    problem =",
        (f"{_MEASURE}::test_a_quantised_row_that_is_as_exact_as_eager_is_a_fallback",),
    ),
    Fault(
        "worker",
        "a compiler is accused of running a graph operator by operator where it fused most of it",
        "bakeoff/worker/checks/dispatch.py",
        "or any(2 * _work(own, weights_us)",
        "or all(2 * _work(own, weights_us)",
        ("tests/bakeoff/worker/test_dispatch.py::test_the_rule",),
    ),
    Fault(
        "worker",
        "a row that fell back is called wrong where its outputs are wrong too",
        "bakeoff/worker/status.py",
        "    if fallback:\n        return",
        "    if fallback and parity.passed:\n        return",
        ("tests/bakeoff/worker/test_status.py",),
    ),
    Fault(
        "worker",
        "weights that another seed or checkpoint left in memory are taken for those asked for",
        "bakeoff/worker/kept_weights.py",
        "if header.subject != subject or header.entries",
        "if header.entries",
        ("tests/bakeoff/worker/test_kept_weights.py",),
    ),
    Fault(
        "worker",
        "weights that are left in memory for the next rows can be changed by a row's code",
        "bakeoff/worker/kept_weights.py",
        "fcntl.F_SEAL_WRITE | ",
        "",
        ("tests/bakeoff/worker/test_kept_weights.py",),
    ),
    Fault(
        "worker",
        "an engine that cannot be traced as it was timed is not traced",
        "bakeoff/worker/measure.py",
        "if job.policy.trace and made.traced is None and made.measurement.status in MEASURED:",
        "if job.policy.trace and made.traced is not None and made.measurement.status in MEASURED:",
        ("tests/bakeoff/worker/test_measure.py",),
    ),
    Fault(
        "worker",
        "a row that was loaded beside others keeps one thread for its calls",
        "bakeoff/worker/torch_flags.py",
        "        choose(threads)\n",
        "        pass\n",
        ("tests/bakeoff/worker/test_torch_flags.py::test_one_thread_lasts_only_as_long_as_its_context",),
    ),
    Fault(
        "worker",
        "outputs are compared while other rows are built",
        "bakeoff/worker/checked_variant.py",
        """    turn()
    report("check")
    checked = CheckedVariant(loaded, sets, built, proof, reference, watch, [])
    for index, call in enumerate(built.calls):
        checked.differences.extend(_compare_two_calls(checked, index, call, device))
""",
        """    report("check")
    checked = CheckedVariant(loaded, sets, built, proof, reference, watch, [])
    for index, call in enumerate(built.calls):
        checked.differences.extend(_compare_two_calls(checked, index, call, device))
    turn()
""",
        ("tests/bakeoff/worker/test_measure.py::test_nothing_is_checked_or_timed_before_its_turn",),
    ),
    Fault(
        "worker",
        "an fp32 row multiplies in TF32",
        "bakeoff/worker/torch_flags.py",
        '"float32_matmul_precision": "high" if dtype == "tf32" else "highest"',
        '"float32_matmul_precision": "high"',
        ("tests/bakeoff/worker/test_torch_flags.py",),
    ),
    Fault(
        "worker",
        "a GPU that was throttled in the middle of a window counts as steady",
        "bakeoff/worker/device.py",
        "reasons |= reading",
        "reasons = reading",
        ("tests/bakeoff/worker/test_gpu_watch.py",),
    ),
    Fault(
        "worker",
        "weights that partly stay in a GPU's cache are timed warm",
        "bakeoff/worker/device.py",
        "> _MANY * cache_bytes:",
        "> cache_bytes:",
        ("tests/bakeoff/worker/test_device.py",),
    ),
    Fault(
        "worker",
        "the bandwidth that a large call is held against is that of a working set in the cache",
        "bakeoff/machine/floors.py",
        "return max(entry.best for entry in moves if entry.size >= size)",
        "return max(entry.best for entry in moves)",
        ("tests/bakeoff/machine/test_floors.py",),
    ),
)
