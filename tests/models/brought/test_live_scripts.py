"""Definitions of a script, of the modules beside it and of a notebook's cells travel with a live module."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import dataclasses
import math
import sys
from functools import lru_cache
from pathlib import Path
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from bakeoff.models.brought.live_write import write_module, write_inputs

print("top level", __name__)
WIDTH = 4
LIMITS = {"low": -math.inf, "sizes": [1, 2.5, (True, None)]}
DTYPE = torch.float32
Cache = dict[str, Tensor]
TRAINED = nn.Linear(1, 1)

@dataclasses.dataclass
class Config:
    width: int = WIDTH
    other: "Config | None" = None

CONFIG = Config(other=Config(2))

@dataclasses.dataclass
class Output:
    y: Tensor
    cache: Cache

@lru_cache
def scale(power: int) -> float:
    return math.sqrt(helper(power))

def helper(power):
    return 4 ** power if power else scale(1)

class Base(nn.Module):
    act = staticmethod(F.relu)
    def finish(self, x: Tensor) -> Output:
        return Output(self.act(x) * CONFIG.width, {"x": x})

if True:
    class Net(Base):
        def __init__(self):
            super().__init__()
            self.config = Config()
            self.layer = nn.Linear(WIDTH, WIDTH, dtype=DTYPE)
            self.trained = TRAINED_NAME = None
        @torch.no_grad()
        def forward(self, x):
            y = self.layer(x).clamp(LIMITS["low"]) * scale(1)
            return self.finish(torch.nn.utils.rnn.pad_sequence([y, Later.shift(y)]))

class Later:
    @staticmethod
    def shift(x):
        return x + 1

if __name__ == "__main__":
    net = Net().eval()
    folder = Path(sys.argv[1])
    write_module(net, folder)
    x = torch.linspace(0, 1, 8).reshape(2, 4)
    write_inputs({"call": [((x,), {})]}, folder)
    print(net(x).y.flatten().tolist())
"""
READER = """
import sys
from pathlib import Path
from bakeoff.models.brought.live_read import read_inputs, read_module
folder = Path(sys.argv[1])
module = read_module(folder)
(args, kwargs), = read_inputs(folder)["call"]
print(module(*args, **kwargs).y.flatten().tolist())
"""


def run(*command: str, folder: Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=folder, input=stdin, capture_output=True, text=True, check=False, timeout=200
    )


