"""The command line: reads what was typed, calls the library, prints. Only this file prints.

Exit codes: 0 something was measured or the check passed, 1 a check failed, 2 usage or bad input, 3 nothing measured,
130 interrupted. Heavy imports are inside the commands, so that --help answers at once.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from bakeoff.models.errors import BakeoffError

app = typer.Typer(
    help="Compare compiler back ends for real-time world models: built, proved, judged, timed and recorded.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_SHOWN_PROBLEMS = 3
_LONGEST = 700
"""Characters of a message."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]
Runs = Annotated[str | None, typer.Option("--runs", help="Folder of records (default: runs/ of the checkout).")]


def _print_json(value: Any) -> None:
    import msgspec

    from bakeoff.record import encode_json

    sys.stdout.write(msgspec.json.format(encode_json(value), indent=1).decode() + "\n")


def _names(option: str, values: list[str] | None) -> tuple[str, ...]:
    """Options that may be repeated or hold a comma-separated list; commas inside brackets separate options."""
    from bakeoff.variant import split_outside_brackets

    return tuple(_named(option, name) for value in values or [] for name in split_outside_brackets(value, ","))


def _named(option: str, value: str | None) -> str:
    """An option's value, "" where it is left out; a variable that a script left empty must not mean the default."""
    if value == "":
        raise BakeoffError(f"{option} names nothing; give a name or leave it out")
    return value or ""


def _records_folder(runs: str | None) -> Path:
    from bakeoff import places

    asked = _named("--runs", runs)
    return places.runs_folder(Path(asked) if asked else None)


def _warn(problems: Sequence[str]) -> None:
    """Say which record files could not be read; the others count."""
    for problem in problems[:_SHOWN_PROBLEMS]:
        _say(problem)
    if len(problems) > _SHOWN_PROBLEMS:
        _say(f"{len(problems) - _SHOWN_PROBLEMS} more records cannot be read; see: bakeoff history --check")


