"""Formats numbers, names and times as text, the same on every page."""

import re
from typing import TYPE_CHECKING, Final

from bakeoff.backends.install import extra_command
from bakeoff.machine.terminal import one_line

if TYPE_CHECKING:
    from bakeoff.record.statistics import Summary

MIB: Final = 1 << 20
INSTALL: Final = f"Install it with: {extra_command('cpu')}"
"""How to get a missing library; pip takes the bakeoff that is installed, with its extra."""

_PARAMETERS = re.compile(r"\([^()]*\)")
_COMMON_IN_KERNELS = re.compile(
    r"^void |\b(at|native|cuda|c10|\w*internal)::|gpu_kernel_impl(_nocast)?|operator|\{lambda#\d+\}"
    r"| const\b|&|(?<!\w)::|::(?=\W)"
)
"""What says nothing in the name of one of torch's kernels, once parameters are left out."""


def decimals(ms: float) -> int:
    """Return the decimal places for a duration in milliseconds: three significant digits at least, from 0.01 ms up."""
    return 2 if ms >= 10 else 3 if ms >= 1 else 4


def milliseconds(ms: float, like: float | None = None) -> str:
    """Format milliseconds, without the unit, with the decimals of `like` if given, such as an interval's median."""
    return f"{ms:.{decimals(ms if like is None else like)}f}"


def median_and_interval(figures: "Summary") -> tuple[str, str]:
    """Return the median, and its 95 % interval as `[9.500, 10.400]`, in milliseconds with equal decimals."""
    median, low, high = (
        milliseconds(value, figures.median_ms) for value in (figures.median_ms, figures.low_ms, figures.high_ms)
    )
    return median, f"[{low}, {high}]"


def with_interval(figures: "Summary") -> str:
    """Format a median with its interval, as in `10.000 [9.500, 10.400]`."""
    return " ".join(median_and_interval(figures))


def minute(created: str) -> str:
    """Format a record's ISO time as `2026-01-02 03:04`."""
    return created[:16].replace("T", " ")


def shorten(text: str, letters: int) -> str:
    """Return the text on one line of at most `letters` characters, without its middle: variants differ at both ends."""
    line = one_line(text)
    if len(line) <= letters:
        return line
    head = (letters - 1) * 2 // 3
    return f"{line[:head]}…{line[len(line) - (letters - 1 - head) :]}"


def kernel_name(name: str) -> str:
    """Return the name of a kernel; of a C++ function without parameters and what all of torch's have in common."""
    text = one_line(name)
    if "<" in text and "(" in text:
        while (shorter := _PARAMETERS.sub("", text)) != text:
            text = shorter
        text = _COMMON_IN_KERNELS.sub("", text)
    return text


def duration(ms: float) -> str:
    """Format a duration in a suitable unit, as in `12.50 ms`, `3.2 s` or `12 min 5 s`."""
    seconds = ms / 1000
    if abs(seconds) < 1:
        return f"{ms:.2f} ms"
    if abs(seconds) < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def size_text(size: int) -> str:
    """Format a number of bytes in a suitable unit, as in `1,720 MiB`, `1.1 MiB` or `295 KiB`."""
    if size < MIB:
        return f"{size} B" if size < 1024 else f"{size / 1024:.0f} KiB"
    return f"{size / MIB:.1f} MiB" if size < 10 * MIB else f"{size / MIB:,.0f} MiB"
