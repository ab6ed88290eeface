"""A task of Ray: starts the process that carries out an order, and yields what that writes.

It is sent by value and imports nothing of this project, so that a node without it, or with another version, answers
with a sentence; and Ray's own process stays idle while the node measures.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import IO

_PAUSE_S = 0.5
"""Between two reads, so that lines come in batches."""
_END_S = 60.0
"""In which a process that is stopped keeps what it has and ends its workers."""
_SHOWN = 600
"""Characters of what a process that failed wrote last."""


def relay(order: bytes, command: Sequence[str], caller: str) -> Iterator[list[bytes]]:
    """Lines of the process in batches, the first one with the node's id and name, the last one with how it ended.

    `caller` is the variable that binds the process to this one's life. Closed or interrupted, it stops the process as
    Ctrl-C does.
    """
    name = node_name()
    yield [json.dumps(["node", *name]).encode()]
    environment = os.environ | {caller: str(os.getpid()), "BAKEOFF_NODE": name[1]}
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            try:
                child.stdin.write(order)
                child.stdin.close()
            except BrokenPipeError:  # it ended, and says why below
                pass
            yield from _batches(child.stdout.fileno())
            last = ended(child, errors)
        finally:
            stop(child)
        yield [last]


def node_name() -> tuple[str, str]:
    """Id and name of the node that this runs on: the name it was started with, else its host's."""
    import ray

    own = ray.get_runtime_context().get_node_id()
    return own, next(name for name, node in named(ray.nodes()).items() if node["NodeID"] == own)


def named(nodes: Sequence[dict]) -> dict[str, dict]:  # type: ignore[type-arg]
    """The nodes that are there by name; where several have one, each with the beginning of its id."""
    nodes = [node for node in nodes if node["Alive"]]
    names = [
        node["NodeName"] if node["NodeName"] != node["NodeManagerAddress"] else node["NodeManagerHostname"]
        for node in nodes
    ]
    return {
        name if names.count(name) == 1 else f"{name}-{node['NodeID'][:6]}": node
        for name, node in zip(names, nodes, strict=True)
    }


def _batches(descriptor: int) -> Iterator[list[bytes]]:
    rest = b""
    while True:
        if not select.select([descriptor], [], [], _PAUSE_S)[0]:
            continue  # Ray's cancelling sets a flag that is looked at between two calls only
        data = os.read(descriptor, 1 << 20)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
        time.sleep(_PAUSE_S)


def ended(child: "subprocess.Popen[bytes]", errors: IO[bytes]) -> bytes:
    """Wait for the process, and return the line that says how it ended; `errors` has its stderr."""
    child.wait()
    errors.seek(0)
    last = errors.read().decode(errors="replace").strip()[-_SHOWN:]
    return json.dumps(["ended", child.returncode, last]).encode()


def stop(child: "subprocess.Popen[bytes]") -> None:
    """Interrupt the process if it still runs, and wait until it has ended; kill it where that takes too long."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(_END_S)
        except subprocess.TimeoutExpired:
            child.kill()  # its guards end its workers
            child.wait()
