"""A loop of one call of one program, so that a component can be looked at as a pipeline is: unit by unit, in phases.

Its inputs are drawn once a session and stay the same; state that the program returns is not carried on.
"""

from dataclasses import dataclass, replace
from functools import partial

from bakeoff.models import resolve_component
from bakeoff.models.component import Component, TensorSpec
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import Call, Given, Loop, Output, Pipeline, PipelinePreset, Program, Slot

PREFIX = "call-"
"""`call-wm` names the loop of component wm; `call-package.module:SPEC` that of a user's own."""


@dataclass(frozen=True, slots=True)
class Options:
    workload: str = ""
    """The program that is called; it has no default."""


def single(reference: str) -> Pipeline:
    """The pipeline of one component, by its name or package.module:SPEC. Raises BakeoffError for an unknown one."""
    component = resolve_component(reference)
    slot = Slot(component.name, reference)
    return Pipeline(
        name=f"{PREFIX}{component.name}",
        summary=f"one call of a program of {component.name}",
        credit=component.credit,
        unit="call",
        slots=(slot,),
        presets=tuple(
            PipelinePreset(preset.name, {slot.name: preset.name}, preset.label) for preset in component.presets
        ),
        default_preset=component.default_preset,
        options=Options,
        loop=partial(_loop, component, slot),
    )


def _loop(component: Component, slot: Slot, preset: PipelinePreset, options: Options) -> Loop:
    config = component.preset(preset.components[slot.name]).config
    if not options.workload:
        known = ", ".join(component.workload_names(config))
        raise BakeoffError(f"{component.name} needs a workload, as in workload=NAME; it has {known}", "bad-option")
    workload = component.workload(config, options.workload, 1)
    outputs = {spec.name: f"out.{spec.name}" for spec in workload.outputs}
    return Loop(
        slots=(slot,),
        presets=preset.components,
        glue="bakeoff.worker.brought.glue" if component.folder else "",
        programs=(Program(slot.name, workload.name),),
        given=tuple(_given(component, slot, workload.name, spec) for spec in workload.inputs),
        opened=(),
        opening=(),
        steady=(Call("call", slot.name, workload.name, {spec.name: spec.name for spec in workload.inputs}, outputs),),
        opening_frames=(),
        frames=1,
        filling=0,
        max_units=None,
        state=(),
        outputs=tuple(Output(outputs[spec.name], spec.signal, slot.name) for spec in workload.outputs),
        frame_rate=0.0,
    )


def _given(component: Component, slot: Slot, workload: str, spec: TensorSpec) -> Given:
    drawn = Given(spec.name, spec.shape, slot.name, "session", spec.draw, spec.keep_fp32, spec.dtype)
    if not component.folder:
        return drawn
    drawn = replace(drawn, given=spec.given, order=spec.order)
    return replace(drawn, draw="normal", function="given", arguments=(component.folder, workload, spec.name))
