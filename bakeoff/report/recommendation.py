"""Recommends what to deploy: the result of the final between the two best rows, or the command that runs it.

Only a final decides. If the two best rows lie further apart than rows drift from one sweep to the next, the text says
so and that a final would confirm it; it does not recommend deployment.

The best are those by the objective of the newest row, among the rows that meet its limits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor

from bakeoff.models import component_names
from bakeoff.models.brought.about import OWN_WEIGHTS
from bakeoff.models.types import BASELINE_DTYPES
from bakeoff.models.words import counted
from bakeoff.record.comparable import may_divide
from bakeoff.record.finalists import (
    LimitCheck,
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
from bakeoff.record.verdict import LEAST_DIFFERENCE, Verdict, decide, failed_side
from bakeoff.report.built import only_built, target_of, untargeted
from bakeoff.report.format import milliseconds
from bakeoff.report.groups import USUAL, Table, current, name_of, own_baselines, shown_faster, speedup
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

    def is_far_ahead(self, drift: float) -> bool:
        """Return whether the two best rows lie further apart than `drift`, and their medians' intervals apart too."""
        if self.apart <= drift:
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


@dataclass(frozen=True, slots=True)
class Deployment:
    """What to deploy from a table, or how to decide it."""

    text: str
    """A few sentences, which name the objective unless it is the usual one, latency."""
    command: str
    """The command that decides what is undecided; "" if nothing is, or no single command can."""
    decided: bool | None
    """Whether there is a final between the two best rows, or rows were only built; None if there are no two rows to
    compare."""

    def __str__(self) -> str:
        return f"{self.text} {self.command}".rstrip()


def deployment(
    rows: Sequence[Stored],
    comparisons: Sequence[StoredComparison] = (),
    drift: float = USUAL,
    runs: str = "",
    every: Sequence[Stored] = (),
) -> Deployment:
    """Return what to deploy, or how to decide it. Baselines are those of the rows' own sweeps, also among `every`.

    If a final shows no difference, a baseline is preferred, since it needs no build. The text says if the best rows are
    further apart than `drift`, a ratio of times. Quantised rows on random weights are named but never recommended.
    `runs` is the `--runs FOLDER` that the command needs. Of rows that were only built, it says for which GPUs.
    """
    found, fresh = decision(rows, comparisons), current(rows)
    if len(found.best) < 2 and (targets := only_built(rows)):
        built = next(entry.record for entry in rows if entry.record.status == "built")
        text = f"Built for {targets} and not timed: no such GPU is here. Export one with:"
        weights = " --checkpoint FILE" * bool(built.checkpoint and not built.checkpoint.startswith(OWN_WEIGHTS))
        export = f"bakeoff export '{untargeted(built.variant)}' --for {target_of(built)}{weights}"
        return Deployment(text, export, decided=True)
    every = [*fresh, *every]
    best, how_to = _about_best(found, every, drift, runs) if found.best else (_about_none(fresh, found.objective), "")
    said = [_about_limits(fresh, found), _about_quantised(fresh, found), best]
    text = " ".join(filter(None, said if how_to else [best, *said[:2]]))
    text = text or "Deploy nothing from this table: no row is ok."
    text = text if found.objective == LATENCY else f"Objective {found.objective}: {text}"
    return Deployment(text, how_to, found.final is not None if len(found.best) == 2 else None)


def how_to_decide(
    found: Iterable[Table], comparisons: Sequence[StoredComparison], options: str = ""
) -> Deployment | None:
    """Return how many of a page's tables lack a final, and one command for all; None if fewer than two do.

    `options` come from the command line that made the page and are added to the command.
    """
    found = list(found)
    lacking = [decision(table.rows, comparisons).lacks_final for table in found if table.rows]
    if sum(lacking) < 2:
        return None
    where = ", on the machine of each" if len({table.machine.key for table in found}) > 1 else ""
    text = f"{sum(lacking)} of {len(lacking)} tables have no final between their two best rows. To run them all{where}:"
    return Deployment(text, " ".join(filter(None, ["bakeoff compare --undecided", options])), decided=False)


def _about_best(found: Decision, every: Sequence[Stored], drift: float, runs: str) -> tuple[str, str]:
    """Return the text about the best row, and the command that follows it, "" if there is none."""
    first = found.best[0].record
    if len(found.best) == 1:
        among = "can be ranked and meets the limits" if found.objective.limits else "can be ranked"
        figure = goal_text(first, found.objective.goal)
        return f"Nothing to compare with: {name_of(first)} ({figure}) is the only row that {among}.", ""
    if found.final is not None:
        return _by_final(found, found.final, every), ""
    return _undecided(found, drift, runs)


