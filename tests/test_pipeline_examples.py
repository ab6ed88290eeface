"""The examples of docs/your-pipeline.md: written to files unchanged, their loops run with mixes as the page says."""

import re
from pathlib import Path

import pytest
from lab import FAST, Recorder, marked_folder

from bakeoff.machine import paths
from bakeoff.pipeline.plan import make_pipeline_plan
from bakeoff.pipeline.request import PipelineRequest
from bakeoff.pipeline.run import run_pipeline

PAGE = (Path(__file__).parent.parent / "docs" / "your-pipeline.md").read_text(encoding="utf-8")
BLOCKS = {
    block.removeprefix("# ").partition(":")[0]: block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
}
PLAIN = """import torch
from torch import nn

modules = {name: nn.Conv2d(3, 3, 3, padding=1) for name in ("first", "second", "third")}


def play():
    picture = torch.linspace(-1, 1, 768).reshape(1, 3, 16, 16)
    return modules["third"](modules["second"](modules["first"](picture)).relu())
"""


def test_every_block_is_one_that_a_test_here_runs() -> None:
    assert set(BLOCKS) == {"mine.py", "theirs.py"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "mix", "calls"),
    [
        ("mine", "denoiser=torch.export/fp32", {"denoiser.call": 4, "decoder.call": 1}),
        ("theirs", "second=torch.export/fp32", {f"{name}.call": 1 for name in ("first", "second", "third")}),
    ],
)
def test_a_loop_runs_with_mixes(
    name: str,
    mix: str,
    calls: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for file, block in {**BLOCKS, "plain.py": PLAIN}.items():
        (tmp_path / file).write_text(block, encoding="utf-8")
    request = PipelineRequest(f"{name}.py:Loop", mixes=("eager", mix), device="cpu", units=3, threads=1, policy=FAST)
    with marked_folder(tmp_path):
        plan = make_pipeline_plan(request, paths.runs_folder(), Recorder())
        done = run_pipeline(plan, paths.runs_folder(), "", False, Recorder())
    records = [entry.record for entry in done.stored]
    assert [(record.status, record.measurement.reason) for record in records] == [("ok", "")] * 2
    for record in records:
        assert record.calls == calls
        assert record.mix.pipeline == name
        units = record.measurement.units
        assert units is not None
        assert tuple(map(sum, zip(*(line.ns for line in units.lines), strict=True))) == units.wall_ns
        assert record.measurement.parity is not None
        assert {output.name for unit in record.measurement.parity.units for output in unit.outputs} >= {"image"}
