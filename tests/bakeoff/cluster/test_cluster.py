"""A sweep on two nodes of one CPU each: what each node measures is stored by the driver, whatever ends in between."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from bakeoff.record.schema import Record
from bakeoff.record.store import load_all

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install 'bakeoff[ray]'")
SUPPORT = Path(__file__).parents[2] / "support"
NULL = {"BAKEOFF_TEST_NODE": str(SUPPORT / "null_node.py")}


@dataclass(frozen=True)
class Cluster:
    address: str
    folder: Path
    process: "subprocess.Popen[str]"

    def tell(self, line: str) -> None:
        """Have it do something, and wait until that is done."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("nodes")
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, str(SUPPORT / "ray_nodes.py"), str(folder), "left", "right"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, (folder / "log").read_text()
        yield Cluster(address, folder, process)
        process.communicate(timeout=60)


def start(cluster: Cluster, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(SUPPORT / "ray_bakeoff.py"), "sweep", *arguments, "--on", "ray"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RAY_ADDRESS": cluster.address, **environment},
    )


def run(cluster: Cluster, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    process = start(cluster, *arguments, **environment)
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def records() -> list[Record]:
    return [entry.record for entry in load_all(Path(os.environ["BAKEOFF_RUNS"])).current]


MINE = """\
import torch
from other import WIDTH

def model():
    return torch.nn.Linear(WIDTH, WIDTH), (torch.randn(2, WIDTH),)
"""


def test_two_nodes_measure_a_component_and_a_model_of_a_user(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "other.py").write_text("WIDTH = 8\n")
    options = ("--backends", "eager", "--dtype", "fp32", "--device", "cpu", "--no-final")
    code, out, err = run(cluster, "toy:tiny.world", f"{tmp_path}/mine.py:model", *options)
    assert code == 0, err
    made = {record.variant.component: record for record in records()}
    assert set(made) == {"toy", "mine"}
    assert {record.node for record in made.values()} == {"left", "right"}
    assert len({record.machine.id for record in made.values()}) == 2
    assert all(record.latency and record.threads == 1 and record.code for record in made.values())
    for record in made.values():
        assert f"on {record.node}" in err
        assert str(record.variant.subject) in out
        other = {"left", "right"} - {record.node}
        assert [*(cluster.folder / record.node / "cache" / "cluster" / record.sweep).glob("*/records/*.json")]
        assert not (cluster.folder / other.pop() / "cache" / "cluster" / record.sweep).exists()
    assert not Path(os.environ["BAKEOFF_CACHE"], "logs").exists(), "the driver measures nothing"