def _about_none(rows: Sequence[Stored], objective: Objective) -> str:
    """Return a text that no row meets the limits, with the nearest row; "" without limits or rows to judge."""
    checks = {entry.id: check_limits(entry.record, objective) for entry in rows}
    able = [entry for entry in candidates(rows, objective) if checks[entry.id]]
    if not able:
        return ""
    limits = " and ".join(map(str, objective.limits))
    begin = f"Deploy nothing from this table: no row {'is shown to meet' if _may(checks, able) else 'meets'} {limits}"
    known = [entry for entry in able if all(each.value is not None for each in checks[entry.id])]
    if not known:
        return f"{begin}; {name_of(able[0].record)}: {fit_text(checks[able[0].id])}."
    nearest = min(known, key=lambda entry: max(each.excess or 0.0 for each in checks[entry.id]))
    return f"{begin}; the nearest is {name_of(nearest.record)}: {_misses(checks[nearest.id])}."


def _may(checks: dict[str, tuple[LimitCheck, ...]], rows: Sequence[Stored]) -> bool:
    return any(worst(checks[entry.id]) in ("unclear", "unknown") for entry in rows)


def _misses(checks: Sequence[LimitCheck]) -> str:
    return "; ".join(f"{limit_text(each)}: {each.word}" for each in checks if each.word != "met")


def _about_limits(rows: Sequence[Stored], found: Decision) -> str:
    """Describe how far the winner, else each best row, is from its limits, and which other rows may meet them."""
    if not found.objective.limits:
        return ""
    said = []
    for entry in [found.winner] if found.winner is not None else found.best:
        margins = "; ".join(limit_text(each) for each in check_limits(entry.record, found.objective))
        said.append(f"{name_of(entry.record)} meets the limits: {margins}.")
    for entry in candidates(rows, found.objective):
        checks = check_limits(entry.record, found.objective)
        if found.best and worst(checks) in ("unclear", "unknown"):
            said.append(
                f"Not decided between, because its limits are not clear: {name_of(entry.record)}: {fit_text(checks)}."
            )
    return " ".join(said)


def _by_final(found: Decision, final: Comparison, every: Sequence[Stored]) -> str:
    """Return what to deploy by a final, with its ratio and the speed-ups over eager."""
    a, b, verdict = from_the_faster(final)
    evidence = f"{ratio_text(verdict)}, {how(final)}"
    evidence = "; ".join([evidence, *(each.text for each in final.findings if each.code == "off-rows")])
    if found.winner is None:
        plain = [entry.record for entry in found.best if entry.record.baseline]
        word = f"deploy {name_of(plain[0])}, it needs no build" if plain else "deploy either"
        word = "deploy neither" if any(_lost_to_eager(final, index) for index in (0, 1)) else word
        gains = " ".join(dict.fromkeys(filter(None, (_gains(final, index, found.best, every) for index in (0, 1)))))
        text = f"No difference shown between {name_of(a)} and {name_of(b)} in the final ({evidence}); {word}."
        return f"{text} {gains}".rstrip()
    index = 0 if a is final.a else 1
    word = "Deploy" if not _lost_to_eager(final, index) else "Do not deploy"
    text = f"{word} {name_of(a)}: in the final it was faster than {name_of(b)} ({evidence})."
    return f"{text} {_gains(final, index, found.best, every)}".rstrip()


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


def _lost_to_eager(final: Comparison, index: int) -> bool:
    found = gain_in(final, final.sides[index])
    return found is not None and found.word == "slower"


def _gains(final: Comparison, index: int, best: Sequence[Stored], every: Sequence[Stored]) -> str:
    """Describe a side's speed-up over eager fp32 in the same rounds and, by the rows of its sweep, over eager of its
    own dtype: what the compiler adds to the dtype."""
    side = final.sides[index]
    own = next((entry.record for entry in best if str(entry.record.variant) == str(side.variant)), None)
    eager = own_baselines(own, every).get(side.variant.dtype) if own is not None else None
    found = speedup(own, eager) if own is not None and eager is not own else None
    if found is None or eager is None or eager.variant.dtype in BASELINE_DTYPES:
        return _gain(final, index)
    doubt = "" if found.shown else ", no difference shown"
    rows = f"{name_of(side)} is {found.ratio:.2f}x as fast as {name_of(eager)} by the rows of their sweep{doubt}."
    return f"{_gain(final, index)} {rows}".lstrip()