@app.command()
def sweep(
    component: Annotated[str, typer.Argument(help="wm, image, audio, matrix, toy, or package.module:SPEC.")],
    preset: Annotated[list[str] | None, typer.Option(help="Presets, comma-separated.")] = None,
    workload: Annotated[list[str] | None, typer.Option(help="Workloads, comma-separated.")] = None,
    backends: Annotated[list[str] | None, typer.Option(help="As in eager,inductor[freezing],a+b.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="fp32, tf32, bf16, fp16.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
    suite: Annotated[str, typer.Option(help="default or full: every workload, option set and dtype.")] = "default",
    batch: Annotated[int, typer.Option(help="2 for classifier-free guidance.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the random weights.")] = 0,
    input_seed: Annotated[int, typer.Option(help="Seed of the inputs.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads (default: all cores).")] = 0,
    checkpoint: Annotated[str | None, typer.Option(help="Weights: .safetensors, or .pt as weights only.")] = None,
    runs: Runs = None,
    note: Annotated[str, typer.Option(help="Goes into the records and the history.")] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Finish the newest unfinished sweep of this plan.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if any row is not ok.")] = False,
    as_json: Json = False,
) -> None:
    """Build, prove, judge, time and record every variant of a component."""
    from rich.console import Console

    from bakeoff.plan import Request, make_plan
    from bakeoff.progress import TerminalProgress
    from bakeoff.record import MEASURED
    from bakeoff.report import dry, history, table
    from bakeoff.store import load_all
    from bakeoff.sweep import run_sweep

    if suite not in ("default", "full"):
        raise BakeoffError(f"no suite '{suite}'; known: default, full")
    if ":" in component or any(":" in name for name in backends or []):
        sys.path.insert(0, str(Path.cwd()))
    request = Request(
        component=component,
        presets=_names("--preset", preset),
        workloads=_names("--workload", workload),
        backends=_names("--backends", backends),
        dtypes=_names("--dtype", dtype),
        device=_named("--device", device),
        suite="full" if suite == "full" else "default",
        batch=batch,
        weight_seed=seed,
        input_seed=input_seed,
        threads=threads,
        checkpoint=_named("--checkpoint", checkpoint),
    )
    folder = _records_folder(runs)
    plan = make_plan(request)
    _warn(load_all(folder).problems)
    if dry_run:
        estimate = dry.estimate(plan, folder)
        if as_json:
            _print_json(estimate)
        else:
            print(dry.render(estimate))
        return
    with TerminalProgress(Console(stderr=True)) as progress:
        done = run_sweep(plan, folder, note, resume, progress)
    if as_json:
        _print_json(
            {"sweep": done.sweep, "records": [entry.id for entry in done.stored], "interrupted": done.interrupted}
        )
    else:
        if done.stored:
            print(f"\n{table.render(done.stored)}\n")
        print(
            f"sweep {done.sweep}: {len(done.stored)} of {len(plan.entries)} variants recorded in {folder / 'records'}"
        )
    history.update(folder)
    if done.interrupted:
        _fail(f"interrupted; not run: {', '.join(done.interrupted)}; the same command with --resume runs them", 130)
    statuses = [entry.record.status for entry in done.stored]
    if not any(status in MEASURED for status in statuses):
        raise typer.Exit(3)
    if strict and any(status != "ok" for status in statuses):
        raise typer.Exit(1)


@app.command()
def show(
    record: Annotated[str, typer.Argument(help="A record's name, a beginning or hash of it, or its file.")],
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Print one record and where its log is."""
    from bakeoff.report import one
    from bakeoff.store import find

    stored = find(_records_folder(runs), record)
    if as_json:
        _print_json({"id": stored.id, "log": one.log_place(stored.record), "record": stored.record})
    else:
        print(one.render(stored))


@app.command()
def table(
    component: Annotated[str, typer.Argument(help="Component name; empty: all.")] = "",
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Print the tables of the newest sweeps from their records."""
    from bakeoff.report import table as tables
    from bakeoff.store import load_all

    folder = _records_folder(runs)
    records = load_all(folder)
    _warn(records.problems)
    rows = tables.newest([entry for entry in records.current if component in ("", entry.record.variant.component)])
    if not rows:
        raise BakeoffError(f"no records of {component or 'anything'} in {folder / 'records'}; run: bakeoff sweep wm")
    if as_json:
        _print_json(
            {"records": [entry.id for entry in rows], "rows": tables.as_rows(rows), "problems": records.problems}
        )
    else:
        print(tables.render(rows))


@app.command()
def history(
    check: Annotated[bool, typer.Option("--check", help="Exit 1 if the file is not what the records give.")] = False,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Generate OPTIMIZATION_HISTORY.md and README's results from the records."""
    from bakeoff.report import history as pages
    from bakeoff.report import readme
    from bakeoff.store import load_all

    folder = _records_folder(runs)
    problem = ""
    records = load_all(folder)
    if check:
        problem = pages.check(folder, records) or readme.check(folder, records)
    else:
        _warn(records.problems)
        written = [str(path) for path in (pages.update(folder, records), *readme.update(folder, records))]
    if as_json:
        _print_json({"problem": problem} if check else {"written": written})
    elif not check:
        print("\n".join(f"wrote {path}" for path in written))
    if problem:
        _fail(problem, 1)


@app.command()
def supersede(
    record: Annotated[str, typer.Argument(help="A record's name, or a beginning or hash of it.")],
    reason: Annotated[str, typer.Option(help="Why it is not to be shown any more.")],
    runs: Runs = None,
) -> None:
    """Take a bad record out of tables and history, with a reason; its file stays."""
    from bakeoff import places
    from bakeoff.report import history as pages
    from bakeoff.store import supersede as supersede_record

    folder = places.ensure_writable(_records_folder(runs), "records")
    print(f"wrote {supersede_record(folder, record, reason)}")
    pages.update(folder)


@app.command("list")
def list_everything(
    component: Annotated[str, typer.Argument(help="One component, or package.module:SPEC; empty: all.")] = "",
    as_json: Json = False,
) -> None:
    """Components, presets, workloads and backends, and what this host can run."""
    from bakeoff.report import listing

    if ":" in component:
        sys.path.insert(0, str(Path.cwd()))
    found = listing.read(component)
    if as_json:
        _print_json(found)
    else:
        print(listing.render(found))


@app.command()
def doctor(as_json: Json = False) -> None:
    """This host, its versions, known-bad combinations, and what would make more backends available."""
    from bakeoff.report import diagnosis

    found = diagnosis.read()
    if as_json:
        _print_json(found)
    else:
        print(diagnosis.render(found))


@app.command()
def golden(
    files: Annotated[list[Path], typer.Argument(help="Golden .safetensors files, each with its .json beside it.")],
    as_json: Json = False,
) -> None:
    """Replay golden files through their components; exit 1 past a tolerance."""
    from bakeoff import golden as replays

    result = replays.run(files)
    if as_json:
        _print_json(result)
    else:
        print(replays.render(result))
    problems = [replays.verdict(file) for file in result.files if file.problem]
    failures = [replays.verdict(file) for file in result.files if not all(output.passed for output in file.outputs)]
    if problems or failures:
        _fail("; ".join(problems or failures), 2 if problems else 1)


def _fail(message: str, code: int) -> NoReturn:
    _say(message)
    raise typer.Exit(code)


def _say(message: str) -> None:
    """One line on stderr; names in it were typed by someone or come from a file, and are not trusted."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in message).split())
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
    print(f"bakeoff: {line}", file=sys.stderr)


def main() -> None:
    """Run the command line; what the user or the system got wrong is one sentence and exit code 2."""
    try:
        for argument in sys.argv[1:]:
            if any("\udc80" <= letter <= "\udcff" for letter in argument):
                raise BakeoffError(f"argument {argument!a} is not UTF-8; what goes into records must be")
        try:
            app(standalone_mode=True)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BakeoffError as error:
        _say(str(error))
        code = 2
    except KeyboardInterrupt:
        _say("interrupted")
        code = 130
    except BrokenPipeError:
        _drop_stdout()
        code = 0
    except OSError as error:
        _drop_stdout()
        what = error.filename or ("the working folder" if isinstance(error, FileNotFoundError) else "output")
        _say(f"{what}: {error.strerror or error}; check the path, permissions and free space")
        code = 2
    else:
        return
    sys.exit(code)


def _drop_stdout() -> None:
    """What is still buffered for a stdout that takes nothing is lost, and must not fail again at exit."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
