"""JSON Schemas of what commands print; the files beside this one are published."""

import msgspec

from bakeoff.record.codec import encode_json


def json_schema(kind: type) -> bytes:
    """JSON Schema (2020-12) of a dataclass."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}
    return msgspec.json.format(encode_json(schema), indent=1) + b"\n"
