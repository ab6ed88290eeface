"""Print how large the product is: tracked Python files by package, and beside them what else the repository holds.

    python tools/count_lines.py [FOLDER]

Code is what is neither blank, comment nor docstring; tokens are those of `tokenize` without comments and newlines.
FOLDER is another checkout, such as a worktree of an earlier commit.
"""

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path, PurePosixPath

from tabulate import tabulate

_PRODUCT = ("bakeoff", "backends", "models", "export")
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


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


def package_of(path: PurePosixPath) -> str:
    """Name the part of the repository that a file is counted with, such as `bakeoff/report`."""
    top = path.parts[0] if len(path.parts) > 1 else "."
    if path.suffix != ".py":
        return f"{top} *{path.suffix or path.name}"
    return "/".join(path.parts[:2]) if top == "bakeoff" and len(path.parts) > 2 else top


def main(root: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    packages: dict[str, Counter[str]] = {}
    for name in filter(None, listed.split("\0")):
        path = PurePosixPath(name)
        try:
            text = (root / path).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        made = count(text) if path.suffix == ".py" else Counter(files=1, lines=len(text.splitlines()))
        packages.setdefault(package_of(path), Counter()).update(made)
    product = {name for name in packages if " " not in name and name.split("/")[0] in _PRODUCT}
    for title, names in (("product", product), ("beside it", packages.keys() - product)):
        rows = [[name, *(packages[name][key] or "" for key in ("files", "lines", "code", "tokens"))] for name in names]
        whole = sum((packages[name] for name in names), Counter[str]()) if names is product else None
        rows = sorted(rows) + (
            [[title, *(whole[key] for key in ("files", "lines", "code", "tokens"))]] if whole else []
        )
        print(tabulate(rows, headers=[title, "files", "lines", "code", "tokens"], intfmt=","), end="\n\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])
