"""The command `sweep`: measures every variant of one or several components."""

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bakeoff.cli.common import (
    Backends,
    Deadline,
    DryRun,
    Dtypes,
    Final,
    Json,
    Monitor,
    Runs,
    app,
    fail,
    named,
    names,
    print_document,
    print_json,
    print_text,
    records_folder,
    runs_option,
    say,
    short,
    typed_options,
    warn,
    whole_number,
)
from bakeoff.cli.suites import with_policy, with_suite
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted

if TYPE_CHECKING:
    from bakeoff.plan.plan import Plan
    from bakeoff.plan.request import Request
    from bakeoff.sweeps.run import SweepResult


_OF_PIPELINES = (
    "--preset", "--backends", "--dtype", "--device", "--seed", "--threads", "--budget", "--final", "--option", "--runs",
    "--dry-run", "--json", "--resume",
)  # fmt: skip
"""Options that a sweep of a pipeline's modules takes."""


@app.command()
def sweep(
    context: typer.Context,
    components: Annotated[
        list[str],
        typer.Argument(
            help="Names that `bakeoff list` or a table prints, mine.py:model, mine.py:Loop, model.pt2, or @SUITE."
        ),
    ],
    preset: Annotated[list[str] | None, typer.Option(help="Presets, comma-separated.")] = None,
    workload: Annotated[list[str] | None, typer.Option(help="Workloads, comma-separated.")] = None,
    backends: Backends = None,
    dtype: Dtypes = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda (default where there is one), or GPUs: cuda:0,cuda:1.")
    ] = None,
    suite: Annotated[
        str, typer.Option(help="quick, default, or full: every workload, option set and dtype.")
    ] = "default",
    batch: Annotated[
        list[str] | None, typer.Option(help="2 for classifier-free guidance; several, as in 1,2,4,8: a batch curve.")
    ] = None,
    objective: Annotated[
        str, typer.Option(help="latency or throughput, and limits: 'throughput,p99<=33ms,memory<=8GiB'.")
    ] = "latency",
    seed: Annotated[int, typer.Option(help="Seed of the random weights.")] = 0,
    input_seed: Annotated[int, typer.Option(help="Seed of the inputs.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads (default: all cores).")] = 0,
    checkpoint: Annotated[str | None, typer.Option(help="Weights: .safetensors, or .pt as weights only.")] = None,
    processes: Annotated[int, typer.Option(help="Fresh processes for each variant: spread within and between.")] = 1,
    builds: Annotated[int, typer.Option(help="Fresh builds of each compiled variant, the best one shown.")] = 1,
    deadline: Deadline = None,
    budget: Annotated[
        str | None,
        typer.Option(help="As in 90s, 3m, 1h30m: what is likely to tell most comes first; --resume runs the rest."),
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(help="Of a model of yours: x.0=1,4,8 builds engines for a range of sizes."),
    ] = None,
    build_for: Annotated[
        list[str] | None, typer.Option(help="GPUs that need not be here: sm89,sm120; builds engines, times nothing.")
    ] = None,
    monitor: Monitor = False,
    final: Final = True,
    option: Annotated[list[str] | None, typer.Option(help="Of a pipeline of yours, as in steps=10.")] = None,
    on: Annotated[str, typer.Option(help="ray: on the nodes of a cluster; see docs/cluster.md.")] = "",
    address: Annotated[
        str, typer.Option(help="Of the cluster (default: $RAY_ADDRESS, else one of this machine alone).")
    ] = "",
    ship: Annotated[bool, typer.Option("--ship", help="Have the nodes run this code instead of theirs.")] = False,
    spread: Annotated[
        bool, typer.Option("--spread", help="Over all the nodes or GPUs, also the rows of one component.")
    ] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="With --spread: each measures eager fp32 first; one table has all rows.")
    ] = False,
    config: Annotated[str | None, typer.Option(help="File of suites (default: bakeoff.toml in this folder).")] = None,
    runs: Runs = None,
    note: Annotated[str, typer.Option(help="Goes into the records and the history.")] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Finish the newest unfinished sweep of this plan.")] = False,
    dry_run: DryRun = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 if any row is not ok, or left out for lack of time.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Build, prove, check, time and record every variant of one or several components."""
    values = locals()
    from bakeoff.bring.bring import is_pipeline
    from bakeoff.cli.cluster import Cluster, sweep_on_devices, sweep_on_ray
    from bakeoff.cli.recorded import RecordedOptions, sweep_pipeline

    if config is not None or any(name.startswith("@") for name in components):
        with_suite(context)
        sweep(context, **context.params)
        return
    started = time.monotonic()
    short("--note", note)
    if on not in ("", "ray") or ((address or ship) and not on):
        raise BakeoffError(f"--on '{on}': give --on ray, or leave it out with --address and --ship", "bad-option")
    subjects = subjects_of(values)
    asked_device = named("--device", device)
    gpus = asked_device if ":" in asked_device or "," in asked_device else ""
    if gpus and on:
        raise BakeoffError(f"--device {gpus}: Ray chooses among its GPUs; with --on give cuda or cpu", "bad-option")
    if (spread and not (on or gpus)) or (calibrate and not spread) or (spread and budget is not None):
        text = "--spread goes with --on ray or --device cuda:0,cuda:1, without --budget; --calibrate goes with --spread"
        raise BakeoffError(text, "bad-option")
    if loop := next((name for name, _, _ in subjects if is_pipeline(name)), None):
        if len(subjects) > 1 or on or gpus:
            raise BakeoffError(f"{loop}: sweep a pipeline by itself, on one device, without --on", "bad-option")
        suite_of = context.obj or {}
        manner = RecordedOptions(backends, dtype, budget, final, threads, runs, dry_run, as_json, suite_of, resume)
        others = [option for option in typed_options(context) if option not in _OF_PIPELINES]
        presets = ",".join(subjects[0][1])
        raise typer.Exit(sweep_pipeline(loop, presets, option or [], asked_device, seed, manner, others))
    if option:
        text = f"--option: {subjects[0][0]} is no pipeline; give mine.py:Loop, or leave it out"
        raise BakeoffError(text, "bad-option")
    requests = requests_of(subjects, {**values, "device": "cuda" if gpus else device}, context.obj or {})
    manner_of = Manner(tuple(sizes or []), records_folder(runs), note, resume, strict, as_json, len(subjects), started)
    manner_of = replace(manner_of, spread=spread, calibrate=calibrate)
    if on:
        if dry_run:
            raise BakeoffError("--dry-run shows what one machine would run; leave out --on", "bad-option")
        told, code = sweep_on_ray(requests, manner_of, Cluster(address, ship))
    elif gpus and not dry_run:
        told, code = sweep_on_devices(requests, manner_of, gpus)
    elif dry_run:
        told, code = _dry_run(requests, manner_of), 0
    else:
        plans = _plans(requests, manner_of)
        each = [
            _sweep(one, plan, manner_of, requests[index:])
            for index, (one, plan) in enumerate(zip(requests, plans, strict=True), 1)
        ]
        told, code = {name: found for name, found, _ in each if found}, max(code for _, _, code in each)
    if as_json:
        print_json(next(iter(told.values())) if len(subjects) == 1 else told)
    if code:
        raise typer.Exit(code)


def subjects_of(values: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Return (component, presets, workloads) of each of a sweep's components, by the values of its parameters.

    Makes modules of the working folder importable if a component or backend is a user's own.
    """
    presets, workloads = names("--preset", values["preset"]), names("--workload", values["workload"])
    found = [_subject(typed, presets, workloads, values["runs"]) for typed in dict.fromkeys(values["components"])]
    if any(":" in name for name in [*(subject[0] for subject in found), *(values["backends"] or [])]):
        sys.path.append(str(Path.cwd()))
    return found


