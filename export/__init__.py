"""Artifacts: variants as folders that load somewhere else, or say why not.

engine = load("artifacts/wm-200m-aoti-bf16")
outputs = engine(**inputs)
"""

from bakeoff.backends.artifact import BadArtifact
from bakeoff.export.engine import Artifact, Mismatch, MismatchWarning, Program, Stream, load
from bakeoff.export.folder import read_passport

__all__ = ["Artifact", "BadArtifact", "Mismatch", "MismatchWarning", "Program", "Stream", "load", "read_passport"]
