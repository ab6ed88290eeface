"""README cites what runs/published/ holds, and every command it names exists with the options it shows."""

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import typer

from bakeoff.backends import backend_names
from bakeoff.cli import app
from bakeoff.models import resolve_component
from bakeoff.record.schema import MEASURED
from bakeoff.record.store import load_all
from bakeoff.report.format import milliseconds
from bakeoff.report.pages import files as page_files
from bakeoff.report.pages import readme, results
from bakeoff.report.recommendation import DRIFT

ROOT = Path(__file__).parent.parent
RUNS = ROOT / "runs" / "published"
DOCS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", *DOCS)
WIDEST, WIDEST_CODE, LONGEST = 160, 106, 135
"""Characters of README's lines, of those that a browser does not break (921 px of a page of 1,000), and lines of it."""


def _code(page: str) -> list[str]:
    """Lines of indented and fenced blocks, and text between backticks."""
    text = (ROOT / page).read_text(encoding="utf-8")
    fenced = re.findall(r"```(?:sh|bash|console)?\n(.*?)```", text, re.DOTALL)
    rest = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    indented = re.findall(r"^(?:    |\t)(.+)$", rest, re.MULTILINE)
    inline = re.findall(r"`([^`]+)`", re.sub(r"\s*\n\s*", " ", rest))
    return [line.strip() for block in fenced for line in block.splitlines()] + indented + inline


def _commands(program: str) -> list[tuple[str, list[str]]]:
    """Each use of `program` on the pages: the page and the words after it, without comments."""
    found = []
    for page in PAGES:
        for line in _code(page):
            match = re.match(rf"(?:\S*/)?{program}\s+(.+)", line)
            if match:
                words = shlex.split(match[1], comments=True)
                found.append((page, words[2:] if words[0] == "--runs" else words))
    return found


