"""The parts of Inferix' guides in tests/golden/inferix: their code blocks, and the names that they mention."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden" / "inferix"
GUIDES = ("self_forcing.md", "extending.md")
IMPORTED = "inferix.profiling.decorators"
OURS = "bakeoff.profile"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def guide(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """All blocks of a language, in the order of the guides."""
    return [text for name in GUIDES for found, text in _BLOCK.findall(guide(name)) if found == language]


def keys() -> set[str]:
    """Keys of the YAML blocks, without the user's own tags."""
    found: set[str] = set()
    for block in blocks("yaml"):
        inside_tags = 0
        for line in block.splitlines():
            key = re.match(r"(\s*)(\w+):", line)
            if key is None:
                continue
            depth = len(key[1])
            if inside_tags and depth > inside_tags:
                continue
            inside_tags = depth if key[2] == "session_tags" else 0
            found.add(key[2])
    return found


def code_names() -> set[str]:
    """Of the Python blocks: what is imported, defined or called on a profiler, and fields of callbacks."""
    return {name for block in blocks("python") for name in _names(ast.parse(block))}


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Dict):
            yield from (key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("profiler."):
            yield ast.unparse(node.func).removeprefix("profiler.")
            yield from (each.arg for each in node.keywords if each.arg is not None)


def command_names() -> set[str]:
    """Flags and scripts of the shell blocks and of the table of parameters."""
    text = "\n".join(
        [*blocks("bash"), *(line for name in GUIDES for line in guide(name).splitlines() if line[:1] == "|")]
    )
    return set(re.findall(r"--\w[\w-]*", text)) | set(re.findall(r"\w+\.(?:py|sh)\b", text))


def titles() -> set[str]:
    """What the guides promise of reports and advice: the bold words and the list entries below headings that say so."""
    found: set[str] = set()
    for name in GUIDES:
        text = _BLOCK.sub("", guide(name))
        found |= {each.strip(":") for each in re.findall(r"\*\*([^*]+)\*\*", text)}
        for heading in ("Generated Reports", "Report Enhancements", "2. Viewing Results", "Overview"):
            part = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
            entries = re.findall(r"^\s*(?:-|\d\.) ([^*\n]+)$", part[1], re.MULTILINE) if part else []
            found |= {entry.partition(" (")[0].strip() for entry in entries}
    return found
