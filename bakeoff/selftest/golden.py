"""Golden files: reference tensors replayed through a component in a worker, with the errors of every output."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from bakeoff.machine import host
from bakeoff.models.errors import BakeoffError
from bakeoff.process.environment import worker_environment
from bakeoff.process.jobs import GoldenFile, GoldenJob, GoldenResult
from bakeoff.process.supervisor import Deadlines, Launch, run_job

_DEADLINE_S = 600.0


def run(files: Sequence[Path]) -> GoldenResult:
    """Replay the files; what is wrong with one is its `problem` and spares the others.

    Raises BakeoffError when the worker itself does not come back.
    """
    threads = host.usable_cores()
    job = GoldenJob(tuple(str(file.absolute()) for file in files), threads)
    with tempfile.TemporaryDirectory(prefix="bakeoff-golden-") as folder:
        log = Path(folder) / "worker.log"
        launch = Launch(worker_environment(threads), Deadlines(_DEADLINE_S), log)
        outcome = run_job(job, GoldenResult, launch)
    if outcome.kind != "result":
        text = f"the worker that replays golden files ended with {outcome.kind}: {outcome.reason}"
        raise BakeoffError(text, "worker-failed")
    result: GoldenResult = outcome.value
    return result


def render(result: GoldenResult) -> str:
    rows = [
        [
            Path(file.file).name,
            file.component,
            output.name,
            f"{output.max_abs:.2e}",
            f"{output.max_relative:.2e}",
            f"{output.atol:g} + {output.rtol:g}|b|",
            "pass" if output.passed else "FAIL",
        ]
        for file in result.files
        for output in file.outputs
    ]
    headers = ("file", "component", "output", "max abs", "relative", "tolerance", "")
    lines = [tabulate(rows, headers=headers, disable_numparse=True), ""] if rows else []
    for file in result.files:
        hidden = f"; not shown by the module: {', '.join(file.not_shown)}" if file.not_shown else ""
        lines.append(verdict(file) + hidden)
    return "\n".join(lines)


def verdict(file: GoldenFile) -> str:
    """One sentence about one file."""
    name = Path(file.file).name
    if file.problem:
        return file.problem if file.problem.startswith(name) else f"{name}: {file.problem}"
    failed = sum(not output.passed for output in file.outputs)
    if failed:
        return f"{name}: {failed} of {len(file.outputs)} outputs FAIL"
    return f"{name}: {len(file.outputs)} outputs pass"
