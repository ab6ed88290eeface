"""Figures that others published of the same architectures: quoted in the history, and never divided by anything."""

from collections.abc import Collection
from dataclasses import dataclass

from bakeoff.report.markdown.table import head, line_of

HEADING = "## Published elsewhere"
_INTRODUCTION = """\
What this project began with: figures that others stated of these architectures, quoted as they were. The device, the
versions and how they were timed were not stated, so no figure of this project is compared with them, and no ratio is
computed from them.
"""


@dataclass(frozen=True, slots=True)
class Quoted:
    """A published time; `compiled_ms` is None where only one was stated."""

    components: tuple[str, ...]
    """Of this project, with that architecture."""
    what: str
    eager_ms: str
    compiled_ms: str | None = None


QUOTED = (
    Quoted(("wm",), "OWL world model, one denoising step", "29.00", "3.10"),
    Quoted(("image",), "OWL image decoder", "28.08", "21.52"),
    Quoted(("audio",), "OWL audio decoder", "12.52", "3.70"),
    Quoted(("matrix-wm",), "Matrix-Game-2, a block of 12 frames: denoise", "497"),
    Quoted(("matrix-wm",), "Matrix-Game-2, a block of 12 frames: context update", "159"),
    Quoted(("matrix-vae",), "Matrix-Game-2, a block of 12 frames: decode", "294"),
)


def section(components: Collection[str]) -> str:
    """The section with the figures of these components; "" where none is of them."""
    rows = [quoted for quoted in QUOTED if set(quoted.components) & set(components)]
    if not rows:
        return ""
    lines = head([("what", False), ("stated ms", True), ("stated ms, compiled", True)])
    lines += [line_of([quoted.what, quoted.eager_ms, quoted.compiled_ms or "not stated"]) for quoted in rows]
    return "\n".join([HEADING, "", _INTRODUCTION, *lines, ""])
