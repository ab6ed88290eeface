"""The traced pass of a mix: runs a few untimed units under torch's profiler after the last timed unit."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from statistics import median_low
from typing import Any

import torch
from torch import nn
from torch.autograd.profiler import record_function

from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.models.types import Scalar
from bakeoff.process.jobs import ProfileOptions
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.pipeline import MemoryPoint, PartTime, Profile, ProgramSight, TraceFile
from bakeoff.trace.busy import account
from bakeoff.trace.chrome import part_name, read_trace, write_trace
from bakeoff.trace.tags import TAGS, annotated, tag_of_path
from bakeoff.trace.timeline import Timeline, disturbed_units, read_timeline, without
from bakeoff.worker.failures import call_stage
from bakeoff.worker.pipeline.clocks import SynchronisedClock, ToldClock, marking, nvtx
from bakeoff.worker.pipeline.programs import LoopProgram
from bakeoff.worker.pipeline.runner import LoopRunner
from bakeoff.worker.pipeline.units import stamp_samples

_LISTED = 20
"""Kernels and operators of a line that a profile lists; the others are summed."""
_WARM_UP = 2
"""Units run under the profiler before its trace begins, because the profiler's first calls are slow (kineto#328)."""
_MEMORY_POINTS = 2_000
_SNAPSHOT_ENTRIES = 100_000
_INSIDE = 4
"""The first profile level that shows parts inside of networks."""


@dataclass(frozen=True, slots=True)
class TracedPass:
    """Runs the units of a profile on a runner, after its timed units."""

    runner: LoopRunner
    loop: Loop
    programs: Sequence[LoopProgram]
    options: ProfileOptions
    device: str

    def profile(self) -> tuple[Profile, tuple[Finding, ...]]:
        """Run units that synchronise at each mark (on CUDA only), then traced units.

        Return the profile, and findings on disturbed units. Raises StageError if a call fails.
        """
        stepped = self._stepped()
        made, findings = self._traced()
        return replace(made, stepped_ns=stepped, snapshot=self._snapshot()), findings

    def _steady(self, units: int) -> None:
        """Advance to where the next `units` units are steady, in a new session if the present one is near its end."""
        filling = max(self.loop.filling, len(self.loop.opening))
        most = self.loop.max_units
        if self.runner.session < 0 or (most is not None and self.runner.next_unit + units > most):
            call_stage(self.runner.open)
        while self.runner.next_unit < filling:
            call_stage(self.runner.unit)

    def _stepped(self) -> tuple[int, ...]:
        if self.device == "cpu":
            return ()
        self._steady(self.options.units)
        with self.runner.account.timed_by(lambda _clock, segments: SynchronisedClock(segments)):
            return tuple(call_stage(self.runner.unit).wall_ns for _ in range(self.options.units))

    def _traced(self) -> tuple[Profile, tuple[Finding, ...]]:
        from torch.profiler import ProfilerActivity, profile, schedule

        raw, asked = Path.cwd() / "trace.json", self.options
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.device == "cuda" else [])]
        self._steady(_WARM_UP + asked.units)
        with (
            parts_marked(self._visible() if asked.level >= _INSIDE else {}, asked.level) as parts,
            self.runner.account.timed_by(marking),
            profile(
                activities=activities,
                schedule=schedule(wait=0, warmup=_WARM_UP, active=asked.units, repeat=1),
                on_trace_ready=lambda made: made.export_chrome_trace(str(raw)),
                profile_memory=asked.memory,
                acc_events=True,
            ) as recorded,
        ):
            for _ in range(_WARM_UP):
                call_stage(self.runner.unit)
                recorded.step()
            first, wall_ns, cpu_ns = self.runner.next_unit, [], []
            for _ in range(asked.units):
                cpu_ns.append(-time.process_time_ns())
                wall_ns.append(call_stage(self.runner.unit).wall_ns)
                cpu_ns[-1] += time.process_time_ns()  # before the profiler writes its trace
                recorded.step()
        trace = read_trace(raw)
        timeline = read_timeline(trace.traceEvents, self.device)
        calls, segments = self._calls(), list(self.runner.account.segments)
        shown = annotated(trace, timeline, segments, calls, parts, first)
        write_trace(Path(asked.file), shown)
        disturbed = disturbed_units(timeline)
        counted = [unit for unit in range(asked.units) if unit not in disturbed]
        timeline = without(timeline, disturbed)
        found = account(timeline, segments, self.device, _LISTED)
        made = replace(
            found,
            level=asked.level,
            units=len(counted),
            wall_ns=sum(wall_ns[unit] for unit in counted),
            cpu_ns=sum(cpu_ns[unit] for unit in counted),
            lines=tuple(
                replace(line, programs=tuple(name for phase, name in calls if phase == line.name))
                if line.kind == "phase"
                else line
                for line in found.lines
            ),
            programs=tuple(self._sight(program) for program in self.programs if program.key in self.loop.calls()),
            stamps=len(timeline.windows) // len(counted),
            stamps_ns=stamp_samples(self.device),
            parts=_part_times(timeline.parts, parts),
            compiled=timeline.compiled,
            memory=_memory(timeline),
            trace=_file(asked.file, asked.folder),
        )
        return made, _disturbed(disturbed, first, wall_ns)

    def _snapshot(self) -> TraceFile | None:
        """Record CUDA's history of allocations over one unit into a file; None on a CPU, or if it is not requested."""
        if not self.options.snapshot or self.device == "cpu":
            return None
        self._steady(1)
        torch.cuda.memory._record_memory_history(max_entries=_SNAPSHOT_ENTRIES)
        try:
            call_stage(self.runner.unit)
            torch.cuda.memory._dump_snapshot(self.options.snapshot)
        finally:
            torch.cuda.memory._record_memory_history(enabled=None)
        return _file(self.options.snapshot, self.options.folder)

    def capture(self) -> None:
        """Run the traced units as NVTX ranges within a window that Nsight Systems and Nsight Compute capture.

        Raises StageError if a call fails.
        """
        self._steady(1 + self.options.units)
        order: list[int] = []
        with self.runner.account.timed_by(lambda clock, _segments: ToldClock(clock, order.clear, order.append, tuple)):
            call_stage(self.runner.unit)
        known = list(self.runner.account.segments)
        names = [f"{known[one].line} {known[one].slot}.{known[one].program}".rstrip(" .") for one in order]
        torch.cuda.profiler.start()
        try:
            with self.runner.account.timed_by(lambda clock, _segments: nvtx(clock, names)):
                for _ in range(self.options.units):
                    call_stage(self.runner.unit)
        finally:
            torch.cuda.profiler.stop()

    def _visible(self) -> dict[str, tuple[str, list[torch.nn.Module]]]:
        """Return, by slot, the name of the component and the modules of the slot's programs that run in eager."""
        found: dict[str, tuple[str, list[torch.nn.Module]]] = {}
        for program in self.programs:
            if program.runs_eagerly:
                _, modules = found.setdefault(program.key.slot, (program.job.subject.component, []))
                modules.append(program.checked.loaded.module)
        return found

    def _sight(self, program: LoopProgram) -> ProgramSight:
        """Return whether a profile shows the program's kernels: any engine's on CUDA, only torch's on a CPU."""
        slot, name = program.key
        if self.device == "cuda" or program.runs_eagerly:
            return ProgramSight(slot, name, "inside", "torch.profiler")
        return ProgramSight(slot, name, "hidden", "")

    def _calls(self) -> Mapping[tuple[str, str], Sequence[Mapping[str, Scalar]]]:
        """Return the loop's facts on each call of a unit, in order, by phase and `slot.program`."""
        found: dict[tuple[str, str], list[Mapping[str, Scalar]]] = {}
        for call in self.loop.steady.calls:
            found.setdefault((call.phase, str(call.key)), []).append(call.about)
        return found


