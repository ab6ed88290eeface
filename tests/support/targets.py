"""A backend that builds for GPUs that are not here, without a compiler; a sweep uses it as `targets:ELSEWHERE`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bakeoff.backends.backend import Backend, BuildContext, Call, Engine, Proof
from bakeoff.backends.format import ArtifactFormat, BadArtifact, HostRequirement, WriteRequest, WrittenProgram
from bakeoff.backends.tensorrt_rtx.options import capability_of

if TYPE_CHECKING:
    from torch import Tensor, nn

REFERENCE = "targets:ELSEWHERE"


@dataclass(frozen=True, slots=True)
class Options:
    target: Literal["", "sm89", "sm120", "sm86"] = ""
    level: int = 1
    crashes: Literal["", "sm89", "sm120"] = ""
    """Target whose build ends the process."""


@dataclass(frozen=True, slots=True)
class Elsewhere(Engine):
    """An engine that fails when it is bound."""

    target: str

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        raise RuntimeError(f"{self.target} was bound to {', '.join(inputs)}")

    def prove(self) -> Proof:
        facts = {"target": self.target, "engines": 1}
        return Proof(graphs=1, operators_inside={"MatMul": 3}, facts=facts, graph_hash="0" * 64, artifact_bytes=96)


def _build(_module: "nn.Module", _inputs: "Mapping[str, Tensor]", options: Options, _context: BuildContext) -> Engine:
    if options.target == options.crashes:
        os.abort()
    return Elsewhere(options.target)


def _write(request: WriteRequest) -> WrittenProgram:
    target, file = request.options.target, f"{request.name}.engine"
    (request.folder / file).write_text(f"for {target}")
    return WrittenProgram(file, (), (HostRequirement("compute capability", "is", capability_of(target)),))


def _check(path: Path, _files: Mapping[str, int]) -> None:
    if not path.read_text().startswith("for sm"):
        raise BadArtifact(f"{path.name} is no engine")


def _read(path: Path, *_rest: object) -> None:
    raise AssertionError(f"{path} was opened")


ELSEWHERE = Backend(
    name="elsewhere",
    summary="builds for GPUs that are not here",
    build=_build,
    options=Options,
    builds_for=lambda options: options.target,
    dtypes=("fp32", "fp16"),
    checks="nothing",
    keeps_module_weights=False,
    artifact=ArtifactFormat("elsewhere-engine", "a line of text", _write, _read, _check),  # type: ignore[arg-type]
)
