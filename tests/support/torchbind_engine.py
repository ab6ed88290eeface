"""Save, check and load a program that calls an object of the class of TensorRT's engines; prints what was found.

    python torchbind_engine.py LIBRARY FOLDER

LIBRARY is torchbind_engine.cpp, compiled. A process of its own, since the name of the operator is taken by the other
fake in the tests' own.
"""

import json
import operator
import sys
import types
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bakeoff.backends.format import BadArtifact
from bakeoff.backends.pt2_files import check_program
from bakeoff.backends.torch_tensorrt.ahead_of_time import FORMAT
from bakeoff.backends.torch_tensorrt.program import _save, load_program
from bakeoff.backends.torch_tensorrt.proof import read_converted


class FakeClass:
    """What tracing sees of an engine (torch_tensorrt/dynamo/runtime/meta_ops/register_meta_ops.py in 2.13.0)."""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def __obj_unflatten__(cls, flattened: Any) -> "FakeClass":
        return cls(dict(flattened)["name"])


class Converted(nn.Module):
    """A compiled program with one engine."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = torch.classes.tensorrt.Engine(["_run_on_acc_0", "plan"])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.ops.tensorrt.execute_engine([x], self.engine))


def refusal(path: Path) -> str:
    """Why the check of a plain program does not let it through."""
    try:
        check_program(path)
    except BadArtifact as error:
        return str(error)
    return ""


def main() -> None:
    torch.ops.load_library(sys.argv[1])
    torch._library.register_fake_class("tensorrt::Engine")(FakeClass)
    torch.library.register_fake("tensorrt::execute_engine", lambda inputs, _engine: [torch.empty_like(inputs[0])])
    path = Path(sys.argv[2]) / "program.ep"
    library = types.SimpleNamespace(load=torch.export.load)  # as torch_tensorrt.load does with its C++ runtime
    with torch.no_grad():
        _save(library, Converted(), {"x": torch.ones(3)}, (), path)  # type: ignore[arg-type]
        FORMAT.check(path, {path.name: path.stat().st_size})
        module = load_program(library, path)
        values = [operator.attrgetter(str(node.target))(module) for node in module.graph.nodes if node.op == "get_attr"]
        (engine,) = [value for value in values if hasattr(value, "device_memory_budget")]
        found = {
            "class": type(engine).__name__,
            "engines": len(read_converted(module).engines),
            "outside": dict(read_converted(module).outside),
            "state": engine.__getstate__()[0],
            "outputs": [output.tolist() for output in module(torch.arange(3.0))],
            "refusal": refusal(path),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
