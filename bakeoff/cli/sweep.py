"""The command `sweep`: measures every variant of one or several components."""

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bakeoff.cli.common import Grouped, app, fail, print_document, print_json, print_text, runs_option, say, warn
from bakeoff.cli.options import Subject, SweepOptions, options_of, parameters, requests_of, subjects_of
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted

if TYPE_CHECKING:
    from bakeoff.plan.plan import Plan
    from bakeoff.plan.request import Request
    from bakeoff.sweeps.run import SweepResult


_OF_PIPELINES = (
    "--preset", "--backends", "--dtype", "--device", "--seed", "--threads", "--time-limit", "--final", "--option",
    "--runs", "--dry-run", "--json", "--resume",
)  # fmt: skip
"""Options that a sweep of a pipeline's modules takes."""


def sweep(context: typer.Context, **_values: Any) -> None:
    """Build, prove, check, time and record every variant of one or several components."""
    from bakeoff.bring.bring import is_pipeline

    options = options_of(context)
    subjects = subjects_of(options)
    _check(options)
    if any(is_pipeline(name) for name, _, _ in subjects):
        raise typer.Exit(_sweep_pipeline(options, subjects))
    if options.option:
        text = f"--option: {subjects[0][0]} is no pipeline; give mine.py:Loop, or leave it out"
        raise BakeoffError(text, "bad-option")
    results, code = _sweep_components(options, requests_of(options, subjects))
    if options.as_json:
        print_json(next(iter(results.values())) if len(subjects) == 1 else results)
    if code:
        raise typer.Exit(code)


sweep.__signature__ = parameters()  # type: ignore[attr-defined]  # typer reads it
app.command(cls=Grouped)(sweep)


def _check(options: SweepOptions) -> None:
    """Raise BakeoffError for options that exclude one another."""
    text = ""
    if options.on not in ("", "ray") or ((options.address or options.ship) and not options.on):
        text = f"--on '{options.on}': give --on ray, or leave it out with --address and --ship"
    elif options.gpus and options.on:
        text = f"--device {options.gpus}: Ray chooses among its GPUs; with --on give cuda or cpu"
    elif (options.spread and (not (options.on or options.gpus) or options.time_limit is not None)) or (
        options.calibrate and not options.spread
    ):
        text = "--spread goes with --on ray or --device cuda:0,cuda:1, without --time-limit; --calibrate with --spread"
    elif options.on and options.dry_run:
        text = "--dry-run shows what one machine would run; leave out --on"
    if text:
        raise BakeoffError(text, "bad-option")


def _sweep_pipeline(options: SweepOptions, subjects: Sequence[Subject]) -> int:
    """Sweep the modules of a user's pipeline; return the exit code."""
    from bakeoff.cli.recorded import sweep_pipeline

    name, presets, _ = subjects[0]
    if len(subjects) > 1 or options.on or options.gpus:
        text = f"{name}: sweep a pipeline by itself, on one device, without --on"
        raise BakeoffError(text, "bad-option")
    others = [option for option in options.typed if option not in _OF_PIPELINES]
    return sweep_pipeline(name, ",".join(presets), options, others)


def _sweep_components(options: SweepOptions, requests: "Sequence[Request]") -> tuple[dict[str, object], int]:
    """Sweep components where the options say; return each one's JSON output, and the exit code."""
    from bakeoff.cli.cluster import sweep_on_devices, sweep_on_ray

    if options.dry_run:
        return _dry_run(requests, options), 0
    if options.on:
        return sweep_on_ray(requests, options)
    if options.gpus:
        return sweep_on_devices(requests, options)
    plans = _plans(requests, options)
    ended = [
        _sweep(request, plan, options, requests[number:])
        for number, (request, plan) in enumerate(zip(requests, plans, strict=True), 1)
    ]
    return {name: result for name, result, _ in ended if result}, max(code for *_, code in ended)


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


def _dry_run(requests: "Sequence[Request]", options: SweepOptions) -> dict[str, object]:
    """Estimate what would run and return the estimates by component; print them unless the output is JSON."""
    from bakeoff.machine import paths
    from bakeoff.plan.dry_run import estimate
    from bakeoff.plan.history import known_history
    from bakeoff.plan.plan import make_plan
    from bakeoff.record.store import load_all
    from bakeoff.report.pages import plan as plan_page
    from bakeoff.sweeps.resume import left_of

    estimates, folder, cache = {}, options.folder, paths.cache_folder()
    warn(load_all(folder).problems)
    for request in requests:
        plan = make_plan(described(request, options.sizes or ()))
        if options.resume:
            plan = left_of(plan, folder, cache)
        estimates[request.component] = estimate(plan, known_history(folder))
    if not options.as_json:
        print_document(plan_page.document(estimates))
    return dict(estimates)


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
            refusals, _ = refused_subjects(plan, options.folder, progress)
        if refusals and len(refusals) == len({row.subject for row in plan.rows}):
            raise refusals[0]
    return plans


