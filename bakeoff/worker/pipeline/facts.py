"""Checks the attributes of a pipeline's class and what its methods return; each error message says what to write."""

import keyword
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import msgspec
from torch import Tensor, nn

from bakeoff.models.component import Signal
from bakeoff.models.errors import BakeoffError, a_type
from bakeoff.models.lookup import user_error
from bakeoff.models.pipelines.pipeline import BuiltIn, Pipeline, UnitName
from bakeoff.worker.pipeline.runner import LoopRunner

_OF_CLASS: Mapping[str, tuple[Any, str]] = {
    "presets": (dict[str, str], 'a dict of names to what tables print beside them, as in {"small": ""}'),
    "default_preset": (dict[str, str], 'a dict of devices to presets, as in {"cpu": "small"}'),
}
_OF_OBJECT: Mapping[str, tuple[Any, str]] = {
    "signals": (dict[str, Signal], 'a dict of outputs to "picture" or "audio"'),
    "unit_name": (UnitName, '"frame", "block" or "call"'),
    "rate": (float, "a number"),
    "filling": (int, "an integer"),
    "max_units": (int | None, "an integer or None"),
}
_TAKEN = {
    *dir(LoopRunner),
    "account",
    "device",
    "drew",
    "next_unit",
    "outputs",
    "recording",
    "seen",
    "session",
    "taints",
    "computed",
    "units",
    "waiting",
}
"""Names that no slot may have, because `run` has attributes of these names, in a describing or a measuring run."""
_METHODS = ("modules", "frames", "given", "start", "step", "sizes")


def check_class(cls: type[Pipeline]) -> None:
    """Raise BakeoffError if a class's presets, options or methods are invalid, so that no object can be made of it."""
    _check(cls.name, cls, _OF_CLASS)
    if not cls.presets:
        raise BakeoffError(f"pipeline {cls.name}: presets is empty; give {_OF_CLASS['presets'][1]}", "bad-user-code")
    try:
        fits = is_dataclass(cls.Options) and cls.options_of({}) is not None
    except TypeError:  # a field without a default
        fits = False
    if not fits:
        text = f"pipeline {cls.name}: Options is no frozen dataclass whose fields all have defaults; make it one"
        raise BakeoffError(text, "bad-user-code")
    for name in _METHODS:
        if not callable(getattr(cls, name)):
            found = a_type(type(getattr(cls, name)))
            raise BakeoffError(f"pipeline {cls.name}: {name} is {found}; write a method", "bad-user-code")


def check_object(pipeline: Pipeline) -> None:
    """Raise BakeoffError if an attribute has a value that records cannot store."""
    _check(pipeline.name, pipeline, _OF_OBJECT)


def checked_counts(pipeline: Pipeline, units: int) -> tuple[list[int], dict[str, int]]:
    """Return the frames of each of the first `units` units, and the sizes.

    Raises BakeoffError for a value that records cannot store.
    """
    what = f"pipeline {pipeline.name}"
    try:
        frames: Any = [pipeline.frames(unit) for unit in range(units)]
        sizes: Any = pipeline.sizes()
    except Exception as error:
        raise user_error(f"{what}: frames() or sizes()", error) from error
    for unit, count in enumerate(frames):
        if type(count) is not int or count < 0:
            raise BakeoffError(f"{what}: frames({unit}) gives {count!r:.80}; give an integer from 0", "bad-user-code")
    try:
        return frames, msgspec.convert(sizes, dict[str, int])
    except msgspec.ValidationError as error:
        text = f"{what}: sizes() gives {sizes!r:.80}; give a dict of names to integers"
        raise BakeoffError(text, "bad-user-code") from error


def _check(name: str, owner: Any, facts: Mapping[str, tuple[Any, str]]) -> None:
    for fact, (kind, wanted) in facts.items():
        value = getattr(owner, fact)
        try:
            msgspec.convert(dict(value) if isinstance(value, Mapping) else value, type=kind)
        except msgspec.ValidationError as error:
            raise BakeoffError(f"pipeline {name}: {fact} is {value!r}; give {wanted}", "bad-user-code") from error


def checked_modules(pipeline: Pipeline) -> Mapping[str, Any]:
    """Return the result of `modules()`. Raises BakeoffError if it raises, or returns anything but modules by slot."""
    try:
        filled: Any = pipeline.modules()
    except BakeoffError:
        raise
    except Exception as error:
        raise user_error(f"pipeline {pipeline.name}: modules()", error) from error
    what = f"pipeline {pipeline.name}: modules() gives"
    if not isinstance(filled, Mapping):
        raise BakeoffError(f"{what} {a_type(type(filled))}; give a dict of names to torch.nn.Modules", "bad-user-code")
    for name, one in filled.items():
        parts = str(name).split(".")
        if not all(part.isidentifier() and not keyword.iskeyword(part) for part in parts) or parts[0].startswith("_"):
            text = f"{what} the name '{name}'; give one that can be written as run.NAME, or NAME.METHOD"
            raise BakeoffError(text, "bad-user-code")
        if name in _TAKEN:
            raise BakeoffError(f"{what} the name '{name}', which `run` has for itself; give another", "bad-user-code")
        if not isinstance(one, nn.Module | BuiltIn):
            raise BakeoffError(f"{what} {a_type(type(one))} as {name}; give a torch.nn.Module", "bad-user-code")
    return filled


def step_results(pipeline: Pipeline, made: Any) -> tuple[Any, dict[str, Tensor]]:
    """Return the new state and the outputs that `step` returned. Raises BakeoffError if it returned anything else."""
    what = f"pipeline {pipeline.name}: step returns"
    if not isinstance(made, tuple) or len(made) != 2:
        found = f"{len(made)} values" if isinstance(made, tuple) else a_type(type(made))
        raise BakeoffError(f"{what} {found}; return state, outputs", "bad-user-code")
    state, outputs = made
    if not isinstance(outputs, Mapping):
        text = f"{what} {a_type(type(outputs))} as its outputs; return state, and a dict of tensors by name"
        raise BakeoffError(text, "bad-user-code")
    for name, value in outputs.items():
        if not isinstance(value, Tensor):
            text = f"pipeline {pipeline.name}: the output {name} is {a_type(type(value))}; give a tensor"
            raise BakeoffError(text, "bad-user-code")
    return state, dict(outputs)


def check_unit(
    pipeline: Pipeline, outputs: Mapping[str, Tensor], before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """Raise BakeoffError if a unit has no outputs, or changed a value of the state that is not a tensor."""
    if not outputs:
        text = f"pipeline {pipeline.name}: step returns no outputs; return state, and a dict of tensors by name"
        raise BakeoffError(text, "bad-user-code")
    for path, leaf in after.items():
        same = leaf is before.get(path) or (isinstance(leaf, str | int | float) and leaf == before.get(path))
        if not isinstance(leaf, Tensor) and not same:
            text = f"pipeline {pipeline.name}: {path or 'it'} in the state is {a_type(type(leaf))} that changes"
            raise BakeoffError(f"{text} from unit to unit; make it a tensor", "bad-user-code")
