"""Numbers, names and times as text, the same on every page."""

from typing import TYPE_CHECKING, Final

from bakeoff.machine.terminal import one_line

if TYPE_CHECKING:
    from bakeoff.record.statistics import Summary

MIB: Final = 1 << 20
INSTALL: Final = "Install it with: make install (in a checkout), or pip install -e '.[cpu]' -c constraints.txt"
"""How to get a missing library; the project is not published on an index."""


def decimals(ms: float) -> int:
    """Decimal places at which a duration of this size in milliseconds has at least three significant digits."""
    return 2 if ms >= 10 else 3 if ms >= 1 else 4


def milliseconds(ms: float, like: float | None = None) -> str:
    """A duration with the decimals of one of `like` milliseconds: an interval's ends get those of its median."""
    return f"{ms:.{decimals(ms if like is None else like)}f}"


def median_and_interval(figures: "Summary") -> tuple[str, str]:
    """The median, and its 95 % interval as `[9.500, 10.400]`, in milliseconds with the same number of decimals."""
    median, low, high = (
        milliseconds(value, figures.median_ms) for value in (figures.median_ms, figures.low_ms, figures.high_ms)
    )
    return median, f"[{low}, {high}]"


def minute(created: str) -> str:
    """A record's ISO time as `2026-01-02 03:04`."""
    return created[:16].replace("T", " ")


def origin(created: str, made: str, commit: str, dirty: bool) -> str:
    """Time, sweep or run, and commit of records, as a heading."""
    known = f"commit {commit[:12]}{' with changes' if dirty else ''}" if commit else "outside a checkout"
    return f"{minute(created)} UTC, {made}, {known}"


def shorten(text: str, letters: int) -> str:
    """Shorten a text to `letters` on one line, without its middle, since variants differ at both ends."""
    line = one_line(text)
    if len(line) <= letters:
        return line
    head = (letters - 1) * 2 // 3
    return f"{line[:head]}…{line[len(line) - (letters - 1 - head) :]}"


def duration(ms: float) -> str:
    """A time of any length in the unit that suits it, as in `12.50 ms`, `3.2 s` or `12 min 5 s`."""
    seconds = ms / 1000
    if abs(seconds) < 1:
        return f"{ms:.2f} ms"
    if abs(seconds) < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def size_text(size: int) -> str:
    """Bytes in the unit that suits them, as in `1,720 MiB`, `1.1 MiB` or `295 KiB`."""
    if size < MIB:
        return f"{size} B" if size < 1024 else f"{size / 1024:.0f} KiB"
    return f"{size / MIB:.1f} MiB" if size < 10 * MIB else f"{size / MIB:,.0f} MiB"
