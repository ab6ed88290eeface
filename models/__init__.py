"""The table of components that can be compared, in the order reports print them, and its look-up; without torch."""

from pathlib import Path

from bakeoff.models.component import Component
from bakeoff.models.lookup import look_up

_TABLE = {
    "wm": "bakeoff.models.wm.spec:SPEC",
    "image": "bakeoff.models.image.spec:SPEC",
    "audio": "bakeoff.models.audio.spec:SPEC",
    "matrix-vae": "bakeoff.models.matrix_vae.spec:SPEC",
    "matrix-wm": "bakeoff.models.matrix_wm.spec:SPEC",
    "toy": "bakeoff.models.toy.spec:SPEC",
}


def component_names() -> tuple[str, ...]:
    return tuple(_TABLE)


def component_module(reference: str) -> str:
    """Return the name of the module that contains the component's spec."""
    return _TABLE.get(reference, reference).partition(":")[0]


def resolve_component(reference: str) -> Component:
    """Return the component that `reference` names.

    `reference` is a name in the table, a user's own `package.module:ATTRIBUTE` or `FILE.py:ATTRIBUTE`, or the absolute
    path of a brought model's folder. Raises BakeoffError if the name is unknown, the module cannot be imported, the
    attribute is not a Component, or the folder has no description.
    """
    if reference.startswith("/"):
        from bakeoff.models.brought.spec import component_of  # imports msgspec, which --help does without

        return component_of(Path(reference))
    return look_up(reference, _TABLE, Component, "mine.py:model")
