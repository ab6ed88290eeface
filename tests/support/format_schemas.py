"""The JSON Schemas of the formats, and the table of a policy's keys in docs/files-and-formats.md, from their sources.

`python tests/support/format_schemas.py` writes them. What the sources say of a class or a field is its description.
"""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec

from bakeoff.export.manifest import Manifest
from bakeoff.export.mix import MixManifest
from bakeoff.record.codec import Entry
from bakeoff.record.policy import Policy
from bakeoff.record.schema import Samples
from bakeoff.record.session import SessionRecord

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "files-and-formats.md"
BEGIN, END = "<!-- fields: written by tests/support/format_schemas.py -->", "<!-- end of fields -->"
SCHEMAS: dict[str, Any] = {
    "export/manifest.schema.json": Manifest,
    "docs/schemas/mix.schema.json": MixManifest,
    "docs/schemas/record.schema.json": Entry,
    "docs/schemas/session.schema.json": SessionRecord,
}
_PAGE_PARTS = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.DOTALL)


def json_schema(kind: Any) -> bytes:
    """JSON Schema (2020-12) of a dataclass or of a union of them, with a description of each class and field."""
    kinds = get_args(kind) or (kind,)
    references, definitions = msgspec.json.schema_components(kinds, schema_hook=_samples, ref_template="#/$defs/{name}")
    classes = {each.__name__: each for each in _classes(kind)}
    for name, definition in definitions.items():
        _describe(definition, classes.get(name))
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "anyOf": references, "$defs": definitions}
    return msgspec.json.format(json.dumps(schema).encode(), indent=1) + b"\n"


def _samples(kind: type) -> dict[str, Any]:
    if kind is Samples:
        return {"type": "array", "items": {"type": "integer", "exclusiveMinimum": 0}}
    raise NotImplementedError(kind)


def _classes(kind: Any) -> Iterator[type]:
    """The classes that a type is made of, each as often as it occurs in another one's fields."""
    seen: set[Any] = set()
    left = [kind]
    while left:
        each = left.pop()
        if each in seen:
            continue
        seen.add(each)
        left += get_args(each)
        if inspect.isclass(each) and hasattr(each, "__dataclass_fields__"):
            yield each
            left += inspect.get_annotations(each, eval_str=True).values()
            left += each.__mro__[1:]


def _describe(definition: dict[str, Any], kind: type | None) -> None:
    if "description" in definition:
        definition["description"] = " ".join(definition["description"].split())
    if kind is None:
        return
    texts = {name: text for each in reversed(kind.__mro__[:-1]) for name, text in field_texts(each).items()}
    for name, field in definition.get("properties", {}).items():
        if name in texts:
            field["description"] = texts[name]


@cache
def field_texts(kind: type) -> dict[str, str]:
    """What stands below each field of a class; a field whose name says it all has none."""
    body = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    pairs = zip(body.body, body.body[1:], strict=False)
    return {
        ast.unparse(each.target): " ".join(str(text.value.value).split())
        for each, text in pairs
        if isinstance(each, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def with_tables(page: str) -> str:
    """The page with the present keys of a policy."""
    rows = [
        f"| `{name}` | {getattr(Policy(), name)} | {text.replace('|', chr(92) + '|')} |"
        for name, text in field_texts(Policy).items()
    ]
    table = "\n".join([BEGIN, "", "| key | usual | means |", "| --- | --- | --- |", *rows, "", END])
    return _PAGE_PARTS.sub(lambda _match: table, page)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for file, kind in SCHEMAS.items():
        (ROOT / file).parent.mkdir(exist_ok=True)
        (ROOT / file).write_bytes(json_schema(kind))
