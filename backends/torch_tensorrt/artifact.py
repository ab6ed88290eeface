"""The TensorRT artifact format: programs of torch_tensorrt, and the raw engine where a graph is one."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.backend import BuildContext
from bakeoff.backends.format import ArtifactFormat, Need, Opening, Run, Written
from bakeoff.backends.pt2_files import check_program
from bakeoff.backends.torch_tensorrt.library import load_library
from bakeoff.backends.torch_tensorrt.program import PLAN, Options, save_program, set_up
from bakeoff.backends.torch_tensorrt.proof import read_converted

if TYPE_CHECKING:
    from torch import Tensor, nn


def _write(
    module: "nn.Module",
    inputs: "Mapping[str, Tensor]",
    options: Options,
    context: BuildContext,
    folder: Path,
    name: str,
) -> Written:
    """The saved program, and beside it the raw engine where the graph is one: that is what trtexec and C++ load."""
    made = save_program(module, inputs, options, context)
    shutil.copyfile(made.path, folder / f"{name}.ep")
    plan = made.path.with_suffix(PLAN)
    if plan.exists():
        shutil.copyfile(plan, folder / f"{name}{PLAN}")
    needs = [Need("torch", "is"), Need("torch-tensorrt", "is"), Need("cuda", "at least"), Need("driver", "at least")]
    needs.append(Need("tensorrt", "at least" if options.version_compatible else "is"))
    needs.append(Need("compute capability", "at least", "8.0") if options.hardware_compatible else Need("gpu", "is"))
    engines = len(read_converted(made.module).engines)
    return Written(f"{name}.ep", (), tuple(needs), {"engines": engines, "raw_engine": plan.exists()})


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
