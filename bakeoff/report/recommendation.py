"""What to ship: by the final between the two best rows, else by the intervals of their medians."""

from collections.abc import Sequence

from bakeoff.record.schema import Comparison, Record
from bakeoff.record.store import Stored, StoredComparison
from bakeoff.record.verdict import decide
from bakeoff.report.comparisons import final_of, how, ratio_text
from bakeoff.report.format import median_and_interval, milliseconds
from bakeoff.report.groups import baselines, name_of
from bakeoff.report.speedups import shown_faster, speedup


def recommendation(rows: Sequence[Stored], comparisons: Sequence[StoredComparison] = ()) -> str:
    """What to ship, in one sentence. Where no difference is shown, a baseline is preferred: it needs no build."""
    ranked = sorted(
        (entry.record for entry in rows if entry.record.status == "ok" and entry.record.latency), key=_median
    )
    if not ranked:
        return "Ship nothing from this table: no row is ok."
    if len(ranked) == 1:
        return f"Ship {name_of(ranked[0])}: it is the only row that is ok ({milliseconds(_median(ranked[0]))} ms)."
    final = final_of(ranked[0], ranked[1], comparisons)
    base = baselines(rows).get("fp32")
    return _by_final(ranked, final, base) if final is not None else _by_intervals(ranked, base)


def _by_final(ranked: Sequence[Record], final: Comparison, base: Record | None) -> str:
    verdict = decide(final)
    a, b = final.a, final.b
    evidence = f"{ratio_text(verdict)}, {how(final)}"
    if verdict.word == "no difference shown":
        tied = [record for record in ranked[:2] if record.baseline]
        best = tied[0] if tied else ranked[0]
        why = "it needs no build" if tied else "the lower median of the two rows"
        return (
            f"No difference shown between {name_of(a)} and {name_of(b)} in the final ({evidence}); "
            f"ship {name_of(best)}, {why}{_gain(best, base)}."
        )
    winner, loser = (a, b) if verdict.word == "faster" else (b, a)
    row = next(record for record in ranked[:2] if str(record.variant) == str(winner.variant))
    return (
        f"Ship {name_of(winner)}{_gain(row, base)}: in the final against {name_of(loser)} it was faster "
        f"({name_of(b)} over {name_of(a)}: {evidence})."
    )


def _by_intervals(ranked: Sequence[Record], base: Record | None) -> str:
    best, second = ranked[0], ranked[1]
    level = [record for record in ranked if record is best or shown_faster(best, record) is not True]
    names = ", ".join(name_of(record) for record in level)
    tied = next((record for record in level if record.baseline), None)
    if len(level) > 1 and tied is not None:
        return f"No difference shown between {names}; ship {name_of(tied)}, it needs no build."
    if len(level) > 1:
        lowest = f"the lowest median, {milliseconds(_median(best))} ms{_gain(best, base)}"
        return f"No difference shown between {names}; ship {name_of(best)}: {lowest}."
    return (
        f"Ship {name_of(best)}: {_figures(best)}{_gain(best, base)}; next is {name_of(second)} with "
        f"{_figures(second)}, intervals apart, not interleaved."
    )


def _figures(record: Record) -> str:
    """The median with its interval."""
    if record.latency is None:
        return "no figures"
    median, interval = median_and_interval(record.latency)
    return f"{median} ms {interval}"


def _gain(record: Record, base: Record | None) -> str:
    """The speed-up against eager fp32, marked where no difference is shown."""
    gain = None if base is record else speedup(record, base)
    return "" if gain is None else f", {gain.ratio:.2f}x eager fp32{'' if gain.shown else ' ~'}"


def _median(record: Record) -> float:
    return record.latency.median_ms if record.latency is not None else float("inf")