def requests_of(
    subjects: Sequence[tuple[str, tuple[str, ...], tuple[str, ...]]],
    values: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> "list[Request]":
    """Return the request of each subject, by the values of a sweep's parameters and its named suite.

    Raises BakeoffError for a parameter with a wrong value.
    """
    from bakeoff.backends.backend import SUITES
    from bakeoff.models.sizes import parse_sizes
    from bakeoff.plan.request import FINAL_S, Request, parse_budget, with_deadline
    from bakeoff.record.objective import parse_objective

    budget, suite = values["budget"], values["suite"]
    suite_of = next((known for known in SUITES if known == suite), None)
    if suite_of is None:
        raise BakeoffError(f"no suite '{suite}'; known: {', '.join(SUITES)}", "unknown-name")
    batches = tuple(dict.fromkeys(whole_number("--batch", size) for size in names("--batch", values["batch"]))) or (1,)
    parse_sizes(values["sizes"] or [])
    request = Request(
        component="",
        backends=names("--backends", values["backends"]),
        dtypes=names("--dtype", values["dtype"]),
        device=named("--device", values["device"]),
        suite=suite_of,
        batches=batches,
        weight_seed=values["seed"],
        input_seed=values["input_seed"],
        threads=values["threads"],
        checkpoint=named("--checkpoint", values["checkpoint"]),
        processes=values["processes"],
        builds=values["builds"],
        build_for=names("--build-for", values["build_for"]),
        final_s=FINAL_S if values["final"] else 0.0,
        monitor=values["monitor"],
        budget_s=parse_budget(named("--budget", budget)) if budget is not None else 0.0,
        objective=parse_objective(named("--objective", values["objective"])),
        asked=asked,
    )
    request = with_policy(request)
    if values["deadline"] is not None:
        request = replace(request, policy=with_deadline(request.policy, values["deadline"]))
    return [replace(request, component=name, presets=own, workloads=work) for name, own, work in subjects]


@dataclass(frozen=True, slots=True)
class Manner:
    """How components are swept, apart from what is measured."""

    sizes: tuple[str, ...]
    runs: Path
    note: str
    resume: bool
    strict: bool
    as_json: bool
    components: int
    """Number of components."""
    started: float
    spread: bool = False
    calibrate: bool = False


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


def _dry_run(requests: "Sequence[Request]", manner: Manner) -> dict[str, object]:
    """Estimate what would run and return the estimates by component; print them unless the output is JSON."""
    from bakeoff.machine import paths
    from bakeoff.plan.dry_run import estimate
    from bakeoff.plan.history import known_history
    from bakeoff.plan.plan import make_plan
    from bakeoff.record.store import load_all
    from bakeoff.report.pages import plan as plan_page
    from bakeoff.sweeps.resume import left_of

    told, folder, cache = {}, manner.runs, paths.cache_folder()
    warn(load_all(folder).problems)
    for request in requests:
        plan = make_plan(described(request, manner.sizes))
        if manner.resume:
            plan = left_of(plan, folder, cache)
        told[request.component] = estimate(plan, known_history(folder))
    if not manner.as_json:
        print_document(plan_page.document(told))
    return dict(told)


def _plans(requests: "Sequence[Request]", manner: Manner) -> "list[Plan]":
    """Plan all components, and make the references of several, before anything is measured.

    Raises BakeoffError if one cannot be planned or has no references.
    """
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.plan.plan import make_plan
    from bakeoff.sweeps.row import refused_subjects

    plans = [make_plan(described(request, manner.sizes)) for request in requests]
    for plan in plans if len(plans) > 1 else ():
        with TerminalProgress() as progress:
            refusals, _ = refused_subjects(plan, manner.runs, progress)
        if refusals and len(refusals) == len({row.subject for row in plan.rows}):
            raise refusals[0]
    return plans


def _sweep(
    request: "Request", plan: "Plan", manner: Manner, later: "Sequence[Request]"
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

    folder, resume = manner.runs, manner.resume
    warn(load_all(folder).problems)
    if resume and manner.components > 1:
        newest = find_newest(plan.key, folder, paths.cache_folder())
        if newest is not None and newest.finished:
            say(f"{request.component} is finished: sweep {newest.sweep}")
            return request.component, {}, 0
        resume = newest is not None
    with TerminalProgress(plan.rows) as progress:
        if request.suite == "full":
            progress.say(f"full suite: {plan_page.size(estimate(plan, known_history(folder)))}")
        done = run_sweep(plan, folder, manner.note, resume, progress, manner.started)
    if not manner.as_json:
        print_done(done, len(plan.rows), folder, resume_command(sys.argv[1:]))
    update_pages(folder, plan.component.name)
    if done.interrupted:
        if manner.as_json:
            print_json(summary(done))
        left = [*done.interrupted, *(other.component for other in later)]
        fail(f"interrupted; not run: {', '.join(left)}; the same command with --resume runs them", 130)
    return request.component, summary(done), exit_code(done, manner.strict)


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


def resume_command(arguments: Sequence[str], option: str = "--budget") -> str:
    """Return the command, as a user types it, that runs what this one left out.

    Without `option`, which has a value: the budget, or "" after an interruption, to keep that too.
    """
    if os.environ.get("MAKELEVEL"):
        return "make sweep RESUME=1, with your other settings as before (BUDGET as you like)"
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


def _subject(
    typed: str, presets: tuple[str, ...], workloads: tuple[str, ...], runs: str | None
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return the component, presets and workloads that `typed` stands for.

    A table's title states all three. A model that only the records know is found by its file, a pipeline's module by
    the pipeline; raises BakeoffError if that is gone.
    """
    from bakeoff.bring.bring import is_brought, is_pipeline
    from bakeoff.models import component_names
    from bakeoff.plan.brought import is_described
    from bakeoff.record.store import load_all
    from bakeoff.report.named import source_of
    from bakeoff.variant import split_title

    if is_brought(typed) or typed in component_names():
        return typed, presets, workloads
    name, preset, workload = split_title(typed)
    if not set(name) & set(":/") and name not in component_names() and not is_described(name):
        name = source_of(load_all(records_folder(runs)), typed) or name
        if is_pipeline(name):  # its modules are described together, and swept so
            return name, presets, workloads
    return name, presets or tuple(filter(None, [preset])), workloads or tuple(filter(None, [workload]))


def _measured(done: "SweepResult") -> bool:
    from bakeoff.record.schema import MEASURED

    return any(stored.record.status in (*MEASURED, "built") for stored in done.stored)
