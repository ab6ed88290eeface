"""The commands `pipeline` and `profile`: run mixes of a pipeline on whole frames, and show where the time goes."""

import inspect
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bakeoff.cli.common import (
    Deadline,
    Device,
    DryRun,
    Json,
    Monitor,
    Note,
    Resume,
    Seed,
    Threads,
    app,
    error_line,
    fail,
    find_own_modules,
    named,
    print_document,
    print_json,
    print_text,
    print_written,
    records_folder,
    say,
    short,
    warn,
)
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from bakeoff.pipeline.request import PipelineRequest
    from bakeoff.pipeline.run import PipelineResult
    from bakeoff.record.store import StoredPipeline
    from bakeoff.report.document import Document
    from bakeoff.report.pages.profile import Profiled

_INSIDE = 4
"""The first level that looks into networks, which only an eager run shows."""
_COMMANDS = {
    "nsys": (
        "nsys", "profile", "--trace=cuda,nvtx,osrt,cudnn,cublas", "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop", "--cuda-graph-trace=node", "--output=bakeoff-%p",
    ),
    "ncu": (
        "ncu", "--target-processes=all", "--profile-from-start=off", "--nvtx", "--set=full", "--export=bakeoff-%p",
    ),
}  # fmt: skip
"""Nsight Systems User Guide, "CLI Profile Command Switch Options"; Nsight Compute CLI, "Profile" and "Launch"."""


Schedules = Annotated[
    list[str] | None,
    typer.Option(
        metavar="all|NAME",
        help="Run each mix under all schedules that keep every value, or some: sequential, decode-behind, "
        "context-beside-decode, one-graph.",
    ),
]


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """What was typed of the options that the commands on pipelines share."""

    request: "PipelineRequest"
    folder: Path
    """Folder of records."""
    note: str
    resume: bool
    dry_run: bool
    as_json: bool


def _shared_options(
    name: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE", help="As tables print it: owl, matrix:tiny, owl[steps=10], mine.py:Loop:PRESET."
        ),
    ],
    mix: Annotated[
        list[str] | None,
        typer.Option(
            help="eager, best, best-full (no quantised slots), or as in wm=inductor/bf16,image=eager/fp32 "
            "(default: eager and best; deadline and rollout: best)."
        ),
    ] = None,
    units: Annotated[int, typer.Option(help="Timed steady units of each mix.")] = 20,
    minutes: Annotated[float, typer.Option(help="The rounds of all mixes end after this time.")] = 10.0,
    device: Device = None,
    threads: Threads = 0,
    seed: Seed = 0,
    checkpoint: Annotated[list[str] | None, typer.Option(help="Weights of a slot: SLOT=FILE.")] = None,
    deadline: Deadline = None,
    monitor: Monitor = False,
    note: Note = "",
    resume: Resume = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> PipelineOptions:
    from bakeoff.mix import parse_subject
    from bakeoff.pipeline.request import PipelineRequest
    from bakeoff.plan.request import with_deadline

    name, preset, given = parse_subject(name)
    find_own_modules([name, *(mix or [])])
    request = PipelineRequest(
        pipeline=name,
        preset=preset,
        mixes=tuple(named("--mix", text) for text in mix or []),
        options=given,
        units=units,
        minutes=minutes,
        device=named("--device", device),
        threads=threads,
        weight_seed=seed,
        input_seed=seed,
        checkpoints=tuple(named("--checkpoint", text) for text in checkpoint or []),
        monitor=monitor,
    )
    if deadline is not None:
        request = replace(request, policy=with_deadline(request.policy, deadline))
    return PipelineOptions(request, records_folder(), short("--note", note), resume, dry_run, as_json)


