"""A sweep on two nodes of one CPU each: what each node measures is stored by the driver, whatever ends in between."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from lab import processes_with, wait_until

from bakeoff.record.schema import Record
from bakeoff.record.store import load_all

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install -e '.[ray]'")
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


TOYS = ("toy:tiny", "toy:small", "--device", "cpu", "--no-final")


def nodes_left(cluster: Cluster, sweep: str = "null_node.py") -> list[int]:
    """Processes that nodes started for orders, and what those started."""
    found = []
    for pid in processes_with(f"{cluster.folder}/"):
        with suppress(OSError):  # it has ended
            found += [pid] if sweep in Path(f"/proc/{pid}/cmdline").read_text() else []
    return found


def sleeping(cluster: Cluster) -> list[int]:
    return nodes_left(cluster, "sleep")


def test_a_cancelled_driver_leaves_nobody_and_its_sweep_is_resumed_where_it_was(cluster: Cluster) -> None:
    process = start(cluster, *TOYS, "--note", "hang", **NULL)
    wait_until(lambda: len(sleeping(cluster)) == 2 and len(records()) == 2, "the first row of both nodes")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    assert "--resume goes on" in err
    wait_until(lambda: not sleeping(cluster) and not nodes_left(cluster), "the end of what the nodes started")
    before = {(entry.variant.preset, entry.node) for entry in records()}
    code, _, err = run(cluster, *TOYS, "--note", "hang", "--resume", **NULL)
    assert code == 0, err
    assert {(entry.variant.preset, entry.node) for entry in records()} == before
    assert sorted(entry.position for entry in records()) == [1, 1, 2, 2]
    assert len({entry.sweep for entry in records()}) == 2
    code, _, err = run(cluster, *TOYS, "--note", "hang", "--resume", **NULL)
    assert (code, "nothing-to-resume" in err) == (2, True)


def test_a_full_disk_of_a_node_is_said(cluster: Cluster) -> None:
    code, _, err = run(cluster, "toy:tiny", "--device", "cpu", "--note", "full", **NULL)
    assert code == 2
    assert "No space left on device" in err
    assert "the same command with --resume goes on [not-writable]" in err
    assert records() == []


def test_a_node_that_claims_a_gpu_is_refused_where_it_has_none(cluster: Cluster) -> None:
    code, _, err = run(cluster, "toy:tiny", "--device", "cuda", **NULL)
    assert (code, "no node of the cluster has a GPU" in err) == (2, True)
    cluster.tell("add gpu-none")
    try:
        code, _, err = run(cluster, "toy:tiny", "--device", "cuda", **NULL)
    finally:
        cluster.tell("kill gpu-none")
    assert code == 2
    assert "gpu-none is refused: " in err
    assert "no node is left for it; refused: gpu-none" in err


def test_a_cluster_that_is_not_there_is_said(cluster: Cluster) -> None:
    code, _, err = run(cluster, "toy", RAY_ADDRESS="127.0.0.1:1")
    assert code == 2
    assert "the cluster at 127.0.0.1:1 cannot be joined" in err
