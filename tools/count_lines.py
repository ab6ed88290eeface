"""Print how large the product is: tracked Python files by package, what else the repository holds, and its surface.

    python tools/count_lines.py [FOLDER]

Code is what is neither blank, comment nor docstring; tokens are those of `tokenize` without comments and newlines.
The surface is what a user or reader must know: commands (leaves of the command line) with their options, parameters of
`sweep`, dataclasses, and codes of findings. FOLDER is another checkout, such as a worktree of an earlier commit; its
commands are read if it has a .venv.
"""

import ast
import io
import json
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath

from tabulate import tabulate

PRODUCT = ("bakeoff", "backends", "models", "export")
_KEYS = ("files", "lines", "code", "tokens")
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_COMMANDS = """
import json
from typer.main import get_command
from bakeoff.cli import app
def leaves(name, command):
    for part, inner in getattr(command, "commands", {}).items():
        yield from leaves(f"{name} {part}".strip(), inner)
    if not hasattr(command, "commands"):
        yield name, [one.param_type_name for one in command.params]
print(json.dumps(dict(leaves("", get_command(app)))))
"""
"""Prints the kinds of the parameters of each command, by its name."""


def count(text: str) -> Counter[str]:
    """Count the lines, lines of code and tokens of a Python file."""
    tokens = [one for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.type not in _LAYOUT]
    code = {line for one in tokens for line in range(one.start[0], one.end[0] + 1)} - _docstrings(text)
    return Counter(files=1, lines=len(text.splitlines()), code=len(code), tokens=len(tokens))


def _docstrings(text: str) -> set[int]:
    """The lines of strings that stand alone: docstrings, also those of attributes."""
    strings = [
        one
        for one in ast.walk(ast.parse(text))
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str)
    ]
    return {line for one in strings for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)}


def package_of(path: PurePath) -> str:
    """Name the part of the repository that a file is counted with, such as `bakeoff/report`."""
    top = path.parts[0] if len(path.parts) > 1 else "."
    if path.suffix != ".py":
        return f"{top} *{path.suffix or path.name}"
    return "/".join(path.parts[:2]) if top == "bakeoff" and len(path.parts) > 2 else top


def count_packages(root: Path) -> dict[str, Counter[str]]:
    """Count the tracked files by package; `tests` are the lines of Python in a package's folder of tests/."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    packages: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name in filter(None, listed.split("\0")):
        path = PurePosixPath(name)
        try:
            text = (root / path).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        made = count(text) if path.suffix == ".py" else Counter(files=1, lines=len(text.splitlines()))
        packages[package_of(path)].update(made)
        if path.suffix == ".py" and path.parts[0] == "tests":
            packages[package_of(path.relative_to("tests"))]["tests"] += made["lines"]
    return {name: made for name, made in packages.items() if made["files"]}


def surface(root: Path) -> dict[str, int]:
    """Count commands, options, parameters of `sweep`, dataclasses and codes; without .venv only the last two."""
    found: dict[str, int] = {}
    python = root / ".venv" / "bin" / "python"
    if python.exists():
        asked = subprocess.run([python, "-c", _COMMANDS], cwd=root, capture_output=True, text=True, check=True)
        commands: dict[str, list[str]] = json.loads(asked.stdout)
        found["commands"] = len(commands)
        found["options"] = sum(kinds.count("option") for kinds in commands.values())
        found["parameters of sweep"] = len(commands["sweep"])
    listed = subprocess.run(["git", "ls-files", *PRODUCT], cwd=root, capture_output=True, text=True, check=True).stdout
    files = [root / name for name in listed.splitlines() if name.endswith(".py") and (root / name).exists()]
    found["dataclasses"] = sum(_dataclasses(ast.parse(file.read_text(encoding="utf-8"))) for file in files)
    found["codes of findings"] = _codes(ast.parse((root / "bakeoff/record/finding.py").read_text(encoding="utf-8")))
    return found


def _dataclasses(tree: ast.Module) -> int:
    decorators = [one for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for one in node.decorator_list]
    return sum("dataclass" in ast.unparse(one).partition("(")[0].split(".") for one in decorators)


def _codes(tree: ast.Module) -> int:
    """Count the values of the Literals that are assigned to names, such as `FindingCode`."""
    literals = [
        node.value.slice
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Literal[")
        if isinstance(node.value, ast.Subscript)
    ]
    return len({one.value for each in literals for one in ast.walk(each) if isinstance(one, ast.Constant)})


def tables(packages: Mapping[str, Counter[str]], style: str) -> tuple[str, str]:
    """Return the table of the product's packages, with their sum, and that of what is beside it."""
    product = {name for name in packages if " " not in name and name.split("/")[0] in PRODUCT}
    whole = sum((packages[name] for name in product), Counter[str]())
    own = [*((name, packages[name]) for name in sorted(product)), ("product", whole)]
    beside = [(name, packages[name]) for name in sorted(packages.keys() - product)]
    return _table("product", own, (*_KEYS, "tests"), style), _table("beside it", beside, _KEYS, style)


def _table(title: str, rows: Iterable[tuple[str, Counter[str]]], keys: Sequence[str], style: str) -> str:
    cells = [[name, *(made[key] or "" for key in keys)] for name, made in rows]
    return tabulate(cells, headers=[title, *keys], intfmt=",", tablefmt=style)


if __name__ == "__main__":
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    print(*tables(count_packages(root), "simple"), sep="\n\n", end="\n\n")
    print(tabulate(surface(root).items(), headers=["surface", ""], intfmt=","))
