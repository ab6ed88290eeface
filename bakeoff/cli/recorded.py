"""Sweeps the modules that an inspection recorded: all are planned first, then they run one after the other."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bakeoff.cli.common import (
    error_line,
    named,
    names,
    print_document,
    print_json,
    print_text,
    say,
    say_command,
)
from bakeoff.cli.options import SweepOptions
from bakeoff.cli.pipeline import find_user_code
from bakeoff.cli.suites import with_policy
from bakeoff.models.errors import BakeoffError, ErrorCode

if TYPE_CHECKING:
    from bakeoff.plan.plan import Plan
    from bakeoff.process.inspected import Recorded

MOST_SETS = 4
"""Most input sets of a module that are swept: each has rows and a final of its own."""


def check(options: SweepOptions) -> None:
    """Check the options that can be checked before anything was recorded. Raises BakeoffError for a wrong one."""
    from bakeoff.machine import paths
    from bakeoff.models.types import parse_dtype
    from bakeoff.plan.request import parse_time_limit
    from bakeoff.plan.suites import check_backends

    for name in names("--dtype", options.dtype):
        parse_dtype(name)
    find_user_code(options.backends or [])
    check_backends(names("--backends", options.backends))
    if options.time_limit is not None:
        parse_time_limit(options.time_limit)
    if not options.dry_run:
        paths.ensure_writable(options.folder, "records")


def _command(options: SweepOptions, folder: str, workloads: Sequence[str] = (), resume: bool = False) -> str:
    """Return the command that sweeps a recorded module by itself, or, with `resume`, goes on with its sweep."""
    given = {
        "--workload": workloads,
        "--backends": names("--backends", options.backends),
        "--dtype": names("--dtype", options.dtype),
        "--threads": [str(options.threads)] if options.threads else [],
        "--runs": [options.runs] if options.runs else [],
    }
    words = [word for option, values in given.items() if values for word in (option, ",".join(values))]
    flags = [*([] if options.final else ["--no-final"]), *(["--resume"] if resume else [])]
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

    def within(self, seconds: float) -> "_PlannedSweep":
        return replace(self, plan=replace(self.plan, request=replace(self.plan.request, time_limit_s=seconds)))


def sweep_pipeline(reference: str, preset: str, options: SweepOptions, others: Sequence[str]) -> int:
    """Sweep every module of a user's pipeline, with all programs that its first units call; return the exit code.

    `others` are typed options that such a sweep does not take: if there are any, this raises BakeoffError.
    """
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.machine import host
    from bakeoff.pipeline.describe import described_loop
    from bakeoff.pipeline.request import parse_options
    from bakeoff.process.inspected import Recorded

    check(options)
    if others:
        text = f"{others[0]}: {reference} is a pipeline, whose modules are swept one after the other without it"
        raise BakeoffError(f"{text}; `bakeoff pipeline` names each by itself", "bad-option")
    on = host.usable_device(named("--device", options.device))
    with TerminalProgress() as progress:
        given = parse_options(options.option or [])
        loop = described_loop(reference, preset, given, on, options.threads, options.seed, progress)
    recorded = [Recorded(slot.name, slot.component, 0, 0, ()) for slot in loop.slots if slot.users]
    for slot in loop.slots:
        if not slot.users:
            say(f"{slot.name} is {slot.component}, a component of this lab; sweep it by itself:")
            say_command(f"bakeoff sweep {slot.component} --preset {slot.preset}")
    told: dict[str, object] = {}
    code = sweep_recorded(recorded, options, told, together=True)
    if options.as_json:
        print_json(told)
    elif not options.dry_run and not code:
        say("the pipeline with the best of them:")
        say_command(f"bakeoff pipeline {loop.typed}")
    return code


def sweep_recorded(
    recorded: Sequence["Recorded"], options: SweepOptions, told: dict[str, object], together: bool = False
) -> int:
    """Sweep the recorded modules and return the exit code; `told` is filled with the JSON output for each module.

    A module without references is not swept; of modules that are used `together`, none is then, since what mends one
    makes records of the others stale. The exit code is 130 after an interruption, else that of the worst sweep, and at
    least 1 if a module was not recorded. One command resumes the sweeps of modules that are used `together`.
    """
    from bakeoff.cli.sweep import resume_command
    from bakeoff.plan.dry_run import Estimate, estimate
    from bakeoff.plan.history import known_history
    from bakeoff.plan.request import time_limit_text
    from bakeoff.report.pages import plan as plan_page

    shown: dict[str, Estimate] = {}
    begun = [] if together and not options.resume else [one for one in recorded if not one.problem]
    left = {one.name: _command(options, one.folder) for one in begun}
    try:
        planned, code = _plan_all(recorded, options, told)
        if not options.dry_run:
            planned, worst = _with_references(planned, options, told, together)
            code = max(code, worst)
        if together:
            planned = _begun(planned, options)
        left = {one.name: _command(options, one.folder, one.plan.request.workloads) for one in planned}
        if planned and not options.as_json:
            print_text(_overview(planned))
        left_s = options.time_limit_s - sum(one.checked_s for one in planned)
        for index, one in enumerate(planned):
            if options.time_limit_s:  # the cheapest is first, and what it leaves of its part is the others'
                one = one.within(max(1.0, round(left_s / (len(planned) - index))))
            if options.dry_run:
                shown[one.name] = estimate(one.plan, known_history(options.folder))
                left_s -= min(shown[one.name].seconds, one.plan.request.time_limit_s)
                continue
            part = f", within {time_limit_text(one.plan.request.time_limit_s)}" if options.time_limit_s else ""
            say(f"sweep {index + 1} of {len(planned)}: {one.name}{part}")
            used_s, worst = _run(one, options, told, left, together)
            left_s, code = left_s - used_s, max(code, worst)
        told |= shown
        if shown and not options.as_json:
            print_text("")
            print_document(plan_page.document(shown))
    except KeyboardInterrupt:
        say("interrupted; to go on:" if left else "interrupted")
        for command in [resume_command(sys.argv[1:], "")] if together and left else left.values():
            say_command(command)
        return 130
    return code


def _plan_all(
    recorded: Sequence["Recorded"], options: SweepOptions, told: dict[str, object]
) -> tuple[Sequence[_PlannedSweep], int]:
    """Return the sweeps that can run, the cheapest first if the time is limited, and the exit code due to those that
    cannot."""
    planned, code = [], 0
    for one in recorded:
        if one.problem:
            code = max(code, _tell_problem(one.name, f"was not recorded: {one.problem}", "", told, 1))
            continue
        try:
            planned.append(_plan(one, options))
        except BakeoffError as error:
            code = max(code, _tell_problem(one.name, f"cannot be swept: {error}", error.code, told, 2))
    return sorted(planned, key=lambda one: one.seconds) if options.time_limit_s else planned, code


def _tell_problem(name: str, problem: str, code: ErrorCode, told: dict[str, object], exit_code: int) -> int:
    say(error_line(f"{name} {problem}", code))
    told[name] = {"problem": problem, "code": code}
    return exit_code


def _plan(one: "Recorded", options: SweepOptions) -> _PlannedSweep:
    from bakeoff.bring.bring import bring
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.plan.dry_run import estimate
    from bakeoff.plan.history import known_history
    from bakeoff.plan.plan import make_plan
    from bakeoff.plan.request import FINAL_S, Request

    with TerminalProgress() as progress:
        component = bring(one.folder, 0, options.threads, progress)
    request = Request(
        component=component,
        backends=names("--backends", options.backends),
        dtypes=names("--dtype", options.dtype),
        threads=options.threads,
        final_s=FINAL_S if options.final else 0.0,
        asked=options.asked,
    )
    plan = make_plan(with_policy(request))
    sets = tuple(dict.fromkeys(row.subject.workload for row in plan.rows))
    if len(sets) > MOST_SETS:
        chosen = ", ".join(sets[:MOST_SETS])
        say(f"{one.name}: {len(sets)} input sets, each with rows of its own; {chosen} are swept")
        say("all of them (as one engine of several sizes: add --sizes x.0=1,4,8):")
        say_command(_command(options, one.folder))
        plan = make_plan(replace(plan.request, workloads=sets[:MOST_SETS]))
    return _PlannedSweep(one.name, one.folder, plan, estimate(plan, known_history(options.folder)).seconds)


def _with_references(
    planned: Sequence[_PlannedSweep], options: SweepOptions, told: dict[str, object], together: bool
) -> tuple[Sequence[_PlannedSweep], int]:
    """Return the sweeps whose references could be made, and the exit code due to the others.

    A module that is not used `together` with others needs those of one input set only: rows of the others say why.
    """
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.sweeps.row import refused_subjects

    found = []
    for one in planned:
        with TerminalProgress() as progress:
            refusals, seconds = refused_subjects(one.plan, options.folder, progress)
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


def _begun(planned: Sequence[_PlannedSweep], options: SweepOptions) -> Sequence[_PlannedSweep]:
    """Begin the sweeps of all modules before the first runs, so that `--resume` finds each; return those to run.

    With `--resume` these are those that are not finished, in a dry run with the rows that are left. Raises
    BakeoffError if one was not begun.
    """
    from bakeoff.machine import paths
    from bakeoff.sweeps.resume import begin, find_newest, left_of

    runs, cache, left = options.folder, paths.cache_folder(), []
    for one in planned:
        newest = find_newest(one.plan.key, runs, cache) if options.resume else None
        if newest is not None and newest.finished:
            say(f"{one.name} is finished: sweep {newest.sweep}")
            continue
        if options.resume:
            rest = left_of(one.plan, runs, cache)
            one = replace(one, plan=rest) if options.dry_run else one
        elif not options.dry_run:
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
    one: _PlannedSweep, options: SweepOptions, told: dict[str, object], left: dict[str, str], together: bool
) -> tuple[float, int]:
    """Sweep one module and print the result; return the seconds that count towards the time limit, and the exit code.

    The module is removed from `left` when its sweep has ended. Raises KeyboardInterrupt if the sweep was interrupted;
    `left` then has the command that goes on.
    """
    from bakeoff.cli.pages import update_pages
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.cli.sweep import exit_code, print_done, resume_command, summary
    from bakeoff.sweeps.run import run_sweep

    folder, resume = options.folder, resume_command(sys.argv[1:])
    if not together:
        resume = _command(options, one.folder, one.plan.request.workloads, resume=True)
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
    if not options.as_json:
        print_done(done, len(one.plan.rows), folder, resume)
    update_pages(folder, one.plan.component.name)
    if done.interrupted:
        raise KeyboardInterrupt
    return done.used_s, exit_code(done, strict=False)
