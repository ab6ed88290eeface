"""The files in a reference's folder: what it is, the outputs of each set of inputs, and eager's own error by dtype."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path

import msgspec
from safetensors.torch import load_file
from torch import Tensor

from bakeoff.models.errors import BakeoffError
from bakeoff.worker.checks.dispatch import Dispatched

ABOUT = "reference.json"


@dataclass(frozen=True, slots=True)
class About:
    """Facts that reference outputs were made from, and how far those of different inputs differ."""

    reference: str
    """Id: the name of the folder."""
    dtype: str
    """Dtype in which eager computed the references."""
    device: str
    """Device on which eager computed the references."""
    weights: str
    """Fingerprint of the weights."""
    sets: int
    changed_sets: int
    sensitivity: dict[str, float]
    """Smallest relative L2 between two different sets, by output."""
    small_sensitivity: dict[str, float]
    """Smallest relative L2 between a set and its changed values, by output."""
    change: float
    """Factor from values to the changed ones."""


@dataclass(frozen=True, slots=True)
class Eager:
    """Plain eager in one dtype: its own error, and the operators it dispatches."""

    noise: dict[str, float]
    """Relative L2 of each output against the reference, of those for which eager is a measure in this dtype."""
    runs: Dispatched
    """In one call."""
    size_noise: tuple[dict[str, float], ...] = ()
    """The noise at each of the workload's sizes."""
    size_ns: tuple[int, ...] = ()
    """Nanoseconds of a call at the usual size and at each of the workload's sizes; () where it has none."""
    unmeasured: str = ""
    """Reason why eager is no measure of some outputs in this dtype: it fails, or they are not finite; or ""."""
    digests: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Digest of each output, by `set_name`; empty for one that differs between two runs of eager."""
    not_survived: str = ""
    """Reason why the model itself is another function in this dtype, and what to do; "" where it is not."""


def set_name(index: int, changed: bool = False) -> str:
    """Names the references of a set, or of its changed values; their file in the folder is called so."""
    return f"{'changed' if changed else 'set'}{index}"


def sized_name(size: int, index: int) -> str:
    """Names the references of set `index` of one of the workload's sizes."""
    return f"size{size}-set{index}"


def eager_file(dtype: str) -> str:
    return f"eager-{dtype}.json"


@dataclass(frozen=True, slots=True)
class ReferenceFiles:
    """Reads the files of one folder, each checked against its hash."""

    folder: Path
    hashes: Mapping[str, str] | None
    """SHA-256 by name of the file, as the parent found them; None for who writes the files itself."""

    def about(self) -> About:
        """Return the references' facts. This and the others raise BakeoffError where a file is not as it was hashed."""
        about: About = msgspec.json.decode(self.read(ABOUT), type=About)
        return about

    def eager(self, dtype: str) -> Eager:
        """Eager's own error in a dtype."""
        eager: Eager = msgspec.json.decode(self.read(eager_file(dtype)), type=Eager)
        return eager

    def outputs(self, name: str) -> dict[str, Tensor]:
        """Return the reference outputs of the set or changed set that `set_name` gave this name."""
        path = self.folder / f"{name}.safetensors"
        if self.hashes is not None:
            with self._open(path) as file:
                self._check(path.name, hashlib.file_digest(file, "sha256").hexdigest())
        tensors: dict[str, Tensor] = load_file(path)
        return tensors

    def read(self, name: str) -> bytes:
        """Return the content of the file of this name."""
        with self._open(self.folder / name) as file:
            data = file.read()
        self._check(name, hashlib.sha256(data).hexdigest())
        return data

    def _open(self, path: Path) -> BufferedReader:
        try:
            return path.open("rb")
        except OSError as error:
            raise _bad(path.name, str(error.strerror)) from error

    def _check(self, name: str, found: str) -> None:
        if self.hashes is not None and self.hashes.get(name) != found:
            raise _bad(name, "changed since it was made")


def _bad(name: str, problem: str) -> BakeoffError:
    return BakeoffError(f"references: {name}: {problem}. Run the sweep again.", code="bad-reference")
