"""The worker's side of a comparison: a variant that is built and checked, and runs a block of calls when it is told to.

Between two blocks it waits in read(2), its threads parked: a block is over when they have stopped spinning. The
processor time that it takes while it should be idle is reported with each block.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import replace

from bakeoff.process.jobs import CompareJob
from bakeoff.process.phases import Block
from bakeoff.record.schema import Finding, Measurement
from bakeoff.worker.build import call_stage
from bakeoff.worker.checks.dispatch import dispatched
from bakeoff.worker.clocks.timing import TimingConfig, measure_overhead, timed, warm_up
from bakeoff.worker.device import cache_flush, context_bytes, device_state
from bakeoff.worker.measure import CheckedVariant, activity, attempt, build_and_check, closing_proof, proof_record
from bakeoff.worker.reporter import Reporter
from bakeoff.worker.subject import LoadedSubject
from bakeoff.worker.torch_flags import settings

_GLANCE_S = 0.011
"""Longer than a tick of the kernel's clock: what a thread took since the last tick is in no account yet."""
_LONGEST_SPIN_S = 0.1
"""With OMP_WAIT_POLICY=active they never sleep."""


def serve_blocks(job: CompareJob, commands: int, report: Reporter) -> Measurement:
    """Build, check, warm up, say `ready` with the milliseconds a call takes, then obey until told to stop."""
    return attempt(job.measure, report, lambda loaded: _serve(job, loaded, commands, report))


def _serve(job: CompareJob, loaded: LoadedSubject, commands: int, report: Reporter) -> Measurement:
    device = job.measure.subject.device
    shift = bytearray(job.shift)
    context_bytes(device)
    checked = build_and_check(job.measure, loaded, report)
    parity = checked.reference.parity(checked.differences)
    config = TimingConfig(
        device=device,
        policy=job.measure.policy,
        check_outputs=checked.watch.check,
        flush=cache_flush(device, checked.built.weights_bytes),
        inputs=checked.inputs,
        report=report,
    )
    made = Measurement(
        status="ok",
        build=checked.built.cost,
        proof=proof_record(checked, checked.built.unproved or checked.proof.fell_back, ()),
        parity=parity,
        settings=settings(),
        weights=loaded.weights,
    )
    if checked.proof.fell_back:
        return replace(made, status="fell_back", reason=f"what ran is {checked.proof.fell_back}")
    if not parity.passed:
        problem = next(output.problem for output in parity.outputs if not output.passed)
        return replace(made, status="parity_failed", reason=problem)
    counters = activity(checked.built.engine)
    report("warm-up")
    warmup_ns, _ = call_stage(lambda: warm_up(checked.built.calls, counters, config))
    overhead = measure_overhead(call_stage(checked.built.calls[0]), config)
    before = dict(counters())
    report.ready(sorted(warmup_ns)[len(warmup_ns) // 2])
    _obey(checked, config, commands, report)
    moved = sorted(name for name, count in counters().items() if count != before.get(name, 0))
    del shift
    state = device_state(device)
    ran = call_stage(lambda: dispatched(checked.built.calls[0]))
    proof = closing_proof(checked, ran)
    made = replace(made, overhead=overhead, device_state=dict(state.facts), proof=proof)
    if proof.fell_back:
        return replace(made, status="fell_back", reason=f"what ran is {proof.fell_back}")
    if checked.watch.problem:
        return replace(made, status="parity_failed", reason=checked.watch.problem)
    alarms = []
    if moved:
        alarms.append(Finding("recompiles", f"compiled between the blocks ({', '.join(moved)})"))
    alarms += state.alarms()
    return replace(made, status="unstable", reason=alarms[0].text, findings=tuple(alarms)) if alarms else made


def _obey(checked: CheckedVariant, config: TimingConfig, commands: int, report: Reporter) -> None:
    """For each number that is read, so many calls, after one that brings the caches back; until `stop` or the end."""
    calls, count = checked.built.calls, 0
    rested = time.process_time()
    for line in _lines(commands):
        if line == b"stop":
            return
        idle_cpu_s = time.process_time() - rested
        samples = []
        for number in range(int(line) + 1):
            index = count % len(calls)
            count += 1
            elapsed_ns, outputs = call_stage(lambda index=index: timed(calls[index], config))  # type: ignore[misc]
            config.check_outputs(index, outputs)
            del outputs
            if number:
                samples.append(elapsed_ns)
        _park()
        rested = time.process_time()
        report.block(Block(tuple(samples), idle_cpu_s))


def _park() -> None:
    """Sleep until no thread of this process works: OpenMP's and the compilers' spin a while before they sleep."""
    until = time.monotonic() + _LONGEST_SPIN_S
    while time.monotonic() < until:
        before = time.process_time()
        time.sleep(_GLANCE_S)
        if time.process_time() - before < _GLANCE_S / 10:
            return


def _lines(descriptor: int) -> Iterator[bytes]:
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while line := stream.readline():
            yield line.strip()
