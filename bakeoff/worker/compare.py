"""The worker's side of a comparison: a variant that is built and checked, and runs a block of calls when it is told to.

Between two blocks it waits in read(2), its threads parked: a block is over when they have stopped spinning. The
processor time that it takes while it should be idle is reported with each block.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace

from bakeoff.process.jobs import CompareJob
from bakeoff.record.schema import Finding, Measurement
from bakeoff.worker.build import call_stage
from bakeoff.worker.checks.dispatch import dispatched
from bakeoff.worker.clocks.timing import Course, measure_overhead, timed, warm_up
from bakeoff.worker.device import cache_flush, context_bytes, device_state
from bakeoff.worker.measure import Stand, activity, attempt, closing_proof, proof_record, stand_up
from bakeoff.worker.subject import Bench, Report
from bakeoff.worker.torch_flags import settings

LONGEST_BLOCK = 200
"""Calls; a block is sent as one line."""
_GLANCE_S = 0.011
"""Longer than a tick of the kernel's clock: what a thread took since the last tick is in no account yet."""
_LONGEST_SPIN_S = 0.1
"""With OMP_WAIT_POLICY=active they never sleep."""


def serve_blocks(job: CompareJob, commands: int, report: Report) -> Measurement:
    """Build, check, warm up, say `ready` with the milliseconds a call takes, then obey until told to stop."""
    return attempt(job.measure, report, lambda bench: _serve(job, bench, commands, report))


def _serve(job: CompareJob, bench: Bench, commands: int, report: Report) -> Measurement:
    device = job.measure.subject.device
    shift = bytearray(job.shift)
    context_bytes(device)
    stand = stand_up(job.measure, bench, report)
    parity = stand.judged.parity(stand.checked)
    course = Course(
        device=device,
        policy=job.measure.policy,
        look=stand.watch.look,
        flush=cache_flush(device, stand.built.weights_bytes),
        inputs=stand.inputs,
        report=report,
    )
    made = Measurement(
        status="ok",
        build=stand.built.cost,
        proof=proof_record(stand, stand.built.unproved or stand.proof.fell_back, ()),
        parity=parity,
        settings=settings(),
        weights=bench.weights,
    )
    if stand.proof.fell_back:
        return replace(made, status="fell_back", reason=f"what ran is {stand.proof.fell_back}")
    if not parity.passed:
        problem = next(output.problem for output in parity.outputs if not output.passed)
        return replace(made, status="parity_failed", reason=problem)
    counters = activity(stand.built.engine)
    report("warm-up", "")
    warmup_ns, _ = call_stage(lambda: warm_up(stand.built.calls, counters, course))
    overhead = measure_overhead(call_stage(stand.built.calls[0]), course)
    before = dict(counters())
    report("ready", json.dumps(sorted(warmup_ns)[len(warmup_ns) // 2]))
    _obey(stand, course, commands, report)
    moved = sorted(name for name, count in counters().items() if count != before.get(name, 0))
    del shift
    state = device_state(device)
    ran = call_stage(lambda: dispatched(stand.built.calls[0]))
    proof = closing_proof(stand, ran)
    made = replace(made, overhead=overhead, device_state=dict(state.facts), proof=proof)
    if proof.fell_back:
        return replace(made, status="fell_back", reason=f"what ran is {proof.fell_back}")
    if stand.watch.problem:
        return replace(made, status="parity_failed", reason=stand.watch.problem)
    alarms = []
    if moved:
        alarms.append(Finding("recompiles", f"compiled between the blocks ({', '.join(moved)})"))
    alarms += state.alarms()
    return replace(made, status="unstable", reason=alarms[0].text, findings=tuple(alarms)) if alarms else made


def _obey(stand: Stand, course: Course, commands: int, report: Report) -> None:
    """For each number that is read, so many calls, after one that brings the caches back; until `stop` or the end."""
    calls, count = stand.built.calls, 0
    rested = time.process_time()
    for line in _lines(commands):
        if line == b"stop":
            return
        idle_s = time.process_time() - rested
        samples = []
        for number in range(int(line) + 1):
            index = count % len(calls)
            count += 1
            elapsed_ns, outputs = call_stage(lambda index=index: timed(calls[index], course))  # type: ignore[misc]
            course.look(index, outputs)
            del outputs
            if number:
                samples.append(elapsed_ns)
        _park()
        rested = time.process_time()
        report("block", json.dumps({"ns": samples, "idle_s": idle_s}))


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
