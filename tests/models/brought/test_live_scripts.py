"""Definitions of a script, of the modules beside it and of a notebook's cells travel with a live module."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bakeoff.models.brought.live_read import read_live
from bakeoff.models.errors import BakeoffError

SCRIPT = """
import dataclasses, enum, functools, math, sys
import torch
from torch import nn
import torch.nn.functional as F
print("top level", __name__)
TRAINED = nn.Linear(4, 4)
MEAN = torch.arange(4.0)
class Mode(enum.Enum):
    FAST = "fast"
    SLOW = "slow"

@dataclasses.dataclass
class Output:
    y: torch.Tensor
    modes: set = dataclasses.field(default_factory=lambda: {Mode.FAST, Mode.SLOW, "a", "b", "c"})

@functools.lru_cache
def scale(power):
    return math.sqrt(helper(power))

def helper(power):
    return 4 ** power if power else scale(1)

class Base(nn.Module):
    act = staticmethod(lambda x: F.relu(x) - MEAN)
    def finish(self, x):
        return Output(self.act(x))

class Net(Base):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.modes = Output(MEAN).modes
    def forward(self, x: "Output") -> Output:
        assert isinstance(x, Output) and x.modes in ({1}, self.modes)
        return self.finish(torch.nn.utils.rnn.pad_sequence([self.layer(x.y) * scale(1), Later.shift(x.y)]))

class Later:
    @staticmethod
    def shift(x):
        return x + 1

torch.manual_seed(0)
module, x = Net().eval(), Output(torch.linspace(0, 1, 8).reshape(2, 4))
print(module(x).y.flatten().tolist())
"""
HEAD = "import sys, threading, torch\nfrom torch import nn\n"
WRITE = """
from pathlib import Path
from bakeoff.models.brought.live_write import write_live
from bakeoff.models.brought.model import Model
try:
    write_live(Model(module), {"call": [((x,), {})]}, Path(sys.argv[1]))
except Exception as error:
    print(error)
"""
READ = """
import sys, torch
from pathlib import Path
from bakeoff.models.brought.live_read import read_live
model, calls = read_live(Path(sys.argv[1]))
((args, _),) = calls["call"]
"""


def run(*command: str, folder: Path, seed: str = "0") -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_classes_of_a_script_travel_and_it_does_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT + WRITE)
    written = [run("script.py", name, folder=tmp_path, seed=name[-1]) for name in ("live1", "live2")]
    (tmp_path / "script.py").unlink()
    for file in (tmp_path / "live1").iterdir():
        assert file.read_bytes() == (tmp_path / "live2" / file.name).read_bytes(), "the same in every process"
    code = """
made, own = model.module(*args), vars(sys.modules[type(model.module).__module__])
print(made.y.flatten().tolist())
assert type(made) is own["Output"] and made.modes == args[0].modes and own["scale"].cache_info()
compiled = torch.compile(lambda y: model.module(own["Output"](y)).y, backend="eager", fullgraph=True)
assert torch.equal(compiled(args[0].y), made.y), "a compiler finds the globals"
"""
    found = run("-W", "ignore", "-c", READ + code, "live1", folder=tmp_path)
    assert written == [f"top level __main__\n{found}"] * 2
    content = (tmp_path / "live1" / "module.pickle").read_bytes()
    assert not [name for name in (b"TRAINED", b"top level") if name in content]


def test_what_a_program_without_a_file_changed_travels_as_it_is(tmp_path: Path) -> None:
    code = f"""{HEAD}
class Net(nn.Module):
    scale = 2
    def forward(self, x):
        return x * self.scale
old = Net()
class Net(nn.Module):
    forward = old.forward.__func__
Net.forward, Net.scale = lambda self, x: x + self.scale, 10
@torch.no_grad()
def noted(x):
    return x * 5
module, x = nn.Sequential(old, Net(), nn.Identity()), 3
module[2].forward = noted
{WRITE}"""
    assert run("-c", code, "live", folder=tmp_path) == ""
    model, calls = read_live(tmp_path / "live")
    assert model.module(*calls["call"][0][0]) == 80


def test_a_file_beside_the_script_is_imported_from_there_as_it_was(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    body = "import threading\nimport myhelp\nfrom torch import nn\nLOCK = threading.Lock()\n"
    body += "class Net(nn.Module):\n    def forward(self, x):\n        with LOCK:\n            return self.f(x)\n"
    body += "def made():\n    net = Net()\n    net.f = lambda x: LOCK and myhelp.f(x)\n    return net\n"
    (project / "mynet.py").write_text(body)
    (project / "myhelp.py").write_text("def f(x):\n    return x + 1\n")
    (project / "script.py").write_text("import sys\nimport mynet\nmodule, x = mynet.made(), 1\n" + WRITE)
    run(str(project / "script.py"), "live", folder=tmp_path)
    assert run("-c", f"{READ}print(model.module(*args))", "live", folder=tmp_path) == "2\n"
    (project / "myhelp.py").write_text("def f(x):\n    return x + 2\n")
    with pytest.raises(BakeoffError, match=r"myhelp\.py was changed after the module was written"):
        read_live(tmp_path / "live")


def test_cells_of_a_notebook(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    cells = [
        "import sys, torch; from torch import nn",
        "SCALE, x = 3, 2",
        "class Net(nn.Module):\n    def forward(self, x):\n        return x * SCALE",
        "class Plain(Net):\n    pass",
        "module = nn.Sequential(Net(), Plain())",
        WRITE,
    ]
    code = (
        "import sys, types\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\nsys.modules['__main__'] = shell.user_module\n"
        f"for cell in {cells!r}:\n    shell.run_cell(cell, store_history=True).raise_error()\n"
    )
    run("-c", code, "live", folder=tmp_path)
    assert run("-c", f"{READ}print(model.module(*args))", "live", folder=tmp_path) == "18\n"
