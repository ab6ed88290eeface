"""Artifacts: variants exported as folders, which `load` checks and opens on this or another host.

engine = load("artifacts/wm-200m-step-aoti-bf16")
outputs = engine(**inputs)
"""

from bakeoff.backends.format import BadArtifact
from bakeoff.export.folder import read_manifest
from bakeoff.export.loader import Artifact, FlagsWarning, Mismatch, MismatchWarning, Program, Stream, load

__all__ = [
    "Artifact",
    "BadArtifact",
    "FlagsWarning",
    "Mismatch",
    "MismatchWarning",
    "Program",
    "Stream",
    "load",
    "read_manifest",
]
