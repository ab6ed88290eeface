"""Entry of a worker: read job.json from the working folder, run the job, write result.json there.

`python -P -m bakeoff.worker EVENTS COMMANDS`: the descriptors for reporting phases and for reading commands. Exceptions
are caught here only: a BakeoffError becomes a refusal, a failed allocation an out-of-memory answer; any other one ends
the process, which the parent records as a crash.
"""

import gc
import json
import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, get_args

import msgspec

from bakeoff.machine import host
from bakeoff.models.errors import BakeoffError
from bakeoff.models.user_code import USER_CODE
from bakeoff.process import guard
from bakeoff.process.environment import find_user_code
from bakeoff.process.jobs import (
    Answer,
    CeilingsJob,
    ClockJob,
    CompareJob,
    CountJob,
    DescribeJob,
    DescribeLoopJob,
    HeadersJob,
    InspectJob,
    Job,
    LoopReferenceJob,
    MeasureJob,
    PipelineJob,
    ReferenceJob,
    SampleJob,
    TraceJob,
    VerifyJob,
    WriteJob,
)
from bakeoff.record.codec import encode_json
from bakeoff.worker.failures import first_line, is_out_of_memory
from bakeoff.worker.reporter import Reporter

_RESERVE_BYTES = 256 << 20


def _limit_memory(device: str, most: int = 0) -> None:
    """Limit memory to what is free, so that an allocation fails before the kernel kills a process; on a CPU only,
    because CUDA reserves more address space than such a limit allows."""
    if device == "cpu":
        free = host.available_bytes(device) - _RESERVE_BYTES
        limit = min(free, most or free)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _read_job() -> Job:
    raw: dict[str, Any] = json.loads(Path("job.json").read_bytes())
    kinds: dict[str, type] = {kind.__name__: kind for kind in get_args(Job)}
    job: Job = msgspec.convert(raw["job"], type=kinds[raw["kind"]])
    return job


def _do(job: Job, report: Reporter) -> Any:
    match job:
        case MeasureJob():
            from bakeoff.worker.measure import measure
            from bakeoff.worker.reporter import turn_of

            _limit_memory(job.subject.device)
            return measure(job, report, turn_of(int(sys.argv[2]), report))
        case TraceJob():
            from bakeoff.worker.reporter import turn_of
            from bakeoff.worker.trace import trace_build

            _limit_memory(job.measure.subject.device)
            return trace_build(job, report, turn_of(int(sys.argv[2]), report))
        case DescribeJob():
            from bakeoff.worker.brought.describe import describe_model

            _limit_memory(job.device)
            return describe_model(job, report)
        case DescribeLoopJob():
            from bakeoff.worker.pipeline.describe import describe_loop

            _limit_memory(job.device)
            return describe_loop(job, report)
        case CountJob():
            from bakeoff.worker.work import count_works

            _limit_memory("cpu")
            return count_works(job, report)
        case ReferenceJob():
            from bakeoff.worker.reference.make import make_reference

            _limit_memory(job.subject.device)
            return make_reference(job, report)
        case CompareJob():
            from bakeoff.worker.compare import serve_blocks

            _limit_memory(job.measure.subject.device)
            return serve_blocks(job, int(sys.argv[2]), report)
        case LoopReferenceJob():
            from bakeoff.worker.pipeline.reference import make_loop_reference

            _limit_memory(job.subject.device)
            return make_loop_reference(job, report)
        case PipelineJob():
            from bakeoff.worker.pipeline.serve import serve_units

            _limit_memory(job.subject.device)
            return serve_units(job, int(sys.argv[2]), report)
        case HeadersJob():
            from bakeoff.worker.headers import make_headers

            _limit_memory("cpu")
            return make_headers(job, report)
        case CeilingsJob():
            from bakeoff.worker.clocks.ceilings import measure_ceilings

            _limit_memory(job.device)
            return measure_ceilings(job, report)
        case ClockJob():
            from bakeoff.worker.clocks.clock_check import check_clock

            return check_clock(job, report)
        case SampleJob():
            from bakeoff.worker.export.write import make_sample

            _limit_memory(job.subjects[0].device)
            return make_sample(job, report)
        case WriteJob():
            from bakeoff.worker.export.write import write_program

            _limit_memory(job.measure.subject.device)
            return write_program(job, report)
        case VerifyJob():
            from bakeoff.worker.export.verify import verify_artifact

            _limit_memory(job.device, job.memory_bytes)
            return verify_artifact(job, report)
        case InspectJob():
            from bakeoff.worker.inspection.inspect import inspect_callable

            _limit_memory(host.default_device())
            return inspect_callable(job, report)


def main() -> None:
    guard.prctl(guard.PR_SET_PDEATHSIG, signal.SIGKILL)
    guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)  # so that all that it started are found below it
    folder = Path.cwd()
    report = Reporter(int(sys.argv[1]))
    job = _read_job()
    find_user_code(os.environ.get(USER_CODE, ""))
    report("import")
    try:
        answer = Answer(value=_do(job, report))
    except BakeoffError as error:
        answer = Answer(refused=str(error), refused_code=error.code)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        traceback.print_exc()
        answer = Answer(out_of_memory=first_line(error))
    temporary = folder / "result.json.part"
    result = encode_json(answer)
    temporary.write_bytes(result)
    temporary.rename(folder / "result.json")
    gc.freeze()  # or a last collection over all of torch's objects would take a third of a second
    report.seal(result)  # the last act: from here on only code of others runs, in exit handlers and destructors


if __name__ == "__main__":
    main()
