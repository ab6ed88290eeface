"""Names that the traced pass writes into torch's profile, and that are read back from its trace.

The account of a unit is made of contiguous stamps. In a traced unit every stamp also leaves an empty range, so the same
borders divide the trace, and nothing that the profiler does has to be trusted with them.
"""

BEGIN, END = "bakeoff begin", "bakeoff end"
"""First and last stamp of a unit."""
_MARK, _PART = "bakeoff mark ", "bakeoff part "


def mark_name(segment: int) -> str:
    """Name of the stamp that ends a piece of this segment."""
    return f"{_MARK}{segment}"


def marked_segment(name: str) -> int | None:
    """The segment of a stamp; None for any other name."""
    return _number(name, _MARK)


def part_name(part: int) -> str:
    """Name of the range of a part of a network, by its number."""
    return f"{_PART}{part}"


def named_part(name: str) -> int | None:
    """The number of a part; None for any other name."""
    return _number(name, _PART)


def is_ours(name: str) -> bool:
    """Whether the lab wrote this range."""
    return name in (BEGIN, END) or marked_segment(name) is not None or named_part(name) is not None


def _number(name: str, prefix: str) -> int | None:
    digits = name.removeprefix(prefix)
    return int(digits) if name.startswith(prefix) and digits.isdecimal() else None
