"""Measures one mix of a pipeline: builds and checks all programs and the loop, then runs units on command.

Between two commands it waits in read(2), as one side of a comparison does, so that several mixes can take turns.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from bakeoff.backends.backend import Unsupported
from bakeoff.machine.processes import helper_peak_bytes, peak_bytes
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import Key, Loop
from bakeoff.models.pipelines.schedule import ONE_GRAPH, SEQUENTIAL, parse_schedule
from bakeoff.process.jobs import BackendStep, PipelineJob, ProfileOptions
from bakeoff.record.deadline import MINUTE_NS
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.pipeline import (
    Curve,
    LoopParity,
    PipelineMeasurement,
    PipelineMemory,
    Rollout,
    SlotProgram,
    UnitParity,
)
from bakeoff.record.rollout import MIX, ONLY, broke, flickers
from bakeoff.record.schema import ProofRecord, Status
from bakeoff.worker.checked_variant import final_proof
from bakeoff.worker.checks import memory
from bakeoff.worker.checks.dispatch import dispatched
from bakeoff.worker.checks.growth import confirmed_leak
from bakeoff.worker.compare import OF_ALL_SIDES
from bakeoff.worker.device import context_bytes, watching
from bakeoff.worker.failures import StageError, call_stage, first_line, traceback_text
from bakeoff.worker.pipeline.account import UnitSample
from bakeoff.worker.pipeline.feeder import ProgramEngine
from bakeoff.worker.pipeline.lanes import Lane
from bakeoff.worker.pipeline.parity import (
    LoopCheck,
    LoopFiles,
    first_problem,
    for_record,
    pipeline_of,
    values_of,
    worse_of,
)
from bakeoff.worker.pipeline.programs import LoopProgram, build_programs, loaded_programs
from bakeoff.worker.pipeline.promise import promised, unlike
from bakeoff.worker.pipeline.reference import load_eager
from bakeoff.worker.pipeline.rollout import free_curves
from bakeoff.worker.pipeline.runner import LoopRunner
from bakeoff.worker.pipeline.traced import TracedPass
from bakeoff.worker.pipeline.units import TimedUnits, UnitLog, counters, stamp_ns
from bakeoff.worker.pipeline.warm import play
from bakeoff.worker.reference.files import ReferenceFiles
from bakeoff.worker.reporter import Reporter
from bakeoff.worker.status import contention_text, fallback_reason, is_contended, settings_alarms, threads_alarms
from bakeoff.worker.torch_flags import apply_flags, flags, read_flags, settings

_MOST_NAMELESS = 0.02
"""A finding reports time without a name if it exceeds this share of the steady units' time."""


def serve_units(job: PipelineJob, report: Reporter, commands: int) -> PipelineMeasurement:
    """Build and check everything, report `ready`, run units on command, and check again.

    `commands` is the descriptor that the parent writes to: `unit N` a line, or `stop`. Raises BakeoffError if the
    request itself is wrong (a bad checkpoint), and RuntimeError if the account of a unit does not add up, which is an
    error of the lab.
    """
    heap_offset = bytearray(job.heap_offset_bytes)  # first, so that memory layout varies between processes
    device = job.subject.device
    with flags("fp32", job.subject.threads, search=device == "cuda"):
        context_bytes(device)
        mix, lane = _Mix(job, report), None
        try:
            if ":" in job.schedule:
                lane = mix.lane = Lane(job.subject.loop, parse_schedule(job.schedule), device)
            return mix.measure(commands)
        except StageError as stage:
            text = traceback_text(stage.error)
            return mix.measurement(stage.status, stage.reason, text)
        except BakeoffError as error:
            if error.code != "bad-reference":
                raise
            return mix.measurement("crashed", str(error))  # files that were right when the mix was started
        finally:
            if lane is not None:
                lane.close()
            del heap_offset


