"""The notebook of examples/notebook: its cells run in their order, in one namespace, with short clocks."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the notebook makes a module")

NOTEBOOK = Path(__file__).parent.parent / "examples" / "notebook" / "bakeoff.ipynb"
FAST = Path(__file__).parent / "support" / "fast_bakeoff.py"
RUNNER = """
import json, sys
from pathlib import Path
from bakeoff.bring import child
child.COMMAND = (sys.executable, sys.argv[2])
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


def test_its_links_lead_to_pages() -> None:
    targets = re.findall(r"\]\(([^)]+)\)", NOTEBOOK.read_text(encoding="utf-8"))
    assert targets
    assert [target for target in targets if not (NOTEBOOK.parent / target).is_file()] == []


@pytest.mark.timeout(600)
def test_its_cells_run(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUNNER, str(NOTEBOOK), str(FAST)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["variants"] == ["small:live.call/eager/fp32@cpu", "small:live.call/torch.export/fp32@cpu"]
    assert set(found["statuses"]) <= {"ok", "unstable"}, "other tests may keep the host busy"
    assert "eager fp32" in found["html"]
    assert "denoiser" in done.stdout