def _makefile() -> tuple[set[str], str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {name for line in re.findall(r"^([a-z][a-z -]*):(?!=)", text, re.MULTILINE) for name in line.split()}
    return targets, text


def _bakeoff() -> Any:
    return typer.main.get_command(app)


def _each_command(command: Any, name: str = "bakeoff") -> Iterator[tuple[str, Any]]:
    for word, one in getattr(command, "commands", {}).items():
        yield from _each_command(one, f"{name} {word}")
    if not hasattr(command, "commands"):
        yield name, command


def test_the_help_of_an_option_speaks_of_options_that_the_command_has() -> None:
    for name, command in _each_command(_bakeoff()):
        known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
        for one in command.params:
            said = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", getattr(one, "help", "") or ""))
            assert said <= known, f"{name}: {one.name}"


def test_results_block_is_what_the_records_give() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count(readme.BEGIN) == text.count(readme.END) == 1
    assert readme.check(RUNS) is None


def test_results_and_histories_are_what_the_records_give() -> None:
    assert page_files.check(RUNS) == []


def test_records_of_the_checkout_are_readable_and_hold_no_paths() -> None:
    records = load_all(RUNS)
    assert records.problems == ()
    for path in RUNS.glob("**/records/*.json"):
        assert not re.search(rb"/(home|root|Users|tmp)/", path.read_bytes()), path.name


def test_backends_are_said_to_be_executed_where_a_record_shows_it() -> None:
    """The column "executed by us" names a device exactly where a record of this checkout was measured on it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| backend \|.*\| executed by us \|\n\|[- |]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    said: dict[str, str] = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        said |= dict.fromkeys(re.findall(r"`([^`]+)`", cells[0]), cells[-1].strip("| "))
    assert set(said) == set(backend_names())
    measured: dict[str, set[str]] = {name: set() for name in said}
    for stored in load_all(RUNS).current:
        if stored.record.status in MEASURED:
            for use in stored.record.variant.backends:
                measured[use.name].add(stored.record.variant.device)
    for name, cell in said.items():
        named = {device for device, word in {"cpu": "CPU", "cuda": "GPU"}.items() if word in cell}
        if "in tests only" in cell:
            assert (named, measured[name]) == ({"cpu"}, set()), name
        else:
            assert (named, cell == "no") == (measured[name], not measured[name]), name
    assert ("Not one row has been measured on a GPU by us yet" in text) == (
        "cuda" not in set().union(*measured.values())
    )


def test_make_targets_exist() -> None:
    targets, text = _makefile()
    commands = _commands("make")
    assert {"sweep", "test", "list", "doctor", "history", "publish"} <= {words[0] for _, words in commands}
    for page, words in commands:
        for word in words:
            name, assigned, _ = word.partition("=")
            if assigned:
                assert f"$({name})" in text or f"{name} ?=" in text, f"{page}: make {' '.join(words)}: no {name}"
                continue
            if re.fullmatch(r"[a-z-]+", word):
                assert word in targets, f"{page}: make {' '.join(words)}: no target {word}"


def test_bakeoff_commands_and_options_exist() -> None:
    commands = _commands("bakeoff")
    assert {"sweep", "show", "history", "publish", "table"} <= {words[0] for _, words in commands}
    known = _bakeoff().commands
    for page, words in commands:
        assert words[0] in known, f"{page}: bakeoff {' '.join(words)}"
        command = known[words[0]]
        if words[1:] and words[1] in getattr(command, "commands", {}):
            command = command.commands[words[1]]
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for word in words[1:]:
            if word.startswith("--"):
                assert word.partition("=")[0] in options, f"{page}: bakeoff {' '.join(words)}: no {word}"


def _anchors(page: Path) -> set[str]:
    """The anchors of a page: of its headings as GitHub names them, and those that it sets."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    named = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return named | set(re.findall(r'<a id="(\w+)">', text))


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_linked_or_named_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    linked = [target for target in re.findall(r"\]\(([^)#]+)\)", outside) if "://" not in target]
    named = re.findall(r"`((?:bakeoff|backends|models|tests|tools|runs)/[\w./-]*)`", outside)
    folder = (ROOT / page).parent
    missing = [name for name in linked if not (folder / name).exists()]
    for name, anchor in re.findall(r"\]\(([^):#]*\.md)?#([\w-]+)\)", outside):
        path = folder / name if name else ROOT / page
        missing += [f"{name}#{anchor}"] if path.exists() and anchor not in _anchors(path) else []
    missing += [name for name in named if not (ROOT / name).exists()]
    assert missing == []


def test_readme_is_short_and_fits_a_screen() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LONGEST
    assert [line for line in lines if len(line) > WIDEST] == []
    assert [line for line in lines if line.startswith("    ") and len(line) - 4 > WIDEST_CODE] == []


def test_the_index_leads_to_every_page_and_is_short() -> None:
    folder = ROOT / "docs"
    text = (folder / "README.md").read_text(encoding="utf-8")
    linked = {(folder / address).resolve() for address in re.findall(r"\]\(([^)#]+)", text)}
    assert [page for page in PAGES if page != "docs/README.md" and ROOT / page not in linked] == []
    assert len(text.splitlines()) <= 40
    assert "](docs/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_each_hash_of_the_results_leads_to_the_line_of_its_record() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = (RUNS / results.NAME).read_text(encoding="utf-8").splitlines()
    files = dict(re.findall(r"^\[(\w+)\]: (\S+\.json)$", "\n".join(lines), re.MULTILINE))
    found = re.findall(r"^(?:\| (.+?) *\|.*)?\[(\w+)\]\(runs/published/RESULTS\.md#(\w+)\)", text, re.MULTILINE)
    assert len(found) > 15
    for name, label, anchor in found:
        assert label == anchor
        (line,) = (line for line in lines if f'<a id="{anchor}"></a>' in line)
        assert f"| {name} " in line or not name
        cited = line.partition(f'<a id="{anchor}"></a>[')[2].partition("]")[0]
        assert cited.startswith(label)
        assert (RUNS / unquote(files[cited])).stem.endswith(f"_{cited}")
        assert (RUNS / unquote(files[cited])).is_file()


def _workload(component: str, preset: str) -> tuple[Sequence[int], Sequence[int]]:
    """Shapes of the first input and output of a component's first workload at batch 1, without the batch."""
    spec = resolve_component(component)
    made = spec.workload(spec.preset(preset).config, spec.default_workloads["cuda"][0], 1)
    return made.inputs[0].shape[1:], made.outputs[0].shape[1:]


def _parameters(component: str, preset: str) -> str:
    return f"{resolve_component(component).preset(preset).parameters:,}"


def _median(machine: str, variant: str) -> str:
    """The median of the newest record of a variant on a machine."""
    rows = [entry.record for entry in load_all(RUNS).current if entry.machine.tag == machine]
    latency = max((row for row in rows if str(row.variant) == variant), key=lambda row: row.created).latency
    assert latency is not None
    return milliseconds(latency.median_ms)


def _largest_move() -> str:
    """The largest ratio of one row's medians in sweeps of one label, of rows that were ok in each."""
    ratios = []
    for entry in json.loads((ROOT / "tests" / "trials" / "sweep_times.json").read_bytes()).values():
        for kinds in (kinds for name, kinds in entry.items() if name not in ("host", "recorded")):
            medians: dict[str, list[float]] = {}
            for name, row in (pair for made in kinds.values() for pair in made["rows"].items()):
                if row["status"] == "ok":
                    medians.setdefault(name, []).append(row["median_ms"])
            ratios += [max(found) / min(found) for found in medians.values()]
    return f"{max(ratios):.1f}x"


NUMBERS: Mapping[str, Callable[[], str]] = {
    "3.11": lambda: str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"])[2:],
    "1,093,823,296": lambda: _parameters("wm", "1b"),
    "274,839,872": lambda: _parameters("wm", "200m"),
    "4x4x128": lambda: "x".join(map(str, reversed(_workload("image", "128x")[0]))),
    "360x640": lambda: "x".join(map(str, _workload("image", "128x")[1][1:])),
    "73,355,776": lambda: _parameters("image", "128x"),
    "120": lambda: str(_workload("audio", "cod")[0][-1]),
    "88,200": lambda: f"{_workload('audio', 'cod')[1][-1]:,}",
    "20,950,528": lambda: _parameters("audio", "cod"),
    "73,295,603": lambda: _parameters("matrix-vae", "full"),
    "1,619,242,304": lambda: _parameters("matrix-wm", "universal"),
    "27.54": lambda: _median("5f4202", "wm:1b.step/eager/bf16@cuda"),
    "5.459": lambda: _median("5f4202", "wm:1b.step/cudagraph/bf16@cuda"),
    "1.7x": _largest_move,
}
"""Where each number is from that README states outside of its block: a spec, a record, what a trial recorded."""
NUMBER = re.compile(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?:x\d+)*x?(?![\w-])")


def test_each_number_outside_the_block_is_what_its_source_gives() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    outside = re.sub(rf"{readme.BEGIN}.*{readme.END}", "", text, flags=re.DOTALL)
    prose = re.sub(r"^    .*$|`[^`]*`|\]\([^)]*\)", "", outside, flags=re.MULTILINE)
    found = NUMBER.findall(prose.replace("Wan 2.1", ""))
    assert set(found) == set(NUMBERS)
    assert {number: source() for number, source in NUMBERS.items()} == {number: number for number in NUMBERS}


def test_the_drift_between_sweeps_is_the_largest_move() -> None:
    assert f"{DRIFT}x" == _largest_move()
    for page in ("README.md", "docs/method.md", "docs/why-your-number-differs.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert re.findall(r"(?:newest rows, it is|moved by up to) ([\d.]+x)", text) == [f"{DRIFT}x"], page


def test_exit_codes_are_those_of_the_command_line() -> None:
    """The sentence of docs/sweeps.md and the docstring of bakeoff.cli state the same codes."""
    from bakeoff import cli

    for text in ((ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8"), cli.__doc__ or ""):
        sentence = " ".join(text.partition("Exit codes: ")[2].split("\n\n")[0].split())
        found = re.findall(r"(?:^|, )(\d+) ", f", {sentence}")
        assert found == ["0", "1", "2", "3", "130"]
