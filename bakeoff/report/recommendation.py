"""Recommends what to deploy: the result of the final between the two best rows, or the command that runs it.

Only a final decides. If the two best rows lie further apart than rows drift from one sweep to the next, the text says
so and that a final would confirm it; it does not recommend deployment.

The best are those by the objective of the newest row, among the rows that meet its limits. This module finds the case
and its figures; the sentence of each case is in `bakeoff.report.sentences`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, inf

from bakeoff.models import component_names
from bakeoff.models.brought.about import OWN_WEIGHTS
from bakeoff.models.types import BASELINE_DTYPES
from bakeoff.models.words import counted
from bakeoff.record.comparable import may_divide
from bakeoff.record.finalists import (
    call_ms,
    candidates,
    check_limits,
    finalists,
    has_unknown_error,
    objective_of,
    speeds_ms,
    worst,
)
from bakeoff.record.objective import LATENCY, Goal, Objective
from bakeoff.record.schema import Comparison, Record
from bakeoff.record.source import typed_backends
from bakeoff.record.store import Stored, StoredComparison
from bakeoff.record.verdict import Verdict, decide, failed_side
from bakeoff.report.built import only_built, target_of, untargeted
from bakeoff.report.document import Command, Link, Text
from bakeoff.report.format import milliseconds
from bakeoff.report.groups import Table, current, name_of, shown_faster
from bakeoff.report.sentences import GAIN, PAGE, REMARKS, RESULT
from bakeoff.report.wording import (
    final_of,
    fit_text,
    from_the_faster,
    goal_text,
    how,
    limit_text,
    ratio_text,
    sure_text,
    why_no_verdict,
)

_BEST: dict[Goal, str] = {"latency": "the lowest median", "throughput": "the most items a second"}
DRIFT = 1.7
"""Largest ratio that tests/trials/sweep_times.json has of a row's medians in two sweeps within a day, on a shared
virtual machine (docs/method.md)."""
LONG_P99 = 2.0
"""Ratio of a row's 99th percentile to its median from which on the text states it."""
LEAST_P99 = 1.05
"""Ratio of two rows' 99th percentiles above which it decides between rows of equal medians."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The two best rows of a table and the final between them."""

    objective: Objective
    best: tuple[Stored, ...]
    """The best first; fewer than two if the table has no two rows to decide between."""
    final: Comparison | None
    winner: Stored | None
    """The row that was faster in the final; None without a final, or if it showed no difference."""
    failed: Comparison | None = None
    """The newest final if one of the two failed in it, so that it has no verdict."""

    @property
    def lacks_final(self) -> bool:
        """Whether there are two best rows, and no final between them."""
        return len(self.best) == 2 and self.final is None

    @property
    def apart(self) -> float:
        """Time of the second best row over the best row's, from sweeps, of two modes the second's faster and the best's
        slower one; 1 if there are no two rows."""
        times = [speeds_ms(entry.record, self.objective.goal) for entry in self.best]
        return times[1][0] / times[0][1] if len(times) == 2 and times[0][1] else 1.0

    @property
    def is_far_ahead(self) -> bool:
        """Whether the two best rows lie further apart than sweeps drift, and their medians' intervals apart too."""
        if self.apart <= DRIFT:
            return False
        first, second = (entry.record for entry in self.best)
        return shown_faster(first, second, self.objective.goal) is True


def decision(rows: Sequence[Stored], comparisons: Sequence[StoredComparison]) -> Decision:
    """Return the best rows of a group and the newest final between them, if there is one; stale rows are left out.

    If there is none, but one between the best rows that are ok, these are returned.
    """
    fresh = current(rows)
    objective = objective_of(fresh)
    best = tuple(finalists(fresh, objective))
    final = _final_of(best, comparisons, objective.goal)
    steady = tuple(finalists([entry for entry in fresh if entry.record.status == "ok"], objective))
    if final is None and (known := _final_of(steady, comparisons, objective.goal)) is not None:
        best, final = steady, known
    winner = None
    failed = None
    if final is not None and failed_side(final) is not None:
        final, failed = None, final
    if final is not None:
        word = decide(final).word
        side = {"faster": final.a, "slower": final.b}.get(word)
        winner = next((entry for entry in best if side and str(entry.record.variant) == str(side.variant)), None)
    return Decision(objective, best, final, winner, failed)


