"""What `bakeoff --help` and plain `make` print: everything there is, with an example of each that is right."""

import re
import subprocess
from pathlib import Path

import pytest
from records import bakeoff, record
from typer.main import get_command

from bakeoff.cli import app
from bakeoff.cli.common import EXAMPLES
from bakeoff.record.store import save

ROOT = Path(__file__).parents[3]


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


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        (["--help"], "Build, prove, check, time and record every variant of one or several components."),
        (["doctor", "--help"], "Example: bakeoff doctor"),
    ],
)
def test_sentences_are_whole_at_80_columns(tmp_path: Path, arguments: list[str], whole: str) -> None:
    ran = bakeoff(*arguments, cwd=tmp_path, COLUMNS="80")
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "..." not in ran.out.replace("[ARGS]...", "")
    assert whole in " ".join(ran.out.split())


def test_plain_make_prints_all_that_can_be_made() -> None:
    said = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    phony, *_ = re.findall(r"^\.PHONY: (.+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [target for target in phony.split() if target != "help" and not re.search(rf"\b{target}\b", said)] == []
    assert max(map(len, said.splitlines())) <= 88
