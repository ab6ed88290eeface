"""One side of a comparison: builds and checks a variant, then times blocks of calls on command.

Between two blocks it waits in read(2). It reports a block only after all threads of the process have stopped spinning,
with the CPU time that the process used before the block, while it should have been idle.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median_high

from bakeoff.backends.backend import Call, Outputs
from bakeoff.process.jobs import CompareJob
from bakeoff.process.phases import Block
from bakeoff.record.finding import new_finding
from bakeoff.record.schema import Measurement
from bakeoff.worker.checked_variant import (
    build_and_check,
    final_proof,
    first_proof,
    with_failures,
    with_precision,
)
from bakeoff.worker.checks.dispatch import dispatched
from bakeoff.worker.checks.outputs import copied
from bakeoff.worker.checks.window import WindowChecker
from bakeoff.worker.clocks.clock import TimingConfig, measure_overhead, time_block, time_call
from bakeoff.worker.clocks.timing import moved_counters, warm_up
from bakeoff.worker.device import GpuWatch, context_bytes, watching
from bakeoff.worker.failures import call_stage
from bakeoff.worker.measure import activity, leaked_bytes, timed_calls
from bakeoff.worker.reporter import Reporter, read_lines, turn_of, wait_for_idle_threads
from bakeoff.worker.status import decide_status, leak_alarms, stored_alarms
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
    policy = replace(job.measure.policy, warmup_s=min(_WARM_UP_S, job.measure.policy.warmup_s))
    _, calls, config, checker = timed_calls(replace(job.measure, policy=policy), checked, report)
    counters = activity(checked.built.engine)
    report("warm-up")
    warmup_ns, _ = call_stage(lambda: warm_up(calls, counters, config))
    overhead = measure_overhead(call_stage(calls[0]), config)
    before = dict(counters())
    wait_for_idle_threads()
    call_ns = median_high(warmup_ns)
    checker.begin_blocks(call_ns)
    report.ready(call_ns)
    with watching(device) as watch:
        watch.begin()
        blocks = _run_blocks(job.queued, calls, config, checker, watch, commands, report)
        gpu = watch.end()
    moved = sorted(moved_counters(before, counters()))
    report("check")
    call_stage(lambda: checker.complete(calls, blocks.single_ns or warmup_ns, config))
    checker.release()
    leaked = leaked_bytes(calls, blocks.held_bytes, blocks.made, call_ns, device)
    del heap_offset
    ran = call_stage(lambda: dispatched(checked.built.calls[0]))
    parity = checked.reference.parity([*checked.differences, *checker.differences])
    proof = with_precision(job.measure, final_proof(checked, ran), parity, checked)
    call_stage(checked.built.engine.close)
    alarms = [new_finding("recompiles", f"compiled between the blocks ({', '.join(moved)})")] if moved else []
    alarms += [*leak_alarms(leaked), *stored_alarms(checker.problem), *gpu.alarms()]
    status, reason = decide_status(proof.fell_back, parity, checked.watch.problem, alarms)
    return replace(
        made,
        status=status,
        reason=reason,
        parity=parity,
        findings=tuple(alarms) if status == "unstable" else (),
        overhead=overhead,
        device_state={name: value for name, value in gpu.facts.items() if name not in OF_ALL_SIDES},
        proof=proof,
        window_checks=checker.record,
    )


@dataclass(slots=True)
class _Blocks:
    """What was observed in all blocks."""

    single_ns: list[int] = field(default_factory=list)
    """Times of calls one by one: the timed ones, or if these are queued, those before each block."""
    held_bytes: list[int] = field(default_factory=list)
    """Bytes that the process held after each block."""
    made: int = 0
    """Number of all calls."""


def _run_blocks(
    queued: bool,
    calls: Sequence[Call],
    config: TimingConfig,
    checker: WindowChecker,
    watch: GpuWatch,
    commands: int,
    report: Reporter,
) -> _Blocks:
    """Read numbers of calls from `commands`, and time a block of that many calls for each, until `stop` or EOF.

    An untimed call before each block, and after each check within it, refills the caches. Each timed call is a sample;
    if `queued`, the calls of a block run without waits between them and are one sample. The outputs of a timed call
    that is drawn, or of a queued block, are compared in full after the block.
    """
    seen = _Blocks()
    started, idle_since = time.monotonic(), time.process_time()

    def call_once(keep: bool = False) -> tuple[int, int, Outputs]:
        index = seen.made % len(calls)
        seen.made += 1
        elapsed_ns, outputs = call_stage(lambda: time_call(calls[index], config))
        config.check_outputs(index, outputs)
        return elapsed_ns, index, copied(outputs) if keep else ()

    def check_if_due(ahead: int = 1) -> None:
        if checker.due(ahead):
            seen.made += call_stage(lambda: checker.check(calls, seen.made, config))
            call_once()

    for line in read_lines(commands):
        if line == b"stop":
            break
        idle_cpu_s = time.process_time() - idle_since
        count, samples, made = int(line), list[int](), 1
        drawn = checker.draw(count) if checker.affords(time.monotonic() - started) else count
        refill_ns = call_once()[0]
        index = 0
        kept: Outputs = ()
        if queued:
            check_if_due(count)
            turn = seen.made + checker.draw(len(calls))  # so that the last call, whose outputs are seen, varies
            block = [calls[(turn + place) % len(calls)] for place in range(count)]
            elapsed_ns, outputs, made = call_stage(lambda block=block: time_block(block, config))  # type: ignore[misc]
            seen.made += made
            index = (turn + made - 1) % len(calls)
            config.check_outputs(index, outputs)
            kept = copied(outputs) if drawn < count else ()
            del outputs
            samples.append(elapsed_ns)
        for number in range(0 if queued else count):
            check_if_due()
            elapsed_ns, called, outputs = call_once(keep=number == drawn)
            samples.append(elapsed_ns)
            if number == drawn:
                index, kept = called, outputs
        seen.single_ns += [refill_ns] if queued else samples
        if kept:
            checker.compare_kept(index, kept)
        kept = ()
        seen.held_bytes.append(config.held_bytes())
        watch.read()
        wait_for_idle_threads()
        idle_since = time.process_time()
        report.block(Block(tuple(samples), idle_cpu_s, calls_per_sample=made))
    return seen