class TestDefinitionsOfAScript:
    def test_its_classes_travel_and_it_does_not_run_again(self, tmp_path: Path) -> None:
        (tmp_path / "script.py").write_text(SCRIPT)
        written = run("script.py", "live", folder=tmp_path)
        assert written.returncode == 0, written.stderr
        (tmp_path / "script.py").unlink()
        source = (tmp_path / "live" / "source.py").read_text()
        assert "TRAINED" not in source.replace("TRAINED_NAME", "")
        assert "print" not in source
        found = run("-c", READER, "live", folder=tmp_path)
        assert found.returncode == 0, found.stderr
        assert found.stdout.splitlines() == written.stdout.splitlines()[1:]

    def write(self, folder: Path, body: str, *command: str, stdin: str | None = None) -> str:
        head = "import torch\nfrom torch import nn\nfrom pathlib import Path\n"
        tail = "\nfrom bakeoff.models.brought.live_write import write_module\n"
        tail += "try:\n    write_module(module, Path('live'))\nexcept Exception as error:\n    print(error)\n"
        (folder / "script.py").write_text(head + body + tail)
        done = run(*(command or ("script.py",)), folder=folder, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def test_a_global_that_is_no_data_is_named(self, tmp_path: Path) -> None:
        body = "MEAN = torch.ones(2)\nclass Net(nn.Module):\n    def forward(self, x):\n        return x - MEAN\n"
        body += "module = Net()"
        assert "Net uses the global MEAN, a torch.Tensor" in self.write(tmp_path, body)

    def test_a_class_that_was_defined_again(self, tmp_path: Path) -> None:
        body = "class Net(nn.Module):\n    pass\nmodule = Net()\nclass Net(nn.Module):\n    pass\n"
        assert "is of class Net, which has been defined again since; make the module again" in self.write(
            tmp_path, body
        )

    def test_a_method_that_was_replaced(self, tmp_path: Path) -> None:
        body = (
            "class Net(nn.Module):\n    def forward(self, x):\n        return x\nNet.forward = lambda self, x: x + 1\n"
        )
        assert "Net.forward is not as in the source" in self.write(tmp_path, body + "module = Net()")

    def test_a_constant_that_was_changed(self, tmp_path: Path) -> None:
        body = "class Net(nn.Module):\n    scale = 1\nNet.scale = 2\nmodule = Net()"
        assert "Net.scale is not as in the source" in self.write(tmp_path, body)

    def test_a_program_without_a_file(self, tmp_path: Path) -> None:
        body = "import torch\nfrom torch import nn\nfrom pathlib import Path\n"
        body += "from bakeoff.models.brought.live_write import write_module\n"
        body += "class Net(nn.Module):\n    def forward(self, x):\n        return x\n"
        body += "try:\n    write_module(Net(), Path('live'))\nexcept Exception as error:\n    print(error)\n"
        body += "write_module(nn.Linear(1, 1), Path('plain'))\n"
        for command, stdin in ((("-c", body), None), (("-",), body)):
            done = run(*command, folder=tmp_path, stdin=stdin)
            assert done.returncode == 0, done.stderr
            if sys.version_info < (3, 13):
                assert "the source of Net" in done.stdout
            assert (tmp_path / "plain" / "live.json").exists()
            for file in (tmp_path / "plain").iterdir():
                file.unlink()

    def test_a_file_beside_the_script_is_imported_from_there(self, tmp_path: Path) -> None:
        project = tmp_path / "project"
        project.mkdir()
        (project / "mynet.py").write_text(
            "import myhelp\nfrom torch import nn\nclass Net(nn.Module):\n"
            "    def forward(self, x):\n        return myhelp.f(x)\n"
        )
        (project / "myhelp.py").write_text("def f(x):\n    return x + 1\n")
        (project / "script.py").write_text(
            "from pathlib import Path\nimport mynet\nfrom bakeoff.models.brought.live_write import write_module\n"
            "write_module(mynet.Net(), Path('live'))\n"
        )
        done = run(str(project / "script.py"), folder=tmp_path)
        assert done.returncode == 0, done.stderr
        live = json.loads((tmp_path / "live" / "live.json").read_bytes())
        assert sorted(live["code"]) == ["myhelp", "mynet"]
        code = "from pathlib import Path\nfrom bakeoff.models.brought.live_read import read_module\n"
        found = run("-c", code + "print(read_module(Path('live'))(1))", folder=tmp_path)
        assert (found.returncode, found.stdout) == (0, "2\n"), found.stderr

    def test_cells_of_a_notebook(self, tmp_path: Path) -> None:
        pytest.importorskip("IPython")
        cells = [
            "import torch; from torch import nn; from pathlib import Path",
            "SCALE = 3",
            "class Net(nn.Module):\n    def forward(self, x):\n        return x * SCALE",
            "class Plain(Net):\n    pass",
            "from bakeoff.models.brought.live_write import write_module",
            "write_module(nn.Sequential(Net(), Plain()), Path('live'))",
        ]
        code = (
            "import sys, types\nfrom IPython.core.interactiveshell import InteractiveShell\n"
            "shell = InteractiveShell.instance()\nsys.modules['__main__'] = shell.user_module\n"
            f"for cell in {cells!r}:\n    shell.run_cell(cell, store_history=True).raise_error()\n"
        )
        done = run("-c", code, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        found = run(
            "-c",
            "from pathlib import Path\nfrom bakeoff.models.brought.live_read import read_module\n"
            "print(read_module(Path('live'))(2))",
            folder=tmp_path,
        )
        assert (found.returncode, found.stdout) == (0, "18\n"), found.stderr
