"""The pipelines that can be run, in the order reports print them. No torch is imported here.

To add one:

1. A folder here with a `spec.py` that defines PIPELINE, a Pipeline, and imports no torch. Its `loop(preset, options)`
   returns a Loop: the programs that it calls, the values that it is given, and the operations that open a session and
   make a unit. Options are a frozen dataclass of numbers, text, truths and Literals, which raises BakeoffError with
   code bad-option; a mix's string sets them by name. Components are named as in the table of models/__init__.py.
2. A `glue.py` there, if it needs arithmetic between calls: functions of tensors and numbers to tensors, which may not
   change their inputs. Given values that are not plain draws have functions there as well.
3. A line in the table below, or none: `package.module:PIPELINE` names a pipeline that is not in it.
4. A test that the loop equals the same loop in plain torch, unit by unit (tests/models/pipelines/test_owl_loop.py).

A Loop is checked when it is made (check.py): inputs, outputs and shapes of every call against the component's spec, and
that each value is made before it is read and not overwritten in between. The toy pipeline is the shortest example.
"""

from bakeoff.models.lookup import look_up
from bakeoff.models.pipelines.pipeline import Pipeline
from bakeoff.models.pipelines.single import PREFIX, single

_TABLE = {
    "owl": "bakeoff.models.pipelines.owl.spec:PIPELINE",
    "matrix": "bakeoff.models.pipelines.matrix.spec:PIPELINE",
    "toy": "bakeoff.models.pipelines.toy.spec:PIPELINE",
}


def pipeline_names() -> tuple[str, ...]:
    return tuple(_TABLE)


def pipeline_module(reference: str) -> str:
    """Name of the module that holds the pipeline's spec."""
    if reference.startswith(PREFIX):
        return single.__module__
    return _TABLE.get(reference, reference).partition(":")[0]


def resolve_pipeline(reference: str) -> Pipeline:
    """The pipeline that `reference` names: a name in the table, a user's own `package.module:ATTRIBUTE`, or with
    `call-` before a component, the loop of one call of it (single.py).

    Raises BakeoffError when the name is unknown, the module cannot be imported, or the attribute is not a Pipeline.
    """
    if reference.startswith(PREFIX):
        return single(reference.removeprefix(PREFIX))
    return look_up(reference, _TABLE, Pipeline, "package.module:PIPELINE")
