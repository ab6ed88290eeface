"""The command `sweep`: measures every variant of one or several components."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from bakeoff.cli.cluster import sweep_on_devices, sweep_on_ray
from bakeoff.cli.common import (
    Grouped,
    app,
    fail,
    named,
    print_document,
    print_json,
    program,
    say,
    say_command,
    warn,
)
from bakeoff.cli.ended import exit_code, print_done, resume_command, summary
from bakeoff.cli.options import Subject, SweepOptions, options_of, parameters, requests_of, subjects_of
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from bakeoff.models.pipelines.pipeline import Loop
    from bakeoff.plan.plan import Plan
    from bakeoff.plan.request import Request


_NOT_OF_PIPELINES = ("--workload", "--batch", "--sizes", "--checkpoint", "--build-for", "--on")
"""Options that a sweep of a pipeline's modules does not take."""
Titled = tuple[str, "Request"]
"""A request under the name by which JSON and a dry run list it."""


def sweep(context: typer.Context, **_values: Any) -> None:
    """Build, prove, check, time and record every variant of one or several components."""
    from bakeoff.bring.bring import is_pipeline

    options = options_of(context)
    subjects = subjects_of(options)
    _check(options)
    loop = None
    if any(is_pipeline(name) for name, _, _ in subjects):
        loop = _described_loop(options, subjects)
        modules = {slot.name: slot.component for slot in loop.slots if slot.users}
        requests = requests_of(options, [(component, (), ()) for component in modules.values()])
        titled = list(zip(modules, requests, strict=True))
    else:
        titled = [(request.component, request) for request in requests_of(options, subjects)]
    results, code = _sweep_components(options, titled, of_loop=loop is not None)
    if options.as_json:
        print_json(next(iter(results.values())) if loop is None and len(titled) == 1 else results)
    elif loop is not None and not options.dry_run and not code:
        say("the pipeline with the best of them:")
        say_command(f"{program()} pipeline {loop.typed}")
    if code:
        raise typer.Exit(code)


sweep.__signature__ = parameters()  # type: ignore[attr-defined]  # typer reads it
app.command(cls=Grouped)(sweep)


def _check(options: SweepOptions) -> None:
    """Raise BakeoffError for options that exclude one another."""
    text = ""
    if options.on not in ("", "ray"):
        text = f"--on '{options.on}': give --on ray; RAY_ADDRESS names the cluster"
    elif options.gpus and options.on:
        text = f"--device {options.gpus}: Ray chooses among its GPUs; with --on give cuda or cpu"
    elif options.spread and (not (options.on or options.gpus) or options.time_limit is not None):
        text = "--spread goes with --on ray or --device cuda:0,cuda:1, without --time-limit"
    elif options.on and options.dry_run:
        text = "--dry-run shows what one machine would run; leave out --on"
    if text:
        raise BakeoffError(text, "bad-option")


def _described_loop(options: SweepOptions, subjects: Sequence[Subject]) -> "Loop":
    """Describe a user's pipeline, whose modules are swept one after the other.

    Raises BakeoffError for options that such a sweep does not take.
    """
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.machine import host
    from bakeoff.mix import parse_subject
    from bakeoff.pipeline.describe import described_loop

    name, presets, _ = subjects[0]
    wrong = [option for option in options.typed if option in _NOT_OF_PIPELINES]
    if wrong or len(subjects) > 1 or options.gpus:
        what = wrong[0] if wrong else "other components or several GPUs"
        text = f"{name} is a pipeline, whose modules are swept without {what}; `bakeoff pipeline` names each by itself"
        raise BakeoffError(text, "bad-option")
    device, (reference, preset, given) = host.usable_device(named("--device", options.device)), parse_subject(name)
    preset = preset or ",".join(presets)
    with TerminalProgress() as progress:
        loop = described_loop(reference, preset, given, device, options.threads, options.seed, progress)
    for slot in loop.slots:
        if not slot.users:
            say(f"{slot.name} is {slot.component}, a component of this lab; sweep it by itself:")
            say_command(f"{program()} sweep {slot.component} --preset {slot.preset}")
    return loop


def _sweep_components(
    options: SweepOptions, titled: "Sequence[Titled]", of_loop: bool = False
) -> tuple[dict[str, object], int]:
    """Sweep components where the options say; return each one's JSON output, and the exit code."""
    requests = [request for _, request in titled]
    if options.dry_run:
        return _dry_run(titled, options), 0
    if options.on:
        return sweep_on_ray(requests, options)
    if options.gpus:
        return sweep_on_devices(requests, options)
    plans = _plans(requests, options)
    if of_loop:
        after = [plan.request.component for plan in (*plans[1:], *plans[:1])]
        plans = [
            replace(plan, request=replace(plan.request, next_slot=component))
            for plan, component in zip(plans, after, strict=True)
        ]
    results, codes = dict[str, object](), [0]
    for number, (title, _) in enumerate(titled):
        if len(titled) > 1:
            say(f"sweep {number + 1} of {len(titled)}: {title}")
        result, code = _sweep(title, _within_time(plans[number:], options), options, titled[number + 1 :], len(titled))
        results |= {title: result} if result else {}
        codes.append(code)
    return results, max(codes)


