"""The tables of docs/files-and-formats.md and the JSON Schemas of the formats, from their sources.

`python tests/support/format_tables.py` writes them.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bakeoff.export.manifest import Manifest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "files-and-formats.md"
BEGIN, END = "<!-- fields: written by tests/support/format_tables.py -->", "<!-- end of fields -->"
SOURCES = (
    ("A record, `records/*.json`", "bakeoff/record/schema.py"),
    ("A record's policy, `policy`", "bakeoff/record/policy.py"),
    ("A run of a pipeline, `records/*_pipeline_*.json`", "bakeoff/record/pipeline.py"),
    ("The manifest of an artifact, `manifest.json`", "export/manifest.py"),
    ("The manifest of an exported mix, `manifest.json`", "export/mix.py"),
    ("A session, `*.session.json`", "bakeoff/record/session.py"),
    ("What a session's monitor saw, `monitored`", "bakeoff/record/monitor.py"),
    ("What is derived of a session: its account, rates and energy", "bakeoff/record/account.py"),
)
SCHEMAS: dict[str, type] = {
    "export/manifest.schema.json": Manifest,
}
_PAGE_PARTS = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.DOTALL)


def json_schema(kind: type) -> bytes:
    """JSON Schema (2020-12) of a dataclass."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}
    return msgspec.json.format(msgspec.json.encode(schema), indent=1) + b"\n"


def with_tables(page: str) -> str:
    """The page with the tables of the present sources."""
    return _PAGE_PARTS.sub(lambda _match: "\n".join([BEGIN, *_tables(), END]), page)


def _tables() -> Iterator[str]:
    for heading, name in SOURCES:
        yield f"\n## {heading}\n\nFrom [{name}](../{name}).\n"
        tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
        for found in tree.body:
            if isinstance(found, ast.ClassDef) and _is_dataclass(found) and not found.name.startswith("_"):
                yield from _of_class(found)


def _is_dataclass(found: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in found.decorator_list)


def _of_class(found: ast.ClassDef) -> Iterator[str]:
    fields = [(place, each) for place, each in enumerate(found.body) if isinstance(each, ast.AnnAssign)]
    if not fields:
        return
    yield f"### {found.name}\n"
    docstring = ast.get_docstring(found)
    if docstring:
        yield f"{_escaped(docstring)}\n"
    rows, named = [], []
    for place, each in fields:
        name, kind = f"`{ast.unparse(each.target)}`", _type(each)
        text = _escaped(_text(found.body[place + 1] if place + 1 < len(found.body) else None))
        rows += [f"| {name} | {kind} | {text} |"] * bool(text)
        named += [f"{name} ({kind})"] * (not text)
    if rows:
        yield "\n".join(["| field | type | meaning |", "| --- | --- | --- |", *rows, ""])
    if named:
        yield f"{'Also ' * bool(rows)}{', '.join(named)}.\n"


def _type(each: ast.AnnAssign) -> str:
    """The annotation, with places at which a browser may break it."""
    return re.sub(r"([\[,|])", r"\1<wbr>", ast.unparse(each.annotation).replace("|", "or").replace("'", ""))


def _text(following: ast.stmt | None) -> str:
    """The string below a field, which explains it; "" where its name says it all."""
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        return str(following.value.value)
    return ""


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for file, kind in SCHEMAS.items():
        (ROOT / file).write_bytes(json_schema(kind))
