"""One side of a comparison: builds and checks a variant, then times blocks of calls on command.

Between two blocks it waits in read(2). It reports a block only after all threads of the process have stopped spinning,
with the CPU time that the process used before the block, while it should have been idle.
"""

import time
from dataclasses import replace
from statistics import median_high

from bakeoff.process.jobs import CompareJob
from bakeoff.process.phases import Block
from bakeoff.record.finding import new_finding
from bakeoff.record.schema import Measurement
from bakeoff.worker.checked_variant import (
    CheckedVariant,
    build_and_check,
    final_proof,
    first_proof,
    with_failures,
    with_precision,
)
from bakeoff.worker.checks.dispatch import dispatched
from bakeoff.worker.clocks.clock import TimingConfig, measure_overhead, time_block, time_call
from bakeoff.worker.clocks.timing import moved_counters, warm_up
from bakeoff.worker.device import GpuWatch, cache_flush, context_bytes, watching
from bakeoff.worker.failures import call_stage
from bakeoff.worker.measure import activity
from bakeoff.worker.reporter import Reporter, read_lines, turn_of, wait_for_idle_threads
from bakeoff.worker.status import decide_status
from bakeoff.worker.subject import LoadedSubject
from bakeoff.worker.torch_flags import settings

_WARM_UP_S = 0.2
"""Shortest warm-up. In half of 233 stored rows the last calls of a warm-up of one second differ from the row's median
by -1.9 to +1.6 %; after a warm-up of at least 0.2 s that ends once times are steady, by -1.9 to +1.8 %."""
OF_ALL_SIDES = ("energy_j", "gpu_watched_s")
"""Facts of the GPU that include the other sides' calls, which run in between."""


def serve_blocks(job: CompareJob, report: Reporter, commands: int) -> Measurement:
    """Build, wait for the turn, check, warm up, report `ready` with the time of a call, then time blocks on command.

    `commands` is the descriptor that the parent writes to: a line for the turn, then a number of calls a line, and
    `stop` at the end. The returned measurement has no clocks: the samples were sent with the blocks.
    """
    return with_failures(job.measure, report, lambda loaded: _serve(job, loaded, commands, report))


def _serve(job: CompareJob, loaded: LoadedSubject, commands: int, report: Reporter) -> Measurement:
    device = job.measure.subject.device
    heap_offset = bytearray(job.heap_offset_bytes)  # first, so that memory layout varies between processes
    context_bytes(device)
    checked = build_and_check(job.measure, loaded, report, turn_of(commands, report))
    parity = checked.reference.parity(checked.differences)
    proof = with_precision(job.measure, first_proof(checked), parity, checked)
    made = Measurement(
        status="ok",
        build=checked.built.cost,
        proof=proof,
        parity=parity,
        settings=settings(),
        weights=loaded.weights,
    )
    status, reason = decide_status(proof.fell_back, parity, None, ())
    if status != "ok":
        return replace(made, status=status, reason=reason)
    config = TimingConfig(
        device=device,
        policy=replace(job.measure.policy, warmup_s=min(_WARM_UP_S, job.measure.policy.warmup_s)),
        check_outputs=checked.watch.check,
        flush=cache_flush(device, checked.loaded),
        inputs=checked.inputs,
        report=report,
    )
    counters = activity(checked.built.engine)
    report("warm-up")
    warmup_ns, _ = call_stage(lambda: warm_up(checked.built.calls, counters, config))
    overhead = measure_overhead(call_stage(checked.built.calls[0]), config)
    before = dict(counters())
    wait_for_idle_threads()
    report.ready(median_high(warmup_ns))
    with watching(device) as watch:
        watch.begin()
        _run_blocks(job.queued, checked, config, watch, commands, report)
        gpu = watch.end()
    moved = sorted(moved_counters(before, counters()))
    del heap_offset
    ran = call_stage(lambda: dispatched(checked.built.calls[0]))
    proof = with_precision(job.measure, final_proof(checked, ran), parity, checked)
    call_stage(checked.built.engine.close)
    alarms = [new_finding("recompiles", f"compiled between the blocks ({', '.join(moved)})")] if moved else []
    alarms += gpu.alarms()
    status, reason = decide_status(proof.fell_back, parity, checked.watch.problem, alarms)
    return replace(
        made,
        status=status,
        reason=reason,
        findings=tuple(alarms) if status == "unstable" else (),
        overhead=overhead,
        device_state={name: value for name, value in gpu.facts.items() if name not in OF_ALL_SIDES},
        proof=proof,
    )


def _run_blocks(
    queued: bool, checked: CheckedVariant, config: TimingConfig, watch: GpuWatch, commands: int, report: Reporter
) -> None:
    """Read numbers of calls from `commands`, and time a block of that many calls for each, until `stop` or EOF.

    An untimed call before each block refills the caches. Each timed call is a sample; if `queued`, the calls of a block
    run without waits between them and are one sample.
    """
    calls, count = checked.built.calls, 0
    idle_since = time.process_time()
    for line in read_lines(commands):
        if line == b"stop":
            return
        idle_cpu_s = time.process_time() - idle_since
        samples, made = [], 1
        timed = 1 if queued else int(line) + 1
        for number in range(timed):
            index = count % len(calls)
            count += 1
            elapsed_ns, outputs = call_stage(lambda index=index: time_call(calls[index], config))  # type: ignore[misc]
            config.check_outputs(index, outputs)
            del outputs
            if number:
                samples.append(elapsed_ns)
        if queued:
            block = [calls[(count + place) % len(calls)] for place in range(int(line))]
            elapsed_ns, outputs, made = call_stage(lambda block=block: time_block(block, config))  # type: ignore[misc]
            count += made
            config.check_outputs((count - 1) % len(calls), outputs)
            del outputs
            samples.append(elapsed_ns)
        watch.read()
        wait_for_idle_threads()
        idle_since = time.process_time()
        report.block(Block(tuple(samples), idle_cpu_s, calls_per_sample=made))
