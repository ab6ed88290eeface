"""Reads a session's profile: the time of each node, and the provider that ran it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bakeoff.backends.onnxruntime.placement import Placement, profiled_integers, sort_nodes
from bakeoff.backends.tracing import TRACED_CALLS, Kernel, Trace


def read_profile(path: Path, provider: str) -> Trace:
    """Read node times and providers from the last TRACED_CALLS calls of a profile, and delete the file.

    Earlier calls are warm-up. `provider` is the requested one: its nodes are inside, all others outside. Only for the
    CPU provider: for a GPU's, a node's time is that of starting its kernels, and a captured graph has no nodes.
    """
    events = _read(path)
    runs = [event for event in events if event.get("name") == "model_run"][-TRACED_CALLS:]
    begin = runs[0]["ts"]
    nodes = [event for event in _nodes(events) if event["ts"] >= begin]
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for event in nodes:
        times[_name(event)] += event["dur"] * 1000
        counts[_name(event)] += 1
    kernels = tuple(
        Kernel(name, counts[name] / len(runs), ns // len(runs), name.endswith(f"({provider})"))
        for name, ns in times.most_common()
    )
    placed = _placement(nodes, provider)
    total_ns = sum(run["dur"] for run in runs) * 1000 // len(runs)
    return Trace(kernels, total_ns, dict(placed.inside), placed.outside)


def read_providers(path: Path, provider: str) -> Placement:
    """Read from all calls of a profile which provider ran each node, and delete the file.

    The calls before a graph is captured are among them; a replay has no nodes.
    """
    return _placement(_nodes(_read(path)), provider)


def _read(path: Path) -> "list[dict[str, Any]]":
    events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    path.unlink(missing_ok=True)
    return events


def _nodes(events: "Sequence[Mapping[str, Any]]") -> "list[Mapping[str, Any]]":
    return [event for event in events if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")]


def _placement(nodes: "Sequence[Mapping[str, Any]]", provider: str) -> Placement:
    """Each node once, however often it ran."""
    once = {_name(event): event["args"] for event in nodes}.values()
    kinds = ((about["op_name"], about["provider"], profiled_integers(about)) for about in once)
    return sort_nodes(kinds, provider)


def _name(event: "Mapping[str, Any]") -> str:
    about = event["args"]
    return f"{about['op_name']} {event['name'].removesuffix('_kernel_time')} ({about['provider']})"