@dataclass(slots=True)
class _Mix:
    """Measurement of a mix in progress, which keeps the results so far if something fails."""

    job: PipelineJob
    report: Reporter
    loop: Loop = field(init=False)
    check: LoopCheck = field(init=False)
    lane: Lane | None = None
    """The second lane, if the mix has a schedule with one."""
    built: list[LoopProgram] = field(default_factory=list)
    engines: Mapping[Key, ProgramEngine] = field(default_factory=dict)
    programs: list[SlotProgram] = field(default_factory=list)
    parity: LoopParity | None = None
    units: TimedUnits | None = None
    findings: list[Finding] = field(default_factory=list)
    made: PipelineMeasurement = field(default_factory=lambda: PipelineMeasurement("ok"))
    """Has the other results so far."""

    def __post_init__(self) -> None:
        """Read what the mix is checked against before any code of it is imported."""
        job, self.loop = self.job, self.job.subject.loop
        files = LoopFiles(ReferenceFiles(Path(job.reference_folder), job.reference_hashes))
        quantised = {slot: one.quantisation for slot, one in job.programs if one.quantisation}
        self.check = LoopCheck(self.loop, files, self._dtypes, quantised)

    @property
    def _dtypes(self) -> dict[str, str]:
        return {slot: one.dtype for slot, one in self.job.programs}

    def measurement(self, status: Status, reason: str = "", text: str = "") -> PipelineMeasurement:
        """Return a measurement with this status and all results so far; `text` is a traceback."""
        chosen = {name: value for program in self.built for name, value in program.chosen.items()}
        return replace(
            self.made,
            status=status,
            reason=reason,
            findings=tuple(self.findings),
            programs=tuple(self.programs),
            opened_ns=tuple(self.units.opened_ns) if self.units is not None else (),
            units=self.units.log.units() if self.units is not None else None,
            parity=for_record(self.parity) if self.parity is not None else None,
            settings={**settings(), **chosen},
            traceback=text,
        )

    def measure(self, commands: int) -> PipelineMeasurement:
        """Build, check and run the mix, and return its measurement. Raises StageError if a built program fails."""
        subject = self.job.subject
        if self.job.artifacts:
            self.report("open")
            self.engines = call_stage(lambda: loaded_programs(self.loop, self.job.artifacts, subject.threads))
        else:
            self.built, failed, text = build_programs(self.job, self.report, self.lane)
            self.programs = [program.made for program in self.built]
            if failed is not None:
                self.programs.append(failed)
                return self.measurement(failed.status, f"{failed.name}: {failed.reason}", text)
            self.check.check_weights({program.name: program.weights for program in self.programs})
            self.engines = {program.key: program.engine(self.loop) for program in self.built}
            self._check_graphs()
        if self.job.warm:
            self.report("warm-up")
            call_stage(lambda: play(self.engines, self.job.warm))
        if self.job.cold:
            self.report("bind")
        graph = self.job.schedule == ONE_GRAPH
        about = pipeline_of(subject), subject, self.engines, self._dtypes, self.lane, graph
        runner = call_stage(lambda: LoopRunner(*about))
        if self.job.horizon_db is not None:
            return self._roll_out(runner, self.job.horizon_db)
        if self.lane is not None:
            self._check_flags(self.lane)
        for program in [one for one in self.built if self.lane is None or one.key not in self.lane.programs][:1]:
            apply_flags(program.flags)  # a runner whose programs have the same flags sets none
        self.report("loop check")
        if self.job.cold:
            return self._start(runner, commands)
        self.parity = self.check.compare(runner)
        if not self.parity.passed:
            return self.measurement("parity_failed", first_problem(self.parity))
        if self.job.schedule:
            if self.job.schedule != SEQUENTIAL and (problem := call_stage(lambda: unlike(runner, self.loop))):
                return self.measurement("parity_failed", problem)
            self.report("loop check", "programs alone and in pairs")
            promise = call_stage(lambda: promised(runner, self.loop, self.lane))
            self.made = replace(self.made, promised=promise)
            runner.ordered("beside")
        alarms = self._run(runner, commands)
        assert self.units is not None
        return self._decide(alarms, first_problem(self.parity) or self.units.problem)

    def _check_flags(self, lane: Lane) -> None:
        """Set the threads of both lanes. Raises StageError if the lanes' programs need different flags of torch."""
        lane.settle_threads()
        read_flags()  # those of this thread
        kinds = {replace(program.flags, threads=0, inductor=()) for program in self.built}  # those a call depends on
        if len(kinds) > 1:
            text = "its programs have different flags of torch, which hold for all threads of a process"
            raise StageError("unsupported", Unsupported(f"{lane.schedule.name}: {text}"))

    def _check_graphs(self) -> None:
        """Raise StageError for a program whose engine the schedule does not allow, because of its CUDA graphs.

        Graphs must not be replayed beside others of their memory pool (PyTorch 2.13, CUDA semantics, Sharing memory
        across captures). A captured port has a pool of its own. What captures within its calls also has state of the
        process: inductor's mark of a step (torch/_inductor/cudagraph_trees.py, MarkStepBox), torch_tensorrt's mode.
        """
        name = self.job.schedule.partition(":")[0]
        for program in self.built:
            engine, text = program.checked.built.engine, ""
            if name == ONE_GRAPH and (engine.captures() or engine.copies_inputs()):
                text = "replays a graph of its own, which torch does not document within a capture; use it without"
            elif name == ONE_GRAPH and not program.can_be_captured:
                text = "has no option `graph`, so nothing says that CUDA can capture its calls"
            elif self.lane is not None and engine.copies_inputs():
                text = "captures within its calls, with state of the process that other lanes change; use `graph`"
            if text:
                raise StageError("unsupported", Unsupported(f"{name}: {program.made.name} {text}"))

    def _roll_out(self, runner: LoopRunner, horizon_db: float) -> PipelineMeasurement:
        """Compare each of the reference's units from its state, then run them free, also with each slot alone as in the
        mix; nothing is timed."""
        files, loop = self.check.files, self.loop
        units = files.about().units
        self.parity = self.check.compare(runner, lambda unit: self.report("loop check", f"unit {unit} of {units}"))

        def free(run: str, of: LoopRunner) -> tuple[Curve, ...]:
            def begin(unit: int) -> None:
                self.report("loop check", f"{'free' if run == MIX else run}, unit {unit} of {units}")

            return free_curves(run, of, loop, files, begin=begin)

        curves = [*call_stage(lambda: free(MIX, runner))]
        try:
            curves += call_stage(lambda: [curve for alone in self._one_sided() for curve in free(*alone)])
        except StageError as stage:  # the modules of eager may lack memory beside what was built
            if stage.status != "oom":
                raise
        rollout = Rollout(horizon_db, (*curves, *files.free(self._dtypes)))
        self.made = replace(self.made, rollout=rollout)
        if text := flickers(rollout):
            self.findings.append(new_finding("flicker", text))
        return self._decide(self._prove(runner), first_problem(self.parity) or broke(rollout))

    def _one_sided(self) -> Iterator[tuple[str, LoopRunner]]:
        """Yield a runner for each slot that is not plain eager, if there are several, in which the others of them are;
        with it the name of its run."""
        subject, plain = self.job.subject, (BackendStep("eager", {}),)
        programs = {program.key: program for program in self.built if program.job.steps != plain}
        slots = dict.fromkeys(key.slot for key in programs)
        if len(slots) < 2:
            return
        self.report("loop check", "modules of single slots")
        eager = load_eager(subject, programs)
        for slot in slots:
            built = {
                program.key: program.engine(self.loop)
                for program in self.built
                if program.key.slot == slot or program.key not in programs
            }
            runner = eager.runner(self._dtypes, subject.device, subject.device == "cuda", built=built)
            yield f"{ONLY}{slot}", runner

    def _start(self, runner: LoopRunner, commands: int) -> PipelineMeasurement:
        """Run units as a fresh process does, and compare those of the reference, outside of their time."""
        found: list[UnitParity] = []

        def judged() -> UnitSample:
            unit = runner.next_unit
            if runner.session or unit >= self.check.units:
                return runner.unit()
            self.report("loop check")
            runner.set_state(self.check.files.state_before(unit), unit)
            self.report("opening")
            sample = runner.unit()
            self.report("loop check")
            found.append(self.check.judge(unit, values_of(runner)))
            self.parity = self.check.parity(found)
            return sample

        job, device = self.job, self.job.subject.device
        log = UnitLog(self.loop, counters(self.engines), job.policy.settle_ratio, MINUTE_NS)
        assert job.sustained is not None
        with watching(device) as watch:
            units = self.units = TimedUnits(runner, log, watch, device, self.report, judged=judged)
            watch.begin()
            units.sustain(commands, job.sustained)
            gpu = watch.end()
        usage = units.cpu.usage()
        if usage.other_share > job.policy.contention / 4:
            self.findings.append(new_finding("contention", contention_text(usage)))
        self.report("loop check")
        alarms = [*self._prove(runner), *self._recompiled(log), *gpu.alarms()]
        return self._decide(alarms, (first_problem(self.parity) if self.parity else "") or units.problem)

    def _run(self, runner: LoopRunner, commands: int) -> list[Finding]:
        """Run the timed units and all checks after them; return the findings that make the mix unstable."""
        job, device = self.job, self.job.subject.device
        self.made = replace(self.made, stamp_ns=stamp_ns(device))
        span_ns = MINUTE_NS if job.sustained is not None else 0
        log = UnitLog(self.loop, counters(self.engines), self.job.policy.settle_ratio, span_ns)
        memory.start_metering(device)
        with watching(device) as watch:
            units = self.units = TimedUnits(runner, log, watch, device, self.report)
            watch.begin()
            self.report.ready()
            units.serve(commands) if job.sustained is None else units.sustain(commands, job.sustained)
            gpu = watch.end()
        usage = units.cpu.usage()
        state = {name: value for name, value in gpu.facts.items() if name not in OF_ALL_SIDES}
        self.made = replace(self.made, memory=memory_peaks(device), device_state={**usage.facts(), **state})
        leaked = self._leaked(units)
        self.report("loop check")
        assert self.parity is not None
        self.parity = worse_of(self.parity, self.check.compare(runner))
        if job.profile is not None:
            self._trace(runner, job.profile)
        self.report("prove")
        changed = self._prove(runner)
        alarms = [*self._recompiled(log), *changed, *gpu.alarms(), *threads_alarms(usage, self.job)]
        if is_contended(usage, self.job):
            alarms.append(new_finding("contention", contention_text(usage)))
        elif usage.other_share > self.job.policy.contention / 4:
            self.findings.append(new_finding("contention", contention_text(usage)))
        if leaked:
            text = f"memory grew by {leaked >> 20} MiB in half of the steady units, and grew again in a second run"
            alarms.append(new_finding("leak", text))
        if gpu.capped:
            self.findings.append(new_finding("power-cap", "the GPU was at its power cap while units ran"))
        if not log.settled and log.steady:
            text = (
                f"the times of the last units still drifted when unit {log.kinds.index('steady')} was taken as steady"
            )
            self.findings.append(new_finding("warm-up", text))
        nameless = log.unattributed_share()
        if nameless > _MOST_NAMELESS:
            self.findings.append(new_finding("unattributed", f"{nameless:.1%} of a steady unit has no name"))
        return alarms

    def _trace(self, runner: LoopRunner, asked: ProfileOptions) -> None:
        """Run the traced pass, after the timed units; if it fails, the mix keeps its numbers and gets a finding."""
        self.report("profile")
        traced = TracedPass(runner, self.loop, self.built, asked, self.job.subject.device)
        try:
            if asked.capture:
                call_stage(traced.capture)
            else:
                profile, found = call_stage(traced.profile)
                self.made = replace(self.made, profile=profile)
                self.findings += found
        except StageError as stage:
            reason = first_line(stage.error)
            self.findings.append(new_finding("no-profile", f"the timed units could not be traced: {reason}"))

    def _leaked(self, units: TimedUnits) -> int:
        opened_ns = list(units.opened_ns)
        leaked = confirmed_leak(
            units.held_bytes,
            len(units.held_bytes),
            1,
            units.log.typical_ns(),
            lambda rounds: memory.kept_bytes(units.next_unit, rounds, units.device),
        )
        units.opened_ns = opened_ns  # sessions of the second run have no units in the record
        return leaked

    def _prove(self, runner: LoopRunner) -> list[Finding]:
        """Prove every program again after its last call, and close it; return findings on settings left changed."""
        changed = [alarm for program in self.built for alarm in program.made.findings]

        def prove(program: LoopProgram) -> ProofRecord:
            apply_flags(program.flags)
            before, port = settings(), runner.port(program.key)
            ran = call_stage(lambda: dispatched(port.call))
            changed.extend(settings_alarms(before, settings()))
            proof = final_proof(program.checked, ran)
            call_stage(program.checked.built.engine.close)
            return proof

        for index, program in enumerate(self.built):
            own = partial(prove, program)
            proof = self.lane.do(own) if self.lane is not None and program.key in self.lane.programs else own()
            self.programs[index] = replace(self.programs[index], proof=proof)
            if proof.fell_back:
                reason = fallback_reason(proof.fell_back)
                self.programs[index] = replace(self.programs[index], status="fell_back", reason=reason)
        return changed

    def _recompiled(self, log: UnitLog) -> list[Finding]:
        if not log.recompiled:
            return []
        reasons = {program.name: program.proof.recompiles for program in self.programs if program.proof is not None}
        why = next((reasons[name][-1] for name in log.recompiled if reasons.get(name)), "")
        text = f"recompiled: {', '.join(log.recompiled)}" + (f" ({why})" if why else "")
        return [new_finding("recompiles", text)]

    def _decide(self, alarms: Sequence[Finding], problem: str) -> PipelineMeasurement:
        """Return the measurement with the first status that applies: fell_back, parity_failed, unstable, ok."""
        self.findings = [*alarms, *self.findings]
        fallen = next((program for program in self.programs if program.status == "fell_back"), None)
        if fallen is not None:
            return self.measurement("fell_back", f"{fallen.name}: {fallen.reason}")
        if problem:
            return self.measurement("parity_failed", problem)
        if alarms:
            return self.measurement("unstable", alarms[0].text)
        return self.measurement("ok")


def memory_peaks(device: str) -> PipelineMemory:
    """Return the peaks since metering began; those of the host include processes that backends started.

    The device's memory in use, as the driver reports it, is its level now and not a peak, as in a sweep's row.
    """
    if device == "cuda":
        torch.cuda.synchronize()
    return PipelineMemory(peak_bytes() + helper_peak_bytes(), memory.device_bytes()[0] if device == "cuda" else None)
