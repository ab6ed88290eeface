"""The command that shows where the time of a pipeline or of a component goes."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bakeoff.cli.common import (
    Deadline,
    DryRun,
    Json,
    Monitor,
    Runs,
    app,
    named,
    print_written,
    records_folder,
    say,
    short,
)
from bakeoff.cli.mixes import (
    Checkpoints,
    Device,
    InputSeed,
    Manner,
    Minutes,
    Note,
    Options,
    Preset,
    Resume,
    Seed,
    Strict,
    Threads,
    find_user_code,
    run_mixes,
)
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from bakeoff.record.store import StoredPipeline
    from bakeoff.report.document import Document
    from bakeoff.report.pages.profile import Profiled

_INSIDE = 4
"""The first level that looks into networks, which only an eager run shows."""


@app.command()
def profile(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT",
            help="owl, matrix, toy, mine.py:Loop, a component's program as in wm:200m.step, mine.py:model, "
            "or a variant.",
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
    from dataclasses import replace

    from bakeoff.bring.bring import bring, is_brought, is_pipeline
    from bakeoff.cli.nsight import nsight
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
        raise typer.Exit(nsight("nsys" if nsys else "ncu"))

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
        print_written(page.paths_of(folder, done.stored, load_all(folder)))


def _copy_traces(stored: "Sequence[StoredPipeline]", folder: Path) -> None:
    from bakeoff.machine import paths

    for entry in stored:
        if (made := entry.record.measurement.profile) is not None and made.trace is not None:
            shutil.copyfile(paths.cache_folder() / made.trace.path, folder / Path(made.trace.path).name)


def _new_folder(trace: str | None) -> Path | None:
    """The folder for copies of traces, made before anything is measured. Raises BakeoffError where it cannot be."""
    if trace is None:
        return None
    folder = Path(named("--trace", trace))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text = f"--trace {folder}: {error.strerror}; give a folder that can be written"
        raise BakeoffError(text, "not-writable") from error
    return folder
