"""Shared by the commands: the page of --help, reading options, printing JSON, warnings and errors."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

import bakeoff
from bakeoff.cli.complete import backends, subjects
from bakeoff.models.errors import BakeoffError, ErrorCode
from bakeoff.models.words import counted

if TYPE_CHECKING:
    from bakeoff.report.document import Document


class Overview(TyperGroup):
    """The commands under the headings of `EXAMPLES`; a command's own help ends with its example."""

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        for heading, examples in EXAMPLES.items():
            with formatter.section(heading):
                formatter.write_dl([(line, _first_paragraph(self.commands[name])) for name, line in examples.items()])
        formatter.write_paragraph()
        formatter.write_text("These are examples: bakeoff COMMAND --help says what else a command takes.")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that `args` begin with. Raises BakeoffError for a word that has another name now."""
        if args[0] in REPLACED:
            raise BakeoffError(f"bakeoff {args[0]} is now: bakeoff {REPLACED[args[0]]}", "bad-option")
        found = super().resolve_command(ctx, args)
        takes = [found[1], self.commands["sweep" if args[0] == "gate" else args[0]]]
        known = {option for command in takes for each in getattr(command, "params", ()) for option in each.opts}
        for word in args[1:]:
            option = word.partition("=")[0]
            if option[:2] == "--" and option in REPLACED and option not in known:
                raise BakeoffError(f"{option} is now {REPLACED[option]}", "bad-option")
        return found

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        for examples in EXAMPLES.values():
            if command is not None and cmd_name in examples:
                command.epilog = f"Example: bakeoff {examples[cmd_name]}"
        return command


class Grouped(TyperCommand):
    """A command whose options stand under headings: those of `rich_help_panel`, each until the next one."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        heading, groups = "Arguments", dict[str, list[Any]]()
        for parameter in self.get_params(ctx):
            heading = getattr(parameter, "rich_help_panel", None) or heading
            if (line := parameter.get_help_record(ctx)) is not None:
                groups.setdefault(heading, []).append(line)
        for heading, lines in groups.items():
            with formatter.section(heading):
                formatter.write_dl(lines)


