"""Events of traces for tests, in microseconds, as kineto writes them."""

from collections.abc import Sequence

from bakeoff.trace.chrome import BEGIN, END, TraceEvent, mark_name
from bakeoff.trace.timeline import Segment

LINES: Sequence[Segment] = (
    Segment("unattributed", "unattributed"),
    Segment("copies", "copies"),
    Segment("glue", "glue"),
    Segment("denoise", "phase", "wm"),
    Segment("decode", "phase", "image"),
)
DENOISE, DECODE, GLUE = 3, 4, 2


def stamp(name: str, at: float) -> TraceEvent:
    return TraceEvent("X", name, "user_annotation", at, 0.0, 1, 1)


def unit(start: float, pieces: Sequence[tuple[int, float]], end: float) -> list[TraceEvent]:
    """The stamps of a unit: (segment, when it ended) for each piece."""
    return [stamp(BEGIN, start), *(stamp(mark_name(segment), at) for segment, at in pieces), stamp(END, end)]


def operator(name: str, start: float, end: float, thread: int = 1) -> TraceEvent:
    return TraceEvent("X", name, "cpu_op", start, end - start, 1, thread, args={"External id": 1})


def launch(at: float, correlation: int, name: str = "cudaLaunchKernel") -> TraceEvent:
    return TraceEvent("X", name, "cuda_runtime", at, 2.0, 1, 1, args={"correlation": correlation})


def kernel(
    name: str, start: float, end: float, correlation: int | None, stream: int = 7, cat: str = "kernel"
) -> TraceEvent:
    args = {"stream": stream, "device": 0} | ({} if correlation is None else {"correlation": correlation})
    return TraceEvent("X", name, cat, start, end - start, 0, stream, args=args)
