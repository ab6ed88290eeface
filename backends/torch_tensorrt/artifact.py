"""The TensorRT artifact format: programs of torch_tensorrt, and the raw engine where a graph is one."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.format import ArtifactFormat, HostRequirement, Opening, Run, WriteRequest, Written
from bakeoff.backends.pt2_files import check_program
from bakeoff.backends.torch_tensorrt.library import load_library
from bakeoff.backends.torch_tensorrt.program import PLAN, save_program, set_up
from bakeoff.backends.torch_tensorrt.proof import read_converted

if TYPE_CHECKING:
    from torch import Tensor


def _write(request: WriteRequest) -> Written:
    """The saved program, and beside it the raw engine where the graph is one: that is what trtexec and C++ load."""
    made = save_program(request.module, request.inputs, request.options, request.context)
    shutil.copyfile(made.path, request.folder / f"{request.name}.ep")
    plan = made.path.with_suffix(PLAN)
    if plan.exists():
        shutil.copyfile(plan, request.folder / f"{request.name}{PLAN}")
    needs = [
        HostRequirement("torch", "is"),
        HostRequirement("torch-tensorrt", "is"),
        HostRequirement("cuda", "at least"),
        HostRequirement("driver", "at least"),
    ]
    needs.append(HostRequirement("tensorrt", "at least" if request.options.version_compatible else "is"))
    needs.append(
        HostRequirement("compute capability", "at least", "8.0")
        if request.options.hardware_compatible
        else HostRequirement("gpu", "is")
    )
    engines = len(read_converted(made.module).engines)
    return Written(f"{request.name}.ep", (), tuple(needs), {"engines": engines, "raw_engine": plan.exists()})


def _check(path: Path, _files: Mapping[str, int]) -> None:
    """Engines are objects of torch_tensorrt's C++ class; nothing else may be unpickled."""
    check_program(path, torchbind=True)


def _read(path: Path, _constants: Sequence[Path], opening: Opening) -> Run:
    library = load_library()
    module = library.load(str(path)).module()
    set_up(library, module, opening.options)

    def run(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        outputs: Sequence[Tensor] = module(*tensors)
        return outputs

    return run


FORMAT = ArtifactFormat(
    name="tensorrt",
    summary="torch_tensorrt program (.ep), and the raw engine (.engine) where the graph is one",
    write=_write,
    check=_check,
    read=_read,
)