def _final_of(best: Sequence[Stored], comparisons: Sequence[StoredComparison], goal: Goal) -> Comparison | None:
    return final_of(best[0].record, best[1].record, comparisons, goal) if len(best) == 2 else None


Answer = tuple[Text | Command, ...]
"""What to deploy in green, or what is undecided in yellow, with the command that decides it, if one can."""


def deployment(
    rows: Sequence[Stored],
    comparisons: Sequence[StoredComparison] = (),
    links: Sequence[Link] = (),
) -> Answer:
    """Return what to deploy, or how to decide it; `links` lead to a final. The objective is named unless it is latency.

    If a final shows no difference, a baseline is preferred, since it needs no build, else the row with the lower p99.
    Quantised rows on random weights
    are named but never recommended. Of rows that were only built, it says for which GPUs.
    """
    found, fresh = decision(rows, comparisons), current(rows)
    decided = found.final is not None if len(found.best) == 2 else None  # None: nothing to decide between
    if len(found.best) < 2 and (targets := only_built(rows)):
        case, figures, asked, decided = "rows were only built", {"targets": targets}, _export(rows), True
    else:
        case, figures = _result(found, fresh)
        asked = ""
        if decided is False:
            first, second = (entry.record for entry in found.best)
            asked = command(first, second, found.objective)
    text, _, last = (part.format(**figures) for part in RESULT[case].partition("| "))
    text = " ".join(filter(None, [text.strip(), *dict.fromkeys(_gains(found)), *_remarks(found, fresh), last]))
    text = text if found.objective == LATENCY else f"Objective {found.objective}: {text}"
    return Text(text, tone="good" if decided else "open", links=tuple(links)), *([Command(asked)] if asked else [])


def _export(rows: Sequence[Stored]) -> str:
    built = next(entry.record for entry in rows if entry.record.status == "built")
    weights = " --checkpoint FILE" * bool(built.checkpoint and not built.checkpoint.startswith(OWN_WEIGHTS))
    return f"bakeoff export '{untargeted(built.variant)}' --for {target_of(built)}{weights}"


def how_to_decide(found: Iterable[Table], comparisons: Sequence[StoredComparison], name: str = "") -> Answer:
    """Return how many of a page's tables lack a final, and one command for all; empty if fewer than two do.

    `name` comes from the command line that made the page and is added to the command.
    """
    found = list(found)
    lacking = [decision(table.rows, comparisons).lacks_final for table in found if table.rows]
    if sum(lacking) < 2:
        return ()
    where = ", on the machine of each" if len({table.machine.key for table in found}) > 1 else ""
    text = PAGE.format(lacking=sum(lacking), all=len(lacking), where=where)
    return Text(text, tone="open"), Command(f"bakeoff compare --undecided {name}".rstrip())


def _result(found: Decision, fresh: Sequence[Stored]) -> tuple[str, dict[str, str]]:
    """Return the case of a table's two best rows, and the figures of its sentence."""
    if not found.best:
        return _without_rows(fresh, found.objective)
    if found.final is not None:
        return _by_final(found, found.final)
    goal, records = found.objective.goal, [entry.record for entry in found.best]
    figures = {"drift": f"{DRIFT:.1f}", "goal": _BEST[goal], "apart": apart_text(found)}
    for prefix, record in zip(("", "second_"), records, strict=False):
        figures |= {f"{prefix}figure": _speeds(record, goal), prefix.rstrip("_") or "best": name_of(record)}
    if len(records) == 1:
        return "one row", figures
    if found.failed is not None:
        return "one failed in the final", figures | {"why": why_no_verdict(found.failed)}
    if found.is_far_ahead:
        return "far ahead", figures
    if found.apart > 1 and "unstable" in (record.status for record in records):
        return "faster at each speed of the machine", figures
    return "not decided" if may_divide(*records) else "not decided, of two sweeps", figures


