"""A cluster of Ray on this machine: `python ray_nodes.py FOLDER NAME ...` starts a node for each name.

It prints the address. A line `kill NAME` or `add NAME` on stdin is done and answered; the end of stdin ends it. Each
node has one CPU, which its processes are bound to, and caches, locks and a machine's identity of its own. `gpu-NAME`
claims a GPU for Ray that it lacks; `skewed` claims another CPU, and has another version of this project installed.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

import bakeoff
import bakeoff.backends
import bakeoff.export
import bakeoff.models

STORE_BYTES = 80 << 20


def _copy_packages(folder: Path) -> None:
    """Copy the packages of this process into `folder`, in the layout of a wheel."""
    ignored = shutil.ignore_patterns("__pycache__")
    for package in (bakeoff, bakeoff.backends, bakeoff.export, bakeoff.models):
        target = folder / package.__name__.replace(".", "/")
        for source in package.__path__:
            shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)


def main(folder: str, names: list[str]) -> None:
    """Start the nodes, and do what the lines on stdin say."""
    cpus = sorted(os.sched_getaffinity(0))
    head = {"num_cpus": 0, "node_name": "head", "include_dashboard": False, "object_store_memory": STORE_BYTES}
    # a node that died is noticed in a second, not in 15
    os.environ |= {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "2"}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes: dict[str, Any] = {}

    def add(name: str) -> None:
        place = f"{folder}/{name}"
        own = {"CACHE": f"{place}/cache", "RUNS": f"{place}/runs", "LOCKS": f"{place}/locks", "MACHINE": name}
        variables = {f"BAKEOFF_{key}": value for key, value in own.items()}
        if name == "skewed":
            variables["PYTHONPATH"] = place
            _copy_packages(Path(place))
            Path(place, "bakeoff", "__init__.py").write_text('__version__ = "0.0.9"\n')
        os.sched_setaffinity(0, {cpus[len(nodes) % len(cpus)]})
        nodes[name] = cluster.add_node(
            num_cpus=1 + (name == "skewed"),
            num_gpus=int(name.startswith("gpu-")),
            node_name=name,
            env_vars=variables,
            object_store_memory=STORE_BYTES,
        )
        os.sched_setaffinity(0, set(cpus))

    try:
        for name in names:
            add(name)
        print(cluster.address, flush=True)
        for line in sys.stdin:
            what, name = line.split()
            add(name) if what == "add" else cluster.remove_node(nodes.pop(name), allow_graceful=False)
            print("done", flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