REPLACED = {
    "ceilings": "doctor --ceilings",
    "cache": "doctor --cache show",
    "supersede": "publish --supersede RECORD WHY",
    "--budget": "--time-limit",
    "--builds": "a sweep after bakeoff doctor --cache clear, to build all anew",
    "--clear": "--cache clear",
    "--deadline": "--row-timeout",
    "--input-seed": "--seed, of weights and inputs",
    "--minutes": "an option of pipeline and deadline alone",
    "--option": "part of the name, as in owl[steps=10]",
    "--preset": "part of the name, as in owl:tiny, wm:1b.step or mine.py:Loop:large",
    "--reason": "the second word of --supersede RECORD WHY",
    "--runs": "an option before the command: bakeoff --runs FOLDER table",
    "--seconds": "always 30 minutes to verify, an hour to inspect, 10 s of calls to compare",
    "--sweep": "--record; then bakeoff sweep FOLDER",
    "--top": "always 20",
    "--wide": "what any pipe gets: bakeoff table | less -S",
    "--workload": "part of the name, as in wm:1b.step, or mine:py.call once a model was described",
}
"""What is typed instead of a former command or option, where a command has no such option."""
app = typer.Typer(
    cls=Overview,
    help="Compare compiler backends for real-time world models: built, proved, checked, timed and recorded.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_SHOWN_PROBLEMS = 3
_LONGEST_NOTE = 500
"""Most characters of a note or a reason: each page of the history repeats it."""
_LONGEST = 700
"""Most characters of a message."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]
Backends = Annotated[
    list[str] | None,
    typer.Option(help="As in eager,inductor[freezing],a+b,mine.py:BACKEND.", autocompletion=backends),
]
Dtypes = Annotated[list[str] | None, typer.Option("--dtype", help="fp32, tf32, bf16, fp16; or as torch says.")]
Final = Annotated[bool, typer.Option(help="Measure the two best rows against each other at the end.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would run.")]
Deadline = Annotated[
    float | None,
    typer.Option("--row-timeout", help="Seconds a build may take (default: 600; 1200 for a GiB of weights and more)."),
]
TimeLimit = Annotated[
    str | None,
    typer.Option(help="Of all rows, as in 90s, 3m, 1h30m: what is likely to be fast comes first."),
]
Device = Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")]
Threads = Annotated[int, typer.Option(help="CPU threads (default: all cores).")]
Seed = Annotated[int, typer.Option(help="Seed of the random weights and of the inputs.")]
Checkpoint = Annotated[str | None, typer.Option(help="Weights: .safetensors, or .pt as weights only.")]
Note = Annotated[str, typer.Option(help="Goes into the records and the history.")]
Resume = Annotated[bool, typer.Option("--resume", help="Finish the newest unfinished run of this plan.")]
Named = Annotated[
    str,
    typer.Argument(
        help="A component, a pipeline, mine.py:model, or a title or a beginning of one; empty: all.",
        autocompletion=subjects,
    ),
]
Monitor = Annotated[
    bool, typer.Option("--monitor", help="Watch GPU, CPU and memory of each worker from a process beside it.")
]
Machines = Annotated[
    list[str] | None,
    typer.Option("--machine", help="Name, id, class or all; comma-separated; of published ones too (default: this)."),
]
EXAMPLES = {
    "Measure": {
        "sweep": "sweep wm",
        "compare": "compare --undecided",
        "gate": "gate @nightly --against main",
        "pipeline": "pipeline owl",
        "deadline": "deadline owl",
        "profile": "profile matrix",
        "budget": "budget owl --objective 'fps>=24'",
        "rollout": "rollout matrix --units 40",
        "inspect": "inspect mine.py:run --record unet",
    },
    "Look": {
        "table": "table wm",
        "show": "show RECORD",
        "explain": "explain RECORD OTHER",
        "report": "report",
        "session": "session show FILE",
        "list": "list",
        "doctor": "doctor",
    },
    "Ship": {
        "export": "export wm --backend aoti",
        "verify": "verify FOLDER",
        "publish": "publish",
        "records": "records export --format csv",
    },
    "Maintain": {
        "selftest": "selftest",
        "history": "history --check",
    },
}
"""Words to type after `bakeoff`, by group and command."""


def _version(asked: bool) -> None:
    if asked:
        print(f"bakeoff {bakeoff.__version__}")
        raise typer.Exit


_RUNS: ContextVar[str | None] = ContextVar("_RUNS", default=None)
"""What was typed as `--runs`, while a command runs."""


@app.callback()
def _before_any_command(
    context: typer.Context,
    runs: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder of records (default: $BAKEOFF_RUNS, or that of the checkout)."),
    ] = None,
    _asked: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    context.call_on_close(partial(_RUNS.reset, _RUNS.set(runs)))


def print_text(text: str) -> None:
    """Print text that others may have written, without characters that a terminal would obey."""
    from bakeoff.machine.terminal import printable

    print(printable(text))


def print_document(document: "Document") -> None:
    """Print a page fitted to the terminal; in full if stdout is no terminal. Its commands use the same records."""
    import os

    from rich.console import Console

    from bakeoff.report.render import terminal

    console = Console()
    limited = console.is_terminal or "COLUMNS" in os.environ
    coloured = console.is_terminal and not console.no_color and console.color_system is not None
    shown = replace(document, blocks=_with_runs(document.blocks))
    print(terminal.render(shown, console.width if limited else None, coloured))


def _with_runs(blocks: "Sequence[Any]") -> tuple[Any, ...]:
    """Return blocks of a page whose commands begin with `program()`."""
    from bakeoff.report.document import Command, Section

    return tuple(
        replace(block, blocks=_with_runs(block.blocks))
        if isinstance(block, Section)
        else Command(re.sub(r"^bakeoff (?!--runs)", lambda _: f"{program()} ", block.text))
        if isinstance(block, Command)
        else block
        for block in blocks
    )


def print_written(paths: Iterable[Path | str], as_json: bool = False, **more: object) -> None:
    """Print which files were written; `more` is added to the JSON only."""
    written = [str(path) for path in paths]
    print_json({"written": written, **more}) if as_json else print_text("\n".join(f"wrote {path}" for path in written))


def print_json(value: Any) -> None:
    import msgspec

    from bakeoff.record.codec import encode_json

    sys.stdout.write(msgspec.json.format(encode_json(value), indent=1).decode() + "\n")


def names(option: str, values: list[str] | None) -> tuple[str, ...]:
    """Return the names in an option that may be repeated or contain a comma-separated list.

    Commas inside brackets separate a backend's options and do not split the list.
    """
    from bakeoff.variant import split_outside_brackets

    return tuple(named(option, name) for value in values or [] for name in split_outside_brackets(value, ","))


def find_own_modules(references: Iterable[str]) -> None:
    """Make the current folder importable if a reference is a user's own package.module:ATTRIBUTE."""
    from bakeoff.process.environment import find_user_code

    find_user_code(os.getcwd() if any(":" in reference for reference in references) else "")


def typed_options(context: typer.Context) -> list[str]:
    """Return the options that were typed, each by its first name; without one that a suite was read from."""
    known = [each for each in context.command.params if each.name in context.params]
    sources = ((each.opts[0], context.get_parameter_source(each.name or "")) for each in known)
    return [name for name, source in sources if name[0] == "-" and source and source.name == "COMMANDLINE"]


def named(option: str, value: str | None) -> str:
    """Return an option's value, "" if omitted. Raises BakeoffError for an empty one (a script's unset variable)."""
    if value == "":
        raise BakeoffError(f"{option} is empty; pass a name or omit the option", "bad-option")
    return value or ""


def whole_number(option: str, text: str) -> int:
    """Parse one of an option's numbers. Raises BakeoffError for anything but up to nine digits."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise BakeoffError(f"{option} '{text}': give whole numbers, as in {option} 1,2,4,8", "bad-option")
    return int(text)


def check_range(option: str, value: float, least: float, most: float) -> None:
    """Check an option's number. Raises BakeoffError if it is not between `least` and `most`."""
    if not least <= value <= most:
        raise BakeoffError(f"{option} {value:g}: give {least:g} to {most:g}", "bad-option")


def short(option: str, text: str) -> str:
    """Return a note or reason. Raises BakeoffError if it is too long."""
    if len(text) > _LONGEST_NOTE:
        raise BakeoffError(f"{option} has {len(text)} characters; give at most {_LONGEST_NOTE}", "bad-option")
    return text


def records_folder() -> Path:
    from bakeoff.machine import paths

    asked = named("--runs", _RUNS.get())
    return paths.runs_folder(Path(asked) if asked else None)


def records_folders(folder: Path) -> tuple[Path, ...]:
    """Return a folder of records, and, if it is the usual one, the published records beside it."""
    from bakeoff.machine import paths

    return paths.with_published(folder) if folder == paths.runs_folder() else (folder,)


def program() -> str:
    """Return the words with which printed commands begin: with the folder of records, if it was typed."""
    asked = _RUNS.get()
    return f"bakeoff --runs {shlex.quote(asked)}" if asked else "bakeoff"


def warn(problems: Sequence[str]) -> None:
    """Print which record files could not be read; the others count."""
    for problem in problems[:_SHOWN_PROBLEMS]:
        say(problem)
    if len(problems) > _SHOWN_PROBLEMS:
        say(f"{counted(len(problems) - _SHOWN_PROBLEMS, 'more record')} cannot be read; see: bakeoff history --check")


def fail(message: str, exit_code: int, code: ErrorCode = "") -> NoReturn:
    """End the command with `exit_code` after printing an error in the form of `error_line`."""
    say(error_line(message, code))
    raise typer.Exit(exit_code)


def error_line(message: str, code: ErrorCode) -> str:
    """Return the message, followed by its code in brackets if it has one."""
    return f"{message} [{code}]" if code else message


def say_command(command: str) -> None:
    """Print a command on a line of its own on stderr, whole and without a prefix, so that it can be pasted."""
    from bakeoff.machine.terminal import one_line

    print(one_line(command), file=sys.stderr)


def say(message: str) -> None:
    """Print one line on stderr. Names in it were typed by someone or come from a file, so they are made printable."""
    from bakeoff.machine.terminal import one_line

    line = one_line(message)
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
    print(f"bakeoff: {line}", file=sys.stderr)


def _first_paragraph(command: Any) -> str:
    return " ".join((command.help or "").partition("\n\n")[0].split())
