"""The toy as a component that takes a batch of 1 alone, such as a program that was exported with fixed shapes."""

from dataclasses import replace

from bakeoff.models.component import Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.toy.spec import SPEC as TOY
from bakeoff.models.toy.spec import Config


def workload(config: Config, name: str, batch: int) -> Workload:
    if batch != 1:
        text = f"fixed_batch was exported for a batch of 1, not {batch}; export it with a dynamic batch"
        raise BakeoffError(text, "unsupported")
    return TOY.workload(config, name, batch)


SPEC = replace(TOY, workload=workload)