def _gain(final: Comparison, index: int) -> str:
    """Describe a finalist's speed-up over eager fp32 in the same rounds, or why it is unknown; "" if one is eager."""
    name, eager = name_of(final.sides[index]), _eager_side(final)
    if eager in (0, 1):  # the sentence before says how the two compare
        return ""
    if eager is None:
        why = next((finding.text for finding in final.findings if finding.code == "no-baseline"), "")
        why = why or "eager fp32 was not measured in this final"
        return f"The speed-up over eager fp32 is not known: {why}."
    base = final.sides[eager]
    if base.status != "ok":
        return f"The speed-up over eager fp32 is not known: eager fp32 was {base.status} in this final."
    faster, slower, verdict = from_the_faster(final, index, eager)
    if _lacks_pairs(verdict):
        pairs = f"{counted(verdict.pairs, 'pair')} of processes"
        told = f"{name_of(faster)} was {verdict.ratio:.2f}x as fast as {name_of(slower)} in {pairs}"
        return f"{told}, too few for a verdict."
    if verdict.word == "no difference shown":
        return f"No difference shown between {name} and {name_of(base)} ({ratio_text(verdict)})."
    lost = f"{name} lost: " if faster is base else ""
    figures = f"{verdict.ratio:.2f}x [{verdict.low:.2f}, {verdict.high:.2f}]"
    return f"{lost}{name_of(faster)} is {figures} as fast as {name_of(slower)}{sure_text(verdict)}."


def _lacks_pairs(verdict: Verdict) -> bool:
    """Return whether only the small number of pairs of processes keeps a verdict from calling a winner."""
    far = abs(verdict.ratio - 1) > LEAST_DIFFERENCE and not verdict.low <= 1 <= verdict.high
    return verdict.word == "no difference shown" and far


def ahead(found: Decision) -> str:
    """Return a text that the best row is far ahead of the second, with the ratio rounded down."""
    return f"{name_of(found.best[0].record)} is far ahead ({floor(found.apart * 100) / 100:.2f}x)"


def _undecided(found: Decision, drift: float, runs: str) -> tuple[str, str]:
    """Return a text on how far apart the two best rows are, and the command that runs a final between them."""
    goal, (first, second) = found.objective.goal, (entry.record for entry in found.best)
    figures = f"{_BEST[goal]}, {_speeds(first, goal)}, before {name_of(second)} with {_speeds(second, goal)}"
    how_to = f"{command(first, second, found.objective)} {runs}".rstrip()
    if found.failed is not None:
        text = f"Not decided: {name_of(first)} has {figures}, but their final has {why_no_verdict(found.failed)}."
        return f"{text} Run it again with:", how_to
    if found.is_far_ahead(drift):
        return f"{ahead(found)}: it has {figures}. Sweeps drift by {drift:.1f}x; a final would confirm it:", how_to
    if found.apart > 1 and "unstable" in (first.status, second.status):
        text = f"{name_of(first)} is faster whichever of this machine's speeds each had: it has {figures}."
        return f"{text} A final says by how much:", how_to
    why = "their intervals overlap" if found.apart > drift else f"sweeps drift by {drift:.1f}x"
    why = why if may_divide(first, second) else "they are of two sweeps"
    apart = f"but they were not measured against each other, and {why}"
    return f"Not decided: {name_of(first)} has {figures}, {apart}. Decide with:", how_to


def _speeds(record: Record, goal: Goal) -> str:
    """Return the figure that a goal ranks by as text, or the times of both modes."""
    fast, slow = speeds_ms(record, goal)
    return goal_text(record, goal) if fast == slow else f"{milliseconds(fast)} | {milliseconds(slow, fast)} ms"


def _about_quantised(rows: Sequence[Stored], found: Decision) -> str:
    """Name a quantised row on random weights that is better than the best row, and what would decide; "" for none."""
    goal = found.objective.goal
    unknown = [
        entry.record
        for entry in rows
        if entry.record.status == "ok"
        and entry.record.latency is not None
        and has_unknown_error(entry.record)
        and worst(check_limits(entry.record, found.objective)) != "not met"
    ]
    least = min(unknown, key=lambda record: call_ms(record, goal), default=None)
    if least is None or (found.best and call_ms(found.best[0].record, goal) <= call_ms(least, goal)):
        return ""
    return (
        f"{name_of(least)} has {_BEST[goal]}, {goal_text(least, goal)}, but random weights say nothing about the error "
        f"of yours; decide with: make sweep MODEL={least.variant.component} CHECKPOINT=FILE"
    )


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
        *([f"--input-seed {a.input_seed}"] if a.input_seed else []),
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
