"""The table of pipelines that can be run, in the order reports print them, and its look-up; without torch.

To add one, write a subclass of Pipeline (pipeline.py) in a folder here (matrix/loop.py is the shorter one), write
its facts (names, presets, options) in a `spec.py` beside it that imports no torch, and add a line to the table below.
A user's own pipeline needs neither table nor `spec.py`: `bakeoff pipeline mine.py:Loop` (docs/pipelines.md).
"""

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bakeoff.models.errors import BakeoffError
from bakeoff.models.lookup import look_up
from bakeoff.models.pipelines.pipeline import Pipeline
from bakeoff.models.pipelines.single import PREFIX, single

USUAL = "Loop"
"""Class name of a file's main pipeline, which is named by the file alone."""
_TABLE = {
    "owl": "bakeoff.models.pipelines.owl.spec:Owl",
    "matrix": "bakeoff.models.pipelines.matrix.spec:Matrix",
}


def pipeline_names() -> tuple[str, ...]:
    return tuple(_TABLE)


def own_gains(name: str) -> Callable[..., Iterable[tuple[str, str, float, str, str]]] | None:
    """Return the function that says what a pipeline of the table could gain in its own loop, such as owl/advice.py.

    None if it has none.
    """
    module = f"{__name__}.{name}.advice"
    if name not in _TABLE or find_spec(module) is None:
        return None
    return import_module(module).gains


def pipeline_modules(reference: str) -> tuple[str, ...]:
    """Return the names of the modules with the pipeline's facts and its loop."""
    if reference.startswith(PREFIX):
        return (single.__module__,)
    facts = _TABLE.get(reference, reference).partition(":")[0]
    code = resolve_pipeline(reference).code
    return (facts, *filter(None, [code.partition(":")[0]]))


def resolve_pipeline(reference: str) -> type[Pipeline]:
    """Return the class of the pipeline that `reference` names; those of the table need no torch and lack methods.

    `reference` is a name in the table, a user's own FILE.py:CLASS or package.module:CLASS, or `call-` and a component
    for the loop of one call of it (single.py). Raises BakeoffError if the name is unknown, the module cannot be
    imported, or the attribute is not a Pipeline.
    """
    if reference.startswith(PREFIX):
        return single(reference.removeprefix(PREFIX))
    found: Any = look_up(reference, _TABLE, Pipeline, "mine.py:Loop")
    return _checked(reference, found)


def load_pipeline(reference: str) -> type[Pipeline]:
    """Return the pipeline's class with its methods; needs torch, so call it in workers only."""
    facts = resolve_pipeline(reference)
    found: Any = look_up(facts.code, {}, Pipeline, "mine.py:Loop") if facts.code else facts
    return _checked(reference, found)


def name_in_file(reference: str) -> str:
    """Return the name of a pipeline FILE.py:CLASS that has no name of its own."""
    file, _, name = reference.rpartition(":")
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", Path(file).stem).strip("-_") or "mine"
    return stem if name == USUAL else f"{stem}.{name}"


def _checked(reference: str, found: Any) -> type[Pipeline]:
    if not isinstance(found, type):
        raise BakeoffError(f"'{reference}' is an object of {type(found).__name__}; name the class", "bad-user-code")
    cls: type[Pipeline] = found
    file, _, _ = reference.rpartition(":")
    if file.endswith(".py") and cls.name == cls.__name__.lower():  # it has no name of its own
        cls.name = name_in_file(reference)
    if file.endswith(".py") and cls.name in _TABLE:
        text = f"'{reference}': {cls.name} is a pipeline of this lab; give yours another name"
        raise BakeoffError(text, "bad-user-code")
    return cls
