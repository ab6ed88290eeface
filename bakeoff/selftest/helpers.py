"""A backend whose work is done by a process that it starts: CPU time and memory of that belong to the row."""

import os
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING

from bakeoff.backends.backend import BuildContext, Call, Capability, Engine, NoOptions, Outputs
from bakeoff.selftest.faulty import BoundEngine, Inputs, canary

if TYPE_CHECKING:
    from torch import Tensor, nn


def _serve(module: "nn.Module", requests: Connection) -> None:
    """Answer requests until the other end is closed. Runs in a process of its own and does not return."""
    import torch

    try:
        while True:
            tensors = [torch.from_numpy(array) for array in requests.recv()]
            with torch.no_grad():
                requests.send([output.numpy() for output in module(*tensors)])
    finally:
        os._exit(0)


# A forked process computes, and each call sends it the inputs and waits for the outputs. Seen in: inference servers
# behind a client library, pools that work around the interpreter's lock.
def _ask_server(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    ours, theirs = Pipe()
    server = os.fork()
    if server == 0:
        ours.close()
        _serve(module, theirs)
    theirs.close()

    def bind(inputs: Inputs) -> Call:
        return lambda: call(*inputs.values())

    def call(*tensors: "Tensor") -> Outputs:
        import torch

        ours.send([tensor.numpy() for tensor in tensors])
        return tuple(torch.from_numpy(array) for array in ours.recv())

    def close() -> None:
        ours.close()
        os.waitpid(server, 0)

    return BoundEngine(bind, closer=close)


SERVER = canary("server", "has another process compute", _ask_server, capability=Capability(devices=("cpu",)))
