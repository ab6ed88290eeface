"""For tests of sweeps: short clocks, a progress that stores its events, sweeps in their own folders, and /proc."""

import functools
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path

import forked_workers
import msgspec
import pytest
from shared_headers import share, share_headers
from torchless_worker import small_loop

from bakeoff.machine import host, paths
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.pipeline import describe
from bakeoff.plan import request as requests
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.process import guard
from bakeoff.process.supervisor import Event
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.policy import Policy
from bakeoff.record.schema import Record
from bakeoff.record.store import load_all
from bakeoff.sweeps import context
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.run import SweepResult, run_sweep

FAST = Policy(
    warmup_s=0.02,
    warmup_cap_s=0.1,
    min_samples=5,
    min_s=0.05,
    full_s=0.05,
    cap_s=0.05,
    throughput_s=0.05,
    unsteady_ratio=1e6,
    contention=100.0,  # tests run at the same time
    trace=False,
    startup_deadline_s=240.0,  # a busy host may be ten times slower
    build_deadline_s=240.0,
    large_build_deadline_s=240.0,
    phase_deadline_s=240.0,
)
SHORT_LOOK_S = 0.05
"""How long a sweep that follows another one looks at how busy the host is: a second, for users."""
MARKER = "BAKEOFF_TEST_MARKER"
TORCHLESS = forked_workers.TORCHLESS
_CHECKOUT = Path(__file__).resolve().parents[2]
_FAST_BAKEOFF = Path(__file__).parent / "fast_bakeoff.py"


def outcome(record: Record | PipelineRecord) -> str:
    """Its status, but `ok` for `unstable`: tests that run beside this one slow a right row down, or drift it."""
    return "ok" if record.status == "unstable" else record.status


@dataclass
class Recorder:
    """A Progress that stores its calls in order."""

    told: list[tuple[str, str]] = field(default_factory=list)
    """("start", what), ("event", phase), ("finish", what), ("result", status) and ("say", text)."""
    started: "list[Recorded]" = field(default_factory=list)
    expected: list[float | None] = field(default_factory=list)

    def start(self, position: int, total: int, what: str) -> Running:
        assert total == 0 or 1 <= position <= total
        self.told.append(("start", what))
        self.started.append(Recorded(self, what))
        return self.started[-1]

    def event(self, event: Event) -> None:
        """Called with each event of anything that runs."""
        self.told.append(("event", event.phase))

    def say(self, text: str) -> None:
        self.told.append(("say", text))

    def result(self, record: Record) -> None:
        self.told.append(("result", record.status))

    def ranked(self, to_come: str) -> None:
        self.told.append(("ranked", to_come))

    def expect(self, seconds: float | None, _limit_s: float = inf, /) -> None:
        assert seconds is None or seconds >= 0
        self.expected.append(seconds)

    def phases(self, variant: str) -> list[str]:
        """The phases of the first run of one variant without repetitions."""
        return next(running for running in self.started if running.what == variant).phases


@dataclass
class Recorded:
    """A Running of a Recorder."""

    recorder: Recorder
    what: str
    phases: list[str] = field(default_factory=list)
    """Without repetitions."""
    ended: bool = False

    def event(self, event: Event) -> None:
        assert not self.ended
        if event.phase not in self.phases[-1:]:
            self.phases.append(event.phase)
        self.recorder.event(event)

    def finish(self, status: str = "", text: str = "") -> None:
        assert not self.ended
        assert "\n" not in status + text
        self.ended = True
        self.recorder.told.append(("finish", self.what))


@dataclass(frozen=True)
class Swept:
    """A finished sweep with its records, messages and processes."""

    plan: Plan
    done: SweepResult
    progress: Recorder
    cache: Path
    runs: Path
    left_alive: tuple[int, ...]
    """Processes of the sweep that were running after it."""

    def records(self) -> dict[str, Record]:
        """Records by the text that named the backend in the request."""
        references = ["+".join(step.backend for step in entry.steps) for entry in self.plan.rows]
        return dict(zip(references, (stored.record for stored in self.done.stored), strict=True))


def shorten_clocks(patch: pytest.MonkeyPatch) -> None:
    """Have the command line measure for a moment on one thread, in the plan's order, with no ceilings and no final."""
    patch.setattr(host, "usable_cores", lambda: 1)
    patch.setattr(host.busy_cpus, "__defaults__", (SHORT_LOOK_S,))
    patch.setattr(requests, "FINAL_S", 0.0)
    patch.setattr(context, "shuffled", lambda rows, _seed: tuple(rows))
    patch.setattr(requests, "Request", functools.partial(Request, policy=FAST, ceilings=False))


