"""The files in a reference's folder: how it was made, the outputs by input set, and eager's own error by dtype."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path

import msgspec
from safetensors.torch import load_file
from torch import Tensor

from bakeoff.models.errors import BakeoffError
from bakeoff.worker.checks.dispatch import CallOperators

ABOUT = "reference.json"


@dataclass(frozen=True, slots=True)
class About:
    """How reference outputs were made, and how much the outputs of different inputs differ."""

    reference: str
    """Id of the reference, which is the name of its folder."""
    dtype: str
    """Dtype in which eager computed the references."""
    device: str
    """Device on which eager computed the references."""
    weights: str
    """Fingerprint of the weights."""
    sets: int
    changed_sets: int
    sensitivity: dict[str, float]
    """Smallest relative L2 distance between the outputs of two different input sets, by output."""
    small_sensitivity: dict[str, float]
    """Smallest relative L2 distance between the outputs for an input set and for its changed values, by output."""
    change: float
    """Factor by which the changed values were scaled."""
    own_change: float | None = None
    """Factor drawn for the sweep, by which the changed values of set 0 were scaled instead; None for none."""
    regimes: tuple[str, ...] = ()
    """Regimes in which the model's answer is finite and not saturated."""

    @property
    def changes(self) -> tuple[float, ...]:
        """Factor by which the changed values of each set were scaled."""
        first = self.change if self.own_change is None else self.own_change
        return (first, *[self.change] * self.changed_sets)[: self.changed_sets]


@dataclass(frozen=True, slots=True)
class Eager:
    """Plain eager in one dtype: its own error, the operators it dispatches, and its times."""

    noise: dict[str, float]
    """Relative L2 error of each output against the reference; outputs with an error above `MOST_NOISE` are left out."""
    runs: CallOperators
    """Operators that one call dispatches."""
    size_noise: tuple[dict[str, float], ...] = ()
    """Relative L2 error of each output at each of the workload's sizes."""
    size_ns: tuple[int, ...] = ()
    """Nanoseconds of a call at the usual size and at each of the workload's sizes; () if the workload has no sizes."""
    unmeasured: str = ""
    """Reason why eager's error gives no limit for some outputs in this dtype: eager fails, or they are not finite or
    far off; "" if it gives a limit for all."""
    digests: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Digest of each output, by `set_name`; empty for an output that differs between two runs of eager."""
    regime_noise: dict[str, dict[str, float]] = field(default_factory=dict)
    """Relative L2 error of each floating output by regime; a regime in which one is above `MOST_NOISE` is left out."""
    not_survived: str = ""
    """Reason why the model computes another function in this dtype, and the remedy; "" if it does not."""


def set_name(index: int, changed: bool = False) -> str:
    """Return the name of the references of set `index`, or of its changed values; it is also the name of their file."""
    return f"{'changed' if changed else 'set'}{index}"


def sized_name(size: int, index: int) -> str:
    """Return the name of the references of set `index` at one of the workload's sizes."""
    return f"size{size}-set{index}"


def eager_file(dtype: str) -> str:
    return f"eager-{dtype}.json"


@dataclass(frozen=True, slots=True)
class ReferenceFiles:
    """Reads the files of one folder, each checked against its hash."""

    folder: Path
    hashes: Mapping[str, str] | None
    """SHA-256 of each file by name, as the parent process computed it; None in the process that writes the files."""

    def about(self) -> About:
        """Return how the references were made. Raises BakeoffError if the file is unreadable or its hash is wrong."""
        about: About = msgspec.json.decode(self.read(ABOUT), type=About)
        return about

    def eager(self, dtype: str) -> Eager:
        """Return the measurements of eager in a dtype. Raises BakeoffError as `about` does."""
        eager: Eager = msgspec.json.decode(self.read(eager_file(dtype)), type=Eager)
        return eager

    def outputs(self, name: str) -> dict[str, Tensor]:
        """Return the reference outputs of this `set_name` or `sized_name`. Raises BakeoffError as `about` does."""
        path = self.folder / f"{name}.safetensors"
        if self.hashes is not None:
            with self._open(path) as file:
                self._check(path.name, hashlib.file_digest(file, "sha256").hexdigest())
        tensors: dict[str, Tensor] = load_file(path)
        return tensors

    def read(self, name: str) -> bytes:
        """Return the content of the file of this name. Raises BakeoffError as `about` does."""
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