def _sweep(
    request: "Request", plan: "Plan", options: SweepOptions, later: "Sequence[Request]"
) -> tuple[str, dict[str, object], int]:
    """Sweep one component and print its tables; return its name, its JSON output and the exit code.

    If several components are resumed, a finished one is left out, and one that was not begun is begun.
    """
    from bakeoff.cli.pages import update_pages
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.machine import paths
    from bakeoff.plan.dry_run import estimate
    from bakeoff.plan.history import known_history
    from bakeoff.record.store import load_all
    from bakeoff.report.pages import plan as plan_page
    from bakeoff.sweeps.resume import find_newest
    from bakeoff.sweeps.run import run_sweep

    folder, resume = options.folder, options.resume
    warn(load_all(folder).problems)
    if resume and len(set(options.components)) > 1:
        newest = find_newest(plan.key, folder, paths.cache_folder())
        if newest is not None and newest.finished:
            say(f"{request.component} is finished: sweep {newest.sweep}")
            return request.component, {}, 0
        resume = newest is not None
    with TerminalProgress(plan.rows) as progress:
        if request.suite == "full":
            progress.say(f"full suite: {plan_page.size(estimate(plan, known_history(folder)))}")
        done = run_sweep(plan, folder, options.note, resume, progress, options.started)
    if not options.as_json:
        print_done(done, len(plan.rows), folder, resume_command(sys.argv[1:]))
    update_pages(folder, plan.component.name)
    if done.interrupted:
        if options.as_json:
            print_json(summary(done))
        left = [*done.interrupted, *(other.component for other in later)]
        fail(f"interrupted; not run: {', '.join(left)}; the same command with --resume runs them", 130)
    return request.component, summary(done), exit_code(done, options.strict)


def print_done(done: "SweepResult", rows: int, folder: Path, resume: str) -> None:
    """Print the tables of a sweep of `rows` rows, whose records are in `folder`; `resume` is the command that goes on
    with it."""
    from bakeoff.record.store import folder_of, load_all
    from bakeoff.report import notes
    from bakeoff.report.document import Document, blocks, listed
    from bakeoff.report.format import duration
    from bakeoff.report.groups import newest
    from bakeoff.report.pages import batch_curve, sweep

    shown, held = newest(done.stored), load_all(folder)
    parts = sweep.newest_tables(shown, held.current, done.finals, held.ceilings, runs=runs_option(folder))
    where = folder_of(folder, done.stored[0].record) if done.stored else folder
    took = f"; took {duration(done.used_s * 1000)}" if done.used_s else ""
    kept = f"sweep {done.sweep}: {len(done.stored)} of {counted(rows, 'variant')} recorded in {where}{took}"
    missing = done.out_of_time if _measured(done) else None
    left_out = notes.out_of_time(missing, done.stored, resume) if missing else ()
    print_text("")
    ended = blocks(listed([kept]), *left_out)
    print_document(Document(done.sweep, (*parts, *batch_curve.sections(shown), *ended)))


def summary(done: "SweepResult") -> dict[str, object]:
    """Return a sweep as `--json` prints it."""
    return {
        "sweep": done.sweep,
        "objective": str(done.objective),
        "records": [stored.id for stored in done.stored],
        "finals": [stored.id for stored in done.finals],
        "interrupted": done.interrupted,
        "used_s": round(done.used_s, 1),
        "out_of_time": done.out_of_time,
    }


def resume_command(arguments: Sequence[str], option: str = "--time-limit") -> str:
    """Return the command, as a user types it, that runs what this one left out.

    Without `option`, which has a value: the time limit, or "" after an interruption, to keep that too.
    """
    if os.environ.get("MAKELEVEL"):
        return "make sweep RESUME=1, with your other settings as before (TIME_LIMIT as you like)"
    words: list[str] = []
    skip = False
    for word in arguments:
        if not skip and word.partition("=")[0] not in (option, "--resume"):
            words.append(word)
        skip = word == option
    return shlex.join(["bakeoff", *words, "--resume"])


def exit_code(done: "SweepResult", strict: bool) -> int:
    """Return the exit code: 3 if nothing was measured or built, 1 with `strict` if a row is not ok, else 0.

    A row that was left out for lack of time is not known to be ok.
    """
    from bakeoff.report import notes

    if not _measured(done):
        if done.out_of_time is not None:
            say(notes.nothing_measured(done.out_of_time))
        return 3
    left_out = done.out_of_time is not None and bool(done.out_of_time.left_out)
    return int(strict and (left_out or any(stored.record.status not in ("ok", "built") for stored in done.stored)))


def _measured(done: "SweepResult") -> bool:
    from bakeoff.record.schema import MEASURED

    return any(stored.record.status in (*MEASURED, "built") for stored in done.stored)
