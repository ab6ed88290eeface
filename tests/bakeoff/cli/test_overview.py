"""What `bakeoff --help` and plain `make` print: everything there is, with an example of each that is right."""

from pathlib import Path

from records import bakeoff, record
from typer.main import get_command

from bakeoff.cli import app
from bakeoff.cli.common import EXAMPLES
from bakeoff.record.store import save


def test_every_command_has_a_place_and_an_example_with_options_that_it_takes() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    examples = {name: line for group in EXAMPLES.values() for name, line in group.items()}
    assert sorted(examples) == sorted(commands)
    for name, line in examples.items():
        typed, *words = line.split()
        assert typed == name
        command = commands[name]
        if words and hasattr(command, "commands"):
            command = command.commands[words[0]]
        known = {option for each in command.params for option in each.opts}
        assert {word for word in words if word.startswith("-")} <= known


def test_the_folder_of_records_is_named_before_a_command_and_by_the_commands_of_a_page(tmp_path: Path) -> None:
    for backend, ms in (("eager", 10.0), ("inductor", 9.9)):
        save(tmp_path / "my runs", record(backend, [ms + place / 10 for place in range(20)]))
    table = ("table", "--machine", "all")
    shown = bakeoff("--runs", "my runs", *table, cwd=tmp_path)
    assert shown.code == 0, shown.err
    assert [line.split(" '")[:2] for line in shown.out.splitlines() if line.startswith("bakeoff ")] == [
        ["bakeoff --runs", "my runs' compare"]
    ]
    assert bakeoff(*table, cwd=tmp_path).code == 2, "of one command alone"
    assert "--runs FOLDER" in bakeoff("--help", cwd=tmp_path).out
