"""Describes a pipeline with modules of its author: runs its first units for real, again, and with overwritten outputs.

This finds loops that cannot be compared: state kept outside of the loop's state, equally seeded runs that differ, or a
module whose output shares its input's memory. It also finds outputs that are read after the next call. The inputs of
the modules are written as folders of live modules, which are swept and measured as any other model.
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bakeoff.models.brought.method import MethodOf
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import OPENING, BuiltIn, Key, Loop, Pipeline, Slot
from bakeoff.models.signature import Signature, describe_call, describe_output, flatten, flatten_call
from bakeoff.process.inspected import Recorded
from bakeoff.process.jobs import DescribeLoopJob, Subject
from bakeoff.worker.brought.calls import parameter_names
from bakeoff.worker.brought.hidden_state import generators, state_of_values
from bakeoff.worker.checks.outputs import overwrite
from bakeoff.worker.inspection.recording import Recording
from bakeoff.worker.pipeline.between import with_between
from bakeoff.worker.pipeline.describe import Recorder, UnitRun, constant_state, loop_of, run_units, uncalled
from bakeoff.worker.pipeline.feeder import called_as
from bakeoff.worker.pipeline.runner import Given, seed_generators
from bakeoff.worker.reference.error import apart
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import load_subject
from bakeoff.worker.torch_flags import flags

_SAME = 1e-5
"""Relative L2 up to which two runs of a unit count as the same, since a device may sum in another order."""
Sets = Mapping[str, tuple[Signature, list[torch.Size]]]
"""Input sets of a module by name: the signature of the call, and the shapes of its tensors."""


class RealRecorder(Recorder):
    """Recorder that runs the modules themselves."""

    is_real = True

    def __init__(self, filled: Mapping[str, Any], job: DescribeLoopJob, overwritten: Collection[Key] = ()) -> None:
        """Outputs of the programs in `overwritten` are overwritten after their next call, as an engine may do."""
        super().__init__(filled, job.device)
        self._job, self._overwritten = job, overwritten
        self._components: dict[Key, nn.Module] = {}
        self._last: dict[Key, Sequence[Tensor]] = {}
        self.recording = Recording()
        self.drew = False
        """True if a unit changed the state of a global generator."""

    def computed(
        self, slot: str, filled: Any, program: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[str, Mapping[str, Tensor], Mapping[str, Tensor], Any]:
        if isinstance(filled, BuiltIn):
            return self._of_component(slot, filled, program, args, kwargs)
        name, method = (f"{slot}.{program}", program) if program else (slot, slot.partition(".")[2])
        called = MethodOf(filled, method) if method else filled
        self.recording.take(name, filled, method, args, kwargs)
        inputs = flatten_call(describe_call(args, kwargs, parameter_names(called)), args, kwargs)
        versions = {key: one._version for key, one in inputs.items() if not one.is_inference()}
        own = self._own.get(slot)  # what would be called, but for this recorder in its place
        result = (called if own is None else own)(*args, **kwargs)
        outputs: dict[str, Tensor] = {}
        flatten(describe_output(result), result, outputs)
        _check_memory(name, inputs, outputs, versions)
        self._keep(Key(name, ""), list(outputs.values()))
        return name, inputs, outputs, result

    def _of_component(
        self, slot: str, filled: BuiltIn, program: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[str, Mapping[str, Tensor], Mapping[str, Tensor], Any]:
        _, inputs, shapes, _ = super().computed(slot, filled, program, args, kwargs)
        key, job = Key(slot, program), self._job
        if key not in self._components:
            of = Subject(
                filled.component, filled.preset, program, filled.batch, job.seed, 0, "", job.device, job.threads
            )
            self._components[key] = load_subject(of).cast("fp32", job.device)
        outputs = dict(zip(shapes, self._components[key](*inputs.values()), strict=True))
        self._keep(key, list(outputs.values()))
        return slot, inputs, outputs, dict(outputs)

    def _keep(self, key: Key, outputs: Sequence[Tensor]) -> None:
        if key in self._overwritten:
            overwrite(self._last.get(key, ()))
            self._last[key] = outputs

    def seen(self, values: dict[str, Any]) -> dict[str, Any]:
        if not self._overwritten:
            return values  # which state is which is told by identity
        return {name: value.clone() if isinstance(value, Tensor) else value for name, value in values.items()}

    def units(self, pipeline: Pipeline, constant: frozenset[str] | None) -> list[UnitRun]:
        """Run the first units, each with equally seeded generators, and return them; `constant` as in `run_units`."""
        before: list[object] = []
        names = dict.fromkeys(self.modules, "fp32")

        def given(unit: int) -> Any:
            self.drew = self.drew or (bool(before) and generators() != before.pop())
            seed_generators(0, 0, unit)
            values = pipeline.given(unit, Given(0, names, self.device, 0, unit))
            before.append(generators())
            return values

        found = run_units(pipeline, self, given, constant)
        self.drew = self.drew or generators() != before.pop()
        return found


def _check_memory(
    name: str, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor], versions: Mapping[str, int]
) -> None:
    """Raise BakeoffError if a call changed an input, or returned an output that shares an input's memory."""
    for key, one in inputs.items():
        if key in versions and one._version != versions[key]:
            raise BakeoffError(f"slot {name}: a call writes into its input {key}; return new tensors", "bad-user-code")
        for output, made in outputs.items():
            if made.numel() and one.untyped_storage().data_ptr() == made.untyped_storage().data_ptr():
                text = f"slot {name}: the output {output} is memory of the input {key}; return a new tensor"
                raise BakeoffError(text, "bad-user-code")