def describe_here(patch: pytest.MonkeyPatch) -> None:
    """Have pipelines described at once, as TORCHLESS describes them."""
    patch.setattr(describe, "describe", lambda job, *_: msgspec.convert(small_loop(asdict(job)), Loop))


@contextmanager
def marked_folder(folder: Path) -> Iterator[str]:
    """Set the lab's folders to some in `folder`, and a variable that marks all processes."""
    with pytest.MonkeyPatch.context() as patch:
        marker = uuid.uuid4().hex
        patch.setenv(MARKER, marker)
        patch.setenv("BAKEOFF_CACHE", str(folder / "cache"))
        patch.setenv("BAKEOFF_RUNS", str(folder / "runs"))
        patch.setenv("BAKEOFF_LOCKS", str(folder / "locks"))
        yield marker


def sweep(request: Request, folder: Path, note: str = "") -> Swept:
    """Run a request in this process with its cache and records in `folder`, by default with one thread.

    On a busy host a call of several threads, which wait for each other, takes up to a thousand times as long.
    """
    with marked_folder(folder) as marker:
        share_headers(request.backends)
        share("counted")
        request = replace(request, final_s=0, ceilings=False, threads=request.threads or 1)
        plan, progress = make_plan(request), Recorder()
        done = run_sweep(plan, paths.runs_folder(), note, resume=False, progress=progress)
        alive = tuple(left_alive(marker))
    return Swept(plan, done, progress, folder / "cache", folder / "runs", alive)


def check_sweep(swept: Swept) -> None:
    """Check what must hold for every sweep that ran to its end, for any behaviour of its backends."""
    asked = [str(entry.variant) for entry in swept.plan.rows]
    assert len(set(asked)) == len(swept.plan.request.backends)
    assert [str(stored.record.variant) for stored in swept.done.stored] == asked
    assert swept.done.interrupted == ()

    kept = load_all(swept.runs)
    assert (kept.problems, kept.superseded) == ((), ())
    ran = sorted(swept.done.stored, key=lambda stored: stored.record.created)
    assert [stored.id for stored in kept.current] == [stored.id for stored in ran]
    assert sorted(stored.record.position for stored in ran) == [*range(1, len(ran) + 1)]
    assert {stored.record.sweep for stored in kept.current} == {swept.done.sweep}
    files = sorted(swept.runs.glob("*/records/*"))
    assert [file.name for file in files] == sorted(f"{stored.id}.json" for stored in kept.current)

    told = [entry for entry in swept.progress.told if entry[0] in ("start", "finish", "result")]
    ended = [entry for entry in told if entry[0] != "start" and not entry[1].startswith("describing ")]
    assert ended[::2] == [("finish", str(stored.record.variant)) for stored in ran]
    assert [kind for kind, _ in ended[1::2]] == ["result"] * len(ran)
    for name in asked:
        assert told.count(("start", name)) == 1
        assert told.index(("start", name)) < told.index(("finish", name))

    assert swept.left_alive == ()

    private = [_CHECKOUT, swept.cache, swept.runs, sys.prefix, Path.home()]
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert [str(place) for place in private if f"{place}/" in text] == [], file.name


def processes_with(marker: str) -> list[int]:
    """Running processes other than this one with the marker in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with suppress(OSError):
            state = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b") ")[2][:1]
            if state not in (b"Z", b"X") and marker.encode() in Path(f"/proc/{entry}/environ").read_bytes():
                found.append(int(entry))
    return found


def left_alive(marker: str) -> list[int]:
    """Running processes with the marker, and those below this one, but for the fork servers."""
    servers = {server.pid for server in forked_workers.SERVERS}
    return sorted({*processes_with(marker), *(set(guard.descendants(os.getpid())) - servers)})


def wait_until(true: Callable[[], object], what: str, patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, f"waited {patience_s:.0f} s for {what}"
        time.sleep(0.02)


@contextmanager
def command_line(arguments: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    """bakeoff with short clocks in its own process and process group."""
    process = subprocess.Popen(
        [sys.executable, str(_FAST_BAKEOFF), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def plan_of(*backends: str, final_s: float = 0.3) -> Plan:
    """Variants of the toy's picture to be compared, with one thread."""
    return make_plan(
        Request(
            "toy",
            workloads=("picture",),
            backends=backends,
            dtypes=("fp32",),
            device="cpu",
            threads=1,
            policy=FAST,
            final_s=final_s,
            ceilings=False,
        )
    )
