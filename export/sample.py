"""The sample that travels with an artifact: what to call it with, and what the judge's eager gave for it."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.format import BadArtifact
from bakeoff.export.manifest import SAMPLE, Manifest, Port

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 8191
"""Elements of an input that is repeated: a prime, so that no frame of a window is like another."""
MOST = 1 << 13
"""Elements of a tensor that is held whole."""


def key(frame: int, program: str, way: str, name: str) -> str:
    return f"{frame}/{program}/{way}/{name}"


def repeated(block: "Tensor", shape: tuple[int, ...]) -> "Tensor":
    """A tensor of `shape` from the elements of `block`, begun anew where they end; as numpy.resize."""
    import math

    count = math.prod(shape)
    flat = block.flatten()
    return flat.repeat(-(-count // max(1, flat.numel())))[:count].reshape(shape)


def every(elements: int) -> int:
    """Which elements of an output are held: all, or every k-th; k is odd, so that no power of two hides columns."""
    return 1 if elements <= MOST else -(-elements // MOST) | 1


def thinned(tensor: "Tensor", step: int) -> "Tensor":
    return tensor.detach().flatten()[::step]


class Reader:
    """sample.safetensors of an artifact whose files were checked."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Raises BadArtifact where it does not hold what the manifest's programs need."""
        from safetensors import SafetensorError, safe_open

        self._manifest = manifest
        try:
            self._file = safe_open(folder / manifest.sample.file, framework="pt")
        except (SafetensorError, OSError) as error:
            raise BadArtifact(f"{manifest.sample.file} is no safetensors file: {error}") from error
        self._keys = set(self._file.keys())
        for name, way, port in self._first():
            if key(0, name, way, port.name) not in self._keys:
                raise BadArtifact(f"{manifest.sample.file} lacks {key(0, name, way, port.name)}")

    def _first(self) -> Iterator[tuple[str, str, Port]]:
        for program in self._manifest.programs:
            yield from ((program.name, "in", port) for port in program.inputs)
            yield from ((program.name, "out", port) for port in program.outputs)

    def inputs(self, frame: int, program: str, device: str) -> "dict[str, Tensor]":
        """What is given in a frame, in the dtypes and shapes of the program's inputs."""
        import torch

        ports = self._manifest.program(program).inputs
        return {
            port.name: repeated(self._tensor(frame, program, "in", port), port.shape).to(
                device, getattr(torch, port.dtype)
            )
            for port in ports
            if key(frame, program, "in", port.name) in self._keys
        }

    def outputs(self, frame: int, program: str) -> "dict[str, Tensor]":
        """What the judge's eager gave, fp32, thinned as `Sample.every` says."""
        ports = self._manifest.program(program).outputs
        return {port.name: self._tensor(frame, program, "out", port) for port in ports}

    def _tensor(self, frame: int, program: str, way: str, port: Port) -> "Tensor":
        name = key(frame, program, way, port.name)
        if name not in self._keys:
            raise BadArtifact(f"{SAMPLE} lacks {name}")
        tensor: Tensor = self._file.get_tensor(name)
        return tensor


def carried(manifest: Manifest) -> frozenset[tuple[str, str]]:
    """(program, input) of all that a stream carries."""
    stream = manifest.stream
    return frozenset((one.to, one.input) for one in stream.carries) if stream else frozenset()


def calls(manifest: Manifest, frames: Iterable[int]) -> Iterator[tuple[int, str]]:
    """(frame, program) in the order of the sample, without the prime."""
    each = manifest.stream.each if manifest.stream else (manifest.main,)
    for frame in frames:
        for program in each:
            yield frame, program


def limits_of(manifest: Manifest, program: str) -> Mapping[str, float]:
    """Output to the relative L2 that it may differ by."""
    return {port.name: manifest.sample.limits[f"{program}/{port.name}"] for port in manifest.program(program).outputs}