def _within_time(plans: "Sequence[Plan]", options: SweepOptions) -> "Plan":
    """Return the first of the plans that are left, with an equal part of the time that is left.

    Limits count from the begin of the command.
    """
    if not options.time_limit_s:
        return plans[0]
    passed_s = time.monotonic() - options.started
    limit_s = max(1.0, passed_s + (options.time_limit_s - passed_s) / len(plans))
    return replace(plans[0], request=replace(plans[0].request, time_limit_s=limit_s))


def described(request: "Request", sizes: Sequence[str] = ()) -> "Request":
    """Describe the request's model if it is a user's own, and return the request for the described component."""
    from bakeoff.bring.bring import bring
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.models.sizes import parse_sizes

    preset = request.presets[0] if len(request.presets) == 1 else ""
    given, seed, threads, device = parse_sizes(list(sizes)), request.weight_seed, request.threads, request.device
    with TerminalProgress() as progress:
        name = request.component
        found = bring(name, seed, threads, progress, given, request.batches, preset, device, request.python)
    return replace(request, component=found)


def _dry_run(titled: "Sequence[Titled]", options: SweepOptions) -> dict[str, object]:
    """Estimate what would run and return the estimates by title; print them unless the output is JSON."""
    from bakeoff.machine import paths
    from bakeoff.plan.dry_run import estimate
    from bakeoff.plan.history import known_history
    from bakeoff.plan.plan import make_plan
    from bakeoff.record.store import load_all
    from bakeoff.report.pages import plan as plan_page
    from bakeoff.sweeps.resume import left_of

    estimates, folder, cache = {}, options.folder, paths.cache_folder()
    warn(load_all(folder).problems)
    for title, request in titled:
        plan = make_plan(described(request, options.sizes or ()))
        resume = _resumed(title, plan, options, len(titled))
        if resume is not None:
            plan = left_of(plan, folder, cache) if resume else plan
            estimates[title] = estimate(plan, known_history(folder))
    if not options.as_json:
        print_document(plan_page.document(estimates))
    return dict(estimates)


def _resumed(title: str, plan: "Plan", options: SweepOptions, several: int) -> bool | None:
    """Return whether the newest run of a plan goes on; None, after saying so, if it is one of several and finished."""
    from bakeoff.machine import paths
    from bakeoff.sweeps.resume import find_newest

    if not options.resume or several == 1:
        return options.resume
    newest = find_newest(plan.key, options.folder, paths.cache_folder())
    if newest is not None and newest.finished:
        say(f"{title} is finished: sweep {newest.sweep}")
        return None
    return newest is not None


def _plans(requests: "Sequence[Request]", options: SweepOptions) -> "list[Plan]":
    """Plan all components, and make the references of several, before anything is measured.

    Raises BakeoffError if one cannot be planned or has no references.
    """
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.plan.plan import make_plan
    from bakeoff.sweeps.row import refused_subjects

    plans = [make_plan(described(request, options.sizes or ())) for request in requests]
    for plan in plans if len(plans) > 1 else ():
        with TerminalProgress() as progress:
            refusals = refused_subjects(plan, options.folder, progress)
        if refusals and len(refusals) == len({row.subject for row in plan.rows}):
            raise refusals[0]
    return plans


def _sweep(
    title: str, plan: "Plan", options: SweepOptions, later: "Sequence[Titled]", several: int
) -> tuple[dict[str, object], int]:
    """Sweep one of `several` components and print its tables; return its JSON output and the exit code.

    If several components are resumed, a finished one is left out, and one that was not begun is begun.
    """
    from bakeoff.cli.pages import update_pages
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.plan.dry_run import estimate
    from bakeoff.plan.history import known_history
    from bakeoff.record.store import load_all
    from bakeoff.report.pages import plan as plan_page
    from bakeoff.sweeps.run import run_sweep

    folder, resume = options.folder, _resumed(title, plan, options, several)
    if resume is None:
        return {}, 0
    warn(load_all(folder).problems)
    with TerminalProgress(plan.rows) as progress:
        if plan.request.suite == "full":
            progress.say(f"full suite: {plan_page.size(estimate(plan, known_history(folder)))}")
        done = run_sweep(plan, folder, options.note, resume, progress, options.started)
    if not options.as_json:
        print_done(done, len(plan.rows), folder, resume_command(sys.argv[1:]))
    update_pages(folder)
    if done.interrupted:
        if options.as_json:
            print_json(summary(done))
        left = [*done.interrupted, *(name for name, _ in later)]
        fail(f"interrupted; not run: {', '.join(left)}; the same command with --resume runs them", 130)
    return summary(done), exit_code(done, options.strict)
