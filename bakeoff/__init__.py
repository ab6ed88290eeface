"""Compiler-backend comparison lab for real-time world models."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
_PUBLIC = {
    "Model": "bakeoff.models.brought.model",
    "Pipeline": "bakeoff.models.pipelines.pipeline",
    "sweep": "bakeoff.live",
    "apply": "bakeoff.tuned.apply",
}
"""Module of each public name; a module is imported when its name is first used."""


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'bakeoff' has no attribute '{name}'")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    """Return the public names and the names imported so far."""
    return sorted({*globals(), *_PUBLIC} - {"Any", "import_module"})
