"""The trend of unit times."""

from collections.abc import Sequence

FEWEST = 6


def slope(times_ms: Sequence[float], places: Sequence[int] | None = None) -> tuple[float, float, float] | None:
    """Theil and Sen's slope a unit with its 95 % interval: a few slow units do not decide it.

    `places` are the numbers of the units where some are left out. None for fewer than six units.
    """
    if len(times_ms) < FEWEST:
        return None
    from scipy.stats import theilslopes

    found = theilslopes(times_ms, range(len(times_ms)) if places is None else places, 0.95)
    return float(found[0]), float(found[2]), float(found[3])
