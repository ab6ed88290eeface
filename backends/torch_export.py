"""torch.export: the module as one graph of ATen operators, saved with its weights and loaded back; not compiled.

PyTorch runs the graph operator by operator. The artifact opens on any host with torch and can be compiled there. All
other exporters start from the same graph. torch.export.load unpickles and evaluates parts of a file, so only ATen
operators and plain tensors are written, and a file with anything else is not opened.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    Call,
    DefaultOptions,
    Engine,
    NoOptions,
    Proof,
)
from bakeoff.backends.format import ArtifactFormat, HostRequirement, Opening, Run, WriteRequest, WrittenProgram
from bakeoff.backends.graphs import (
    TORCH,
    check_layouts,
    check_not_quantised,
    export,
    graph_hash,
    input_layouts,
    operators,
)
from bakeoff.backends.port import NOTHING_CARRIED, Port, ReplacingPort, port_buffers
from bakeoff.backends.pt2_files import check_program
from bakeoff.backends.tracing import Trace, trace_operators
from bakeoff.models.component import DynamicAxis

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class LoadedProgram(Engine):
    """A program loaded from disk, which reads the tensors given to each call."""

    run: Run
    layouts: Mapping[str, str]
    proof: Proof
    sizes: tuple[DynamicAxis, ...] = ()
    tracer: Callable[[Call], Trace] = trace_operators
    weights: "Mapping[str, Tensor]" = field(default_factory=dict)
    """Tensors that the program reads but does not own."""
    copying: bool = False
    """Whether each call copies its inputs into the buffers of a captured graph."""

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        check_layouts(self.layouts, inputs, self.sizes)
        return self._bind(inputs)

    def port(
        self,
        inputs: "Mapping[str, Tensor]",
        outputs: Sequence[str],
        carried: Mapping[str, str] = NOTHING_CARRIED,
        shared: bool = False,
    ) -> Port:
        """Return a port, as Engine.port does; layouts are checked once, because the port keeps them."""
        check_layouts(self.layouts, inputs, self.sizes)
        return ReplacingPort(port_buffers(inputs, shared), self._bind, outputs, carried, shared)

    def rebinds(self) -> bool:
        return True

    def copies_inputs(self) -> bool:
        return self.copying

    def _bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        run, tensors = self.run, tuple(inputs.values())
        return lambda: tuple(run(list(tensors)))  # a package's empties it

    def prove(self) -> Proof:
        return self.proof

    def trace(self, call: Call) -> Trace:
        return self.tracer(call)


def _save(
    module: "nn.Module", inputs: "Mapping[str, Tensor]", path: Path, sizes: Sequence[DynamicAxis] = ()
) -> "torch.export.ExportedProgram":
    import torch

    check_not_quantised(module, "torch.export.save", "it would pickle them; use int8+aoti")
    program = export(module, inputs, sizes)
    program.example_inputs = None  # torch.export.save would pickle them, with all caches
    torch.export.save(program, path)
    return program


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", _options: NoOptions, context: BuildContext) -> Engine:
    path = context.work_dir / "program.pt2"
    program = _save(module, inputs, path, context.sizes)
    proof = Proof(
        graphs=1,
        graph_breaks=0,
        operators_outside=operators(program.graph),
        graph_hash=graph_hash([program.graph]),
        artifact_bytes=path.stat().st_size,
    )
    return LoadedProgram(_open(path), input_layouts(inputs, context.sizes), proof, context.sizes)


def _open(path: Path) -> Run:
    import torch

    module = torch.export.load(path).module()

    def run(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        with torch.no_grad():
            outputs: tuple[Tensor, ...] = module(*tensors)
        return outputs

    return run


def _write(request: WriteRequest) -> WrittenProgram:
    _save(request.module, request.inputs, request.folder / f"{request.name}.pt2")
    return WrittenProgram(f"{request.name}.pt2", needs=(HostRequirement("torch", "at least"),))


def _check(path: Path, _files: Mapping[str, int]) -> None:
    check_program(path)


def _read(path: Path, _constants: Sequence[Path], _opening: Opening) -> Run:
    return _open(path)


BACKEND = Backend(
    name="torch.export",
    summary="torch.export: one graph of ATen operators, saved and loaded back; not compiled",
    build=_build,
    defaults=(DefaultOptions(NoOptions(), suite="full", dtypes=("bf16",)),),
    requires=(TORCH,),
    unsupported_sizes=None,
    runs_eagerly=True,
    same_when_traced=("cpu", "cuda"),
    keeps_module_weights=False,
    weight_copies=2.0,
    overlaps=True,
    artifact=ArtifactFormat(
        name="torch.export",
        summary="torch.export program (.pt2): graph and weights, not compiled",
        write=_write,
        check=_check,
        read=_read,
        runs_torch=True,
    ),
)
