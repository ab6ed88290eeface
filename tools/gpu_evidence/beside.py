"""Makes references, or builds, of several components beside each other; nothing is timed here.

    python -m gpu_evidence.beside references|builds JSON

It holds the device's lock; the processes that it starts for references have lock files of their own.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from bakeoff.machine import host, locks, paths
from bakeoff.machine.build_cache import open_folder
from bakeoff.models.errors import BakeoffError
from bakeoff.record.schema import Record
from bakeoff.sweeps.context import make_context
from bakeoff.sweeps.describe import works_of
from bakeoff.sweeps.progress import Running, Unheard
from bakeoff.sweeps.row import launch_of, make_reference, measure_job, refused_subjects
from bakeoff.sweeps.turns import in_turns
from gpu_evidence.order import Line, order_of
from gpu_evidence.processes import interrupt_on_signals
from gpu_evidence.seconds import Planned, build_groups, make_planned, reference_groups

_COMPILE_THREADS = "4"
"""Of each of many builds; inductor's cache does not depend on it (torch/_inductor/config.py, compile_threads)."""


class Silent:
    """A Progress that prints what is said, and no rows."""

    def start(self, _position: int, _total: int, _what: str) -> Running:
        return Unheard()

    def say(self, text: str) -> None:
        print(text, flush=True)

    def result(self, _record: Record) -> None:
        pass

    def ranked(self, _to_come: str) -> None:
        pass

    def expect(self, _seconds: float | None, _limit_s: float = inf, /) -> None:
        pass


def make_references(planned: Mapping[str, Planned], components: Sequence[str]) -> None:
    """Count the work and make the references of these components, each in a process of its own."""
    for group in reference_groups(planned, components):
        with contextlib.ExitStack() as stack:
            started = []
            for name in group:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bakeoff-locks-"))
                asked = json.dumps(json.loads(sys.argv[2]) | {"components": [name]})
                command = [sys.executable, "-P", "-m", "gpu_evidence.beside", "reference", asked]
                started.append(subprocess.Popen(command, env={**os.environ, locks.VARIABLE: folder}))
            try:
                for process in started:
                    process.wait()
            finally:
                for process in started:
                    process.kill()  # its guard ends the worker
                    process.wait()


def make_reference_here(planned: Planned) -> None:
    """Count the work and make the references of one component in this process."""
    works_of(planned.plan, paths.cache_folder(), Silent())
    started = time.monotonic()
    refused = refused_subjects(planned.plan, paths.runs_folder(), Silent())
    print(f"references of {planned.name}: {time.monotonic() - started:.0f} s", *refused, flush=True)


def build(planned: Mapping[str, Planned], lines: Sequence[Line]) -> None:
    """Build these rows up to their turn, which they do not get: the caches then hold what their next build needs."""
    runs, cache = paths.runs_folder(), paths.cache_folder()
    for group in build_groups(planned, lines):
        jobs = []
        with contextlib.ExitStack() as stack:
            for line in group:
                plan, row = planned[line.component].plan, planned[line.component].rows[line]
                context = make_context(plan, "beside", "", runs, cache, host.Load(0.0, 0.0), Silent())
                launch = launch_of(context, row, Unheard(), len(group) - 1)
                _, references = make_reference(context, row, launch)
                stack.enter_context(context.entry_lock(row.cache_folder))
                open_folder(row.cache_folder)
                job = replace(measure_job(row, plan.request.policy, references), overlapped=len(group) > 1)
                environment = {**launch.environment, "TORCHINDUCTOR_COMPILE_THREADS": _COMPILE_THREADS}
                jobs.append((job, replace(launch, environment=environment)))
            with in_turns(jobs):
                print(f"built: {', '.join(' '.join(line[:3]) for line in group)}", flush=True)


def main() -> int:
    interrupt_on_signals()
    what, asked = sys.argv[1], json.loads(sys.argv[2])
    order = order_of(asked["device"], asked["subjects"], host.half_dtype(asked["device"]))
    planned = make_planned(order, asked["subjects"], asked["device"])
    try:
        if what == "reference":
            make_reference_here(planned[asked["components"][0]])
            return 0
        with locks.device_lock(asked["device"], print, paths.ensure_writable(paths.cache_folder(), "caches")):
            if what == "references":
                make_references(planned, asked["components"])
            else:
                build(planned, [Line(*line) for line in asked["builds"]])
    except BakeoffError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
