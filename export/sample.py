"""The stored sample of an artifact: inputs to call it with, and reference outputs computed by eager PyTorch."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.format import BadArtifact
from bakeoff.export.manifest import FLOATS, SAMPLE, Manifest, Port

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 8191
"""Stored elements of a large input, which repeats them: a prime number, so that no two frames of a window are equal."""
MOST = 1 << 13
"""Tensors with at most this many elements are stored completely."""


def key(frame: int | str, program: str, direction: str, name: str) -> str:
    """Return the name of a tensor in the sample; `frame` may be `regime-NAME`, `direction` is `in` or `out`."""
    return f"{frame}/{program}/{direction}/{name}"


def repeated(block: "Tensor", shape: tuple[int, ...]) -> "Tensor":
    """Return a tensor of `shape` with the elements of `block`, repeated as often as needed, as by numpy.resize."""
    count = math.prod(shape)
    flat = block.flatten()
    return flat.repeat(-(-count // max(1, flat.numel())))[:count].reshape(shape)


def every(elements: int) -> int:
    """Return k for an output with this many elements: every k-th element is stored.

    k is odd, so that the stored elements cover all columns of rows whose length is a power of two.
    """
    return 1 if elements <= MOST else -(-elements // MOST) | 1


def thinned(tensor: "Tensor", step: int) -> "Tensor":
    """Return every `step`-th element of the flattened tensor, beginning with the first."""
    return tensor.detach().flatten()[::step]


def sizes(values: "Tensor") -> "tuple[Tensor, Tensor]":
    """Return the root mean square and the largest absolute value, without waiting for the device."""
    import torch

    norm = torch.linalg.vector_norm(values, dtype=torch.promote_types(values.dtype, torch.float32))
    low, high = torch.aminmax(values)  # the infinity norm takes ten times as long on a CPU
    return norm / values.numel() ** 0.5, torch.maximum(-low, high)


class Reader:
    """Reader of sample.safetensors, for an artifact whose files were checked."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Open the sample. Raises BadArtifact if it lacks an input or output of a program in frame 0."""
        from safetensors import SafetensorError, safe_open

        self._manifest = manifest
        try:
            self._file = safe_open(folder / manifest.sample.file, framework="pt")
        except (SafetensorError, OSError) as error:
            raise BadArtifact(
                f"{manifest.sample.file} is not a safetensors file: {error}; export the artifact again"
            ) from error
        self._keys = set(self._file.keys())
        for name, direction, port in self._required():
            if key(0, name, direction, port.name) not in self._keys:
                raise _missing(key(0, name, direction, port.name))

    def _required(self) -> Iterator[tuple[str, str, Port]]:
        """Yield (program, direction, port) for each tensor that frame 0 must have."""
        for program in self._manifest.programs:
            yield from ((program.name, "in", port) for port in program.inputs)
            yield from ((program.name, "out", port) for port in program.outputs)

    def inputs(
        self, frame: int, program: str, device: str, change: "Callable[[Tensor], Tensor] | None" = None
    ) -> "dict[str, Tensor]":
        """Return the stored inputs of a program in a frame, by name, in their full shapes and dtypes, on `device`.

        Those that regimes change are given to `change` before they are cast. Later frames lack the inputs that are
        carried state. Raises BadArtifact if a stored size or dtype does not fit.
        """
        import torch

        found = {}
        for port in self._manifest.program(program).inputs:
            if key(frame, program, "in", port.name) in self._keys:
                values = repeated(self._tensor(frame, program, "in", port), port.shape)
                values = change(values) if change and port.checked else values
                found[port.name] = values.to(device, getattr(torch, port.dtype))
        return found

    def outputs(self, frame: int | str, program: str) -> "dict[str, Tensor]":
        """Return the reference outputs of a program in a frame or regime, by name, with floats in fp32.

        Large outputs have every k-th element only (`Sample.every`). Raises BadArtifact if an output is missing, or its
        size or dtype does not fit.
        """
        ports = self._manifest.program(program).outputs
        return {port.name: self._tensor(frame, program, "out", port) for port in ports}

    def _tensor(self, frame: int | str, program: str, direction: str, port: Port) -> "Tensor":
        name = key(frame, program, direction, port.name)
        if name not in self._keys:
            raise _missing(name)
        shape = self._file.get_slice(name).get_shape()
        found, whole = math.prod(shape), math.prod(port.shape)
        step = self._manifest.sample.every.get(f"{program}/{port.name}", 1)
        fits = min(1, whole) <= found <= whole if direction == "in" else found == -(-whole // step)
        if not fits:
            raise BadArtifact(
                f"{SAMPLE} has {found} elements of {name}, which does not fit the shape {list(port.shape)}; "
                f"export the artifact again"
            )
        tensor: Tensor = self._file.get_tensor(name)
        dtype, is_float = str(tensor.dtype).removeprefix("torch."), tensor.is_floating_point()
        if dtype != port.dtype and not (is_float and port.dtype in FLOATS):
            raise BadArtifact(
                f"{SAMPLE} has {name} as {dtype}, which does not fit {port.dtype}; export the artifact again"
            )
        return tensor


def _missing(name: str) -> BadArtifact:
    return BadArtifact(f"{SAMPLE} has no tensor {name}; export the artifact again")


def calls(manifest: Manifest, frames: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yield (frame, program) for each call in the order of the sample, without the stream's opening."""
    each = manifest.stream.each if manifest.stream else (manifest.main,)
    for frame in frames:
        for program in each:
            yield frame, program


def limits_of(manifest: Manifest, program: str) -> Mapping[str, float]:
    """Return the largest allowed relative L2 error of each output of a program, by output name."""
    return {port.name: manifest.sample.limits[f"{program}/{port.name}"] for port in manifest.program(program).outputs}
