"""The commands `pipeline` and `profile`: run mixes of a pipeline on whole frames, and show where the time goes."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bakeoff.cli.common import (
    Deadline,
    DryRun,
    Json,
    Monitor,
    Runs,
    app,
    error_line,
    fail,
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

Preset = Annotated[str | None, typer.Option(help="Preset (default: the pipeline's for the device).")]
Options = Annotated[list[str] | None, typer.Option(help="Of the pipeline, as in steps=10.")]
Minutes = Annotated[float, typer.Option(help="The rounds of all mixes end after this time.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")]
Threads = Annotated[int, typer.Option(help="CPU threads (default: all cores).")]
Seed = Annotated[int, typer.Option(help="Seed of the random weights.")]
InputSeed = Annotated[int, typer.Option(help="Seed of noise, actions and conditions.")]
Checkpoints = Annotated[list[str] | None, typer.Option(help="Weights of a slot: SLOT=FILE.")]
Note = Annotated[str, typer.Option(help="Goes into the records and the history.")]
Resume = Annotated[bool, typer.Option("--resume", help="Finish the newest unfinished run of this plan.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 if any mix is not ok.")]
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


@app.command()
def pipeline(
    name: Annotated[str, typer.Argument(metavar="PIPELINE", help="owl, matrix, or mine.py:Loop.")],
    preset: Preset = None,
    mix: Annotated[
        list[str] | None,
        typer.Option(help="eager, best, best-full (no quantised slots), or as in wm=inductor/bf16,image=eager/fp32."),
    ] = None,
    option: Options = None,
    units: Annotated[int, typer.Option(help="Steady units of each mix.")] = 20,
    minutes: Minutes = 10.0,
    device: Device = None,
    threads: Threads = 0,
    seed: Seed = 0,
    input_seed: InputSeed = 0,
    checkpoint: Checkpoints = None,
    deadline: Deadline = None,
    monitor: Monitor = False,
    runs: Runs = None,
    note: Note = "",
    resume: Resume = False,
    dry_run: DryRun = False,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Run whole frames with a mix of variants, in turns with others, and record where the time goes."""
    from bakeoff.pipeline.request import PipelineRequest
    from bakeoff.plan.request import with_deadline
    from bakeoff.report.pages import pipelines as page

    short("--note", note)
    find_user_code([name, *(mix or [])])
    request = PipelineRequest(
        pipeline=name,
        preset=named("--preset", preset),
        mixes=tuple(named("--mix", text) for text in mix or []),
        options=tuple(named("--option", text) for text in option or []),
        units=units,
        minutes=minutes,
        device=named("--device", device),
        threads=threads,
        weight_seed=seed,
        input_seed=input_seed,
        checkpoints=tuple(named("--checkpoint", text) for text in checkpoint or []),
        monitor=monitor,
    )
    if deadline is not None:
        request = replace(request, policy=with_deadline(request.policy, deadline))
    manner = Manner(note, resume, dry_run, strict, as_json)
    run_mixes(request, records_folder(runs), manner, page.of_runs, lambda stored: {"mixes": page.as_rows(stored)})


