"""The options of a sweep: declared once, and read once from what was typed or from a named suite."""

import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bakeoff.cli.common import (
    Backends,
    Checkpoint,
    Deadline,
    DryRun,
    Dtypes,
    Final,
    Json,
    Monitor,
    Note,
    Seed,
    Threads,
    TimeLimit,
    find_own_modules,
    named,
    names,
    records_folder,
    short,
    typed_options,
    whole_number,
)
from bakeoff.cli.complete import subjects
from bakeoff.cli.suites import with_policy, with_suite
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from bakeoff.plan.request import Request


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What was asked of a sweep. Annotated fields are the parameters of the command, under their names."""

    components: Annotated[
        list[str],
        typer.Argument(
            help="Names that `bakeoff list` or a table prints, mine.py:model, mine.py:Loop, model.pt2, or @SUITE.",
            autocompletion=subjects,
        ),
    ]
    preset: Annotated[
        list[str] | None, typer.Option(help="Presets, comma-separated.", rich_help_panel="What is measured")
    ] = None
    workload: Annotated[list[str] | None, typer.Option(help="Workloads, comma-separated.")] = None
    backends: Backends = None
    dtype: Dtypes = None
    suite: Annotated[str, typer.Option(help="quick, default, or full: every workload, option set and dtype.")] = (
        "default"
    )
    batch: Annotated[
        list[str] | None, typer.Option(help="2 for classifier-free guidance; several, as in 1,2,4,8: a batch curve.")
    ] = None
    checkpoint: Checkpoint = None
    seed: Seed = 0
    sizes: Annotated[
        list[str] | None,
        typer.Option(help="Of a model of yours: x.0=1,4,8 builds engines for a range of sizes."),
    ] = None
    config: Annotated[str | None, typer.Option(help="File of suites (default: bakeoff.toml in this folder).")] = None
    objective: Annotated[
        str,
        typer.Option(
            help="latency or throughput, and limits: 'throughput,p99<=33ms,memory<=8GiB'.",
            rich_help_panel="How it is measured",
        ),
    ] = "latency"
    threads: Threads = 0
    processes: Annotated[int, typer.Option(help="Fresh processes for each variant: spread within and between.")] = 1
    row_timeout: Deadline = None
    time_limit: TimeLimit = None
    monitor: Monitor = False
    final: Final = True
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda (default where there is one), or GPUs: cuda:0,cuda:1.", rich_help_panel="Where it runs"
        ),
    ] = None
    build_for: Annotated[
        list[str] | None, typer.Option(help="GPUs that need not be here: sm89,sm120; builds engines, times nothing.")
    ] = None
    on: Annotated[str, typer.Option(help="ray: on the nodes of the cluster at $RAY_ADDRESS; see docs/cluster.md.")] = ""
    spread: Annotated[
        bool,
        typer.Option("--spread", help="Also the rows of one component over all the nodes or GPUs."),
    ] = False
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Finish the newest unfinished run of this plan.", rich_help_panel="The command"),
    ] = False
    dry_run: DryRun = False
    note: Note = ""
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 if any row is not ok, or left out for lack of time.")
    ] = False
    as_json: Json = False
    asked: Mapping[str, Any] = field(default_factory=dict)
    """The named suite as it was resolved; empty without one."""
    typed: tuple[str, ...] = ()
    """Options that were typed, by their first names."""
    started: float = field(default_factory=time.monotonic)
    """When the command began, by time.monotonic()."""

    @property
    def folder(self) -> Path:
        """Folder of the records."""
        return records_folder()

    @property
    def time_limit_s(self) -> float:
        """Seconds that the sweep may take; 0 without a limit. Raises BakeoffError for text that is no time."""
        from bakeoff.plan.request import parse_time_limit

        return parse_time_limit(named("--time-limit", self.time_limit)) if self.time_limit is not None else 0.0

    @property
    def gpus(self) -> str:
        """The GPUs of this host that `--device` lists, as typed; "" if it lists none."""
        device = named("--device", self.device)
        return device if ":" in device or "," in device else ""


def parameters() -> inspect.Signature:
    """Return the signature from which typer reads the parameters of a sweep: its context and the options."""
    fields = list(inspect.signature(SweepOptions).parameters.values())[:-3]
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    return inspect.Signature([context, *fields])


def options_of(context: typer.Context) -> SweepOptions:
    """Return the options that were typed, completed by the suite that they name. Raises BakeoffError for a wrong
    suite."""
    values = context.params
    if values["config"] is not None or any(name.startswith("@") for name in values["components"]):
        with_suite(context)
    options = SweepOptions(**values, asked=context.obj or {}, typed=tuple(typed_options(context)))
    short("--note", options.note)
    return options


Subject = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A component with its presets and workloads."""


def subjects_of(options: SweepOptions) -> list[Subject]:
    """Return what is swept, each component once.

    Makes modules of the working folder importable if a component or backend is a user's own.
    """
    presets, workloads = names("--preset", options.preset), names("--workload", options.workload)
    found = [_subject(typed, presets, workloads, options.folder) for typed in dict.fromkeys(options.components)]
    find_own_modules([*(subject[0] for subject in found), *(options.backends or [])])
    return found


def requests_of(options: SweepOptions, subjects: Sequence[Subject]) -> "list[Request]":
    """Return the request of each subject. Raises BakeoffError for an option with a wrong value."""
    from bakeoff.backends.backend import SUITES
    from bakeoff.models.sizes import parse_sizes
    from bakeoff.plan.request import FINAL_S, Request, with_deadline
    from bakeoff.record.objective import parse_objective

    suite = next((known for known in SUITES if known == options.suite), None)
    if suite is None:
        raise BakeoffError(f"no suite '{options.suite}'; known: {', '.join(SUITES)}", "unknown-name")
    batches = tuple(dict.fromkeys(whole_number("--batch", size) for size in names("--batch", options.batch))) or (1,)
    parse_sizes(options.sizes or [])
    request = Request(
        component="",
        backends=names("--backends", options.backends),
        dtypes=names("--dtype", options.dtype),
        device="cuda" if options.gpus else named("--device", options.device),
        suite=suite,
        batches=batches,
        weight_seed=options.seed,
        input_seed=options.seed,
        threads=options.threads,
        checkpoint=named("--checkpoint", options.checkpoint),
        processes=options.processes,
        build_for=names("--build-for", options.build_for),
        final_s=FINAL_S if options.final else 0.0,
        monitor=options.monitor,
        time_limit_s=options.time_limit_s,
        objective=parse_objective(named("--objective", options.objective)),
        asked=options.asked,
    )
    request = with_policy(request)
    if options.row_timeout is not None:
        request = replace(request, policy=with_deadline(request.policy, options.row_timeout))
    return [replace(request, component=name, presets=own, workloads=work) for name, own, work in subjects]


def _subject(typed: str, presets: tuple[str, ...], workloads: tuple[str, ...], runs: Path) -> Subject:
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
        name = source_of(load_all(runs), typed) or name
        if is_pipeline(name):  # its modules are described together, and swept so
            return name, presets, workloads
    return name, presets or tuple(filter(None, [preset])), workloads or tuple(filter(None, [workload]))