def describe_users(pipeline: Pipeline, filled: Mapping[str, Any], job: DescribeLoopJob, report: Report) -> Loop:
    """Return the loop of a pipeline with modules of its author; write these modules' folders into `job.folder`.

    Raises BakeoffError if its units raise, or cannot be compared; the message says what to do.
    """
    modules = {name: one.to(job.device) for name, one in filled.items() if isinstance(one, nn.Module)}
    with flags("fp32", job.threads), torch.no_grad():
        report("reference", "running the first units")
        elsewhere = _elsewhere(pipeline, modules)
        first = RealRecorder(filled, job)
        units = first.units(pipeline, None)
        constant = constant_state(units)
        report("reference", "running them again")
        again = RealRecorder(filled, job)
        seconds = again.units(pipeline, constant)
        difference = _difference(units, seconds)
        if difference:
            now = _elsewhere(pipeline, modules)
            raise _refusal(pipeline, difference, [where for where in now if now[where] != elsewhere.get(where)])
        report("reference", "running them with outputs overwritten")
        late = _read_late(pipeline, filled, job, units)
        report("reference", "writing what modules were called with")
        folders = first.recording.write(Path(job.folder), pipeline.name)
    for one in folders:
        if one.problem:
            raise BakeoffError(f"slot {one.name}: {one.problem}", "cannot-travel")
    sets = {one.name: first.recording.signatures(one.name) for one in folders}
    _name_programs(seconds, sets)
    slots = _slots(filled, folders, {one.slot for unit in seconds for one in unit.calls})
    loop = loop_of(pipeline, slots, seconds, again.taints, constant)
    notes = [*uncalled(filled, slots)]
    if first.drew:
        notes.append("its units draw random numbers by themselves, from generators that are seeded alike in every mix")
    kept = tuple(key for key in loop.programs if {Key(key.slot, ""), key} & late)
    loop = replace(loop, kept=kept, notes=tuple(notes), draws=first.drew)
    signatures = {Key(slot, name): signature for slot, of in sets.items() for name, (signature, _) in of.items()}
    return with_between(pipeline, loop, seconds, signatures, job)


