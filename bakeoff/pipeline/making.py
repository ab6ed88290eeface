"""What the mixes of one plan share while it is made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bakeoff.mix import SlotVariant
from bakeoff.models.component import Component
from bakeoff.models.pipelines.pipeline import Loop, Pipeline, Program
from bakeoff.models.types import Device
from bakeoff.pipeline.parts import Parts
from bakeoff.pipeline.request import PipelineRequest
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request


@dataclass(frozen=True, slots=True)
class Making:
    """A request whose names are resolved, and the records that choose and predict."""

    request: PipelineRequest
    pipeline: Pipeline
    preset: str
    device: Device
    options: Any
    loop: Loop
    components: Mapping[str, Component]
    checkpoints: Mapping[str, str]
    parts: Parts

    def slot_plan(self, program: Program, slot: SlotVariant) -> Plan:
        """The plan with the one row of a program in one way."""
        backends = "+".join(str(use) if use.options else f"{use.name}[]" for use in slot.backends)
        component = next(entry.component for entry in self.loop.slots if entry.name == program.slot)
        return make_plan(
            Request(
                component=component,
                presets=(self.loop.presets[program.slot],),
                workloads=(program.workload,),
                backends=(backends,),
                dtypes=(slot.dtype,),
                device=self.device,
                batches=(program.batch,),
                weight_seed=self.request.weight_seed,
                input_seed=self.request.input_seed,
                threads=self.request.threads,
                checkpoint=self.checkpoints.get(program.slot, ""),
                policy=self.request.policy,
                final_s=0.0,
                ceilings=False,
            )
        )
