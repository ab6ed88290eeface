"""Entry point of a worker process: reads job.json from the working folder, runs the job, writes result.json there.

Usage: `python -P -m bakeoff.worker EVENTS COMMANDS`. The arguments are file descriptors: one to report phases to the
parent, one to read the parent's commands. A BakeoffError becomes a refusal, and a failed allocation an out-of-memory
answer. Any other exception ends the process, which the parent records as a crash.
"""

import gc
import json
import os
import resource
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from bakeoff.machine import host
from bakeoff.models.errors import BakeoffError
from bakeoff.models.lookup import USER_CODE
from bakeoff.process import guard, jobs
from bakeoff.process.environment import find_user_code
from bakeoff.process.jobs import (
    Answer,
    CompareJob,
    CountJob,
    InspectJob,
    Job,
    LoopReferenceJob,
    MeasureJob,
    PipelineJob,
    ReferenceJob,
    SampleJob,
    TraceJob,
    WarmUpJob,
    WriteJob,
)
from bakeoff.record.codec import encode_json
from bakeoff.worker.failures import first_line, is_out_of_memory
from bakeoff.worker.reporter import Reporter, turn_of

_RESERVE_BYTES = 256 << 20


def _limit_memory(device: str) -> None:
    """On a CPU, limit this process's memory to what is free less a reserve.

    Allocations then fail before the kernel kills a process. On CUDA no limit is set, because CUDA reserves more address
    space than such a limit would allow.
    """
    if device == "cpu":
        limit = host.available_bytes(device) - _RESERVE_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _read_job() -> Job:
    raw: dict[str, Any] = json.loads(Path("job.json").read_bytes())
    return msgspec.convert(raw["job"], type=getattr(jobs, raw["kind"]))


def _device_of(job: Job) -> str:
    match job:
        case CountJob():
            return "cpu"
        case InspectJob():
            return host.default_device()
        case SampleJob():
            return job.subjects[0].device
        case TraceJob() | CompareJob() | WriteJob():
            return job.measure.subject.device
        case ReferenceJob() | MeasureJob() | LoopReferenceJob() | PipelineJob() | WarmUpJob():
            return job.subject.device
    return job.device


def _do(job: Job, report: Reporter, commands: int) -> Any:
    """Import the function that does this kind of job (and with it torch), limit memory, and return its result."""
    module, _, name = job.DONE_BY.rpartition(".")
    function = getattr(import_module(f"bakeoff.worker.{module}"), name)
    _limit_memory(_device_of(job))
    match job:
        case MeasureJob():
            return function(job, report, turn_of(commands, report))
        case CompareJob() | PipelineJob():
            return function(job, report, commands)
    return function(job, report)


def main() -> None:
    guard.prctl(guard.PR_SET_PDEATHSIG, signal.SIGKILL)
    guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)  # so that all that it started are found below it
    folder = Path.cwd()
    report = Reporter(int(sys.argv[1]))
    job = _read_job()
    find_user_code(os.environ.get(USER_CODE, ""))
    report("import")
    try:
        answer = Answer(value=_do(job, report, int(sys.argv[2])))
    except Exception as error:
        wrapped = isinstance(error, BakeoffError) and not isinstance(error.__cause__, MemoryError)
        if is_out_of_memory(error) and not wrapped:  # also of a user's module while it was imported
            traceback.print_exc()
            answer = Answer(out_of_memory=first_line(error))
        elif isinstance(error, BakeoffError):
            answer = Answer(refused=str(error), refused_code=error.code)
        else:
            raise
    temporary = folder / "result.json.part"
    result = encode_json(answer)
    temporary.write_bytes(result)
    temporary.rename(folder / "result.json")
    gc.freeze()  # or a last collection over all of torch's objects would take a third of a second
    report.seal(result)  # the last act: from here on only code of others runs, in exit handlers and destructors


if __name__ == "__main__":
    main()
