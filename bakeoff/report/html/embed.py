"""Parts of the page that are embedded unchanged: its own files, their hashes, and data for its script."""

import base64
import hashlib
from importlib import resources
from typing import Any

from bakeoff.record.codec import encode_json


def read(name: str) -> str:
    """The text of a file beside this module, which is part of the installed package."""
    return resources.files("bakeoff.report.html").joinpath(name).read_text(encoding="utf-8")


def policy(*scripts: str) -> str:
    """A content security policy under which only these scripts run and nothing is loaded."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    sources = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def as_script_data(value: Any) -> str:
    """JSON without letters that have a meaning in HTML or end a line of a script."""
    text = encode_json(value).decode()
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