def on_pipelines(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command with the shared options, except those in `without` and those that it declares itself.

    It is called with `PipelineOptions` and its own options.
    """

    def register(own: Callable[..., None]) -> Callable[..., None]:
        _, *more = inspect.signature(own).parameters.values()
        left_out = {*without, *(each.name for each in more)}
        shared = [each for each in inspect.signature(_shared_options).parameters.values() if each.name not in left_out]

        @wraps(own)
        def command(**typed: Any) -> None:
            mine = {each.name: typed.pop(each.name) for each in more}
            own(_shared_options(**typed), **mine)

        command.__signature__ = inspect.Signature([*shared, *more])  # type: ignore[attr-defined]  # typer reads it
        return app.command()(command)

    return register


@on_pipelines()
def pipeline(options: PipelineOptions, schedule: Schedules = None) -> None:
    """Run whole frames with a mix of variants, in turns with others, and record where the time goes."""
    from bakeoff.report.pages import pipelines as page

    schedules = tuple(named("--schedule", text) for text in schedule or [])
    options = replace(options, request=replace(options.request, schedules=schedules))
    run_mixes(options, page.of_runs, lambda stored: {"mixes": page.as_rows(stored)})


@on_pipelines("minutes")
def profile(
    options: PipelineOptions,
    level: Annotated[int, typer.Option(help="1 units, 2 phases, 3 calls, 4 parts of networks, 5 parts of these.")] = 3,
    traced: Annotated[int, typer.Option(help="Traced units, after the timed ones.")] = 5,
    trace: Annotated[
        str | None, typer.Option(help="Folder for copies of the traces; open them at ui.perfetto.dev.")
    ] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Record allocations; on CUDA a snapshot too.")] = False,
    compiler: Annotated[
        bool, typer.Option("--compiler", help="Build once more with the compiler's log, for tlparse.")
    ] = False,
    nsight: Annotated[
        str | None,
        typer.Option(
            metavar="nsys|ncu|capture",
            help="Run under Nsight Systems or Nsight Compute, or print the command; capture is what they run: NVTX "
            "ranges in a capture window instead of a trace.",
        ),
    ] = None,
) -> None:
    """Show where the time goes: phases with busy and idle time, kernels, operators, and what could be gained.

    PIPELINE may also be a component's program as in wm:200m.step, or mine.py:model.
    """
    from bakeoff.bring.bring import bring, is_brought, is_pipeline
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.pipeline.request import subject_of, subject_of_brought
    from bakeoff.process.jobs import ProfileOptions
    from bakeoff.record.store import load_all
    from bakeoff.report.pages import profile as page

    if nsight not in (None, "capture", *_COMMANDS):
        raise BakeoffError(f"--nsight {nsight}: give nsys, ncu or capture", "bad-option")
    capture = nsight == "capture"
    request, folder = options.request, options.folder
    profile = ProfileOptions(level=level, units=traced, memory=memory, compiler=compiler, capture=capture)
    request = replace(request, profile=profile)
    if is_brought(request.pipeline) and not is_pipeline(request.pipeline):
        with TerminalProgress() as progress:
            described = bring(request.pipeline, request.weight_seed, request.threads, progress, device=request.device)
        request = subject_of_brought(request, described)
    else:
        request = subject_of(request)
    mixes = request.mixes or ("eager", "best")
    if level >= _INSIDE and "eager" not in mixes:
        say(f"Level {level} looks into networks, which only eager shows: the eager mix runs as well.")
        mixes = ("eager", *mixes)
    copies = _new_folder(trace)
    if nsight is not None and not capture:
        raise typer.Exit(_nsight(nsight))

    def profiles(stored: "Sequence[StoredPipeline]") -> "list[Profiled]":
        if copies is not None:
            _copy_traces(stored, copies)
        records = load_all(folder)
        return [found for entry in stored if (found := page.profiled(entry, records)) is not None]

    def show(stored: "Sequence[StoredPipeline]") -> "Document":
        made = profiles(stored)
        held = {one.entry.id for one in made}
        return page.together(made, [entry for entry in stored if entry.id not in held], copies)

    options = replace(options, request=replace(request, mixes=mixes))
    done = run_mixes(options, show, lambda made: {"profiles": [*map(page.as_json, profiles(made))]})
    if done is not None and not options.as_json:
        try:
            held = {entry.id for entry in done.stored}
            print_written(page.paths_of(folder, [run for run in load_all(folder).pipelines if run.id in held]))
        except BakeoffError as error:  # what was measured is stored and shown
            say(error_line(f"no page: {error}", error.code))


def _copy_traces(stored: "Sequence[StoredPipeline]", folder: Path) -> None:
    from bakeoff.machine import paths

    for entry in stored:
        if (made := entry.record.measurement.profile) is not None and made.trace is not None:
            shutil.copyfile(paths.cache_folder() / made.trace.path, folder / Path(made.trace.path).name)


def _new_folder(trace: str | None) -> Path | None:
    """Make the folder for copies of traces before anything is measured; None if no copies were requested.

    Raises BakeoffError if it cannot be made.
    """
    if trace is None:
        return None
    folder = Path(named("--trace", trace))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text = f"--trace {folder}: {error.strerror}; give a folder that can be written"
        raise BakeoffError(text, "not-writable") from error
    return folder


def _nsight(tool: str) -> int:
    """Run this process's own command line under `tool`, which captures the traced units; return its exit code.

    If the tool is not on the path, the command is printed instead, and the code is 3: nothing was measured.
    """
    typed = " ".join(shlex.quote(argument) for argument in sys.argv[1:])
    own = shlex.split(re.sub(rf"--nsight[ =]{tool}\b", "--nsight=capture", typed))
    command = [*_COMMANDS[tool], sys.executable, "-m", "bakeoff", *own]
    if shutil.which(tool) is None:
        say(f"{tool} is not on the path; on a host that has it, this captures the traced units with their NVTX ranges:")
        print_text(shlex.join(command))
        return 3
    say(shlex.join(command))
    return subprocess.run(command, check=False).returncode


def run_mixes(
    options: PipelineOptions,
    render: Callable[[Sequence["StoredPipeline"]], "Document"],
    as_data: Callable[[Sequence["StoredPipeline"]], Mapping[str, object]],
) -> "PipelineResult | None":
    """Run the request's mixes and print them by `render`, or by `as_data` as JSON; update the pages beside the records.

    Returns None after a dry run. Raises typer.Exit with 130 if it was interrupted, and 3 if nothing was measured.
    """
    from bakeoff.artifact.mix import exported
    from bakeoff.cli.pages import update_pages
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.machine import paths
    from bakeoff.pipeline.plan import estimate, make_pipeline_plan
    from bakeoff.pipeline.run import run_pipeline, stored_of
    from bakeoff.process.environment import make_work_folder
    from bakeoff.record.schema import MEASURED
    from bakeoff.record.store import load_all
    from bakeoff.report.pages import plan as plan_page
    from bakeoff.sweeps.resume import find_unfinished

    folder = options.folder
    with TerminalProgress() as progress:
        plan = make_pipeline_plan(options.request, folder, progress)
    warn(load_all(folder).problems)
    waiting = plan
    if options.resume:
        kept = stored_of(find_unfinished(plan.key, plan.name, folder, paths.cache_folder()), folder)
        waiting = replace(plan, mixes=tuple(mix for mix in plan.mixes if str(mix.mix) not in kept))
    if options.dry_run:
        costs = estimate(waiting, folder)
        print_json(costs) if options.as_json else print_document(plan_page.of_pipeline(costs))
        return None
    for text in plan.notes:
        say(text)
    with TerminalProgress() as progress, ExitStack() as stack:
        if options.request.cold:
            work = make_work_folder()
            stack.callback(work.remove)
            plan = replace(plan, artifacts=exported(waiting, work.path, folder, progress))
        done = run_pipeline(plan, folder, options.note, options.resume, progress)
    if options.as_json:
        ids = [entry.id for entry in done.stored]
        print_json({"run": done.run, "records": ids, "interrupted": done.interrupted, **as_data(done.stored)})
    elif done.stored:
        print_document(render(done.stored))
    update_pages(folder)
    if done.interrupted:
        fail(f"interrupted; not run: {', '.join(done.interrupted)}; the same command with --resume runs them", 130)
    if not any(entry.record.status in MEASURED for entry in done.stored):
        raise typer.Exit(3)
    return done
