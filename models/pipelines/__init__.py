"""The pipelines that can be run, in the order reports print them. No torch is imported here.

To add one: a folder here with a `spec.py` that defines PIPELINE (and a `glue.py` if it needs arithmetic between calls),
and one line in the table below.
"""

from bakeoff.models.lookup import look_up
from bakeoff.models.pipelines.pipeline import Pipeline

_TABLE = {
    "owl": "bakeoff.models.pipelines.owl.spec:PIPELINE",
    "matrix": "bakeoff.models.pipelines.matrix.spec:PIPELINE",
    "toy": "bakeoff.models.pipelines.toy.spec:PIPELINE",
}


def pipeline_names() -> tuple[str, ...]:
    return tuple(_TABLE)


def pipeline_module(reference: str) -> str:
    """Name of the module that holds the pipeline's spec."""
    return _TABLE.get(reference, reference).partition(":")[0]


def resolve_pipeline(reference: str) -> Pipeline:
    """The pipeline that `reference` names: a name in the table, or a user's own `package.module:ATTRIBUTE`.

    Raises BakeoffError when the name is unknown, the module cannot be imported, or the attribute is not a Pipeline.
    """
    return look_up(reference, _TABLE, Pipeline, "PIPELINE")