def _disturbed(units: Mapping[int, int], first: int, wall_ns: Sequence[int]) -> tuple[Finding, ...]:
    if not units:
        return ()
    took = ", ".join(f"unit {first + unit} took {ns / 1e6:.2f} ms" for unit, ns in units.items())
    text = f"of {len(wall_ns)} traced units, {took}, where the median took {median_low(wall_ns) / 1e6:.2f}"
    return (new_finding("traced-unit", f"{text}: left out of what ran in the phases; the trace has all"),)


def _part_times(ranges: Sequence[tuple[int, int, int]], parts: Sequence[PartTime]) -> tuple[PartTime, ...]:
    calls, total = Counter[int](), Counter[int]()
    for number, start_ns, end_ns in ranges:
        calls[number] += 1
        total[number] += end_ns - start_ns
    return tuple(replace(parts[number], calls=calls[number], ns=total[number]) for number in sorted(calls))


def _memory(timeline: Timeline) -> tuple[MemoryPoint, ...]:
    """Return the allocated bytes over time: the highest point of each of at most `_MEMORY_POINTS` pieces."""
    points = timeline.allocations
    if not points:
        return ()
    start_ns = timeline.windows[0].start_ns
    piece = -(-len(points) // _MEMORY_POINTS)
    kept = [max(points[place : place + piece], key=itemgetter(1)) for place in range(0, len(points), piece)]
    return tuple(MemoryPoint(t_ns - start_ns, size) for t_ns, size in kept)


def _file(path: str, folder: str) -> TraceFile:
    data = Path(path).read_bytes()
    return TraceFile(Path(path).relative_to(folder).as_posix(), len(data), sha256(data).hexdigest())


@contextmanager
def parts_marked(modules: Mapping[str, tuple[str, Sequence[nn.Module]]], level: int) -> Iterator[Sequence[PartTime]]:
    """Within this context, calls of tagged parts up to `level` leave ranges in torch's profile; yields the parts.

    The name of a range has the index of its part. `modules` maps each slot to its component's name and the modules of
    its programs. A compiler sees through hooks or removes them (pytorch#105362), so only networks that run in eager
    have such ranges.
    """
    parts: list[PartTime] = []
    handles = []
    for slot, (component, networks) in modules.items():
        known: dict[str, int] = {}
        for network in networks:
            for path, part in network.named_modules():
                tag = tag_of_path(component, path)
                if tag is None or TAGS[tag] > level:
                    continue
                if path not in known:
                    known[path] = len(parts)
                    parts.append(PartTime(tag, TAGS[tag], slot, path, 0, 0))
                handles += _marked(part, part_name(known[path]))
    try:
        yield parts
    finally:
        for handle in handles:
            handle.remove()


def _marked(part: nn.Module, name: str) -> list[Any]:
    """Add hooks that open a range before a call of the part and close it after; return their handles.

    Ranges are kept on a stack, because a part may call itself.
    """
    opened: list[record_function] = []

    def before(_module: nn.Module, _inputs: object) -> None:
        opened.append(record_function(name).__enter__())

    def after(_module: nn.Module, _inputs: object, _outputs: object) -> None:
        opened.pop().__exit__(None, None, None)

    return [part.register_forward_pre_hook(before), part.register_forward_hook(after, always_call=True)]
