"""A pipeline that calls one program of a component, to inspect the component as a pipeline: by unit and phase.

Its inputs are drawn once a session and stay the same; state that the program returns is not carried on.
"""

from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from bakeoff.models import resolve_component
from bakeoff.models.component import Component, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import OPENING, BuiltIn, Call, Loop, Pipeline, Slot, Unit

PREFIX = "call-"
"""`call-wm` names the loop of component wm; `call-package.module:SPEC` that of a user's own."""


@dataclass(frozen=True, slots=True)
class SingleOptions:
    workload: str = ""
    """The program that is called; it has no default."""


class Single(Pipeline):
    """A loop that calls one workload on the same inputs in each unit."""

    unit_name = "call"
    Options = SingleOptions
    component: Component
    reference: str

    def __init__(self, preset: str, options: SingleOptions) -> None:
        super().__init__(preset, options)
        config = self.component.preset(preset).config
        if not options.workload:
            known = ", ".join(self.component.workload_names(config))
            text = f"{self.component.name} needs a workload, as in workload=NAME; it has {known}"
            raise BakeoffError(text, "bad-option")
        self.workload: Workload = self.component.workload(config, options.workload, 1)

    def loop(self) -> Loop:
        """Return the description of the loop; nothing needs to run for it."""
        name, reference = self.component.name, self.reference
        call = Call("call", name, self.workload.name)
        return Loop(
            name=self.name,
            preset=self.preset,
            label=self.presets[self.preset],
            options=asdict(self.options),
            changed=asdict(self.options),
            unit=self.unit_name,
            slots=(Slot(name, reference, self.preset),),
            opened=Unit((), ()),
            opening=(),
            steady=Unit((call,), ("call",), 1),
            filling=0,
            max_units=None,
            state={},
            outputs={f"out.{one.name}": (name,) for one in self.workload.outputs},
            signals={f"out.{one.name}": one.signal for one in self.workload.outputs if one.signal},
            flows={"call 0": (), **{f"output out.{one.name}": ("call 0",) for one in self.workload.outputs}},
            unit_elements=sum(prod(one.shape) for one in self.workload.outputs),
        )

    def modules(self) -> dict[str, BuiltIn]:
        return {self.component.name: BuiltIn(self.reference, self.preset)}

    def given(self, unit: int, draw: Any) -> dict[str, Any]:
        return draw.inputs(self.component.name, self.reference, self.workload) if unit == OPENING else {}

    def start(self, given: dict[str, Any], run: Any) -> dict[str, Any]:
        return given

    def step(self, state: dict[str, Any], given: dict[str, Any], run: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        with run.phase("call"):
            found = run.called(self.component.name, self.workload.name, (), state)
        return state, {f"out.{name}": value for name, value in found.items()}


def single(reference: str) -> type[Single]:
    """Return the pipeline class of a component, given by its name or package.module:SPEC.

    Raises BakeoffError for an unknown component.
    """
    component = resolve_component(reference)
    facts = {
        "name": f"{PREFIX}{component.name}",
        "summary": f"one call of a program of {component.name}",
        "credit": component.credit,
        "presets": {preset.name: preset.label for preset in component.presets},
        "default_preset": component.default_preset,
        "component": component,
        "reference": reference,
    }
    return type("Single", (Single,), facts)
