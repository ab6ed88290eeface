"""torch_tensorrt's own partitioner on the components' graphs, without a GPU: tools/partition-counts and its output."""

import os
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "partition-counts"
TABLE = ROOT / "tests" / "golden" / "partition_counts.md"
WHEEL = os.environ.get("TORCH_TENSORRT_WHEEL", "")
ROW = re.compile(r"\| `(\S+)` \| (\d+) \| (\d+) \| (\d+) \(([\d +]*)\) \| (.+) \|")


def rows(text: str) -> dict[str, tuple[str, ...]]:
    """Variant to operators, convertible ones, engines, operators of each, and what PyTorch runs."""
    found = [ROW.fullmatch(line) for line in text.splitlines() if line.startswith("| `")]
    assert None not in found
    return {match[1]: match.groups()[1:] for match in found if match}


def load_tool() -> Any:
    loader = SourceFileLoader("partition_counts", str(TOOL))
    module: Any = module_from_spec(spec_from_loader("partition_counts", loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table() -> dict[str, tuple[str, ...]]:
    return rows(TABLE.read_text(encoding="utf-8"))


def test_the_table_has_the_tools_graphs(table: dict[str, tuple[str, ...]]) -> None:
    assert tuple(table) == load_tool().GRAPHS
    assert {name.partition(":")[0] for name in table} == {"wm", "image", "audio", "matrix-vae", "example"}


@pytest.mark.skipif(not WHEEL, reason="set TORCH_TENSORRT_WHEEL to a wheel of torch-tensorrt 2.13.0 to partition anew")
@pytest.mark.parametrize("use", ["tensorrt-aot[external=middle]", "tensorrt"])
def test_the_library_partitions_as_the_table_says(use: str, table: dict[str, tuple[str, ...]]) -> None:
    variant = f"example:all.forward/{use}/bf16@cuda"
    ran = subprocess.run([sys.executable, str(TOOL), WHEEL, variant], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert rows(ran.stdout) == {variant: table[variant]}