def apart_text(found: Decision) -> str:
    """Return the ratio of the two best rows, rounded down."""
    return f"{floor(found.apart * 100) / 100:.2f}"


def _without_rows(rows: Sequence[Stored], objective: Objective) -> tuple[str, dict[str, str]]:
    """Return the case of a table without a row that may be shipped, with the row that is nearest to the limits."""
    checks = {entry.id: check_limits(entry.record, objective) for entry in rows}
    able = candidates(rows, objective) if objective.limits else []
    if not able:
        return "nothing to rank", {}
    nearest = min(able, key=lambda entry: max(inf if each.excess is None else each.excess for each in checks[entry.id]))
    limits = " and ".join(map(str, objective.limits))
    return "no row meets the limits", {
        "limits": limits, "nearest": name_of(nearest.record), "misses": fit_text(checks[nearest.id]),
    }  # fmt: skip


def _by_final(found: Decision, final: Comparison) -> tuple[str, dict[str, str]]:
    """Return the case of a final with a verdict."""
    a, b, verdict = from_the_faster(final)
    off = (each.text for each in final.findings if each.code == "off-rows")
    evidence = "; ".join([f"{ratio_text(verdict)}, {how(final)}", *off])
    figures = {"winner": name_of(a), "loser": name_of(b), "evidence": evidence}
    lost = [_lost_to_eager(final, side) for side in (a, b)]
    if found.winner is not None:
        return "eager beat the winner" if lost[0] else "the final has a winner", figures
    if any(lost):
        return "no difference, eager beat one", figures
    if plain := [side for side in (a, b) if side.baseline]:
        return "no difference, one needs no build", figures | {"eager": name_of(plain[0])}
    late = sorted((p99, name_of(entry.record)) for entry in found.best if (p99 := _p99_ms(entry.record, found)))
    if len(late) == 2 and late[1][0] > LEAST_P99 * late[0][0]:
        return "no difference, one has the lower p99", figures | {"steadier": late[0][1]}
    return "no difference", figures


def _p99_ms(record: Record, found: Decision) -> float | None:
    """Return the row's 99th percentile; None if it has too few samples, or if latency is not the goal."""
    return record.latency.p99_ms if record.latency is not None and found.objective.goal == "latency" else None


def _eager_side(final: Comparison) -> int | None:
    """Return the number of the side that is eager fp32; None if it did not run."""
    sides = (index for index, side in enumerate(final.sides) if side.baseline and side.variant.dtype in BASELINE_DTYPES)
    return next(sides, None)


def gain_in(final: Comparison, row: Record) -> Verdict | None:
    """Return the verdict on a row's variant against eager fp32 in a final; None if one of them did not run there."""
    index = next((index for index, side in enumerate(final.sides) if str(side.variant) == str(row.variant)), None)
    eager = _eager_side(final)
    if index is None or eager is None or index == eager or final.sides[eager].status != "ok":
        return None
    return decide(final, index, eager)


def _lost_to_eager(final: Comparison, side: Record) -> bool:
    found = gain_in(final, side)
    return found is not None and found.word == "slower"


def _gains(found: Decision) -> Iterator[str]:
    """Yield how the winner, or each side if no difference was shown, compares with eager fp32 in the same rounds;
    nothing if one of the two is eager: the result says it."""
    final = found.final
    eager = _eager_side(final) if final is not None else None
    if final is None or eager in (0, 1):
        return
    base = final.sides[eager] if eager is not None else None
    if eager is None or base is None or base.status != "ok":
        texts = [finding.text for finding in final.findings if finding.code == "no-baseline"]
        status = base.status if base is not None else "not measured"
        yield GAIN["unknown"].format(why=texts[0] if texts else f"eager fp32 was {status} in this final")
        return
    for index in (0, 1):
        if found.winner is not None and found.winner.record.variant != final.sides[index].variant:
            continue
        faster, slower, verdict = from_the_faster(final, index, eager)
        case = "no verdict" if verdict.word == "no difference shown" else "shown"
        yield GAIN[case].format(
            faster=name_of(faster),
            slower=name_of(slower),
            pairs=counted(verdict.pairs, "pair"),
            early=sure_text(verdict),
            **{name: f"{getattr(verdict, name):.2f}" for name in ("ratio", "low", "high")},
        )


