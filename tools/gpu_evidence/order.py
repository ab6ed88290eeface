"""The order of the fast sequence: what is measured first on a GPU that is rented for minutes, and the seconds of each.

Seconds are guesses until a record of the same kind of GPU shows them; `seconds.py` corrects them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

BEST, FINAL = "best", "final"
"""In place of a backend: the component's fastest row, built once more alone and traced; the final of its two best."""
_GRAPH = "inductor[mode=reduce-overhead,freezing]"
_FP8 = "fp8[kind=per-row]+inductor[mode=reduce-overhead]"
_ORT = "onnxruntime[cuda_graph]"


class Line(NamedTuple):
    """One row of a component, or what follows from its rows."""

    component: str
    what: str
    """The row's backend with its options, as typed; or BEST or FINAL."""
    dtype: str
    seconds: float
    """Guess for the row by itself, where its build finds the caches of an earlier one."""
    build_s: float = 0.0
    """Guess for that earlier build, beside others; 0 for a backend without caches."""


BESIDE = Line("", "beside", "", 0.0)
"""Work, references and builds of the lines that follow, up to the next of these, beside each other on all cores."""
REFERENCES_S: Mapping[str, tuple[float, float]] = {"cuda": (20.0, 5.0), "cpu": (2.0, 6.0)}
"""Guess for work and references that are made beside each other: of a group of components, and more for each of them.
On a CPU of tiny presets; on 26 November 2026 an H200 took 27 s for those of wm alone."""
REFERENCES_LIMIT = 4 / 3
"""They are stopped after this many times the guess: those that lack are made with their first row."""
STARTS_S, BUILDS_LIMIT_S = 15.0, 140.0
"""Guess for the starts of many workers at once, and when builds beside each other are stopped: rows that lack one come
after the others, and build alone."""
CEILINGS_S = 12.0
"""Guess for the ceilings of a card's dtypes, after its first row."""

CUDA = (
    BESIDE,
    Line("wm", "eager", "bf16", 20),
    Line("wm", _GRAPH, "bf16", 28, 60),
    Line("image", "eager", "bf16", 12),
    Line("audio", "eager", "bf16", 12),
    Line("matrix-vae", "eager", "bf16", 16),
    Line("matrix-wm", "eager", "bf16", 18),
    Line("image", _GRAPH, "bf16", 20, 40),
    Line("audio", _GRAPH, "bf16", 18, 40),
    Line("wm", "cudagraph", "bf16", 16),
    Line("matrix-wm", _GRAPH, "bf16", 30, 70),
    Line("matrix-vae", _GRAPH, "bf16", 28, 60),
    Line("wm", _FP8, "bf16", 30, 75),
    Line("wm", "aoti[]", "bf16", 25, 80),
    Line("audio", "cudagraph", "bf16", 11),
    Line("image", "cudagraph", "bf16", 11),
    Line("matrix-wm", "cudagraph", "bf16", 17),
    Line("matrix-vae", "cudagraph", "bf16", 18),
    Line("matrix-wm", _FP8, "bf16", 32, 75),
    BESIDE,
    Line("image", "cudagraph[channels_last]", "bf16", 11),
    Line("audio", "cudagraph[channels_last]", "bf16", 11),
    Line("image", "eager", "fp16", 12),
    Line("image", _ORT, "fp16", 22, 25),
    Line("audio", "eager", "fp16", 12),
    Line("audio", _ORT, "fp16", 20, 25),
    Line("wm", "eager", "fp16", 20),
    Line("wm", _ORT, "fp16", 30, 45),
    Line("image", "aoti[]", "bf16", 18, 60),
    Line("wm", "inductor[mode=max-autotune,freezing]", "bf16", 35, 200),
    *(Line(name, BEST, "bf16", 75) for name in ("wm", "image", "audio", "matrix-vae", "matrix-wm")),
    *(Line(name, FINAL, "", 100) for name in ("wm", "image", "audio", "matrix-vae", "matrix-wm")),
)
_ANY = ("eager", "cudagraph", _GRAPH)
"""Rows of a component that the order above does not name."""


def order_of(device: str, subjects: Mapping[str, str], half: str) -> tuple[Line, ...]:
    """Return the lines for these components, the keys of `subjects`, on `device`, whose 16-bit dtype is `half`.

    On a CPU, which only tries the sequence: eager and torch.export in fp32, then the finals.
    """
    if device == "cpu":
        rows = [Line(name, what, "fp32", 10) for what in ("eager", "torch.export") for name in subjects]
        return (BESIDE, *rows, *(Line(name, FINAL, "", 60) for name in subjects))
    known = {line.component for line in CUDA}
    others = [Line(name, what, "bf16", 25, 60) for name in subjects if name not in known for what in _ANY]
    own = [line for line in CUDA if line.component in ("", *subjects)]
    lines = [*own, BESIDE, *others] if others else own
    found: dict[tuple[object, ...], Line] = {}
    for place, line in enumerate(lines):
        line = line._replace(dtype=half) if line.dtype == "bf16" else line
        found.setdefault(line[:3] if line != BESIDE else (place,), line)
    return tuple(found.values())


def backends_of(lines: Sequence[Line], component: str) -> dict[str, list[str]]:
    """Return the backends of the component's rows by dtype, as a plan takes them."""
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.component == component and line.what not in (BEST, FINAL):
            found.setdefault(line.dtype, []).append(line.what)
    return found
