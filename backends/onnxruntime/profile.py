"""Reads a session's profile: the time of each node, and the provider that ran it."""

import json
from collections import Counter
from pathlib import Path

from bakeoff.backends.tracing import TRACED_CALLS, Kernel, Trace


def read_profile(path: Path, provider: str) -> Trace:
    """Read node times and providers from the last TRACED_CALLS calls of a profile, and delete the file.

    Earlier calls are warm-up. `provider` is the requested one: its nodes are inside, all others outside.
    """
    events = json.loads(path.read_text(encoding="utf-8"))
    path.unlink(missing_ok=True)
    runs = [event for event in events if event.get("name") == "model_run"][-TRACED_CALLS:]
    begin = runs[0]["ts"]
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    outside: Counter[str] = Counter()
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time") and event["ts"] >= begin:
            about = event["args"]
            name = f"{about['op_name']} {event['name'].removesuffix('_kernel_time')} ({about['provider']})"
            times[name] += event["dur"] * 1000
            counts[name] += 1
            if counts[name] == 1:
                (inside if about["provider"] == provider else outside)[about["op_name"]] += 1
    kernels = tuple(
        Kernel(name, counts[name] / len(runs), ns // len(runs), name.endswith(f"({provider})"))
        for name, ns in times.most_common()
    )
    return Trace(kernels, sum(run["dur"] for run in runs) * 1000 // len(runs), dict(inside), dict(outside))
