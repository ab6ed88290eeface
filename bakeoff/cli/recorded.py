"""Sweeps the modules that an inspection recorded: all are planned first, then they run one after the other."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bakeoff.cli.common import (
    error_line,
    names,
    print_document,
    print_json,
    print_text,
    records_folder,
    say,
    say_command,
)
from bakeoff.cli.pipeline import find_user_code
from bakeoff.cli.suites import with_policy
from bakeoff.models.errors import BakeoffError, ErrorCode

if TYPE_CHECKING:
    from bakeoff.plan.plan import Plan
    from bakeoff.process.inspected import Recorded

MOST_SETS = 4
"""Most input sets of a module that are swept: each has rows and a final of its own."""


@dataclass(frozen=True, slots=True)
class RecordedOptions:
    """Options of a sweep of recorded modules, as typed."""

    backends: list[str] | None
    dtype: list[str] | None
    budget: str | None
    final: bool
    threads: int
    runs: str | None
    dry_run: bool
    as_json: bool
    suite: Mapping[str, Any] = field(default_factory=dict)
    """The named suite that they come from, as it was resolved."""
    resume: bool = False
    """Go on with the newest sweeps of a pipeline's modules."""

    def check(self) -> None:
        """Check the options that can be checked before anything was recorded. Raises BakeoffError for a wrong one."""
        from bakeoff.machine import paths
        from bakeoff.models.types import parse_dtype
        from bakeoff.plan.request import parse_budget
        from bakeoff.plan.suites import check_backends

        for name in names("--dtype", self.dtype):
            parse_dtype(name)
        find_user_code(self.backends or [])
        check_backends(names("--backends", self.backends))
        if self.budget is not None:
            parse_budget(self.budget)
        if not self.dry_run:
            paths.ensure_writable(records_folder(self.runs), "records")

    @property
    def budget_s(self) -> float:
        """Budget of all sweeps together in seconds; 0 for none. Raises BakeoffError for text that is no time."""
        from bakeoff.plan.request import parse_budget

        return parse_budget(self.budget) if self.budget is not None else 0.0

    def command(self, folder: str, workloads: Sequence[str] = (), resume: bool = False) -> str:
        """Return the command that sweeps a recorded module by itself, or, with `resume`, goes on with its sweep."""
        options = {
            "--workload": workloads,
            "--backends": names("--backends", self.backends),
            "--dtype": names("--dtype", self.dtype),
            "--threads": [str(self.threads)] if self.threads else [],
            "--runs": [self.runs] if self.runs else [],
        }
        words = [word for option, given in options.items() if given for word in (option, ",".join(given))]
        flags = [*([] if self.final else ["--no-final"]), *(["--resume"] if resume else [])]
        return shlex.join(["bakeoff", "sweep", folder, *words, *flags])


@dataclass(frozen=True, slots=True)
class _PlannedSweep:
    """A recorded module with the plan of its sweep."""

    name: str
    folder: str
    plan: "Plan"
    seconds: float
    """Time that the sweep is expected to take."""
    checked_s: float = 0.0
    """Seconds that making its references took."""

    def within(self, budget_s: float) -> "_PlannedSweep":
        return replace(self, plan=replace(self.plan, request=replace(self.plan.request, budget_s=budget_s)))


def sweep_pipeline(
    reference: str,
    preset: str,
    options: Sequence[str],
    device: str,
    seed: int,
    asked: RecordedOptions,
    others: Sequence[str],
) -> int:
    """Sweep every module of a user's pipeline, with all programs that its first units call; return the exit code.

    `options` are the pipeline's, each as in `steps=10`. `others` are typed options that such a sweep does not take: if
    there are any, this raises BakeoffError.
    """
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.machine import host
    from bakeoff.pipeline.describe import described_loop
    from bakeoff.pipeline.request import parse_options
    from bakeoff.process.inspected import Recorded

    asked.check()
    if others:
        text = f"{others[0]}: {reference} is a pipeline, whose modules are swept one after the other without it"
        raise BakeoffError(f"{text}; `bakeoff pipeline` names each by itself", "bad-option")
    on = host.usable_device(device)
    with TerminalProgress() as progress:
        loop = described_loop(reference, preset, parse_options(options), on, asked.threads, seed, progress)
    recorded = [Recorded(slot.name, slot.component, 0, 0, ()) for slot in loop.slots if slot.users]
    for slot in loop.slots:
        if not slot.users:
            say(f"{slot.name} is {slot.component}, a component of this lab; sweep it by itself:")
            say_command(f"bakeoff sweep {slot.component} --preset {slot.preset}")
    told: dict[str, object] = {}
    code = sweep_recorded(recorded, asked, told, together=True)
    if asked.as_json:
        print_json(told)
    elif not asked.dry_run and not code:
        say("the pipeline with the best of them:")
        say_command(f"bakeoff pipeline {loop.typed}")
    return code


