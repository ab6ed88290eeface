"""Builds and checks every program of a mix, one after the other in one process, in the same way as a sweep's rows."""

from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path

from torch import Tensor, nn

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import ModuleEngine
from bakeoff.export import Program, load
from bakeoff.export.sample import Reader
from bakeoff.models import resolve_component
from bakeoff.models.pipelines.pipeline import Key, Loop
from bakeoff.models.types import Scalar
from bakeoff.process.jobs import MeasureJob, PipelineJob
from bakeoff.record.pipeline import SlotProgram
from bakeoff.variant import parse_variant
from bakeoff.worker.checked_variant import CheckedVariant, build_and_check, first_proof, with_precision
from bakeoff.worker.failures import StageError, traceback_text
from bakeoff.worker.pipeline.feeder import ProgramEngine, call_of
from bakeoff.worker.pipeline.lanes import Lane
from bakeoff.worker.pipeline.reference import share_where_equal
from bakeoff.worker.reporter import Report
from bakeoff.worker.status import decide_status, settings_alarms
from bakeoff.worker.subject import LoadedSubject, load_subject
from bakeoff.worker.torch_flags import Flags, apply_flags, flags, read_flags, settings


@dataclass(frozen=True, slots=True)
class LoopProgram:
    """A built and checked program of the mix."""

    job: MeasureJob
    checked: CheckedVariant
    """The checked variant, reduced to one set of inputs, which gives shapes, and without bound calls."""
    flags: Flags
    """torch's flags after the program's build, to be set for its calls."""
    made: SlotProgram

    @property
    def key(self) -> Key:
        return Key(self.made.slot, self.made.variant.workload)

    @property
    def chosen(self) -> Mapping[str, Scalar]:
        """Global settings of torch that the program's preparation changed on purpose."""
        return self.checked.built.prepared.settings

    @property
    def runs_eagerly(self) -> bool:
        return resolve_backend(self.job.steps[-1].backend).runs_eagerly

    @property
    def can_be_captured(self) -> bool:
        """Whether a CUDA graph may hold its calls: those of eager, and of backends that offer it (capture.py)."""
        return self.runs_eagerly or hasattr(resolve_backend(self.job.steps[-1].backend).options, "graph")

    def engine(self, loop: Loop) -> ProgramEngine:
        """Return the program in the form that a runner takes."""
        checked, loaded = self.checked, self.checked.loaded
        call = call_of(loop, self.key, loaded.component)
        outputs = [spec.name for spec in loaded.workload.outputs]
        return ProgramEngine(checked.built.engine, outputs, checked.sets[0], self.flags, call)


def build_programs(
    job: PipelineJob, report: Report, lane: Lane | None = None
) -> tuple[list[LoopProgram], SlotProgram | None, str]:
    """Load, build and check each program of a mix, up to the first that fails; those of `lane` in its thread.

    Returns the programs that were built, the one that failed (None if none did), and its traceback. Programs of a slot
    that are built from the module as loaded share one set of weights: each backend that reads the module's own weights
    then reads the same tensors. Raises BakeoffError if the request itself is wrong (a bad checkpoint).
    """
    if any(len(one.steps) > 1 for _, one in job.programs):
        import_module("torch._inductor.config")  # `usual` then has inductor's settings, which a preparation may change
    usual = read_flags()
    built: list[LoopProgram] = []
    donors: dict[str, nn.Module] = {}
    last = {slot: index for index, (slot, _) in enumerate(job.programs)}

    def program_of(index: int, slot: str, one: MeasureJob) -> tuple[LoopProgram | SlotProgram, str]:
        folder = Path.cwd() / f"program{index}"
        folder.mkdir()
        apply_flags(usual)  # an earlier program's preparation may have changed some for itself
        subject = one.subject
        # Backends write files of fixed names into the working folder, and may read them as long as the engine lives.
        with chdir(folder), flags(one.dtype, subject.threads, search=subject.device == "cuda"):
            report("weights", f"{slot}.{subject.workload}")
            loaded = load_subject(subject)
            planned = SlotProgram(
                slot=slot,
                variant=parse_variant(one.variant),
                batch=subject.batch,
                status="ok",
                quantisation=one.quantisation,
                weights=loaded.weights,
                shares_weights=_share(slot, one, loaded, donors),
            )
            if last[slot] == index:
                donors.pop(slot, None)
            try:
                return _build(one, loaded, planned, report, job.cold), ""
            except StageError as stage:
                failed = replace(planned, status=stage.status, reason=stage.reason, shares_weights=False)
                return failed, traceback_text(stage.error)

    for index, (slot, one) in enumerate(job.programs):
        make = partial(program_of, index, slot, one)
        apart = lane is not None and Key(slot, one.subject.workload) in lane.programs
        program, text = lane.do(make) if lane is not None and apart else make()
        if isinstance(program, SlotProgram):
            return built, program, text
        if program.made.status != "ok":
            return built, program.made, ""
        built.append(program)
    return built, None, ""


