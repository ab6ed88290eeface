"""Golden files: reference tensors replayed through a component in a worker, with the errors of every output."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from bakeoff.machine import host
from bakeoff.models.errors import BakeoffError
from bakeoff.process.environment import worker_environment
from bakeoff.process.jobs import GoldenJob, GoldenResult
from bakeoff.process.supervisor import Deadlines, Launch, run_job

_DEADLINE_S = 600.0


def run(files: Sequence[Path]) -> GoldenResult:
    """Replay the files. What is wrong with one file is its `problem`, and the other files are still replayed.

    Raises BakeoffError where the worker ends without a result.
    """
    threads = host.usable_cores()
    job = GoldenJob(tuple(str(file.absolute()) for file in files), threads)
    with tempfile.TemporaryDirectory(prefix="bakeoff-golden-") as folder:
        log = Path(folder) / "worker.log"
        launch = Launch(worker_environment(threads), Deadlines(_DEADLINE_S), log)
        outcome = run_job(job, GoldenResult, launch)
    if outcome.kind == "refused":
        raise BakeoffError(outcome.reason, outcome.code)
    if outcome.kind != "result":
        text = f"the worker that replays golden files ended with {outcome.kind}: {outcome.reason}"
        raise BakeoffError(text, "worker-failed")
    result: GoldenResult = outcome.value
    return result
