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


def test_every_component_is_one_engine(table: dict[str, tuple[str, ...]]) -> None:
    whole = {name: row for name, row in table.items() if not name.startswith("example") and "[" not in name}
    assert len(whole) == 10
    for name, (total, convertible, engines, sizes, outside) in whole.items():
        assert (convertible, engines, sizes, outside) == (total, "1", total, "nothing"), name


def test_what_is_left_is_what_was_named(table: dict[str, tuple[str, ...]]) -> None:
    def left(options: str) -> tuple[str, str]:
        (row,) = (row for name, row in table.items() if name.startswith(f"example:all.forward/tensorrt-aot[{options}]"))
        return row[2], row[4]

    assert left("require_full_compilation=false") == ("2", "1 aten.cummax")
    engines, outside = left("external=middle")
    assert (engines, re.sub("_[0-9a-f]{12}$", "", outside)) == ("2", "1 bakeoff.external_middle")


@pytest.mark.skipif(not WHEEL, reason="set TORCH_TENSORRT_WHEEL to a wheel of torch-tensorrt 2.13.0 to partition anew")
@pytest.mark.parametrize("use", ["tensorrt-aot[external=middle]", "tensorrt"])
def test_the_library_partitions_as_the_table_says(use: str, table: dict[str, tuple[str, ...]]) -> None:
    variant = f"example:all.forward/{use}/bf16@cuda"
    ran = subprocess.run([sys.executable, str(TOOL), WHEEL, variant], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert rows(ran.stdout) == {variant: table[variant]}
