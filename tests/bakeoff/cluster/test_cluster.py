"""A sweep on two nodes of one CPU each: what each node measures is stored by the driver, whatever ends in between."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
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


TOYS = ("toy:tiny", "toy:small", "--device", "cpu", "--no-final")
OF_ORDERS = ("bakeoff.cluster.node", "null_node.py", "guard.py", "bakeoff.worker", "sleep")
END_S = 10.0
"""In which nodes end what they started for a driver that is gone."""


def measuring(cluster: Cluster, *words: str) -> list[int]:
    """Processes that nodes started for orders, and what those started, with one of the words in their command."""
    found = []
    for pid in processes_with(f"{cluster.folder}/"):
        with suppress(OSError):  # it has ended
            command = Path(f"/proc/{pid}/cmdline").read_text()
            found += [pid] if any(word in command for word in words or OF_ORDERS) else []
    return found


def sleeping(cluster: Cluster) -> list[int]:
    return measuring(cluster, "sleep")


MINE = """\
import time
from pathlib import Path

import torch
from other import WIDTH

def model():
    while Path("{held}").exists():
        time.sleep(0.1)
    return torch.nn.Linear(WIDTH, WIDTH), (torch.randn(2, WIDTH),)
"""


def test_a_killed_driver_leaves_nobody_and_two_nodes_measure_the_rest(cluster: Cluster, tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    (tmp_path / "mine.py").write_text(MINE.format(held=held))
    (tmp_path / "other.py").write_text("WIDTH = 8\n")
    options = ("--backends", "eager", "--dtype", "fp32", "--device", "cpu", "--no-final")
    arguments = ("toy:tiny.world", f"{tmp_path}/mine.py:model", *options)
    process = start(cluster, *arguments)
    wait_until(
        lambda: measuring(cluster, "bakeoff.worker") and records(), "a row of one node, and a worker of the other"
    )
    process.kill()
    process.communicate()
    wait_until(lambda: not measuring(cluster), "the end of what the nodes started", END_S)
    (first,) = records()
    held.unlink()
    code, out, err = run(cluster, *arguments, "--resume")
    assert code == 0, err
    assert first in records()
    made = {record.variant.component: record for record in records()}
    assert set(made) == {"toy", "mine"}
    assert {record.node for record in made.values()} == {"left", "right"}
    assert len({record.machine.id for record in made.values()}) == 2
    assert all(record.latency and record.threads == 1 and record.code for record in made.values())
    assert all("driver_cpu_s" in record.measurement.device_state for record in made.values())
    for record in made.values():
        assert record == first or f"on {record.node}" in err
        assert str(record.variant.subject) in out
        other = {"left", "right"} - {record.node}
        assert [*(cluster.folder / record.node / "cache" / "cluster" / record.sweep).glob("*/records/*.json")]
        assert not (cluster.folder / other.pop() / "cache" / "cluster" / record.sweep).exists()
    assert not Path(os.environ["BAKEOFF_CACHE"], "logs").exists(), "the driver measures nothing"


def test_a_node_that_dies_costs_only_what_it_had_not_finished(cluster: Cluster) -> None:
    process = start(cluster, *TOYS, "--note", "hang", **NULL)
    wait_until(lambda: len(sleeping(cluster)) == 2 and len(records()) == 2, "the first row of both nodes")
    cluster.tell("kill right")
    wait_until(lambda: len(sleeping(cluster)) == 1, "the end of what the dead node started", END_S)
    cluster.tell("add right")
    wait_until(lambda: len(records()) == 3, "the next row, on the new node")
    code, out, err = end_sleeping(cluster, process)
    assert code == 0, err
    assert "aylet" not in out, "Ray's log of the node"
    assert "right died; what it had not finished goes to another node" in err
    assert {(entry.node, entry.position) for entry in records()} == {
        ("left", 1),
        ("left", 2),
        ("right", 1),
        ("right", 2),
    }


def test_a_node_with_another_version_is_refused(cluster: Cluster) -> None:
    cluster.tell("add skewed")
    with ExitStack() as ends:
        ends.callback(cluster.tell, "kill skewed")
        process = start(cluster, "toy:tiny.world", *TOYS, "--note", "hang", **NULL)
        ends.callback(process.kill)  # a driver that goes on would keep the nodes from later tests
        assert process.stderr is not None
        said = next(line for line in process.stderr if "refused" in line)
        code, _, err = end_sleeping(cluster, process)
        assert code == 0, err
        assert said.startswith("skewed is refused: bakeoff 0.0.9 (the driver has "), said
        assert {entry.node for entry in records()} == {"left", "right"}


def end_sleeping(cluster: Cluster, process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Let the nodes' processes go on until the driver has ended; return its exit code, stdout and stderr."""
    while process.poll() is None:
        for pid in sleeping(cluster):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    return process.returncode, *process.communicate()


def test_a_node_that_claims_a_gpu_is_refused_where_it_has_none(cluster: Cluster) -> None:
    code, _, err = run(cluster, "toy:tiny", "--device", "cuda", **NULL)
    assert code == 2
    assert err.startswith("bakeoff: --device cuda: no node of the cluster has a GPU"), err
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
