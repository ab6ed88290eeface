"""The examples of docs/add-a-backend.md and docs/add-a-component.md are complete.

Written to files unchanged, they sweep a new component on a new backend.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PAGES = ("add-a-backend.md", "add-a-component.md")


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """The pages' python blocks as files, each named by its first line."""
    for block in re.findall(
        r"```python\n(.*?)```", "".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES), re.DOTALL
    ):
        name = block.partition("\n")[0].removeprefix("# ").strip()
        path = tmp_path / "mine" / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block)
    return tmp_path / "mine" / "code"


def test_examples_are_a_component_and_a_backend(examples: Path) -> None:
    assert {str(path.relative_to(examples)) for path in examples.rglob("*.py")} == {
        "aot_eager.py",
        "mine/spec.py",
        "mine/network.py",
    }


def test_examples_run_as_typed(examples: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "BAKEOFF_RUNS": str(tmp_path / "runs"), "BAKEOFF_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-P", "-m", "bakeoff", "sweep", "mine.spec:SPEC"]
    done = subprocess.run(
        [*command, "--backends", "eager,aot_eager:BACKEND", "--device", "cpu", "--dtype", "fp32", "--json"],
        cwd=examples,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    records = [
        json.loads(next((tmp_path / "runs").glob(f"*/records/{name}.json")).read_bytes())
        for name in json.loads(done.stdout)["records"]
    ]
    found = {record["variant"]["backends"][0]["name"]: record["measurement"] for record in records}
    assert list(found) == ["eager", "aot-eager"]
    for measurement in found.values():
        # other tests run beside this one, so the host may be too busy for a ranked row
        assert measurement["status"] in ("ok", "unstable"), measurement["reason"]
        assert all(output["passed"] for output in measurement["parity"]["outputs"])
    assert found["aot-eager"]["proof"]["graphs"] == 1