def _remarks(found: Decision, rows: Sequence[Stored]) -> Iterator[str]:
    """Yield what else matters of the winner, else of the best rows: a long p99, margins to the limits; then rows whose
    limits are not clear, and a better one whose error is not known."""
    best, objective = [found.winner] if found.winner is not None else found.best, found.objective
    goal = objective.goal
    for record in (entry.record for entry in best):
        p99, median = _p99_ms(record, found), call_ms(record, goal)
        if p99 is not None and p99 >= LONG_P99 * median > 0 and record is best[0].record:
            yield REMARKS["long p99"].format(name=name_of(record), times=f"{p99 / median:.1f}")
        if objective.limits:
            margins = "; ".join(limit_text(each) for each in check_limits(record, objective))
            yield REMARKS["meets the limits"].format(name=name_of(record), margins=margins)
    for record in (entry.record for entry in candidates(rows, objective) if best):
        checks = check_limits(record, objective)
        if worst(checks) in ("unclear", "unknown"):
            yield REMARKS["limits not clear"].format(name=name_of(record), fit=fit_text(checks))
    unknown = [
        entry.record
        for entry in rows
        if entry.record.status == "ok"
        and entry.record.latency is not None
        and has_unknown_error(entry.record)
        and worst(check_limits(entry.record, objective)) != "not met"
    ]
    least = min(unknown, key=lambda record: call_ms(record, goal), default=None)
    if least is not None and not (found.best and call_ms(found.best[0].record, goal) <= call_ms(least, goal)):
        names = {"name": name_of(least), "component": least.variant.component}
        yield REMARKS["better on random weights"].format(**names, goal=_BEST[goal], figure=goal_text(least, goal))


def _speeds(record: Record, goal: Goal) -> str:
    """Return the figure that a goal ranks by as text, or the times of both modes."""
    fast, slow = speeds_ms(record, goal)
    return goal_text(record, goal) if fast == slow else f"{milliseconds(fast)} | {milliseconds(slow, fast)} ms"


def command(a: Record, b: Record, objective: Objective) -> str:
    """Return the command that measures two variants against each other.

    `bakeoff compare` takes variants of the default batch, seeds and weights, and compares latency; others need a sweep
    of the two backends, which ends with a final.
    """
    threads = [f"--threads {a.threads}"] if a.threads != a.host.cores else []
    brought = a.checkpoint.startswith(OWN_WEIGHTS)
    if takes_compare(a, b, objective):
        return " ".join([f"bakeoff compare '{a.variant}' '{b.variant}'", *threads])
    variant = a.variant
    options = [
        f"--preset {variant.preset} --workload {variant.workload} --backends '{','.join(_references(a, b))}'",
        f"--dtype {','.join(dict.fromkeys((variant.dtype, b.variant.dtype)))} --device {variant.device}",
        *([f"--batch {a.batch}"] if a.batch != 1 else []),
        *([f"--seed {a.weight_seed}"] if a.weight_seed else []),
        *threads,
        *(["--checkpoint FILE"] if a.checkpoint and not brought else []),
        *([f"--objective '{objective}'"] if objective != LATENCY else []),
    ]
    known = variant.component in component_names() or brought
    return " ".join([f"bakeoff sweep {variant.component if known else 'PACKAGE.MODULE:SPEC'}", *options])


def takes_compare(a: Record, b: Record, objective: Objective) -> bool:
    """Return whether both have default batch, seeds and weights, and latency as goal, as `bakeoff compare` needs."""
    brought = a.checkpoint.startswith(OWN_WEIGHTS)
    known = a.variant.component in component_names() or brought
    plain = (a.batch, a.weight_seed, a.input_seed, "" if brought else a.checkpoint) == (1, 0, 0, "")
    by_name = not any(":" in reference for reference in _references(a, b))
    return known and plain and objective.goal == "latency" and by_name


def _references(*records: Record) -> list[str]:
    """Return the distinct backends of the records as a sweep takes them."""
    return list(dict.fromkeys(typed_backends(record.variant, record.source) for record in records))