def sweep_recorded(
    recorded: Sequence["Recorded"], asked: RecordedOptions, told: dict[str, object], together: bool = False
) -> int:
    """Sweep the recorded modules and return the exit code; `told` is filled with the JSON output for each module.

    A module without references is not swept; of modules that are used `together`, none is then, since what mends one
    makes records of the others stale. The exit code is 130 after an interruption, else that of the worst sweep, and at
    least 1 if a module was not recorded. One command resumes the sweeps of modules that are used `together`.
    """
    from bakeoff.cli.sweep import resume_command
    from bakeoff.plan.dry_run import Estimate, estimate
    from bakeoff.plan.history import known_history
    from bakeoff.plan.request import budget_text
    from bakeoff.report.pages import plan as plan_page

    shown: dict[str, Estimate] = {}
    left = {one.name: asked.command(one.folder) for one in recorded if not one.problem and together <= asked.resume}
    try:
        planned, code = _plan_all(recorded, asked, told)
        if not asked.dry_run:
            planned, worst = _with_references(planned, asked, told, together)
            code = max(code, worst)
        if together:
            planned = _begun(planned, asked)
        left = {one.name: asked.command(one.folder, one.plan.request.workloads) for one in planned}
        if planned and not asked.as_json:
            print_text(_overview(planned))
        left_s = asked.budget_s - sum(one.checked_s for one in planned)
        for index, one in enumerate(planned):
            if asked.budget_s:  # the cheapest is first, and what it leaves of its part is the others'
                one = one.within(max(1.0, round(left_s / (len(planned) - index))))
            if asked.dry_run:
                shown[one.name] = estimate(one.plan, known_history(records_folder(asked.runs)))
                left_s -= min(shown[one.name].seconds, one.plan.request.budget_s)
                continue
            part = f", within {budget_text(one.plan.request.budget_s)}" if asked.budget_s else ""
            say(f"sweep {index + 1} of {len(planned)}: {one.name}{part}")
            used_s, worst = _run(one, asked, told, left, together)
            left_s, code = left_s - used_s, max(code, worst)
        told |= shown
        if shown and not asked.as_json:
            print_text("")
            print_document(plan_page.document(shown))
    except KeyboardInterrupt:
        say("interrupted; to go on:" if left else "interrupted")
        for command in [resume_command(sys.argv[1:], "")] if together and left else left.values():
            say_command(command)
        return 130
    return code


def _plan_all(
    recorded: Sequence["Recorded"], asked: RecordedOptions, told: dict[str, object]
) -> tuple[Sequence[_PlannedSweep], int]:
    """Return the sweeps that can run, the cheapest first if there is a budget, and the exit code due to those that
    cannot."""
    planned, code = [], 0
    for one in recorded:
        if one.problem:
            code = max(code, _tell_problem(one.name, f"was not recorded: {one.problem}", "", told, 1))
            continue
        try:
            planned.append(_plan(one, asked))
        except BakeoffError as error:
            code = max(code, _tell_problem(one.name, f"cannot be swept: {error}", error.code, told, 2))
    return sorted(planned, key=lambda one: one.seconds) if asked.budget_s else planned, code


def _tell_problem(name: str, problem: str, code: ErrorCode, told: dict[str, object], exit_code: int) -> int:
    say(error_line(f"{name} {problem}", code))
    told[name] = {"problem": problem, "code": code}
    return exit_code


def _plan(one: "Recorded", asked: RecordedOptions) -> _PlannedSweep:
    from bakeoff.bring.bring import bring
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.plan.dry_run import estimate
    from bakeoff.plan.history import known_history
    from bakeoff.plan.plan import make_plan
    from bakeoff.plan.request import FINAL_S, Request

    with TerminalProgress() as progress:
        component = bring(one.folder, 0, asked.threads, progress)
    request = Request(
        component=component,
        backends=names("--backends", asked.backends),
        dtypes=names("--dtype", asked.dtype),
        threads=asked.threads,
        final_s=FINAL_S if asked.final else 0.0,
        asked=asked.suite,
    )
    plan = make_plan(with_policy(request))
    sets = tuple(dict.fromkeys(row.subject.workload for row in plan.rows))
    if len(sets) > MOST_SETS:
        chosen = ", ".join(sets[:MOST_SETS])
        say(f"{one.name}: {len(sets)} input sets, each with rows of its own; {chosen} are swept")
        say("all of them (as one engine of several sizes: add --sizes x.0=1,4,8):")
        say_command(asked.command(one.folder))
        plan = make_plan(replace(plan.request, workloads=sets[:MOST_SETS]))
    return _PlannedSweep(one.name, one.folder, plan, estimate(plan, known_history(records_folder(asked.runs))).seconds)