@app.command()
def profile(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT",
            help="owl, matrix, mine.py:Loop, a component's program as in wm:200m.step, mine.py:model, or a variant.",
        ),
    ],
    preset: Preset = None,
    mix: Annotated[
        list[str] | None,
        typer.Option(help="eager, best, best-full, or as in wm=inductor/bf16 (default: eager and best, side by side)."),
    ] = None,
    option: Options = None,
    level: Annotated[int, typer.Option(help="1 units, 2 phases, 3 calls, 4 parts of networks, 5 parts of these.")] = 3,
    units: Annotated[int, typer.Option(help="Timed steady units of each mix, before tracing.")] = 20,
    traced: Annotated[int, typer.Option(help="Traced units.")] = 5,
    top: Annotated[int, typer.Option(help="Kernels and operators that are listed.")] = 20,
    trace: Annotated[
        str | None, typer.Option(help="Folder for copies of the traces; open them at ui.perfetto.dev.")
    ] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Record allocations; on CUDA a snapshot too.")] = False,
    compiler: Annotated[
        bool, typer.Option("--compiler", help="Build once more with the compiler's log, for tlparse.")
    ] = False,
    nsys: Annotated[bool, typer.Option("--nsys", help="Run under Nsight Systems, or print the command.")] = False,
    ncu: Annotated[bool, typer.Option("--ncu", help="Run under Nsight Compute, or print the command.")] = False,
    capture: Annotated[
        bool,
        typer.Option("--capture", help="NVTX ranges in a capture window instead of a trace: what --nsys runs."),
    ] = False,
    minutes: Minutes = 10.0,
    device: Device = None,
    threads: Threads = 0,
    seed: Seed = 0,
    input_seed: InputSeed = 0,
    checkpoint: Checkpoints = None,
    deadline: Deadline = None,
    monitor: Monitor = False,
    runs: Runs = None,
    note: Note = "",
    resume: Resume = False,
    dry_run: DryRun = False,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Show where the time goes: phases with busy and idle time, kernels, operators, and what could be gained."""
    from bakeoff.bring.bring import bring, is_brought, is_pipeline
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.pipeline.request import PipelineRequest, subject_of, subject_of_brought
    from bakeoff.plan.request import with_deadline
    from bakeoff.process.jobs import ProfileOptions
    from bakeoff.record.store import load_all
    from bakeoff.report.pages import profile as page

    short("--note", note)
    request = PipelineRequest(
        pipeline=subject,
        preset=named("--preset", preset),
        mixes=tuple(named("--mix", text) for text in mix or []),
        options=tuple(named("--option", text) for text in option or []),
        units=units,
        minutes=minutes,
        device=named("--device", device),
        threads=threads,
        weight_seed=seed,
        input_seed=input_seed,
        checkpoints=tuple(named("--checkpoint", text) for text in checkpoint or []),
        monitor=monitor,
        profile=ProfileOptions(level=level, units=traced, top=top, memory=memory, compiler=compiler, capture=capture),
    )
    if is_brought(subject) and not is_pipeline(subject):
        find_user_code(request.mixes)
        with TerminalProgress() as progress:
            described = bring(subject, seed, threads, progress, device=request.device)
        request = subject_of_brought(request, described)
    else:
        find_user_code([subject, *request.mixes])
        request = subject_of(request)
    mixes = request.mixes or ("eager", "best")
    if level >= _INSIDE and "eager" not in mixes:
        say(f"Level {level} looks into networks, which only eager shows: the eager mix runs as well.")
        mixes = ("eager", *mixes)
    request = replace(request, mixes=mixes)
    if deadline is not None:
        request = replace(request, policy=with_deadline(request.policy, deadline))
    copies = _new_folder(trace)
    folder = records_folder(runs)
    if nsys or ncu:
        raise typer.Exit(_nsight("nsys" if nsys else "ncu"))

    def profiles(stored: "Sequence[StoredPipeline]") -> "list[Profiled]":
        if copies is not None:
            _copy_traces(stored, copies)
        records = load_all(folder)
        return [found for entry in stored if (found := page.profiled(entry, records)) is not None]

    def show(stored: "Sequence[StoredPipeline]") -> "Document":
        made = profiles(stored)
        held = {one.entry.id for one in made}
        return page.together(made, [entry for entry in stored if entry.id not in held], copies)

    manner = Manner(note, resume, dry_run, strict, as_json)
    done = run_mixes(request, folder, manner, show, lambda made: {"profiles": [*map(page.as_json, profiles(made))]})
    if done is not None and not as_json:
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


def _nsight(tool: Literal["nsys", "ncu"]) -> int:
    """Run this process's own command line under `tool`, which captures the traced units; return its exit code.

    If the tool is not on the path, the command is printed instead, and the code is 3: nothing was measured.
    """
    own = [argument for argument in sys.argv[1:] if argument not in ("--nsys", "--ncu")]
    command = [*_COMMANDS[tool], sys.executable, "-m", "bakeoff", *own, "--capture"]
    if shutil.which(tool) is None:
        say(f"{tool} is not on the path; on a host that has it, this captures the traced units with their NVTX ranges:")
        print_text(shlex.join(command))
        return 3
    say(shlex.join(command))
    return subprocess.run(command, check=False).returncode


@dataclass(frozen=True, slots=True)
class Manner:
    """Options of how a command runs and prints, apart from what is run."""

    note: str
    resume: bool
    dry_run: bool
    strict: bool
    as_json: bool


def find_user_code(texts: Sequence[str]) -> None:
    """Make the current folder importable if a name is a user's own package.module:ATTRIBUTE."""
    if any(":" in text for text in texts):
        sys.path.append(str(Path.cwd()))  # last, so that a file there hides no installed module


def run_mixes(
    request: "PipelineRequest",
    folder: Path,
    manner: Manner,
    render: Callable[[Sequence["StoredPipeline"]], "Document"],
    as_data: Callable[[Sequence["StoredPipeline"]], Mapping[str, object]],
) -> "PipelineResult | None":
    """Run the request's mixes and print them by `render`, or by `as_data` as JSON; update the pages beside the records.

    Returns None after a dry run. Raises typer.Exit with 130 if it was interrupted, 3 if nothing was measured, and 1
    with `strict` if a mix is not ok.
    """
    from bakeoff.cli.pages import update_pages
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.machine import paths
    from bakeoff.pipeline.plan import estimate, make_pipeline_plan
    from bakeoff.pipeline.run import run_pipeline, stored_of
    from bakeoff.record.store import load_all
    from bakeoff.report.pages import plan as plan_page
    from bakeoff.sweeps.resume import find_unfinished

    with TerminalProgress() as progress:
        plan = make_pipeline_plan(request, folder, progress)
    warn(load_all(folder).problems)
    if manner.dry_run:
        if manner.resume:
            kept = stored_of(find_unfinished(plan.key, plan.name, folder, paths.cache_folder()), folder)
            plan = replace(plan, mixes=tuple(mix for mix in plan.mixes if str(mix.mix) not in kept))
        costs = estimate(plan, folder)
        print_json(costs) if manner.as_json else print_document(plan_page.of_pipeline(costs))
        return None
    for text in plan.notes:
        say(text)
    with TerminalProgress() as progress:
        done = run_pipeline(plan, folder, manner.note, manner.resume, progress)
    if manner.as_json:
        ids = [entry.id for entry in done.stored]
        print_json({"run": done.run, "records": ids, "interrupted": done.interrupted, **as_data(done.stored)})
    elif done.stored:
        print_document(render(done.stored))
    update_pages(folder, plan.loop.name)
    _exit(done, manner.strict)
    return done


def _exit(done: "PipelineResult", strict: bool) -> None:
    from bakeoff.record.schema import MEASURED

    if done.interrupted:
        fail(f"interrupted; not run: {', '.join(done.interrupted)}; the same command with --resume runs them", 130)
    statuses = [entry.record.status for entry in done.stored]
    if not any(status in MEASURED for status in statuses):
        raise typer.Exit(3)
    if strict and any(status != "ok" for status in statuses):
        raise typer.Exit(1)
