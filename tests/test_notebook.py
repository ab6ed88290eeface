"""The notebook of examples/notebook: its cells run in their order, in one namespace, with short clocks."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the notebook makes a module")

NOTEBOOK = Path(__file__).parent.parent / "examples" / "notebook" / "bakeoff.ipynb"
FAST = Path(__file__).parent / "support" / "fast_bakeoff.py"
RUNNER = """
import json, sys
from pathlib import Path
from bakeoff import live
live.COMMAND = (sys.executable, sys.argv[2])
scope = {"__name__": "__main__"}
for cell in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), cell["id"], "exec"), scope)
print(json.dumps({"variants": [str(record.variant) for record in scope["swept"].records],
                  "statuses": [record.status for record in scope["swept"].records],
                  "html": scope["swept"]._repr_html_()}))
"""


def content() -> dict[str, object]:
    found: dict[str, object] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return found


def test_it_is_a_notebook_without_outputs() -> None:
    """Outputs would hold times of whatever machine ran it last."""
    found = content()
    cells = found["cells"]
    assert isinstance(cells, list)
    assert (found["nbformat"], len({cell["id"] for cell in cells})) == (4, len(cells))
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_the_page_and_the_notebook_start_it_alike() -> None:
    """Its kernel must be the Python that bakeoff is installed for, so that both say how."""
    first = "".join(content()["cells"][0]["source"])  # type: ignore[index]
    page = (NOTEBOOK.parents[2] / "docs" / "bring-your-own.md").read_text(encoding="utf-8")
    (start,) = (block for block in re.findall(r"```bash\n(.*?)```", page, re.DOTALL) if "jupyter" in block)
    assert textwrap.indent(start, "    ") in first
    assert (NOTEBOOK.parents[2] / start.split()[-1]).samefile(NOTEBOOK)


@pytest.mark.timeout(600)
def test_its_cells_run(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUNNER, str(NOTEBOOK), str(FAST)]
    folder = tmp_path / "empty"
    folder.mkdir()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["variants"] == ["small:live.call/eager/fp32@cpu", "small:live.call/torch.export/fp32@cpu"]
    assert set(found["statuses"]) <= {"ok", "unstable"}, "other tests may keep the host busy"
    assert "eager fp32" in found["html"]
    assert "denoiser" in done.stdout
    assert list(folder.iterdir()) == [], "the kernel runs in the notebook's folder, which is the checkout's"