def _with_references(
    planned: Sequence[_PlannedSweep], asked: RecordedOptions, told: dict[str, object], together: bool
) -> tuple[Sequence[_PlannedSweep], int]:
    """Return the sweeps whose references could be made, and the exit code due to the others.

    A module that is not used `together` with others needs those of one input set only: rows of the others say why.
    """
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.sweeps.row import refused_subjects

    found = []
    for one in planned:
        with TerminalProgress() as progress:
            refusals, seconds = refused_subjects(one.plan, records_folder(asked.runs), progress)
        if refusals and (together or len(refusals) == len({row.subject for row in one.plan.rows})):
            problem = f"cannot be swept: {'; '.join(map(str, refusals))}"
            _tell_problem(one.name, problem, refusals[0].code, told, 2)
        else:
            found.append(replace(one, checked_s=seconds))
    if len(found) == len(planned):
        return found, 0
    if together and found:
        say("nothing was measured: what mends it makes records of the other modules stale")
    return ([] if together else found), 2


def _begun(planned: Sequence[_PlannedSweep], asked: RecordedOptions) -> Sequence[_PlannedSweep]:
    """Begin the sweeps of all modules before the first runs, so that `--resume` finds each; return those to run.

    With `--resume` these are those that are not finished, in a dry run with the rows that are left. Raises
    BakeoffError if one was not begun.
    """
    from bakeoff.machine import paths
    from bakeoff.sweeps.resume import begin, find_newest, left_of

    runs, cache, left = records_folder(asked.runs), paths.cache_folder(), []
    for one in planned:
        newest = find_newest(one.plan.key, runs, cache) if asked.resume else None
        if newest is not None and newest.finished:
            say(f"{one.name} is finished: sweep {newest.sweep}")
            continue
        if asked.resume:
            rest = left_of(one.plan, runs, cache)
            one = replace(one, plan=rest) if asked.dry_run else one
        elif not asked.dry_run:
            begin(one.plan.key, one.plan.component.name, runs, cache)
        left.append(one)
    return left


def _overview(planned: Sequence[_PlannedSweep]) -> str:
    """Summarise what is about to run."""
    from bakeoff.report.pages.plan import rows_text

    minutes = sum(one.seconds for one in planned) / 60
    rows = [[row.precheck is None for row in one.plan.rows] for one in planned]
    each = ", ".join(f"{one.name} {rows_text(len(own), sum(own))}" for one, own in zip(planned, rows, strict=True))
    return f"\nto sweep: {each}; about {minutes:.0f} min in all"


def _run(
    one: _PlannedSweep, asked: RecordedOptions, told: dict[str, object], left: dict[str, str], together: bool
) -> tuple[float, int]:
    """Sweep one module and print the result; return the seconds that count towards the budget, and the exit code.

    The module is removed from `left` when its sweep has ended. Raises KeyboardInterrupt if the sweep was interrupted;
    `left` then has the command that goes on.
    """
    from bakeoff.cli.pages import update_pages
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.cli.sweep import exit_code, print_done, resume_command, summary
    from bakeoff.sweeps.run import run_sweep

    folder, resume = records_folder(asked.runs), resume_command(sys.argv[1:])
    if not together:
        resume = asked.command(one.folder, one.plan.request.workloads, resume=True)
    try:
        with TerminalProgress(one.plan.rows) as progress:
            done = run_sweep(one.plan, folder, "", together, progress)
    except BakeoffError as error:
        del left[one.name]
        return 0.0, _tell_problem(one.name, f"was not swept: {error}", error.code, told, 2)
    if done.interrupted:
        left[one.name] = resume
    else:
        del left[one.name]
    told[one.name] = summary(done)
    if not asked.as_json:
        print_done(done, len(one.plan.rows), folder, resume)
    update_pages(folder, one.plan.component.name)
    if done.interrupted:
        raise KeyboardInterrupt
    return done.used_s, exit_code(done, strict=False)
