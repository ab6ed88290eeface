"""The components that can be compared, in the order reports print them. No torch is imported here."""

from bakeoff.models.component import Component
from bakeoff.models.lookup import look_up

_TABLE = {
    "wm": "bakeoff.models.wm.spec:SPEC",
    "image": "bakeoff.models.image.spec:SPEC",
    "audio": "bakeoff.models.audio.spec:SPEC",
    "matrix": "bakeoff.models.matrix_vae.spec:SPEC",
    "toy": "bakeoff.models.toy.spec:SPEC",
}


def component_names() -> tuple[str, ...]:
    return tuple(_TABLE)


def resolve_component(reference: str) -> Component:
    """The component of a name in the table, or of a user's own `package.module:ATTRIBUTE`.

    Raises BakeoffError when the name is unknown, the module cannot be imported or holds no Component.
    """
    return look_up(reference, _TABLE, Component, "SPEC")