def _elsewhere(pipeline: Pipeline, modules: Mapping[str, nn.Module]) -> dict[str, str]:
    """Return what could keep state outside of the loop's: attributes of the pipeline and modules, buffers, globals."""
    found = dict(state_of_values(vars(pipeline), "self"))
    for cls in reversed(type(pipeline).__mro__[: type(pipeline).__mro__.index(Pipeline)]):
        found |= state_of_values(vars(cls), cls.__name__)
        found |= state_of_values(vars(sys.modules[cls.__module__]), cls.__module__)
    for slot, module in modules.items():
        for prefix, layer in module.named_modules():
            own = {**layer._buffers, **{key: one for key, one in vars(layer).items() if not key.startswith("_")}}
            found |= state_of_values(own, f"the module {slot}{'.' if prefix else ''}{prefix}")
    return found


def _difference(units: Sequence[UnitRun], others: Sequence[UnitRun]) -> str:
    """Return text on the first value that differs between two runs; "" if none does."""
    for number, (one, other) in enumerate(zip(units, others, strict=False), OPENING):
        for where, mine, theirs in (("", one.outputs, other.outputs), ("state ", one.after, other.after)):
            for name, value in mine.items():
                if not isinstance(value, Tensor):
                    continue
                same = theirs.get(name)
                distance = 1.0 if same is None or same.shape != value.shape else apart(value.double(), same.double())
                if not distance <= _SAME:  # NaN differs
                    unit = "the opening" if number == OPENING else f"unit {number}"
                    return f"{where}{name} of {unit} differs by {distance:.1e} (relative L2)"
    return "" if len(units) == len(others) else "they make other calls"


def _refusal(pipeline: Pipeline, difference: str, changed: Sequence[str]) -> BakeoffError:
    text = f"pipeline {pipeline.name}: two equally seeded runs of its first units are not the same: {difference}"
    if changed:
        text += f"; {changed[0]} changes from unit to unit: return it as a part of the state, and take it from there"
    else:
        text += "; return what passes from unit to unit as a part of the state, and draw what is random in `given`, or "
        text += "from torch's, numpy's or Python's global generators"
    return BakeoffError(text, "bad-user-code")


def _read_late(
    pipeline: Pipeline, filled: Mapping[str, Any], job: DescribeLoopJob, units: Sequence[UnitRun]
) -> set[Key]:
    """Return the programs whose outputs are read after their next call."""

    def differs(keys: Collection[Key]) -> bool:
        return bool(_difference(units, RealRecorder(filled, job, keys).units(pipeline, None)))

    keys = {one.key for unit in units for one in unit.calls}
    return {key for key in keys if differs([key])} if differs(keys) else set()


def _name_programs(units: Sequence[UnitRun], sets: Mapping[str, Sets]) -> None:
    """Set the program of each call of an author's module to the name of the input set that fits it.

    Raises BakeoffError if none fits, because there were too many to record them all.
    """
    for one in (one for unit in units for one in unit.calls if one.slot in sets):
        for name, (signature, shapes) in sets[one.slot].items():
            inputs = called_as(signature, shapes, one.args, one.kwargs)
            if inputs is not None:
                one.program, one.inputs = name, inputs
                break
        else:
            text = f"slot {one.slot} is called with plain values that differ from call to call; give tensors"
            raise BakeoffError(text, "bad-user-code")


def _slots(filled: Mapping[str, Any], folders: Sequence[Recorded], called: Collection[str]) -> tuple[Slot, ...]:
    """Return the called slots in the order of the pipeline's modules; each method that was called is one of them."""
    found = []
    for name, one in filled.items():
        if isinstance(one, BuiltIn) and name in called:
            found.append(Slot(name, one.component, one.preset, one.batch))
        own = [folder for folder in folders if folder.name == name or folder.name.startswith(f"{name}.")]
        found += [Slot(folder.name, folder.folder, "live", users=True) for folder in own]
    return tuple(found)
