"""Inspects a user's callable in a worker process of its own."""

import re
from pathlib import Path

from bakeoff.machine import host, paths
from bakeoff.machine.locks import device_lock
from bakeoff.models.errors import BakeoffError
from bakeoff.process.environment import user_code_path, worker_environment
from bakeoff.process.inspected import Inspection
from bakeoff.process.jobs import InspectJob
from bakeoff.process.supervisor import Deadlines, Launch, run_job
from bakeoff.sweeps.progress import Progress

_BINDERS = {"exec", "globals", "import *", "setattr", "vars", "__getattr__"}
"""What lets a file define names that do not stand in it."""


def split_reference(text: str) -> tuple[Path, str]:
    """Split `FILE.py:NAME` into the absolute path of the file and the name.

    Raises BakeoffError if the text has another form, or if the file is missing or cannot define the name.
    """
    file, _, name = text.rpartition(":")
    if not file or not name:
        raise BakeoffError(f"{text}: no function is named; give FILE.py:NAME, or an artifact's folder", "bad-option")
    if not Path(file).is_file():
        raise BakeoffError(f"there is no file {file}; give another path, as in FILE.py:NAME", "bad-user-code")
    source = Path(file).read_text(encoding="utf-8", errors="replace")
    words = re.findall(r"import \*|\w+", source)
    if not {name, *_BINDERS}.intersection(words):  # said before anything waits for the device
        functions = re.findall(r"^(?:async )?def (\w+)", source, re.MULTILINE)
        known = f"functions there: {', '.join(functions) or 'none'}"
        raise BakeoffError(f"{Path(file).name} has no '{name}'; {known}", "unknown-name")
    return Path(file).absolute(), name


def inspect_file(
    file: Path,
    name: str,
    passes: int,
    threads: int,
    progress: Progress,
    record: tuple[str, ...] = (),
    *,
    seconds: float = 3600.0,
) -> Inspection:
    """Inspect the function `name` of a file for at most `seconds`, and record calls of the modules named in `record`.

    Raises BakeoffError if the function cannot be inspected; the worker's log has the traceback of user code.
    """
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    log = cache / "logs" / "inspect" / f"{file.stem}-{name}.log"
    device = host.default_device()
    recorded = paths.recorded_folder(file, name)
    job = InspectJob(str(file), name, passes, str(Path.cwd()), record, str(recorded))
    environment = worker_environment(threads, user_code_path())
    with device_lock(device, progress.say, cache):
        running = progress.start(0, 0, f"{file.name}:{name}")
        outcome = run_job(job, Inspection, Launch(environment, Deadlines(seconds, total=seconds), log, running.event))
        running.finish("ok" if outcome.kind == "result" else outcome.kind, f"{outcome.wall_s:.0f} s")
    if outcome.kind == "refused" and " raised " in outcome.reason:
        raise BakeoffError(f"{outcome.reason}; the traceback is in {log}", outcome.code)
    return outcome.result_of(f"{file.name}:{name}", log)
