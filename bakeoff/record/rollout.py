"""What follows from a rollout's curves: horizon, growth, and how a mix compares with equivalents of eager."""

from collections.abc import Iterator, Mapping
from math import exp, inf, log
from statistics import median

from bakeoff.models.words import counted
from bakeoff.record.pipeline import Curve, PipelineMeasurement, Rollout
from bakeoff.record.schema import OutputParity

MIX = "mix"
"""Run of the curves of the mix itself."""
ONLY = "only "
"""Begin of the runs in which one slot alone is as in the mix, and the others are eager in their dtypes."""
HORIZON_DB = 30.0
"""A curve's horizon is its first unit below."""
STATE = "state"
"""Output of the curves of the state."""
_FLICKERS = 2.0
"""A mix flickers if the error of its changes is more than this many times that of any of its slots alone."""
_FEWEST = 8
"""Least number of units for a growth."""
_QUANTILE = 2.0
"""Standard errors from the estimate to each end of a 95 % interval, for some 40 units."""


def of_output(rollout: Rollout, output: str) -> tuple[Curve, tuple[Curve, ...]]:
    """Return the mix's curve of an output, and those of the equivalents of eager."""
    curves = [curve for curve in rollout.curves if curve.output == output and not curve.run.startswith(ONLY)]
    return next(curve for curve in curves if curve.run == MIX), tuple(curve for curve in curves if curve.run != MIX)


def horizon(curve: Curve, threshold_db: float) -> int | None:
    """Return the first unit below the threshold, or without a finite error; None if there is none."""
    pairs = enumerate(zip(curve.errors, curve.decibels, strict=True))
    return next((unit for unit, (error, db) in pairs if error is None or (db is not None and db < threshold_db)), None)


def growth(curve: Curve) -> tuple[float, tuple[float, float]] | None:
    """Return the factor by which the error grows a unit, and its 95 % interval: exp of the slope of the log error.

    By least squares over the units with a finite error above zero; None if there are too few. A curve that levels off
    has a growth near 1.
    """
    from scipy.stats import linregress  # importing scipy.stats takes a second

    units = [unit for unit, error in enumerate(curve.errors) if error]
    if len(units) < _FEWEST:
        return None
    fit = linregress(units, [log(error) for error in curve.errors if error])
    half = _QUANTILE * fit.stderr
    return exp(fit.slope), (exp(fit.slope - half), exp(fit.slope + half))


def flicker(rollout: Rollout, output: str) -> tuple[float, float | None] | None:
    """Return the median error of an output's changes from unit to unit, and its ratio to the largest of an equivalent.

    None if nothing changes; the ratio is None if no equivalent is off.
    """
    mix, others = of_output(rollout, output)
    own, most = _change_off(mix), max(map(_change_off, others), default=0.0)
    return (own, own / most if most else None) if own else None


def _change_off(curve: Curve) -> float:
    return median(found) if (found := [*filter(None, curve.changes)]) else 0.0


def flickers(rollout: Rollout) -> str:
    """Return which output of a mix flickers though none of its slots alone makes it, and by which slots; "" if none
    does, or if the rollout has no runs of single slots."""
    for output in dict.fromkeys(curve.output for curve in rollout.curves):
        alone = {
            curve.run.removeprefix(ONLY): _change_off(curve)
            for curve in rollout.curves
            if curve.output == output and curve.run.startswith(ONLY)
        }
        mix, others = of_output(rollout, output)
        own, most = _change_off(mix), max([*alone.values(), *map(_change_off, others)])
        if alone and own > _FLICKERS * most:
            text = f"{' and '.join(alone)} together: {output} is {own:.1e} off in its change from unit to unit"
            return f"{text}, at most {most:.1e} with one of them alone"
    return ""


def standing(rollout: Rollout, output: str) -> str:
    """Return how the mix's horizon compares with those of the equivalents: with eager, earlier or later."""
    mix, others = of_output(rollout, output)
    own, *ends = (
        inf if unit is None else unit for unit in (horizon(curve, rollout.horizon_db) for curve in (mix, *others))
    )
    if not ends or min(ends) <= own <= max(ends):
        return "with eager" if ends else ""
    spread = _unit_text(min(ends)) if min(ends) == max(ends) else f"{_unit_text(min(ends))} to {_unit_text(max(ends))}"
    return f"{'earlier' if own < min(ends) else 'later'} than eager: unit {_unit_text(own)} against {spread}"


def _unit_text(unit: float) -> str:
    return "none" if unit == inf else f"{unit:.0f}"


def broke(rollout: Rollout) -> str:
    """Return which output of the mix is first not finite when it runs free, and in which unit; "" if all are finite.

    A unit in which an equivalent of eager is not finite either does not count.
    """
    found: dict[str, int] = {}
    for name in dict.fromkeys(curve.output for curve in rollout.curves):
        mix, others = of_output(rollout, name)
        for unit, error in enumerate(mix.errors):
            if error is None and all(other.errors[unit] is not None for other in others):
                found.setdefault(name, unit)
    first = min(found, key=lambda name: found[name], default="")
    return f"{first}: not finite (unit {found[first]}, running free)" if first else ""


def nearest(made: PipelineMeasurement) -> Mapping[str, tuple[int, OutputParity]]:
    """Return, by output, the unit in which a failed or else the largest share of the limit was found, and its error."""
    found: dict[str, tuple[int, OutputParity]] = {}
    for unit, output in _entries(made):
        name = STATE if output.name.startswith(f"{STATE}.") else output.name
        if name not in found or output.of_limit > found[name][1].of_limit:
            found[name] = unit, output
    return dict(sorted(found.items(), key=lambda entry: entry[0] == STATE))


def _entries(made: PipelineMeasurement) -> Iterator[tuple[int, OutputParity]]:
    for unit in made.parity.units if made.parity is not None else ():
        for output in unit.outputs:
            yield unit.unit, output


def rollout_text(made: PipelineMeasurement) -> str:
    """Return the result of a rollout that passed: how near its outputs came to their limits."""
    units = made.parity.units if made.parity is not None else ()
    worst = max(nearest(made).values(), key=lambda pair: pair[1].of_limit, default=None)
    if worst is None:
        return "nothing was compared"
    unit, output = worst
    where = "after opening" if unit < 0 else f"unit {unit}"
    near = f"at most {output.of_limit:.0%} of one ({output.name}, {where})"
    return f"{counted(len(units) - 1, 'unit')} within limits, {near}"
