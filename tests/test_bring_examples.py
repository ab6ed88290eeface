"""The examples of docs/bring-your-own.md: written to files unchanged, they are described and swept as the page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from lab import FAST, Recorder, marked_folder, sweep

from bakeoff.bring.bring import bring
from bakeoff.models.brought.about import read_about
from bakeoff.plan.request import Request

PAGE = (Path(__file__).parent.parent / "docs" / "bring-your-own.md").read_text(encoding="utf-8")
BLOCKS = {
    block.partition("\n")[0].removeprefix("# "): block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
}


def test_every_block_is_one_that_a_test_here_runs() -> None:
    assert set(BLOCKS) == {"mine.py", "cell.py", "live.py"}


@pytest.mark.timeout(300)
def test_the_script_sweeps_a_live_module(tmp_path: Path) -> None:
    fast = Path(__file__).parent / "support" / "fast_bakeoff.py"
    short = "import sys\nfrom bakeoff import live\nlive.COMMAND = (sys.executable, sys.argv[1])\n"
    command = [sys.executable, "-c", short + BLOCKS["live.py"], str(fast)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    for backend in ("eager", "torch.export"):
        line = rf"small:live\.call/{re.escape(backend)}/fp32@cpu (ok|unstable) \d.*"
        assert any(re.fullmatch(line, said) for said in done.stdout.splitlines()), done.stdout
    assert done.stdout.splitlines()[-1].startswith("best: ")


@pytest.mark.parametrize(
    ("reference", "subject"), [("mine.py:model", "mine:py.call"), ("cell.py:cell", "cell.cell:py.call")]
)
def test_a_block_is_swept(reference: str, subject: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, block in BLOCKS.items():
        (tmp_path / name).write_text(block, encoding="utf-8")
    with marked_folder(tmp_path):
        folder = bring(reference, 0, 1, Recorder())
    request = Request(folder, backends=("eager",), dtypes=("fp32",), device="cpu", policy=FAST, threads=1)
    (record,) = sweep(request, tmp_path).records().values()
    assert (record.status, record.variant.subject) == ("ok", subject)
    about = read_about(Path(folder))
    if reference == "cell.py:cell":
        assert about.state == {"present": "past"}
        assert [spec.keep_fp32 for spec in about.sets[0].inputs] == [False, False, True]
