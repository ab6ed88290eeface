"""The TensorRT artifact format: torch_tensorrt programs, and the raw engine if a program is a single engine."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.format import ArtifactFormat, HostRequirement, Opening, Run, WriteRequest, Written
from bakeoff.backends.pt2_files import check_program
from bakeoff.backends.torch_tensorrt.external import operator_files, qualified_name
from bakeoff.backends.torch_tensorrt.graph_mode import in_own_mode
from bakeoff.backends.torch_tensorrt.library import load_library
from bakeoff.backends.torch_tensorrt.program import ENGINE_ENDING, configure, load_program, save_program
from bakeoff.backends.torch_tensorrt.proof import read_converted

if TYPE_CHECKING:
    from torch import Tensor


def _write(request: WriteRequest) -> Written:
    """Write the saved program, and the raw engine, which trtexec and C++ load, if the program is a single engine."""
    made = save_program(request.module, request.inputs, request.options, request.context)
    shutil.copyfile(made.path, request.folder / f"{request.name}.ep")
    engine = made.path.with_suffix(ENGINE_ENDING)
    if engine.exists():
        shutil.copyfile(engine, request.folder / f"{request.name}{ENGINE_ENDING}")
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
    for file in operator_files(made.path).values():
        shutil.copyfile(file, request.folder / f"{request.name}{file.name.removeprefix(made.path.stem)}")
    engines = len(read_converted(made.module).engines)
    return Written(f"{request.name}.ep", (), tuple(needs), {"engines": engines, "raw_engine": engine.exists()})


def _check(path: Path, _files: Mapping[str, int]) -> None:
    """Check the program and its external operators; nothing may be pickled.

    The program may hold engines, as objects of torch_tensorrt's C++ class, and call the operators whose graphs are
    beside it; these graphs may call ATen operators only.
    """
    operators = operator_files(path)
    for file in operators.values():
        check_program(file)
    check_program(path, torchbind=True, operators=[qualified_name(name) for name in operators])


def _read(path: Path, _constants: Sequence[Path], opening: Opening) -> Run:
    library = load_library()
    module = load_program(library, path)
    configure(module, opening.options)
    program = in_own_mode(library, opening.options.cudagraphs, module)

    def run(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        outputs: Sequence[Tensor] = program(*tensors)
        return outputs

    return run


FORMAT = ArtifactFormat(
    name="tensorrt",
    summary="torch_tensorrt program (.ep), and the raw engine (.engine) if the program is a single engine",
    write=_write,
    check=_check,
    read=_read,
    runs_torch=True,  # what TensorRT lacks
)
