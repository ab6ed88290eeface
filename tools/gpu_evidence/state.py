"""What was run so far, in a file: a later call goes on from there, and believes only what still applies."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpu_evidence.steps import Step

FILE = "state.json"


@dataclass(slots=True)
class Outcome:
    """How a step ended."""

    key: str
    code: int
    """Exit code of its last command."""
    seconds: float
    said: str
    """The last line of its log."""
    cut: bool = False
    """It was interrupted: it is neither passed nor failed."""


@dataclass(slots=True)
class State:
    """All outcomes by the names of their steps, and which records were there before the first step."""

    folder: Path
    before: tuple[str, ...] = ()
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def outcome(self, step: Step, key: str) -> Outcome | None:
        """How the step ended with this code, these libraries and this GPU; None if it has not been run with them."""
        found = self.outcomes.get(step.name)
        return found if found is not None and found.key == key else None

    def save(self) -> None:
        text = json.dumps(
            {"before": self.before, "outcomes": {n: asdict(o) for n, o in self.outcomes.items()}}, indent=1
        )
        part = self.folder / f".{FILE}.tmp"
        part.write_text(text, encoding="utf-8")
        os.replace(part, self.folder / FILE)


def load(folder: Path, records: Iterable[str]) -> State:
    """The state in `folder`, or a new one in which `records` are those of earlier work."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        outcomes = {name: Outcome(**outcome) for name, outcome in found["outcomes"].items()}
        return State(folder, tuple(found["before"]), outcomes)
    except FileNotFoundError:
        return State(folder, tuple(sorted(records)))


def key_of(step: Step, facts: Mapping[str, Any], tests: str, device: str) -> str:
    """Hash of what decides a step's result: its definition, bakeoff's code, libraries, kind of GPU and driver.

    The GPU is taken by its name, not its UUID: work that was cut may go on with another one of the kind.
    """
    parts = [asdict(step), device, *(facts[name] for name in ("code", "versions", "gpus", "driver"))]
    parts += [tests] if step.kind == "tests" else []
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def hash_files(folder: Path) -> str:
    """Hash of all Python files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