def loaded_programs(loop: Loop, folders: Mapping[str, str], threads: int) -> dict[Key, ProgramEngine]:
    """Load the artifact of each `slot.program` in the form that a runner takes. Raises what `load` raises."""
    artifacts = {name: load(name, threads=threads) for name in {*folders.values()}}
    found = dict[Key, ProgramEngine]()
    for key in loop.programs:
        artifact = artifacts[folders[str(key)]]
        program = artifact.program(key.program)
        inputs = Reader(artifact.folder, artifact.manifest).inputs(0, key.program, program.device)
        call = call_of(loop, key, resolve_component(loop.slot(key.slot).component))
        outputs = [port.name for port in program.about.outputs]
        found[key] = ProgramEngine(ModuleEngine(partial(_by_position, program)), outputs, inputs, None, call)
    return found


def _by_position(program: Program, *inputs: Tensor) -> tuple[Tensor, ...]:
    named = zip(program.about.inputs, inputs, strict=True)
    return tuple(program(**{port.name: tensor for port, tensor in named}).values())


def _share(slot: str, job: MeasureJob, loaded: LoadedSubject, donors: dict[str, nn.Module]) -> bool:
    """Cast the module, and make it share the weights of the slot's first program; return whether the engine reads them.

    `donors` has a module with the first program's weights for each slot, because a build may free its module's own. A
    module that a backend prepares is neither cast nor shared, since the preparation may change its weights.
    """
    if len(job.steps) > 1:
        return False  # a preparation may change the weights in place
    loaded.cast(job.dtype, job.subject.device)
    if slot not in donors:
        donors[slot] = _holder(loaded.module)
        return False
    shared = share_where_equal(donors[slot], loaded.module)
    return shared and resolve_backend(job.steps[-1].backend).keeps_module_weights


def _holder(module: nn.Module) -> nn.Module:
    """Return a module that only holds the parameters of another module, by the same names."""
    holder = nn.Module()
    for name, parameter in module.named_parameters(remove_duplicate=False):
        *owners, leaf = name.split(".")
        part = holder
        for owner in owners:
            if owner not in part._modules:
                part.add_module(owner, nn.Module())
            part = part.get_submodule(owner)
        part._parameters[leaf] = parameter
    return holder


def _build(job: MeasureJob, loaded: LoadedSubject, planned: SlotProgram, report: Report, cold: bool) -> LoopProgram:
    before = settings()

    def say(phase: object, detail: str = "") -> None:
        report(phase, detail or planned.name)  # type: ignore[arg-type]

    checked = build_and_check(job, loaded, say, cold=cold)
    alarms = tuple(settings_alarms({**before, **checked.built.prepared.settings}, settings()))
    proof, parity = first_proof(checked), None if cold else checked.reference.parity(checked.differences)
    if parity is not None:
        proof = with_precision(job, proof, parity, checked)
    status, reason = decide_status(proof.fell_back, parity, checked.watch.problem, ())
    made = replace(
        planned,
        status=status,
        reason=reason,
        findings=alarms,
        build=checked.built.cost,
        proof=proof,
        parity=parity,
    )
    slim = replace(
        checked,
        loaded=replace(loaded, sets=()),
        sets=checked.sets[:1],
        built=replace(checked.built, calls=()),
        differences=[],
    )
    return LoopProgram(job, slim, read_flags(), made)
