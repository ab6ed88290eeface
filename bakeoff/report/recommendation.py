"""What to ship: what a final between the two best rows decided, or which command decides it."""

from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff.models import component_names
from bakeoff.models.brought.about import OWN_WEIGHTS
from bakeoff.record.finalists import finalists, has_unknown_error
from bakeoff.record.schema import Comparison, Record
from bakeoff.record.store import Stored, StoredComparison
from bakeoff.record.verdict import decide
from bakeoff.report.comparable import current
from bakeoff.report.comparisons import final_of, how, ratio_text
from bakeoff.report.format import median_and_interval
from bakeoff.report.groups import name_of


@dataclass(frozen=True, slots=True)
class Decision:
    """The two best rows of a table and the final between them."""

    best: tuple[Stored, ...]
    """Fewer than two where there are not two rows to decide between."""
    final: Comparison | None
    winner: Stored | None
    """The one that was faster in the final; None without a final, or where it showed no difference."""


def decision(rows: Sequence[Stored], comparisons: Sequence[StoredComparison]) -> Decision:
    """What is decided about the current rows of a group; stale ones are left out."""
    best = tuple(finalists(current(rows)))
    final = final_of(best[0].record, best[1].record, comparisons) if len(best) == 2 else None
    winner = None
    if final is not None:
        word = decide(final).word
        side = {"faster": final.a, "slower": final.b}.get(word)
        winner = next((entry for entry in best if side and str(entry.record.variant) == str(side.variant)), None)
    return Decision(best, final, winner)


def recommendation(rows: Sequence[Stored], comparisons: Sequence[StoredComparison] = ()) -> str:
    """What to ship, or how to decide it, in one or two sentences.

    Only a final between the two best rows decides. Where it shows no difference a baseline is preferred, which needs no
    build. Quantised rows on random weights are named but never recommended.
    """
    found = decision(rows, comparisons)
    quantised = _about_quantised(current(rows), found.best)
    if not found.best:
        return quantised or "Ship nothing from this table: no row is ok."
    return " ".join(filter(None, [_about_best(found), quantised]))


def _about_best(found: Decision) -> str:
    first = found.best[0].record
    if len(found.best) == 1:
        return f"Nothing to compare with: {name_of(first)} ({_median(first)}) is the only row that can be ranked."
    if found.final is not None:
        return _by_final(found, found.final)
    return _undecided(first, found.best[1].record)


def _by_final(found: Decision, final: Comparison) -> str:
    a, b = final.a, final.b
    evidence = f"{ratio_text(decide(final))}, {how(final)}"
    if found.winner is None:
        plain = [entry.record for entry in found.best if entry.record.baseline]
        ship = f"ship {name_of(plain[0])}, it needs no build" if plain else "ship either"
        return f"No difference shown between {name_of(a)} and {name_of(b)} in the final ({evidence}); {ship}."
    winner = found.winner.record
    index = 0 if str(a.variant) == str(winner.variant) else 1
    return (
        f"Ship {name_of(winner)}{_gain(final, index)}: in the final against {name_of(final.sides[1 - index])} it was "
        f"faster ({name_of(b)} over {name_of(a)}: {evidence})."
    )


def _gain(final: Comparison, index: int) -> str:
    """The speed-up of a side over eager fp32 where that ran in the same rounds; else nothing is claimed."""
    base = final.baseline
    if base is None or base.status != "ok" or str(base.variant) == str(final.sides[index].variant):
        return ""
    verdict = decide(final, index, 2)
    if verdict.word == "no difference shown":
        return f", no difference shown from {name_of(base)} ({ratio_text(verdict)})"
    return f", {verdict.ratio:.2f}x [{verdict.low:.2f}, {verdict.high:.2f}] {name_of(base)}"


def _undecided(first: Record, second: Record) -> str:
    return (
        f"Nothing is decided: {name_of(first)} has the lowest median, {_median(first)}, before {name_of(second)} with "
        f"{_median(second)}, but they were not measured against each other. Decide with: {_command(first, second)}"
    )


def _about_quantised(rows: Sequence[Stored], best: Sequence[Stored]) -> str:
    """A quantised row on random weights that has a lower median than the best of the others, and what would decide."""
    unknown = [
        entry.record
        for entry in rows
        if entry.record.status == "ok" and entry.record.latency is not None and has_unknown_error(entry.record)
    ]
    least = min(unknown, key=_median_ms, default=None)
    if least is None or (best and _median_ms(best[0].record) <= _median_ms(least)):
        return ""
    return (
        f"{name_of(least)} has the lowest median, {_median(least)}, but random weights say nothing about the error of "
        f"yours; decide with: make sweep MODEL={least.variant.component} CHECKPOINT=FILE"
    )


def _command(a: Record, b: Record) -> str:
    """The command that measures two variants against each other.

    `bakeoff compare` takes variants of the default batch, seeds and weights; others need a sweep of the two backends,
    which ends with a final.
    """
    threads = [f"--threads {a.threads}"] if a.threads != a.host.cores else []
    brought = a.checkpoint.startswith(OWN_WEIGHTS)
    known = a.variant.component in component_names() or brought
    plain = (a.batch, a.weight_seed, a.input_seed, "" if brought else a.checkpoint) == (1, 0, 0, "")
    if known and plain and not any(":" in reference for reference in _references(a, b)):
        return " ".join([f"bakeoff compare '{a.variant}' '{b.variant}'", *threads])
    variant = a.variant
    options = [
        f"--preset {variant.preset} --workload {variant.workload} --backends '{','.join(_references(a, b))}'",
        f"--dtype {','.join(dict.fromkeys((variant.dtype, b.variant.dtype)))} --device {variant.device}",
        *([f"--batch {a.batch}"] if a.batch != 1 else []),
        *([f"--seed {a.weight_seed}"] if a.weight_seed else []),
        *([f"--input-seed {a.input_seed}"] if a.input_seed else []),
        *threads,
        *(["--checkpoint FILE"] if a.checkpoint and not brought else []),
    ]
    return " ".join([f"bakeoff sweep {variant.component if known else 'PACKAGE.MODULE:SPEC'}", *options])


def _references(*records: Record) -> list[str]:
    """The backends of each record as a sweep takes them: a user's own by package.module:ATTRIBUTE."""
    found = []
    for record in records:
        own = {source.name: source.reference for source in record.source.backends} if record.source is not None else {}
        uses = [str(use).replace(use.name, own.get(use.name, use.name), 1) for use in record.variant.backends]
        found.append("+".join(uses))
    return list(dict.fromkeys(found))


def _median(record: Record) -> str:
    """The median with its interval."""
    if record.latency is None:
        return "no figures"
    median, interval = median_and_interval(record.latency)
    return f"{median} ms {interval}"


def _median_ms(record: Record) -> float:
    return record.latency.median_ms if record.latency is not None else float("inf")
