"""Text of `bakeoff --help`: the commands by what one wants to do, each as in an example, with what it does."""

from typing import Any

from typer.core import TyperGroup

EXAMPLES = {
    "Measure": {
        "sweep": "sweep wm",
        "compare": "compare --undecided",
        "pipeline": "pipeline owl",
        "profile": "profile matrix",
        "inspect": "inspect mine.py:run --sweep",
        "ceilings": "ceilings",
    },
    "Look": {
        "table": "table wm",
        "show": "show RECORD",
        "report": "report",
        "session": "session show FILE",
        "list": "list",
        "doctor": "doctor",
    },
    "Ship": {
        "export": "export wm --backend aoti",
        "verify": "verify FOLDER",
        "publish": "publish",
    },
    "Maintain": {
        "selftest": "selftest",
        "history": "history --check",
        "supersede": "supersede RECORD --reason WHY",
        "cache": "cache --clear",
    },
}
"""Words to type after `bakeoff`, by group and command."""


class Overview(TyperGroup):
    """The commands under the headings of `EXAMPLES`; a command's own help ends with its example."""

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        for heading, examples in EXAMPLES.items():
            with formatter.section(heading):
                formatter.write_dl([(line, _first_paragraph(self.commands[name])) for name, line in examples.items()])
        formatter.write_paragraph()
        formatter.write_text("These are examples: bakeoff COMMAND --help says what else a command takes.")

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        for examples in EXAMPLES.values():
            if command is not None and cmd_name in examples:
                command.epilog = f"Example: bakeoff {examples[cmd_name]}"
        return command


def _first_paragraph(command: Any) -> str:
    return " ".join((command.help or "").partition("\n\n")[0].split())
